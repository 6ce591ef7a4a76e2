use std::fmt::{self, Display};

use crate::{Element, Error};

/// How the contributions of several ranks become one value.
///
/// Integers wrap on overflow. A NaN in any float contribution makes the result NaN, for
/// [`Min`](ReduceOp::Min) and [`Max`](ReduceOp::Max) too.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
#[repr(u8)]
pub enum ReduceOp {
    /// Addition.
    Sum = 1,
    /// Multiplication.
    Product = 2,
    /// The smallest contribution.
    Min = 3,
    /// The largest contribution.
    Max = 4,
}

impl ReduceOp {
    /// Every op, in the order of its wire code.
    pub const ALL: [Self; 4] = [Self::Sum, Self::Product, Self::Min, Self::Max];

    /// The code that stands for this op on the wire; inverse of [`ReduceOp::from_code`].
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The op with this wire code, `None` for a code of no op; inverse of [`ReduceOp::code`].
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|op| op.code() == code)
    }
}

impl Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sum => "sum",
            Self::Product => "product",
            Self::Min => "min",
            Self::Max => "max",
        })
    }
}

/// Replaces each `into[i]` by `op(into[i], from[i])`.
///
/// # Shapes
/// `into` and `from` hold the same number of elements.
///
/// # Errors
/// [`Error::LengthMismatch`] when they do not; `into` is then unchanged.
pub fn reduce_slice<T: Element>(op: ReduceOp, into: &mut [T], from: &[T]) -> Result<(), Error> {
    if into.len() != from.len() {
        return Err(Error::LengthMismatch {
            left: into.len(),
            right: from.len(),
        });
    }
    T::reduce(op, into, from);
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn codes_and_ops_are_inverse_and_other_codes_are_refused() {
        for code in 0..=u8::MAX {
            let op = ReduceOp::from_code(code);
            assert_eq!(op.map(ReduceOp::code), op.is_some().then_some(code));
        }
        assert_eq!(
            (0..=u8::MAX).filter_map(ReduceOp::from_code).count(),
            ReduceOp::ALL.len()
        );
    }

    #[test]
    fn unequal_lengths_are_refused_and_nothing_is_written() {
        let mut into = [1_i32, 2];
        let refused = reduce_slice(ReduceOp::Sum, &mut into, &[1]);
        assert_eq!(refused, Err(Error::LengthMismatch { left: 2, right: 1 }));
        assert_eq!(into, [1, 2]);
    }

    #[test]
    fn integers_wrap() {
        let mut into = [u8::MAX, 200];
        reduce_slice(ReduceOp::Sum, &mut into, &[1, 100]).unwrap();
        assert_eq!(into, [0, 44]);
        reduce_slice(ReduceOp::Product, &mut into, &[3, 8]).unwrap();
        assert_eq!(into, [0, 96]);
    }

    #[test]
    fn a_nan_on_either_side_survives_every_op() {
        for op in ReduceOp::ALL {
            let mut into = [f32::NAN, 1.0];
            reduce_slice(op, &mut into, &[1.0, f32::NAN]).unwrap();
            assert!(into.iter().all(|x| x.is_nan()), "{op}: {into:?}");
        }
    }

    proptest! {
        #[test]
        fn matches_the_definition_element_by_element(pairs in proptest::collection::vec((any::<i64>(), any::<i64>()), 0..70)) {
            let (a, b): (Vec<i64>, Vec<i64>) = pairs.iter().copied().unzip();
            for op in ReduceOp::ALL {
                let mut got = a.clone();
                reduce_slice(op, &mut got, &b).unwrap();
                for (i, (x, y)) in pairs.iter().enumerate() {
                    let (x, y) = (i128::from(*x), i128::from(*y));
                    let want = match op {
                        ReduceOp::Sum => x + y,
                        ReduceOp::Product => x * y,
                        ReduceOp::Min => if x < y { x } else { y },
                        ReduceOp::Max => if x > y { x } else { y },
                    };
                    prop_assert_eq!(i128::from(got[i]).rem_euclid(1 << 64), want.rem_euclid(1 << 64));
                }
            }
        }
    }
}

//! What elements can do, beyond being moved and reduced.

use meshwork_accel::{Element, bf16, f16, nearest_bf16, nearest_f16};
use meshwork_accel_cpu::Factor;
use meshwork_layout::PartialReduction;
use ndarray::{Array2, ArrayView2};

/// An element of a tensor: every type that [`Element`] is.
pub trait Scalar: Element {
    /// The term that leaves any other as it is.
    #[must_use]
    fn neutral(reduction: PartialReduction) -> Self;

    /// The nearest number, for truth values 1 and 0.
    #[must_use]
    fn to_f64(self) -> f64;

    /// The nearest element: whole types round towards zero and stop at their ends; a truth value
    /// is whether the number is not 0.
    #[must_use]
    fn from_f64(value: f64) -> Self;

    /// The index that a whole number is; none for one that is negative, or no whole number.
    #[must_use]
    fn to_index(self) -> Option<usize> {
        let value = self.to_f64();
        let is_index = (0.0..EXACT).contains(&value) && value.fract() == 0.0;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a whole number below 2⁵³"
        )]
        is_index.then_some(value as usize)
    }

    /// The element for an index or a count.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        reason = "counts of elements are far below 2⁵³"
    )]
    fn from_index(index: usize) -> Self {
        Self::from_f64(index as f64)
    }
}

/// A number: whole numbers wrap around, floating ones round.
pub trait Number: Scalar + PartialOrd {
    /// Addition.
    #[must_use]
    fn plus(self, other: Self) -> Self;
    /// Subtraction.
    #[must_use]
    fn minus(self, other: Self) -> Self;
    /// Multiplication.
    #[must_use]
    fn times(self, other: Self) -> Self;
    /// Division; of whole numbers towards zero, and 0 where the divisor is 0.
    #[must_use]
    fn over(self, other: Self) -> Self;

    /// The product of two matrices.
    ///
    /// # Shapes
    /// `[m, k]` and `[k, n]` give `[m, n]`.
    ///
    /// # Panics
    /// When sizes do not fit.
    #[must_use]
    fn product(a: ArrayView2<'_, Self>, b: ArrayView2<'_, Self>) -> Array2<Self> {
        Array2::from_shape_fn((a.nrows(), b.ncols()), |(row, column)| {
            let pairs = a.row(row).into_iter().zip(b.column(column));
            pairs.fold(Self::default(), |sum, (a, b)| sum.plus(a.times(*b)))
        })
    }
}

/// A floating-point number.
pub trait Float: Number {
    /// The exponential.
    #[must_use]
    fn exp(self) -> Self {
        Self::from_f64(self.to_f64().exp())
    }

    /// The natural logarithm.
    #[must_use]
    fn ln(self) -> Self {
        Self::from_f64(self.to_f64().ln())
    }
}

impl Float for f16 {}
impl Float for bf16 {}

impl Float for f32 {
    fn exp(self) -> Self {
        Self::exp(self)
    }

    fn ln(self) -> Self {
        Self::ln(self)
    }
}

impl Float for f64 {}

impl Scalar for bool {
    fn neutral(reduction: PartialReduction) -> Self {
        matches!(reduction, PartialReduction::Min | PartialReduction::Product)
    }

    fn to_f64(self) -> f64 {
        f64::from(u8::from(self))
    }

    fn from_f64(value: f64) -> Self {
        value != 0.0
    }
}

macro_rules! whole {
    ($($number:ty),+) => {$(
        impl Scalar for $number {
            fn neutral(reduction: PartialReduction) -> Self {
                match reduction {
                    PartialReduction::Product => 1,
                    PartialReduction::Min => Self::MAX,
                    PartialReduction::Max => Self::MIN,
                    PartialReduction::Sum => 0,
                }
            }

            #[allow(
                clippy::cast_precision_loss,
                clippy::cast_lossless,
                reason = "some types are wider than 53 bits"
            )]
            fn to_f64(self) -> f64 {
                self as f64
            }

            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "that it stops at the ends is said"
            )]
            fn from_f64(value: f64) -> Self {
                value as Self
            }

            fn to_index(self) -> Option<usize> {
                usize::try_from(self).ok()
            }
        }

        impl Number for $number {
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            fn minus(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }

            fn times(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }

            fn over(self, other: Self) -> Self {
                match other {
                    0 => 0,
                    other => self.wrapping_div(other),
                }
            }
        }
    )+};
}

whole!(i8, i16, i32, i64, u8, u16, u32, u64);

macro_rules! floating {
    ($($number:ty, $to:expr, $from:expr, { $($product:tt)* };)+) => {$(
        impl Scalar for $number {
            fn neutral(reduction: PartialReduction) -> Self {
                Self::from_f64(match reduction {
                    PartialReduction::Product => 1.0,
                    PartialReduction::Min => f64::INFINITY,
                    PartialReduction::Max => f64::NEG_INFINITY,
                    // 0.0 would make 0.0 of -0.0.
                    PartialReduction::Sum => -0.0,
                })
            }

            fn to_f64(self) -> f64 {
                $to(self)
            }

            fn from_f64(value: f64) -> Self {
                $from(value)
            }
        }

        impl Number for $number {
            fn plus(self, other: Self) -> Self {
                self + other
            }

            fn minus(self, other: Self) -> Self {
                self - other
            }

            fn times(self, other: Self) -> Self {
                self * other
            }

            fn over(self, other: Self) -> Self {
                self / other
            }

            $($product)*
        }
    )+};
}

#[expect(clippy::cast_possible_truncation, reason = "rounds to the nearest")]
fn narrow(value: f64) -> f32 {
    value as f32
}

floating!(
    f16, f16::to_f64, nearest_f16, {
        fn product(a: ArrayView2<'_, Self>, b: ArrayView2<'_, Self>) -> Array2<Self> {
            multiplied_wider(a, b)
        }
    };
    bf16, bf16::to_f64, nearest_bf16, {
        fn product(a: ArrayView2<'_, Self>, b: ArrayView2<'_, Self>) -> Array2<Self> {
            multiplied_wider(a, b)
        }
    };
    f32, f64::from, narrow, {
        fn product(a: ArrayView2<'_, Self>, b: ArrayView2<'_, Self>) -> Array2<Self> {
            multiplied(a, b)
        }
    };
    f64, std::convert::identity, std::convert::identity, {
        fn product(a: ArrayView2<'_, Self>, b: ArrayView2<'_, Self>) -> Array2<Self> {
            multiplied(a, b)
        }
    };
);

/// The product of matrices whose sizes fit.
fn multiplied<T: Factor>(a: ArrayView2<'_, T>, b: ArrayView2<'_, T>) -> Array2<T> {
    let mut product = Array2::default((a.nrows(), b.ncols()));
    let fits = meshwork_accel_cpu::product(a, b, product.view_mut());
    assert!(
        fits.is_ok(),
        "products are checked for their sizes when they are planned"
    );
    product
}

/// The same of 16-bit floats, which are summed in 32 bits and rounded once.
fn multiplied_wider<T: Scalar>(a: ArrayView2<'_, T>, b: ArrayView2<'_, T>) -> Array2<T> {
    let [a, b] = [a, b].map(|matrix| matrix.mapv(|value| narrow(value.to_f64())));
    multiplied(a.view(), b.view()).mapv(|sum| T::from_f64(sum.into()))
}

/// 2⁵³: below it, `f64` represents all integers exactly.
const EXACT: f64 = 9_007_199_254_740_992.0;

#[cfg(test)]
mod tests {
    use meshwork_core::CreateMesh;
    use meshwork_layout::Layout;

    use super::*;
    use crate::testing::clients;

    #[test]
    fn neutral_terms_change_nothing() {
        fn check<T: Number>(values: [T; 3]) {
            for value in values {
                assert_eq!(value.plus(T::neutral(PartialReduction::Sum)), value);
                assert_eq!(value.times(T::neutral(PartialReduction::Product)), value);
                assert!(T::neutral(PartialReduction::Min) >= value);
                assert!(T::neutral(PartialReduction::Max) <= value);
            }
        }
        check([i8::MIN, 0, i8::MAX]);
        check([u64::MIN, 7, u64::MAX]);
        check([f32::MIN, -0.5, f32::MAX]);
        check([bf16::MIN, bf16::ONE, bf16::MAX]);
        assert!(!bool::neutral(PartialReduction::Max) && bool::neutral(PartialReduction::Min));
    }

    #[test]
    fn a_negative_zero_is_the_same_after_it_was_a_term() {
        fn check<T: Float>(zero: T) {
            clients(1, 2, |context| {
                let mesh = context.create_distributed_mesh(CreateMesh::new().dims([("x", 2)]));
                let whole = Layout::replicated(&mesh.unwrap(), 1);
                let terms = whole.clone();
                let terms = terms.with_partial(["x"], PartialReduction::Sum).unwrap();
                let tensor = context.full(&[3], &whole, zero).unwrap();
                let moved = tensor.relayout(&terms).unwrap();
                let made = context.full(&[3], &terms, zero).unwrap();
                for terms in [moved, made] {
                    let back = terms.relayout(&whole).unwrap().to_host().unwrap();
                    assert!(back.iter().all(|zero| zero.to_f64().is_sign_negative()));
                }
            });
        }
        check(-0.0_f32);
        check(-0.0_f64);
        check(f16::NEG_ZERO);
        check(bf16::NEG_ZERO);
    }

    #[test]
    fn whole_numbers_wrap_and_divide_towards_zero() {
        assert_eq!(i8::MAX.plus(1), i8::MIN);
        assert_eq!((-7_i32).over(2), -3);
        assert_eq!(7_u8.over(0), 0);
        assert_eq!(i32::MIN.over(-1), i32::MIN);
    }

    #[test]
    fn indices_are_whole_and_not_negative() {
        assert_eq!((-1_i32).to_index(), None);
        assert_eq!(u64::from(u32::MAX).to_index(), Some(u32::MAX as usize));
        assert_eq!(2.0_f32.to_index(), Some(2));
        assert_eq!(2.5_f32.to_index(), None);
        assert_eq!(f64::NAN.to_index(), None);
    }

    #[test]
    fn products_of_matrices_are_the_same_for_every_type() {
        fn check<T: Number>() {
            let a = Array2::from_shape_fn((2, 3), |(i, j)| T::from_index(i + 2 * j));
            let b = Array2::from_shape_fn((3, 2), |(i, j)| T::from_index(3 * i + j));
            let product: Vec<f64> = T::product(a.view(), b.view())
                .iter()
                .map(|x| x.to_f64())
                .collect();
            assert_eq!(product, [30.0, 36.0, 39.0, 48.0]);
        }
        check::<i32>();
        check::<f32>();
        check::<f64>();
        check::<f16>();
    }

    #[test]
    fn products_of_short_floats_are_summed_in_32_bits() {
        fn check<T: Number>(terms: usize) {
            let ones = Array2::from_elem((1, terms), T::from_f64(1.0));
            let sum = T::product(ones.view(), ones.t());
            assert_eq!(sum[[0, 0]].to_f64(), terms as f64);
        }
        // From these numbers on, a sum of as many bits does not grow by 1 any more.
        check::<f16>(2 * 2048);
        check::<bf16>(2 * 256);
    }
}

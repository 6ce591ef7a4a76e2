//! Reduce ops and their exact meaning on host slices: which element types have which op, wire
//! codes, rounding, NaN, and the balanced tree that fixes the order of summation bit for bit. Every
//! backend has to match this module; the vectorizable loops are in `kernel`.

use std::fmt::{self, Display};
use std::num::NonZeroU32;

use crate::kernel::Loops;
use crate::{Element, ElementType, Error};

/// A reduce op: how the contributions of several ranks become one value.
///
/// | elements | ops |
/// |---|---|
/// | `bool` | min, max, and, or, xor; false is smaller than true |
/// | integers | all |
/// | floats | sum, product, min, max, mean |
///
/// A sum of truth values could be a count, an or or a parity, so the caller says which.
///
/// Every op commutes to the last bit. Integers wrap on overflow. A NaN in any contribution makes
/// the result NaN, for [`Min`](Self::Min) and [`Max`](Self::Max) too, and all NaN that come out
/// have the same bits; −0 is smaller than +0. 16-bit floats are computed in `f32` and rounded to
/// the nearest, ties to even, once per call.
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
    /// The sum, divided by the number of contributions; of integers, the quotient is truncated, and
    /// a sum that wraps is not the mean. Of 16-bit floats that meet [all at
    /// once](Reduction::complete) the sum is divided before it is rounded, so it may be beyond what
    /// they can be; a sum that is rounded on its way to others is infinite then, and so is the
    /// mean.
    Mean = 5,
    /// The bits that all contributions have.
    And = 6,
    /// The bits that any contribution has.
    Or = 7,
    /// The bits that an odd number of contributions has.
    Xor = 8,
}

impl ReduceOp {
    /// Every op, in the order of its wire code.
    pub const ALL: [Self; 8] = [
        Self::Sum,
        Self::Product,
        Self::Min,
        Self::Max,
        Self::Mean,
        Self::And,
        Self::Or,
        Self::Xor,
    ];

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

    /// Whether this op is defined for elements of this type; [`Reduction::new`] refuses it
    /// otherwise.
    ///
    /// ```
    /// use meshwork_accel::{ElementType, ReduceOp};
    ///
    /// assert!(ReduceOp::Mean.supports(ElementType::I32));
    /// assert!(!ReduceOp::Xor.supports(ElementType::F32));
    /// ```
    #[must_use]
    pub const fn supports(self, element: ElementType) -> bool {
        match element {
            ElementType::Bool => !matches!(self, Self::Sum | Self::Product | Self::Mean),
            _ if element.is_float() => !matches!(self, Self::And | Self::Or | Self::Xor),
            _ => true,
        }
    }

    /// Whether the result depends on the order in which contributions are combined: sums and
    /// products of floats do, and what is rounded otherwise.
    #[must_use]
    pub const fn depends_on_order(self, element: ElementType) -> bool {
        let rounds = matches!(self, Self::Sum | Self::Product | Self::Mean);
        rounds && element.is_float()
    }
}

impl Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sum => "sum",
            Self::Product => "product",
            Self::Min => "min",
            Self::Max => "max",
            Self::Mean => "mean",
            Self::And => "and",
            Self::Or => "or",
            Self::Xor => "xor",
        })
    }
}

/// A reduce op checked against an element type that has it, so that its methods are always defined.
///
/// Where all contributions are available at once, [`complete`](Self::complete) computes the result.
/// Otherwise a reduction has two steps. Contributions are combined, two at a time by
/// [`reduce`](Self::reduce) or many at once by [`fold`](Self::fold), in as many calls as it takes;
/// when all are in, [`finish`](Self::finish) makes a mean of the sum.
///
/// ```
/// use meshwork_accel::{ReduceOp, Reduction};
/// use std::num::NonZeroU32;
///
/// let mean = Reduction::<f32>::new(ReduceOp::Mean)?;
/// let mut into = [0.0; 2];
/// let contributions = [[1.0, 2.0], [3.0, 4.0], [5.0, 9.0]];
/// mean.complete(&mut into, &contributions.each_ref().map(|one| one.as_slice()))?;
/// assert_eq!(into, [3.0, 5.0]);
///
/// mean.fold(&mut into, &[&contributions[0], &contributions[1]])?;
/// mean.reduce(&mut into, &contributions[2])?;
/// mean.finish(&mut into, NonZeroU32::new(3).expect("not zero"));
/// assert_eq!(into, [3.0, 5.0]);
/// # Ok::<(), meshwork_accel::Error>(())
/// ```
#[derive(Debug)]
pub struct Reduction<T> {
    op: ReduceOp,
    loops: Loops<T>,
}

impl<T: Element> Reduction<T> {
    /// The reduction of elements `T` by `op`.
    ///
    /// # Errors
    /// [`Error::UnsupportedOp`] where [`ReduceOp::supports`] says no.
    pub fn new(op: ReduceOp) -> Result<Self, Error> {
        let element = T::TYPE;
        let loops = T::loops(op).ok_or(Error::UnsupportedOp { op, element })?;
        Ok(Self { op, loops })
    }

    /// The op.
    #[must_use]
    pub fn op(&self) -> ReduceOp {
        self.op
    }

    /// Replaces each `into[i]` by `op(into[i], from[i])`.
    ///
    /// # Shapes
    /// `into` and `from` hold the same number of elements.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] when they do not; `into` is then unchanged.
    pub fn reduce(&self, into: &mut [T], from: &[T]) -> Result<(), Error> {
        equally_long(into, from)?;
        (self.loops.reduce)(into, from);
        Ok(())
    }

    /// Replaces each `into[i]` by the op of all `sources[_][i]`.
    ///
    /// The order is the [balanced tree](balanced_split) over the places of the sources, and does
    /// not depend on how the elements are cut into calls. 16-bit floats are rounded once, at the
    /// end; the result for two sources is that of [`reduce`](Self::reduce).
    ///
    /// # Shapes
    /// `into` and each source hold the same number of elements.
    ///
    /// # Errors
    /// [`Error::NoSources`], [`Error::LengthMismatch`]; `into` is then unchanged.
    pub fn fold(&self, into: &mut [T], sources: &[&[T]]) -> Result<(), Error> {
        self.check(into, sources)?;
        (self.loops.fold)(into, sources);
        Ok(())
    }

    /// Replaces each `into[i]` by the result of all `contributions[_][i]`: [`fold`](Self::fold) and
    /// [`finish`](Self::finish) in one, rounded once, so a mean of 16-bit floats is divided before.
    ///
    /// # Shapes
    /// Those of [`fold`](Self::fold).
    ///
    /// # Errors
    /// Those of [`fold`](Self::fold).
    ///
    /// # Panics
    /// For 2³² contributions and more.
    pub fn complete(&self, into: &mut [T], contributions: &[&[T]]) -> Result<(), Error> {
        let number = self.check(into, contributions)?;
        (self.loops.complete)(into, contributions, number);
        Ok(())
    }

    /// The same of two contributions, of which the result replaces the first.
    ///
    /// # Shapes
    /// Those of [`reduce`](Self::reduce).
    ///
    /// # Errors
    /// Those of [`reduce`](Self::reduce).
    pub fn complete_pair(&self, into: &mut [T], from: &[T]) -> Result<(), Error> {
        equally_long(into, from)?;
        (self.loops.complete_pair)(into, from);
        Ok(())
    }

    /// Checks that all sources are as long as `into`, and returns their number.
    fn check(&self, into: &[T], sources: &[&[T]]) -> Result<NonZeroU32, Error> {
        for source in sources {
            equally_long(into, source)?;
        }
        let number = u32::try_from(sources.len()).expect("nobody has 2^32 contributions at hand");
        NonZeroU32::new(number).ok_or(Error::NoSources { op: self.op })
    }

    /// Makes the combined values of `contributions` final: divides a mean, leaves other ops.
    pub fn finish(&self, values: &mut [T], contributions: NonZeroU32) {
        if self.op == ReduceOp::Mean {
            T::divide(values, contributions);
        }
    }
}

impl<T> Clone for Reduction<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Reduction<T> {}

/// Where the balanced tree over `places` places splits: the number on the left, which is at least
/// half and a power of two. `None` for a leaf, that is fewer than two places.
///
/// Of 6 places: `((0 1)(2 3)) (4 5)`. A binomial tree and a recursive doubling combine ranks in the
/// same way, so that algorithms of both kinds can agree on every bit.
///
/// ```
/// use meshwork_accel::balanced_split;
/// assert_eq!([1, 2, 3, 4, 5, 8].map(balanced_split), [None, Some(1), Some(2), Some(2), Some(4), Some(4)]);
/// ```
#[must_use]
pub const fn balanced_split(places: usize) -> Option<usize> {
    match places {
        0 | 1 => None,
        _ => Some(1 << (places - 1).ilog2()),
    }
}

/// Replaces each `into[i]` by `op(into[i], from[i])`: [`Reduction::reduce`] for a single call.
///
/// # Shapes
/// `into` and `from` hold the same number of elements.
///
/// # Errors
/// [`Error::UnsupportedOp`], [`Error::LengthMismatch`]; `into` is then unchanged.
pub fn reduce_slice<T: Element>(op: ReduceOp, into: &mut [T], from: &[T]) -> Result<(), Error> {
    Reduction::new(op)?.reduce(into, from)
}

fn equally_long<T>(into: &[T], from: &[T]) -> Result<(), Error> {
    let (left, right) = (into.len(), from.len());
    if left == right {
        return Ok(());
    }
    Err(Error::LengthMismatch { left, right })
}

#[cfg(test)]
mod tests;

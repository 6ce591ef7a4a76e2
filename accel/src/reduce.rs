//! Reduce ops and their exact meaning on host slices: which element types have which op, wire
//! codes, rounding, NaN, and the balanced tree that fixes the order of summation bit for bit. Every
//! backend has to match this module; the vectorizable loops are in `kernel`.

use std::num::NonZeroU32;

use crate::kernel::{Carrier as _, Loops};
use crate::{Element, ElementType, Error, ReduceOp};

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
pub struct Reduction<T: Element> {
    element: ElementType,
    op: ReduceOp,
    loops: &'static Loops<T::Carried>,
}

impl<T: Element> Reduction<T> {
    /// The reduction of elements `T` by `op`.
    ///
    /// # Errors
    /// [`Error::UnsupportedOp`] where [`ReduceOp::supports`] says no.
    pub fn new(op: ReduceOp) -> Result<Self, Error> {
        Self::carrying(T::TYPE, op)
    }

    /// The reduction by `op` of elements of a type that is known at run time only, whose bits are
    /// those of elements `T`. Of any type, these are the unsigned numbers of its size.
    ///
    /// ```
    /// use meshwork_accel::{ElementType, ReduceOp, Reduction};
    ///
    /// let sum = Reduction::<u32>::carrying(ElementType::F32, ReduceOp::Sum)?;
    /// let mut into = [1.5_f32.to_bits()];
    /// sum.reduce(&mut into, &[2.0_f32.to_bits()])?;
    /// assert_eq!(into.map(f32::from_bits), [3.5]);
    /// # Ok::<(), meshwork_accel::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::UnsupportedOp`] where [`ReduceOp::supports`] says no, and for elements of another
    /// size.
    pub fn carrying(element: ElementType, op: ReduceOp) -> Result<Self, Error> {
        let Some(loops) = T::Carried::loops(element, op) else {
            return Err(Error::UnsupportedOp { op, element });
        };
        Ok(Self { element, op, loops })
    }

    /// The type whose values are reduced.
    #[must_use]
    pub fn element(&self) -> ElementType {
        self.element
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
        (self.loops.reduce)(T::bits_mut(into), T::bits(from));
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
        T::with_bits(sources, |sources| {
            (self.loops.fold)(T::bits_mut(into), sources);
        });
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
        T::with_bits(contributions, |contributions| {
            (self.loops.complete)(T::bits_mut(into), contributions, number);
        });
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
        (self.loops.complete_pair)(T::bits_mut(into), T::bits(from));
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
            (self.loops.divide)(T::bits_mut(values), contributions);
        }
    }
}

impl<T: Element> Clone for Reduction<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Element> Copy for Reduction<T> {}

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

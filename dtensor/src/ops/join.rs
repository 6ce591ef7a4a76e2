//! Several tensors as one, and one as several.

use meshwork_layout::Shape;
use meshwork_layout::ops::{Op, Parts, TensorLayout};

use super::local::Local;
use super::{Call, place};
use crate::{DTensor, Error, Scalar};

impl<T: Scalar> DTensor<T> {
    /// Tensors concatenated along an axis, negative counted from the end.
    ///
    /// # Errors
    /// [`Error::Op`] for no tensors, or shapes that differ along another axis;
    /// [`Error::OtherContext`], and those of [`relayout`](Self::relayout).
    #[track_caller]
    pub fn concat(axis: isize, tensors: &[&Self]) -> Result<Self, Error> {
        let along = place(axis, tensors.first().map_or(1, |first| first.rank()));
        Self::joint(&Op::Concat { axis }, tensors, |all, sizes| {
            all[0].concatenated(along, all, sizes)
        })
    }

    /// Tensors of one shape stacked along a new axis, at this place in the result.
    ///
    /// # Errors
    /// Those of [`concat`](Self::concat).
    #[track_caller]
    #[doc(alias = "pack")]
    pub fn stack(axis: isize, tensors: &[&Self]) -> Result<Self, Error> {
        let along = place(axis, tensors.first().map_or(1, |first| first.rank() + 1));
        Self::joint(&Op::Stack { axis }, tensors, |all, sizes| {
            let one = sizes.iter().map(|sizes| {
                let mut one = sizes.clone();
                one[along] = 1;
                one
            });
            let one: Vec<Shape> = one.collect();
            let all = all.iter().map(|local| local.reshaped(&one));
            let all: Vec<Local<T>> = all.collect::<Result<_, _>>()?;
            all[0].concatenated(along, &all, sizes)
        })
    }

    /// Parts of an axis.
    ///
    /// # Errors
    /// [`Error::Op`] for parts that do not make up the axis, or for one that is cut, and those of
    /// [`relayout`](Self::relayout).
    #[track_caller]
    pub fn split(&self, axis: isize, parts: &Parts) -> Result<Vec<Self>, Error> {
        let along = place(axis, self.rank());
        let op = Op::Split {
            axis,
            parts: parts.clone(),
        };
        let call = Call::of(&op, self.context(), &[self.placement()])?;
        let local = Local::of(&call.operand(0, self)?);
        let sizes = match parts {
            Parts::Equal(count) => vec![self.shape()[along] / count; *count],
            Parts::Sizes(sizes) => sizes.clone(),
        };
        let mut start = 0;
        let mut results = Vec::new();
        for (number, size) in sizes.into_iter().enumerate() {
            let end = start + size;
            let part = local.cut(|place| {
                let whole = local.sizes()[place].iter().enumerate();
                let along = |(axis, size): (usize, &usize)| match axis == along {
                    true => start..end,
                    false => 0..*size,
                };
                whole.map(along).collect()
            })?;
            results.push(call.finish(number, part)?);
            start = end;
        }
        Ok(results)
    }

    /// One tensor for each index of an axis, which goes away.
    ///
    /// # Errors
    /// [`Error::Op`] for an axis that is not there, or for one of more than 65,536 indices of a
    /// tensor without elements, and those of [`relayout`](Self::relayout).
    #[track_caller]
    #[doc(alias = "unpack")]
    pub fn unstack(&self, axis: isize) -> Result<Vec<Self>, Error> {
        let along = place(axis, self.rank());
        let call = Call::of(&Op::Unstack { axis }, self.context(), &[self.placement()])?;
        let local = Local::of(&call.operand(0, self)?);
        let results = (0..call.results()).map(|index| {
            let row = local.cut(|place| {
                let whole = local.sizes()[place].iter().enumerate();
                let along = |(axis, size): (usize, &usize)| match axis == along {
                    true => index..index + 1,
                    false => 0..*size,
                };
                whole.map(along).collect()
            })?;
            call.finish(index, row.reshaped(&call.sizes(index)?)?)
        });
        results.collect()
    }

    /// The blocks that a client joins from those of all operands, of which there is at least one,
    /// and the sizes of the result's.
    #[track_caller]
    fn joint(
        op: &Op,
        tensors: &[&Self],
        make: impl Fn(&[Local<T>], &[Shape]) -> Result<Local<T>, Error>,
    ) -> Result<Self, Error> {
        let Some(first) = tensors.first() else {
            return Err(meshwork_layout::ops::OpError::NoOperands { op: op.name() }.into());
        };
        let placements: Vec<&TensorLayout> = tensors.iter().map(|t| t.placement()).collect();
        let call = Call::of(op, first.context(), &placements)?;
        let mut operands = Vec::new();
        for (number, tensor) in tensors.iter().enumerate() {
            operands.push(Local::of(&call.operand(number, tensor)?));
        }
        let made = make(&operands, &call.sizes(0)?)?;
        call.finish(0, made)
    }
}

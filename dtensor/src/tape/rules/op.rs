//! Gradients of ops that have parameters.

use meshwork_layout::ops::{Op, OpError, Reducer};

use super::{Gradients, Rule, only, some, zero};
use crate::ops::{ReduceAxes, all};
use crate::{DTensor, Error, Float};

impl Rule<'_> {
    #[track_caller]
    pub(super) fn op<T: Float>(&self, op: &Op, upstream: &DTensor<T>) -> Result<Gradients, Error> {
        match op {
            Op::Softmax { axis } => only(upstream.through_softmax(&self.result(0)?, *axis)),
            Op::Reduce {
                reducer: Reducer::Min | Reducer::Max,
                axes,
                ..
            } => only(self.extreme(axes, upstream)),
            Op::Scan { axis } => {
                let total = upstream.sum(&ReduceAxes::axes([*axis]).keep_dims())?;
                let before = upstream.cumsum(*axis)?.sub(upstream)?;
                only(total.sub(&before))
            }
            Op::Select => self.select(upstream),
            Op::Gather { axis } => {
                let (shape, indices) = (self.shape(0)?, self.given(1)?.to_indices()?);
                Ok(vec![
                    some(upstream.through_gather(shape, &indices, *axis)?),
                    None,
                ])
            }
            Op::Stack { axis } => Ok(upstream.unstack(*axis)?.into_iter().map(some).collect()),
            Op::Tile { multiples } => only(self.tile(multiples, upstream)),
            Op::StridedSlice(indices) => only(self.strided_slice(indices, upstream)),
            // Whole numbers chose what they are made of.
            Op::OneHot { .. } | Op::ArgReduce { .. } | Op::ShapeOf => Ok(vec![None]),
            op => self.by_rule_of_layouts(op, upstream),
        }
    }

    #[track_caller]
    fn by_rule_of_layouts<T: Float>(
        &self,
        op: &Op,
        upstream: &DTensor<T>,
    ) -> Result<Gradients, Error> {
        let mut operands = Vec::new();
        for operand in &self.node.operands {
            let typed = operand.tensor.typed::<T>().cloned();
            operands.push(match typed {
                Some(typed) => typed,
                None => self.converted(&operand.tensor)?,
            });
        }
        let operands: Vec<&DTensor<T>> = operands.iter().collect();
        match DTensor::gradients(op, &operands, upstream, &|_, _| T::default()) {
            Ok(found) => Ok(found.into_iter().map(some).collect()),
            Err(Error::Op(OpError::NoGradient { .. })) => Err(self.unknown()),
            Err(error) => Err(error),
        }
    }

    /// Each of the largest elements, or of the smallest, has an equal share.
    #[track_caller]
    fn extreme<T: Float>(
        &self,
        axes: &[isize],
        upstream: &DTensor<T>,
    ) -> Result<DTensor<T>, Error> {
        let elements = self.operand::<T>(0)?;
        let mut kept = elements.shape().to_vec();
        for axis in axes {
            kept[crate::ops::place(*axis, elements.rank())] = 1;
        }
        let extreme = self.result::<T>(0)?.reshape(&all(&kept))?;
        let upstream = upstream.reshape(&all(&kept))?;
        let beside = elements.sub(&extreme)?;
        let (none, one) = (zero(&beside)?, super::number(&beside, 1.0)?);
        let along = ReduceAxes::axes(axes.iter().copied()).keep_dims();
        let sharers = beside.select(&none, &one)?.sum(&along)?;
        beside.select(&none, &upstream.div(&sharers)?)
    }

    #[track_caller]
    fn tile<T: Float>(
        &self,
        multiples: &[usize],
        upstream: &DTensor<T>,
    ) -> Result<DTensor<T>, Error> {
        let shape = self.shape(0)?;
        let both = multiples.iter().zip(shape);
        let apart: Vec<usize> = both.flat_map(|(times, size)| [*times, *size]).collect();
        let copies = (0..shape.len()).map(|axis| (2 * axis).cast_signed());
        upstream
            .reshape(&all(&apart))?
            .sum(&ReduceAxes::axes(copies))
    }
}

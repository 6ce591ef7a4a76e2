//! The gradient of each op, made of ops that have gradients themselves. An op whose operands are
//! floats of one type, and of which parameters say everything, needs nothing here: it has the rule
//! that [`DTensor::gradients`] knows.

use std::sync::Arc;

use meshwork_accel::{Pairwise, Pointwise};
use meshwork_layout::Layout;

use crate::ops::ReduceAxes;
use crate::record::{AnyTensor, Node, Primitive, like, with_float, with_indices};
use crate::{DTensor, Error, Float};

mod choice;
mod entropy;
mod op;
mod scan;
mod strided;

/// Gradients by all operands of an op, in their order; none by what chooses elements, and by what
/// is no float.
pub(super) type Gradients = Vec<Option<AnyTensor>>;

/// The gradients of an op, from those by some of its results, each with its number.
#[track_caller]
pub(super) fn gradients(node: &Node, upstream: &[(usize, AnyTensor)]) -> Result<Gradients, Error> {
    let Some((_, first)) = upstream.first() else {
        return Ok(Vec::new());
    };
    if let Primitive::Scan(own) = &node.primitive {
        return scan::gradients(node, own, upstream);
    }
    let found = with_float!(&**first, |first| {
        let mut typed = Vec::new();
        for (number, gradient) in upstream {
            typed.push((*number, like(first, gradient)?.reduce_partial()?));
        }
        Rule { node }.through(&typed)?
    });
    // Gradients are floats.
    found.ok_or(Error::NotKept)
}

/// An op that was recorded.
struct Rule<'a> {
    node: &'a Node,
}

impl Rule<'_> {
    #[track_caller]
    fn through<T: Float>(&self, upstream: &[(usize, DTensor<T>)]) -> Result<Gradients, Error> {
        if let Some(found) = self.through_several(upstream)? {
            return Ok(found);
        }
        let [(0, upstream)] = upstream else {
            return Err(self.unknown());
        };
        let result = self.node.result(0).ok_or(Error::NotKept)?;
        let layout = result.placement().layout();
        match self.through_one(upstream) {
            // A gradient may lie as the op that it goes through cannot have it.
            Err(Error::Op(refused)) if refused.is_of_layouts() && upstream.layout() != layout => {
                self.through_one(&upstream.relayout(layout)?)
            }
            found => found,
        }
    }

    /// The same of an op with one result.
    #[track_caller]
    fn through_one<T: Float>(&self, upstream: &DTensor<T>) -> Result<Gradients, Error> {
        match &self.node.primitive {
            Primitive::Op(op) => self.op(op, upstream),
            Primitive::Pointwise(pointwise) => only(self.pointwise(*pointwise, upstream)),
            Primitive::Pairwise(pairwise) => self.pairwise(*pairwise, upstream),
            Primitive::ByNumber(by, number) => only(match by {
                Pairwise::Add | Pairwise::Subtract => Ok(upstream.clone()),
                Pairwise::Multiply => upstream.scale(T::from_f64(number.get())),
                Pairwise::Divide => upstream.by_number(*by, T::over, T::from_f64(number.get())),
            }),
            Primitive::LogSoftmax { axis } => {
                let softmax = self.result::<T>(0)?.exp()?;
                let sum = upstream.sum(&ReduceAxes::axes([*axis]).keep_dims())?;
                only(upstream.sub(&softmax.mul(&sum)?))
            }
            Primitive::RowsAdded(_) => {
                let by_rows =
                    with_indices!(self.given(0)?, |indices| upstream.embedding(indices)?);
                Ok(vec![None, some(by_rows)])
            }
            Primitive::Cast(_) => {
                let gradient: AnyTensor = Arc::new(upstream.clone());
                Ok(vec![gradient.to_float(self.given(0)?.element())?])
            }
            Primitive::Given
            | Primitive::ArgMin { .. }
            | Primitive::Scan(_)
            | Primitive::Closure(_) => Err(self.unknown()),
        }
    }

    #[track_caller]
    fn pointwise<T: Float>(
        &self,
        pointwise: Pointwise,
        upstream: &DTensor<T>,
    ) -> Result<DTensor<T>, Error> {
        match pointwise {
            Pointwise::Negate => upstream.neg(),
            // Of what is not above 0 nothing is left.
            Pointwise::Relu => self.result::<T>(0)?.select(upstream, &zero(upstream)?),
            Pointwise::Exp => upstream.mul(&self.result(0)?),
            Pointwise::Ln => upstream.div(&self.operand(0)?),
        }
    }

    #[track_caller]
    fn pairwise<T: Float>(
        &self,
        pairwise: Pairwise,
        upstream: &DTensor<T>,
    ) -> Result<Gradients, Error> {
        let (by_left, by_right) = match pairwise {
            Pairwise::Add => (upstream.clone(), upstream.clone()),
            Pairwise::Subtract => (upstream.clone(), upstream.neg()?),
            Pairwise::Multiply => (
                upstream.mul(&self.operand(1)?)?,
                upstream.mul(&self.operand(0)?)?,
            ),
            Pairwise::Divide => {
                let by_left = upstream.div(&self.operand(1)?)?;
                let by_right = by_left.mul(&self.result(0)?)?.neg()?;
                (by_left, by_right)
            }
        };
        Ok(vec![
            some(by_left.summed_to(self.given(0)?.placement().shape())?),
            some(by_right.summed_to(self.given(1)?.placement().shape())?),
        ])
    }

    /// An operand, perhaps without its elements.
    fn given(&self, number: usize) -> Result<&AnyTensor, Error> {
        let operand = self.node.operands.get(number).ok_or(Error::NotKept)?;
        Ok(&operand.tensor)
    }

    /// An operand of the type of the gradient.
    fn operand<T: Float>(&self, number: usize) -> Result<DTensor<T>, Error> {
        self.given(number)?.typed().cloned().ok_or(Error::NotKept)
    }

    /// A result of the type of the gradient.
    fn result<T: Float>(&self, number: usize) -> Result<DTensor<T>, Error> {
        let result = self.node.result(number).ok_or(Error::NotKept)?;
        result.typed().cloned().ok_or(Error::NotKept)
    }

    /// That what was done has no gradient.
    fn unknown(&self) -> Error {
        Error::NoDerivative {
            op: self.node.primitive.name(),
            at: self.node.at,
        }
    }
}

/// The gradient by an only operand.
fn only<T: Float>(gradient: Result<DTensor<T>, Error>) -> Result<Gradients, Error> {
    Ok(vec![some(gradient?)])
}

fn some<T: Float>(gradient: DTensor<T>) -> Option<AnyTensor> {
    Some(Arc::new(gradient))
}

/// A number that is the same at all elements of a tensor.
#[track_caller]
fn number<T: Float>(beside: &DTensor<T>, number: f64) -> Result<DTensor<T>, Error> {
    let layout = Layout::replicated(beside.layout().mesh(), 0);
    beside.context().full(&[], &layout, T::from_f64(number))
}

#[track_caller]
fn zero<T: Float>(beside: &DTensor<T>) -> Result<DTensor<T>, Error> {
    number(beside, 0.0)
}

//! Gradients of cross-entropies, which have two results: the loss, and its gradient by the logits.
//! With p the softmax and q the probabilities of the labels, that is p − q.

use super::{Gradients, Rule, some};
use crate::ops::place;
use crate::record::with_indices;
use crate::{DTensor, Error, Float};

impl Rule<'_> {
    #[track_caller]
    pub(super) fn cross_entropy<T: Float>(
        &self,
        upstream: &[(usize, DTensor<T>)],
    ) -> Result<Gradients, Error> {
        let labels = self.operand::<T>(1)?;
        let by_logits = self.by_logits(&labels, upstream)?;
        let mut by_labels = None;
        for (number, gradient) in upstream {
            let term = match number {
                0 => {
                    let logarithms = self.operand::<T>(0)?.log_softmax(-1)?;
                    gradient.expand_dims(-1)?.mul(&logarithms)?.neg()?
                }
                _ => gradient.neg()?,
            };
            by_labels = Some(plus(by_labels, term)?);
        }
        Ok(vec![some(by_logits), by_labels.and_then(some)])
    }

    #[track_caller]
    pub(super) fn sparse_cross_entropy<T: Float>(
        &self,
        upstream: &[(usize, DTensor<T>)],
    ) -> Result<Gradients, Error> {
        let shape = self.shape(0)?;
        let classes = shape[place(-1, shape.len())];
        let labels = with_indices!(self.given(1)?, |labels| labels.one_hot::<T>(classes)?);
        Ok(vec![some(self.by_logits(&labels, upstream)?), None])
    }

    /// The gradient by the logits, with a probability for each class.
    #[track_caller]
    fn by_logits<T: Float>(
        &self,
        labels: &DTensor<T>,
        upstream: &[(usize, DTensor<T>)],
    ) -> Result<DTensor<T>, Error> {
        let slope = self.result::<T>(1)?;
        let mut sum = None;
        for (number, gradient) in upstream {
            let term = match number {
                0 => gradient.expand_dims(-1)?.mul(&slope)?,
                _ => gradient.through_softmax(&slope.add(labels)?, -1)?,
            };
            sum = Some(plus(sum, term)?);
        }
        sum.ok_or(Error::NotKept)
    }
}

#[track_caller]
fn plus<T: Float>(sum: Option<DTensor<T>>, term: DTensor<T>) -> Result<DTensor<T>, Error> {
    match sum {
        Some(sum) => sum.add(&term),
        None => Ok(term),
    }
}

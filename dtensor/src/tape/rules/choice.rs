//! Gradients of ops with operands that are no floats, or that lead to several results.

use meshwork_layout::ops::{Labels, Op};

use super::{Gradients, Rule, only, some, zero};
use crate::record::{AnyTensor, Primitive};
use crate::{DTensor, Error, Float};

impl Rule<'_> {
    /// Of an op with several results; none of any other.
    #[track_caller]
    pub(super) fn through_several<T: Float>(
        &self,
        upstream: &[(usize, DTensor<T>)],
    ) -> Result<Option<Gradients>, Error> {
        let Primitive::Op(op) = &self.node.primitive else {
            return Ok(None);
        };
        Ok(Some(match op {
            Op::CrossEntropy(Labels::Dense) => self.cross_entropy(upstream)?,
            Op::CrossEntropy(Labels::Sparse) => self.sparse_cross_entropy(upstream)?,
            Op::Split { axis, .. } => {
                let parts = self.all_results(upstream)?;
                let parts: Vec<&DTensor<T>> = parts.iter().collect();
                only(DTensor::concat(*axis, &parts))?
            }
            Op::Unstack { axis } => {
                let rows = self.all_results(upstream)?;
                let rows: Vec<&DTensor<T>> = rows.iter().collect();
                only(DTensor::stack(*axis, &rows))?
            }
            _ => return Ok(None),
        }))
    }

    /// The gradients by all results: zeros by those that nothing depends on.
    #[track_caller]
    fn all_results<T: Float>(
        &self,
        upstream: &[(usize, DTensor<T>)],
    ) -> Result<Vec<DTensor<T>>, Error> {
        let results = (0..).map_while(|number| Some((number, self.node.result(number)?)));
        let gradients = results.map(|(number, result)| {
            let known = upstream.iter().find(|(other, _)| *other == number);
            match known {
                Some((_, gradient)) => Ok(gradient.clone()),
                None => {
                    let result = result.typed::<T>().ok_or(Error::NotKept)?;
                    result.context().zeros(result.shape(), result.layout())
                }
            }
        });
        gradients.collect()
    }

    #[track_caller]
    pub(super) fn select<T: Float>(&self, upstream: &DTensor<T>) -> Result<Gradients, Error> {
        let condition = self.given(0)?.to_truths()?;
        let none = zero(upstream)?;
        let yes = condition.select(upstream, &none)?;
        let no = condition.select(&none, upstream)?;
        Ok(vec![
            None,
            some(yes.summed_to(self.shape(1)?)?),
            some(no.summed_to(self.shape(2)?)?),
        ])
    }

    /// An operand as floats of the gradient's type.
    #[track_caller]
    pub(super) fn converted<T: Float>(&self, operand: &AnyTensor) -> Result<DTensor<T>, Error> {
        let converted = operand.to_float(T::TYPE)?.ok_or(Error::NotKept)?;
        converted.typed().cloned().ok_or(Error::NotKept)
    }

    pub(super) fn shape(&self, number: usize) -> Result<&[usize], Error> {
        Ok(self.given(number)?.placement().shape())
    }
}

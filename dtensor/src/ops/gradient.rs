//! Gradients that are made of several ops on tensors, where one rule of layouts is not enough.

use meshwork_layout::ops::{Op, OpError, TensorLayout, infer};
use meshwork_layout::{Layout, Shape, ShardingSpec};

use super::{ReduceAxes, place};
use crate::{DTensor, Error, Float, Scalar};

impl<T: Float> DTensor<T> {
    /// The gradients by all operands of an op that is known here; none for any other. What chooses
    /// elements, as conditions and indices do, has zeros.
    #[track_caller]
    pub(super) fn composed(
        op: &Op,
        operands: &[&Self],
        upstream: &Self,
    ) -> Result<Option<Vec<Self>>, Error> {
        if let Some(found) = Self::through_network(op, operands, upstream)? {
            return Ok(Some(found));
        }
        let found = match (op, operands) {
            (
                Op::Softmax { .. } | Op::BroadcastTo { .. } | Op::Slice { .. } | Op::Pad { .. },
                [_],
            )
            | (Op::BiasAdd | Op::Gather { .. }, [_, _])
            | (Op::Select, [_, _, _])
            | (Op::Concat { .. }, _) => {
                check_upstream(op, operands, upstream)?;
                upstream.reduce_partial()?.through(op, operands)?
            }
            _ => return Ok(None),
        };
        Ok(Some(found))
    }

    /// Backpropagates this gradient of an op's result to its operands.
    #[track_caller]
    fn through(&self, op: &Op, operands: &[&Self]) -> Result<Vec<Self>, Error> {
        Ok(match (op, operands) {
            (Op::Softmax { axis }, [logits]) => {
                vec![self.through_softmax(&logits.softmax(*axis)?, *axis)?]
            }
            (Op::BroadcastTo { .. }, [narrow]) => vec![self.summed_to(narrow.shape())?],
            (Op::BiasAdd, [_, bias]) => vec![self.clone(), self.summed_to(bias.shape())?],
            (Op::Select, [condition, yes, no]) => {
                let none = self.zeros_like()?;
                vec![
                    condition.zeros_like()?,
                    condition.select(self, &none)?.summed_to(yes.shape())?,
                    condition.select(&none, self)?.summed_to(no.shape())?,
                ]
            }
            (Op::Concat { axis }, _) => self.through_concat(operands, *axis)?,
            (Op::Slice { begin, .. }, [whole]) => vec![self.through_slice(whole, begin)?],
            (Op::Pad { paddings }, [inner]) => {
                let begin: Vec<usize> = paddings.iter().map(|(before, _)| *before).collect();
                vec![self.slice(&begin, &all(inner.shape()))?]
            }
            (Op::Gather { axis }, [params, indices]) => vec![
                self.through_gather(params.shape(), indices, *axis)?,
                indices.zeros_like()?,
            ],
            _ => Vec::new(),
        })
    }

    /// With p the softmax and g this gradient: p·(g − Σ p·g).
    #[track_caller]
    pub(crate) fn through_softmax(&self, softmax: &Self, axis: isize) -> Result<Self, Error> {
        let mean = softmax
            .mul(self)?
            .sum(&ReduceAxes::axes([axis]).keep_dims())?;
        softmax.mul(&self.sub(&mean)?)
    }

    #[track_caller]
    fn through_concat(&self, operands: &[&Self], axis: isize) -> Result<Vec<Self>, Error> {
        let along = place(axis, self.rank());
        let mut begin = vec![0; self.rank()];
        let mut parts = Vec::new();
        for operand in operands {
            parts.push(self.slice(&begin, &all(operand.shape()))?);
            begin[along] += operand.shape()[along];
        }
        Ok(parts)
    }

    #[track_caller]
    fn through_slice(&self, whole: &Self, begin: &[usize]) -> Result<Self, Error> {
        let sizes = whole.shape().iter().zip(self.shape());
        let paddings = begin.iter().zip(sizes);
        let paddings = paddings.map(|(&begin, (whole, part))| (begin, whole - begin - part));
        let paddings: Vec<(usize, usize)> = paddings.collect();
        self.padded(&paddings)
    }

    /// Zeros before and after each axis. Those that are cut and become longer are made whole: zeros
    /// are put beside whole axes only.
    #[track_caller]
    pub(crate) fn padded(&self, paddings: &[(usize, usize)]) -> Result<Self, Error> {
        let whole = self.whole_along(|axis| paddings[axis] != (0, 0))?;
        whole.pad(paddings)
    }

    /// The same tensor with some axes whole.
    #[track_caller]
    pub(crate) fn whole_along(&self, is_whole: impl Fn(usize) -> bool) -> Result<Self, Error> {
        let specs = self.layout().specs().enumerate();
        let specs = specs.map(|(axis, spec)| match is_whole(axis) {
            true => ShardingSpec::unsharded(),
            false => spec.clone(),
        });
        self.relayout(&Layout::new(specs, self.layout().mesh())?)
    }

    /// The sum of the slices that each index chose, as rows of a table.
    #[track_caller]
    pub(crate) fn through_gather<I: Scalar>(
        &self,
        params: &[usize],
        indices: &DTensor<I>,
        axis: isize,
    ) -> Result<Self, Error> {
        let along = place(axis, params.len());
        let (before, behind) = params.split_at(along);
        let behind = behind.get(1..).unwrap_or_default();
        let sizes: [usize; 3] =
            [before, indices.shape(), behind].map(|sizes| sizes.iter().product());
        let [before, chosen, behind] = sizes;
        let width = before * behind;
        let rows = self.reshape(&all(&sizes))?.transpose(&[1, 0, 2])?;
        let rows = rows.reshape(&all(&[chosen, width]))?;
        let columns = rows.layout().specs().skip(1).cloned();
        let specs = [ShardingSpec::unsharded()].into_iter().chain(columns);
        let layout = Layout::new(specs, rows.layout().mesh())?;
        let size = params[along];
        let table = TensorLayout::new([size, width], layout)?;
        let sums = rows.added_to_rows(&table, &indices.reshape(&all(&[chosen]))?)?;
        let sums = sums.reshape(&all(&[size, before, behind]))?;
        sums.transpose(&[1, 0, 2])?.reshape(&all(params))
    }

    /// The sum over the axes along which a tensor of this shape was repeated.
    #[track_caller]
    pub(crate) fn summed_to(&self, shape: &[usize]) -> Result<Self, Error> {
        let missing = self.rank() - shape.len();
        let is_repeated =
            |&axis: &usize| axis < missing || shape[axis - missing] != self.shape()[axis];
        let axes: Vec<usize> = (0..self.rank()).filter(is_repeated).collect();
        if axes.is_empty() {
            return Ok(self.clone());
        }
        let sum = self.sum(&ReduceAxes::axes(axes.into_iter().map(usize::cast_signed)))?;
        sum.reshape(&all(shape))
    }
}

/// The gradient by the result has to have its shape.
pub(super) fn check_upstream<T: Float>(
    op: &Op,
    operands: &[&DTensor<T>],
    upstream: &DTensor<T>,
) -> Result<(), Error> {
    let placements: Vec<TensorLayout> = operands.iter().map(|o| o.placement().clone()).collect();
    let inferred = infer(op, &placements)?;
    let found = upstream.shape();
    match inferred.results() {
        [result] if result.placement().shape() == found => Ok(()),
        [result, ..] => Err(OpError::UpstreamShape {
            op: op.name(),
            found: Shape::from(found),
            expected: Shape::from(result.placement().shape()),
        }
        .into()),
        [] => Err(OpError::NoGradient { op: op.name() }.into()),
    }
}

/// Sizes that are all known.
pub(crate) fn all(sizes: &[usize]) -> Vec<Option<usize>> {
    sizes.iter().copied().map(Some).collect()
}

#[cfg(test)]
mod tests {
    use meshwork_layout::PartialReduction;
    use meshwork_layout::ops::{Orientation, gradients};
    use ndarray::ArrayD;

    use super::super::tests::numbers;
    use super::*;
    use crate::testing::{context, mesh};

    /// Each gradient by these operands against how much the sum of the squares of the results
    /// changes.
    #[track_caller]
    fn check(op: &Op, whole: &[ArrayD<f64>], names: &[&[&str]], by: &[usize]) {
        let context = context();
        let placed = |whole: &[ArrayD<f64>]| -> Vec<DTensor<f64>> {
            let layouts = names.iter().map(|names| {
                let names = names.iter().copied();
                Layout::from_names(names, &mesh()).unwrap()
            });
            let both = whole.iter().zip(layouts);
            both.map(|(whole, layout)| context.copy_to_mesh(whole.clone(), &layout).unwrap())
                .collect()
        };
        let apply = |whole: &[ArrayD<f64>]| {
            let placed = placed(whole);
            let operands: Vec<&DTensor<f64>> = placed.iter().collect();
            DTensor::apply(op, &operands, &|_| 0.0).unwrap().remove(0)
        };
        let total = |whole: &[ArrayD<f64>]| apply(whole).to_host().unwrap().mapv(|x| x * x).sum();
        let upstream = apply(whole).scale(2.0).unwrap();
        let placed = placed(whole);
        let operands: Vec<&DTensor<f64>> = placed.iter().collect();
        let gradients = DTensor::gradients(op, &operands, &upstream, &|_, _| 0.0).unwrap();
        for &operand in by {
            let gradient = gradients[operand].to_host().unwrap();
            assert_eq!(gradient.shape(), whole[operand].shape(), "{op:?}");
            for (place, slope) in gradient.iter().enumerate() {
                let moved = |by: f64| {
                    let mut whole = whole.to_vec();
                    whole[operand].as_slice_mut().unwrap()[place] += by;
                    total(&whole)
                };
                let found = (moved(1e-4) - moved(-1e-4)) / 2e-4;
                assert!(
                    (found - slope).abs() < 1e-5,
                    "{op:?}, operand {operand}: {found} and {slope}"
                );
            }
        }
    }

    #[test]
    fn gradients_of_products_and_softmax_are_the_slopes() {
        let (lhs, rhs) = (Orientation::Plain, Orientation::Plain);
        let product = Op::MatMul { lhs, rhs };
        let names: [&[&str]; 2] = [&["x", "y"], &["y", "unsharded"]];
        check(
            &product,
            &[numbers(&[3, 4]), numbers(&[4, 2])],
            &names,
            &[0, 1],
        );
        for axis in [-1, 0] {
            check(
                &Op::Softmax { axis },
                &[numbers(&[4, 3])],
                &[&["x", "y"]],
                &[0],
            );
        }
    }

    #[test]
    fn gradients_of_repeated_and_chosen_elements_are_the_slopes() {
        let shape = vec![3, 2, 4];
        check(
            &Op::BroadcastTo { shape },
            &[numbers(&[2, 1])],
            &[&["x", "unsharded"]],
            &[0],
        );
        let names: [&[&str]; 2] = [&["x", "y"], &["y"]];
        check(
            &Op::BiasAdd,
            &[numbers(&[3, 4]), numbers(&[4])],
            &names,
            &[0, 1],
        );
        let condition = numbers(&[2, 4]).mapv(|x| f64::from(u8::from(x > 0.0)));
        let names: [&[&str]; 3] = [&["x", "y"], &["x", "y"], &["y"]];
        let operands = [condition, numbers(&[2, 4]), numbers(&[4])];
        check(&Op::Select, &operands, &names, &[1, 2]);
        let indices = ndarray::array![[2.0, 0.0], [2.0, 3.0]].into_dyn();
        for (axis, shape) in [(0, [4, 3]), (1, [3, 4])] {
            let names: [&[&str]; 2] = [&["unsharded", "y"], &["x", "unsharded"]];
            let operands = [numbers(&shape), indices.clone()];
            check(&Op::Gather { axis }, &operands, &names, &[0]);
        }
    }

    #[test]
    fn gradients_of_parts_are_the_slopes() {
        let operands = [numbers(&[2, 2]), numbers(&[2, 3])];
        let names: [&[&str]; 2] = [&["x", "unsharded"], &["x", "unsharded"]];
        check(&Op::Concat { axis: 1 }, &operands, &names, &[0, 1]);
        let (begin, size) = (vec![0, 1], vec![None, Some(2)]);
        check(
            &Op::Slice { begin, size },
            &[numbers(&[2, 4])],
            &[&["x", "y"]],
            &[0],
        );
        let paddings = vec![(0, 0), (1, 2)];
        check(
            &Op::Pad { paddings },
            &[numbers(&[2, 3])],
            &[&["x", "unsharded"]],
            &[0],
        );
    }

    #[test]
    fn the_gradient_of_a_relayout_lies_as_is_inferred_where_the_operand_is_partial() {
        let (context, whole) = (context(), Layout::replicated(&mesh(), 2));
        let rows = Layout::from_names(["x", "unsharded"], &mesh()).unwrap();
        let partial = rows.with_partial(["y"], PartialReduction::Sum).unwrap();
        let tensor = context.full(&[4, 2], &partial, 1.0_f64).unwrap();
        let upstream = context.full(&[4, 2], &whole, 3.0_f64).unwrap();
        let op = Op::Relayout(Box::new(whole));
        let made = DTensor::gradients(&op, &[&tensor], &upstream, &|_, _| 0.0).unwrap();
        let operands = [tensor.placement().clone()];
        let inferred = gradients(&op, &operands, upstream.placement()).unwrap();
        assert_eq!(made[0].layout(), inferred[0].placement().layout());
        let made = made[0].to_host().unwrap();
        assert!(made.iter().all(|slope| *slope == 3.0), "{made}");
    }

    #[test]
    fn a_gradient_of_another_shape_than_the_result_is_refused() {
        let layout = Layout::replicated(&mesh(), 2);
        let tensor = context().zeros::<f64>(&[2, 3], &layout).unwrap();
        let other = tensor.sum(&ReduceAxes::axes([0])).unwrap();
        let op = Op::Softmax { axis: 1 };
        let refused = DTensor::gradients(&op, &[&tensor], &other, &|_, _| 0.0).unwrap_err();
        assert!(
            matches!(
                refused,
                Error::Op(OpError::UpstreamShape { op: "softmax", .. })
            ),
            "{refused}"
        );
    }
}

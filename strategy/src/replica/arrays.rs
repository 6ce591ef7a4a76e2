//! Reductions and gathers of arrays, whose shapes may differ from replica to replica.

use meshwork_collectives::Rank;
use ndarray::{ArrayD, Axis, IxDyn, RemoveAxis, concatenate};

use super::bytes::gather_uneven;
use super::cross::{CrossReplica, converted, is_short, refuse_integer_mean};
use super::rendezvous::Detail;
use super::{ReplicaContext, ReplicaReduceOp};
use crate::distributed::{PerReplica, Reduce};
use crate::{Error, Value};

impl ReplicaContext<'_> {
    /// The arrays of all replicas, concatenated along `axis`. Backwards, a replica's gradient is
    /// its own part of the all-reduced gradient of the result.
    ///
    /// # Shapes
    /// All replicas have arrays of one shape but for the length of `axis`.
    ///
    /// # Errors
    /// Those of [`CrossReplica::gather`] and [`merge_call`](Self::merge_call).
    #[track_caller]
    pub fn all_gather<T: Value>(
        &mut self,
        value: ArrayD<T>,
        axis: usize,
    ) -> Result<ArrayD<T>, Error> {
        let detail = Some(Detail::Axis(axis));
        self.together_as("all_gather", detail, value, |cross, values| {
            let locals = values.len();
            let all = cross.gather(&PerReplica::new(values), axis)?;
            Ok(vec![all; locals])
        })
    }
}

impl CrossReplica<'_> {
    /// As [`reduce`](Self::reduce), first along `axes` of each replica's array and then over
    /// replicas. A mean is that over all elements, however many each replica has, and NaN of none.
    /// Sums and means of `f16` and `bf16` are made in `f32` and rounded once.
    ///
    /// # Shapes
    /// All replicas have arrays of one shape but for the lengths of `axes`, which go away.
    ///
    /// # Errors
    /// [`Error::NoSuchAxis`], and those of [`reduce`](Self::reduce).
    #[track_caller]
    pub fn reduce_axes<T: Value>(
        &mut self,
        op: ReplicaReduceOp,
        values: &PerReplica<ArrayD<T>>,
        axes: &[usize],
    ) -> Result<ArrayD<T>, Error> {
        refuse_integer_mean::<T>(op)?;
        if is_short::<T>() {
            let wide = values.local_results().map(array_of::<T, f32>);
            let wide = PerReplica::new(wide.collect::<Result<_, _>>()?);
            return array_of(&self.reduce_axes(op, &wide, axes)?);
        }
        let mut sums = Vec::with_capacity(values.len());
        let mut count = 0_u64;
        for array in values.local_results() {
            count += counted(array, axes)?;
            sums.push(sum_along(array, axes));
        }
        let sum = self.reduce(ReplicaReduceOp::Sum, PerReplica::new(sums))?;
        if op == ReplicaReduceOp::Sum {
            return Ok(sum);
        }
        let mut counts = [count];
        self.add_over_workers(&mut counts)?;
        let all = usize::try_from(counts[0]).unwrap_or(usize::MAX);
        Ok(sum.mapv(|sum| sum.divided(all)))
    }

    /// The arrays of all replicas, concatenated along `axis`; every worker gets them.
    ///
    /// # Shapes
    /// All replicas have arrays of one shape but for the length of `axis`.
    ///
    /// # Errors
    /// [`Error::NoSuchAxis`], [`Error::ShapesDiffer`], [`Error::Group`].
    #[track_caller]
    pub fn gather<T: Value>(
        &mut self,
        values: &PerReplica<ArrayD<T>>,
        axis: usize,
    ) -> Result<ArrayD<T>, Error> {
        let arrays = self.arrays_of_all(values)?;
        joined(&arrays, axis)
    }

    /// Gives every worker the values that the first replica of all has.
    #[track_caller]
    pub(crate) fn broadcast<T: Value>(&mut self, values: &mut [T]) -> Result<(), Error> {
        Ok(self.worker().0.broadcast(values, Rank::CHIEF)?)
    }

    /// The arrays of all replicas, of any shapes: first their shapes are exchanged, then they are.
    #[track_caller]
    pub(crate) fn arrays_of_all<T: Value>(
        &mut self,
        own: &PerReplica<ArrayD<T>>,
    ) -> Result<Vec<ArrayD<T>>, Error> {
        let mut words = Vec::new();
        let mut elements = Vec::new();
        for array in own.local_results() {
            words.push(array.ndim() as u64);
            words.extend(array.shape().iter().map(|size| *size as u64));
            elements.extend(array.iter().copied());
        }
        let (group, _) = self.worker();
        let (_, words) = gather_uneven(group, &words)?;
        let (_, elements) = gather_uneven(group, &elements)?;
        let mut left = &elements[..];
        let mut arrays = Vec::new();
        for shape in shapes(&words)? {
            let found = left.len();
            let parts = elements_of(&shape).and_then(|len| left.split_at_checked(len));
            let Some((own, rest)) = parts else {
                return Err(Error::ArrayTorn { shape, found });
            };
            left = rest;
            let array = ArrayD::from_shape_vec(IxDyn(&shape), own.to_vec());
            arrays.push(array.map_err(|_| Error::ArrayTorn { shape, found })?);
        }
        match left.len() {
            0 => Ok(arrays),
            elements => Err(Error::ElementsLeft { elements }),
        }
    }
}

/// How many elements an array of `shape` has, if that many can be counted.
fn elements_of(shape: &[usize]) -> Option<usize> {
    shape
        .iter()
        .try_fold(1_usize, |product, size| product.checked_mul(*size))
}

/// Shapes encoded one after the other, each preceded by its number of dimensions.
fn shapes(mut words: &[u64]) -> Result<Vec<Vec<usize>>, Error> {
    let mut shapes = Vec::new();
    while let Some((&dimensions, rest)) = words.split_first() {
        let torn = || Error::ShapeTorn {
            dimensions,
            found: rest.len(),
        };
        let count = usize::try_from(dimensions).map_err(|_| torn())?;
        let (sizes, behind) = rest.split_at_checked(count).ok_or_else(torn)?;
        let sizes = sizes.iter().map(|size| usize::try_from(*size));
        shapes.push(sizes.collect::<Result<_, _>>().map_err(|_| torn())?);
        words = behind;
    }
    Ok(shapes)
}

/// The arrays concatenated.
pub(crate) fn joined<T: Value>(arrays: &[ArrayD<T>], axis: usize) -> Result<ArrayD<T>, Error> {
    let first = arrays.first().map(ArrayD::shape).unwrap_or_default();
    for (replica, array) in arrays.iter().enumerate() {
        inside(axis, array.ndim())?;
        let others = |shape: &[usize]| {
            let mut shape = shape.to_vec();
            shape.remove(axis);
            shape
        };
        if array.ndim() != first.len() || others(array.shape()) != others(first) {
            return Err(Error::ShapesDiffer {
                replica,
                found: array.shape().to_vec(),
                first: first.to_vec(),
            });
        }
    }
    let views: Vec<_> = arrays.iter().map(|array| array.view()).collect();
    concatenate(Axis(axis), &views).map_err(|_| Error::NoSuchAxis {
        axis,
        dimensions: first.len(),
    })
}

pub(crate) fn inside(axis: usize, dimensions: usize) -> Result<(), Error> {
    if axis < dimensions {
        Ok(())
    } else {
        Err(Error::NoSuchAxis { axis, dimensions })
    }
}

/// How many elements become one.
fn counted<T: Value>(array: &ArrayD<T>, axes: &[usize]) -> Result<u64, Error> {
    let mut count = 1_u64;
    for (position, axis) in axes.iter().enumerate() {
        inside(*axis, array.ndim())?;
        if axes[..position].contains(axis) {
            return Err(Error::NoSuchAxis {
                axis: *axis,
                dimensions: array.ndim(),
            });
        }
        count *= array.len_of(Axis(*axis)) as u64;
    }
    Ok(count)
}

/// Elements that are added one by one. A sum of `f32` stops growing at 2^24 times an element, so
/// longer ones are sums of blocks.
const BLOCK: usize = 4096;

/// The sum along axes that are there, each once.
fn sum_along<T: Value>(array: &ArrayD<T>, axes: &[usize]) -> ArrayD<T> {
    let mut axes = axes.to_vec();
    axes.sort_unstable();
    let mut sum = array.clone();
    for axis in axes.into_iter().rev().map(Axis) {
        let nothing = ArrayD::<T>::default(sum.raw_dim().remove_axis(axis));
        let blocks = sum.axis_chunks_iter(axis, BLOCK);
        sum = blocks.fold(nothing, |mut sums, block| {
            let added = block.fold_axis(axis, T::default(), |sum, value| sum.plus(*value));
            sums.zip_mut_with(&added, |sum, added| *sum = sum.plus(*added));
            sums
        });
    }
    sum
}

/// The array with elements of another type.
fn array_of<T: Value, U: Value>(array: &ArrayD<T>) -> Result<ArrayD<U>, Error> {
    let mut other = ArrayD::<U>::default(array.raw_dim());
    other.replace(converted(&array.elements())?);
    Ok(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_that_cannot_be_counted_are_refused() {
        assert_eq!(elements_of(&[1 << 33, 1 << 33]), None);
        assert_eq!(elements_of(&[3, 0, 2]), Some(0));
    }

    #[test]
    fn a_long_sum_does_not_stop_at_what_its_first_element_hides() {
        let mut values = ArrayD::from_elem(vec![2, 2 * BLOCK], 1.0_f32);
        values.slice_axis_mut(Axis(1), (..BLOCK).into()).fill(0.0);
        values[[0, 0]] = 16_777_216.0;
        let sum = sum_along(&values, &[1]);
        assert_eq!(sum, ndarray::arr1(&[16_781_312.0_f32, 4_096.0]).into_dyn());
        let none = sum_along(&ArrayD::<f32>::zeros(vec![0, 2]), &[0]);
        assert_eq!(none, ArrayD::<f32>::zeros(vec![2]));
    }

    #[test]
    fn shapes_that_end_too_soon_are_refused() {
        let whole = shapes(&[1, 3, 0, 2, 4, 5]);
        assert_eq!(whole.unwrap(), [vec![3], vec![], vec![4, 5]]);
        let torn = Error::ShapeTorn {
            dimensions: 3,
            found: 1,
        };
        assert_eq!(shapes(&[1, 3, 3, 4]), Err(torn));
    }
}

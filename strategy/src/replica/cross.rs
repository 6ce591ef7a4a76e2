//! `CrossReplica`, TensorFlow's cross-replica context: reductions and gathers over all replicas
//! from one thread a worker, also of arrays whose shapes differ.

use std::time::Instant;

use meshwork_collectives::{self as collectives, Group, Rank};
use ndarray::{ArrayD, Axis, IxDyn, concatenate};

use super::ReplicaReduceOp;
use crate::communication_stats::CommunicationStats;
use crate::distributed::{PerReplica, Reduce, of_one_shape};
use crate::sum::{self, SumOrder};
use crate::value::sealed::Arithmetic;
use crate::{Error, Value};

/// The cross-replica context of one worker: the values of its own replicas, and those of the other
/// workers by reductions.
#[derive(Debug)]
pub struct CrossReplica<'a> {
    group: &'a mut Group,
    communication_stats: &'a mut CommunicationStats,
    local: usize,
    order: SumOrder,
}

impl<'a> CrossReplica<'a> {
    pub(crate) fn new(
        group: &'a mut Group,
        communication_stats: &'a mut CommunicationStats,
        local: usize,
        order: SumOrder,
    ) -> Self {
        Self {
            group,
            communication_stats,
            local,
            order,
        }
    }

    /// How many replicas train together, those of all workers.
    #[must_use]
    pub fn num_replicas_in_sync(&self) -> usize {
        self.group.world() as usize * self.local
    }

    /// The sum or mean of the values of all replicas; every worker gets it.
    ///
    /// # Shapes
    /// All replicas have values of one shape.
    ///
    /// # Errors
    /// [`Error::ShapesDiffer`], [`Error::IntegerMean`], [`Error::Group`].
    #[track_caller]
    pub fn reduce<V: Reduce>(
        &mut self,
        op: ReplicaReduceOp,
        values: PerReplica<V>,
    ) -> Result<V, Error> {
        // In one process a reduction adds on one device, in order, whatever a ring would do.
        let order = match self.group.world() {
            1 => SumOrder::Fastest,
            _ => self.order,
        };
        self.reduce_in(order, op, values)
    }

    #[track_caller]
    pub(crate) fn reduce_in<V: Reduce>(
        &mut self,
        order: SumOrder,
        op: ReplicaReduceOp,
        values: PerReplica<V>,
    ) -> Result<V, Error> {
        refuse_integer_mean::<V::Element>(op)?;
        let values = values.into_vec();
        let contributions = of_one_shape(&values)?;
        let mut sum = match order {
            SumOrder::Fastest => {
                let mut sum = sum::in_order(contributions);
                self.add_over_workers(&mut sum)?;
                sum
            }
            SumOrder::TensorFlowRing => {
                sum::around_ring(&self.contributions_of_all(contributions)?)
            }
        };
        if op == ReplicaReduceOp::Mean {
            let replicas = self.num_replicas_in_sync();
            sum.iter_mut()
                .for_each(|value| *value = value.divided(replicas));
        }
        let mut first = PerReplica::new(values).into_first();
        first.replace(sum);
        Ok(first)
    }

    /// As [`reduce`](Self::reduce), first along `axes` of each replica's array and then over
    /// replicas. A mean is that over all elements, however many each replica has, and NaN of none.
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

    /// The group of the workers, and where communication is counted.
    pub(crate) fn worker(&mut self) -> (&mut Group, &mut CommunicationStats) {
        (self.group, self.communication_stats)
    }

    /// Gives every worker the values that the first replica of all has.
    #[track_caller]
    pub(crate) fn broadcast<T: Value>(&mut self, values: &mut [T]) -> Result<(), Error> {
        Ok(self.group.broadcast(values, Rank::CHIEF)?)
    }

    /// Numbers summed over workers, once for each; counted in the stats.
    #[track_caller]
    pub(crate) fn add_over_workers<T: collectives::Element>(
        &mut self,
        values: &mut [T],
    ) -> Result<(), Error> {
        if self.group.world() == 1 {
            return Ok(());
        }
        let began = Instant::now();
        self.group.all_reduce(values, collectives::ReduceOp::Sum)?;
        self.communication_stats
            .count(size_of_val(values), began.elapsed());
        Ok(())
    }

    /// All-gathers equally long contributions of all replicas, in the order of the replicas.
    #[track_caller]
    fn contributions_of_all<T: Value>(&mut self, own: Vec<Vec<T>>) -> Result<Vec<Vec<T>>, Error> {
        let len = own.first().map_or(0, Vec::len);
        let own = own.concat();
        let mut all = vec![T::default(); own.len() * self.group.world() as usize];
        self.group.all_gather(&own, &mut all)?;
        if len == 0 {
            return Ok(vec![Vec::new(); self.num_replicas_in_sync()]);
        }
        Ok(all.chunks(len).map(<[T]>::to_vec).collect())
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
        let words = self.uneven(&words)?;
        let elements = self.uneven(&elements)?;
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

    #[track_caller]
    fn uneven<T: collectives::Element + Copy>(&mut self, own: &[T]) -> Result<Vec<T>, Error> {
        let mut lengths = vec![0_u64; self.group.world() as usize];
        self.group.all_gather(&[own.len() as u64], &mut lengths)?;
        let (lengths, mut output) = room_for(&lengths)?;
        self.group.all_gather_uneven(own, &mut output, &lengths)?;
        Ok(output)
    }
}

/// What a gather of `lengths` elements needs: the lengths as sizes, and where the elements go. The
/// lengths are other workers' words.
fn room_for<T: Clone + Default>(lengths: &[u64]) -> Result<(Vec<usize>, Vec<T>), Error> {
    let elements = lengths
        .iter()
        .fold(0_u64, |sum, len| sum.saturating_add(*len));
    let too_large = || Error::GatherTooLarge { elements };
    let all = usize::try_from(elements).map_err(|_| too_large())?;
    let mut output = Vec::new();
    output.try_reserve_exact(all).map_err(|_| too_large())?;
    output.resize(all, T::default());
    let lengths = lengths.iter().map(|len| usize::try_from(*len));
    let lengths = lengths.collect::<Result<_, _>>().map_err(|_| too_large())?;
    Ok((lengths, output))
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

pub(crate) fn refuse_integer_mean<T: Value>(op: ReplicaReduceOp) -> Result<(), Error> {
    if op == ReplicaReduceOp::Mean && !T::IS_FLOAT {
        return Err(Error::IntegerMean { found: T::TYPE });
    }
    Ok(())
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

/// The sum along axes that are there, each once.
fn sum_along<T: Value>(array: &ArrayD<T>, axes: &[usize]) -> ArrayD<T> {
    let mut axes = axes.to_vec();
    axes.sort_unstable();
    let mut sum = array.clone();
    for axis in axes.into_iter().rev() {
        sum = sum.fold_axis(Axis(axis), T::default(), |sum, value| sum.plus(*value));
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_that_no_memory_holds_are_refused() {
        let (lengths, room) = room_for::<f32>(&[2, 0, 3]).unwrap();
        assert_eq!((lengths, room), (vec![2, 0, 3], vec![0.0; 5]));
        for lengths in [vec![u64::MAX], vec![u64::MAX, 1], vec![1 << 62, 1 << 62]] {
            let refused = room_for::<f32>(&lengths).unwrap_err();
            assert!(matches!(refused, Error::GatherTooLarge { .. }), "{refused}");
        }
        assert_eq!(elements_of(&[1 << 33, 1 << 33]), None);
        assert_eq!(elements_of(&[3, 0, 2]), Some(0));
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

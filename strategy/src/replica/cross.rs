//! `CrossReplica`, TensorFlow's cross-replica context: reductions over all replicas from one thread
//! a worker. Those of arrays whose shapes differ are in `arrays`.

use std::time::Instant;

use meshwork_accel::convert_slice;
use meshwork_collectives::{self as collectives, ElementType, Group};

use super::{ReplicaReduceOp, reduce_here};
use crate::communication_stats::CommunicationStats;
use crate::distributed::{PerReplica, Reduce, of_one_shape};
use crate::sum::{self, SumOrder};
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
        // TensorFlow rounds each of its sums, so whoever compares with it gets these.
        let reduced = if is_short::<V::Element>() && self.order == SumOrder::Fastest {
            let mut own = reduced_here(op, contributions)?;
            reduce_here(self.group, self.communication_stats, op, &mut own)?;
            own
        } else {
            let mut sum = self.sum_in(order, contributions)?;
            if op == ReplicaReduceOp::Mean {
                divide(&mut sum, self.num_replicas_in_sync());
            }
            sum
        };
        let mut first = PerReplica::new(values).into_first();
        first.replace(reduced);
        Ok(first)
    }

    #[track_caller]
    fn sum_in<T: Value>(
        &mut self,
        order: SumOrder,
        contributions: Vec<Vec<T>>,
    ) -> Result<Vec<T>, Error> {
        match order {
            SumOrder::Fastest => {
                let mut sum = sum::in_order(contributions);
                self.add_over_workers(&mut sum)?;
                Ok(sum)
            }
            SumOrder::TensorFlowRing => {
                Ok(sum::around_ring(&self.contributions_of_all(contributions)?))
            }
        }
    }

    /// The group of the workers, and where communication is counted.
    pub(crate) fn worker(&mut self) -> (&mut Group, &mut CommunicationStats) {
        (self.group, self.communication_stats)
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

    /// All-gathers equally long contributions of all replicas, in the order of the replicas;
    /// counted in the stats as the all-reduce that it is a part of.
    #[track_caller]
    fn contributions_of_all<T: Value>(&mut self, own: Vec<Vec<T>>) -> Result<Vec<Vec<T>>, Error> {
        if self.group.world() == 1 {
            return Ok(own);
        }
        let began = Instant::now();
        let len = own.first().map_or(0, Vec::len);
        let own = own.concat();
        let mut all = vec![T::default(); own.len() * self.group.world() as usize];
        self.group.all_gather(&own, &mut all)?;
        self.communication_stats
            .count(len * size_of::<T>(), began.elapsed());
        if len == 0 {
            return Ok(vec![Vec::new(); self.num_replicas_in_sync()]);
        }
        Ok(all.chunks(len).map(<[T]>::to_vec).collect())
    }
}

pub(crate) fn refuse_integer_mean<T: Value>(op: ReplicaReduceOp) -> Result<(), Error> {
    if op == ReplicaReduceOp::Mean && !T::IS_FLOAT {
        return Err(Error::IntegerMean { found: T::TYPE });
    }
    Ok(())
}

/// Whether a sum is made in `f32`: one of as many bits as these floats have stops growing at 256 or
/// 2,048 times an element, or ends at 65,504.
pub(super) fn is_short<T: Value>() -> bool {
    matches!(T::TYPE, ElementType::F16 | ElementType::Bf16)
}

/// Each value as the nearest of another type.
pub(super) fn converted<T: Value, U: Value>(values: &[T]) -> Result<Vec<U>, Error> {
    let mut others = vec![U::default(); values.len()];
    convert_slice(values, &mut others)?;
    Ok(others)
}

/// Short floats reduced over this worker's replicas, and rounded once. A mean is divided here, as
/// the sum may be infinite where the mean is not; that of the workers' means is that of all.
fn reduced_here<T: Value>(
    op: ReplicaReduceOp,
    contributions: Vec<Vec<T>>,
) -> Result<Vec<T>, Error> {
    let locals = contributions.len();
    if locals == 1 {
        return Ok(sum::in_order(contributions));
    }
    let wide = contributions.iter().map(|own| converted(own));
    let mut reduced: Vec<f32> = sum::in_order(wide.collect::<Result<_, _>>()?);
    if op == ReplicaReduceOp::Mean {
        divide(&mut reduced, locals);
    }
    converted(&reduced)
}

fn divide<T: Value>(sums: &mut [T], count: usize) {
    sums.iter_mut().for_each(|sum| *sum = sum.divided(count));
}

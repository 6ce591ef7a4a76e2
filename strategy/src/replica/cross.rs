//! `CrossReplica`, TensorFlow's cross-replica context: reductions over all replicas from one thread
//! a worker. Those of arrays whose shapes differ are in `arrays`.

use std::time::Instant;

use meshwork_collectives::{self as collectives, Group};

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

use std::time::Instant;

use meshwork_collectives::{self as collectives, Element, Group, Rank};

use crate::Error;
use crate::strategy::Traffic;

/// How the values of several replicas become one.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum ReduceOp {
    /// Their sum.
    Sum,
    /// Their arithmetic mean: the sum divided by the number of replicas.
    Mean,
}

/// One step on one replica: what it can find out and do together with the others.
#[derive(Debug)]
pub struct ReplicaContext<'a> {
    group: &'a mut Group,
    traffic: &'a mut Traffic,
}

impl<'a> ReplicaContext<'a> {
    pub(crate) fn new(group: &'a mut Group, traffic: &'a mut Traffic) -> Self {
        Self { group, traffic }
    }

    /// This replica's number among all that train together, from 0.
    #[must_use]
    #[doc(alias = "replica_id_in_sync_group")]
    pub fn replica_id(&self) -> Rank {
        self.group.rank()
    }

    /// How many replicas train together.
    #[must_use]
    pub fn num_replicas_in_sync(&self) -> usize {
        self.group.world() as usize
    }

    /// Replaces `values`, on every replica, by their sum or mean over all replicas. All replicas
    /// end with the same bits.
    ///
    /// # Shapes
    /// `values` has the same length on every replica.
    ///
    /// # Errors
    /// [`Error::Group`]; `values` are then unspecified.
    #[track_caller]
    pub fn all_reduce(&mut self, op: ReduceOp, values: &mut [f32]) -> Result<(), Error> {
        let began = Instant::now();
        reduce_values(self.group, op, values)?;
        if self.group.world() > 1 {
            self.traffic.count(size_of_val(values), began.elapsed());
        }
        Ok(())
    }
}

/// A number that can be divided by how many replicas there are.
pub(crate) trait Real: Element {
    fn divide(&mut self, replicas: u32);
}

impl Real for f32 {
    fn divide(&mut self, replicas: u32) {
        // Exact up to 2^24 replicas, far beyond any group.
        *self /= replicas as Self;
    }
}

impl Real for f64 {
    fn divide(&mut self, replicas: u32) {
        *self /= Self::from(replicas);
    }
}

#[track_caller]
pub(crate) fn reduce_values<T: Real>(
    group: &mut Group,
    op: ReduceOp,
    values: &mut [T],
) -> Result<(), Error> {
    group.all_reduce(values, collectives::ReduceOp::Sum)?;
    if op == ReduceOp::Mean {
        values
            .iter_mut()
            .for_each(|value| value.divide(group.world()));
    }
    Ok(())
}

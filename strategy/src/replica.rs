use std::time::Instant;

use meshwork_collectives::{self as collectives, Element, Group, Rank};

use crate::strategy::Traffic;
use crate::{Error, hash};

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

    /// As [`all_reduce`](Self::all_reduce) with a sum, and checks in the same operation that all
    /// replicas hold the same bits in `copy`, their copy of the model.
    ///
    /// # Shapes
    /// The last [`check_len`](Self::check_len) of `values` are overwritten by the check.
    ///
    /// # Errors
    /// [`Error::ReplicasDiverged`], on every replica, with the ranks whose copy differs from rank
    /// 0's; [`Error::NoRoomForCheck`] before anything is sent; [`Error::Group`].
    #[track_caller]
    pub fn all_reduce_checked(&mut self, values: &mut [f32], copy: &[f32]) -> Result<(), Error> {
        let (found, needed) = (values.len(), self.check_len());
        let Some(start) = found.checked_sub(needed) else {
            return Err(Error::NoRoomForCheck { found, needed });
        };
        hash::write(hash::of(copy), self.group.rank(), &mut values[start..]);
        self.all_reduce(ReduceOp::Sum, values)?;
        let ranks = hash::different(&values[start..]);
        if ranks.is_empty() {
            Ok(())
        } else {
            Err(Error::ReplicasDiverged { ranks })
        }
    }

    /// How many numbers at the end of a buffer [`all_reduce_checked`](Self::all_reduce_checked)
    /// takes for its check: four per replica.
    #[must_use]
    pub fn check_len(&self) -> usize {
        hash::room(self.num_replicas_in_sync())
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

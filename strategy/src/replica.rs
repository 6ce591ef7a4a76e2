//! `ReplicaContext`, TensorFlow's replica context: all-reduce, all-gather and merge calls within a
//! step, and the check that copies of a model are bit-equal. Replicas of one worker meet in
//! `replica/rendezvous`; what they do as one is in `replica/cross`.

#[cfg(feature = "ndarray")]
pub(crate) mod arrays;
mod bytes;
pub(crate) mod cross;
pub(crate) mod rendezvous;
#[cfg(feature = "ndarray")]
mod slices;

use std::panic::Location;
use std::time::Instant;

use meshwork_collectives::{self as collectives, Group, Rank};

use crate::communication_stats::CommunicationStats;
use crate::distributed::PerReplica;
use crate::sum::SumOrder;
use crate::{Error, Fingerprint, Value, hash};
use cross::{CrossReplica, refuse_integer_mean};
use rendezvous::{Call, Detail, Rendezvous};

pub(crate) use bytes::{gather_bytes, gather_uneven, gather_words};
#[cfg(feature = "ndarray")]
pub use slices::IndexedSlices;

/// How the values of several replicas become one.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[doc(alias = "ReduceOp")]
pub enum ReplicaReduceOp {
    /// Their sum; of integers, it wraps.
    Sum,
    /// Their arithmetic mean: the sum divided by the number of replicas. Only of floats.
    Mean,
}

/// The context of one step on one replica: its number, and operations together with the other
/// replicas.
///
/// All replicas make the same calls in the same order.
#[derive(Debug)]
pub struct ReplicaContext<'a> {
    peers: Peers<'a>,
    position: ReplicaPosition,
}

/// Which replica this is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplicaPosition {
    /// Among those of its worker.
    pub(crate) local: usize,
    /// Replicas of this worker.
    pub(crate) locals: usize,
    /// Rank and number of the workers.
    pub(crate) worker: (Rank, u32),
    pub(crate) order: SumOrder,
}

#[derive(Debug)]
enum Peers<'a> {
    /// The worker's only replica.
    Alone(&'a mut Group, &'a mut CommunicationStats),
    Several(&'a Rendezvous<'a>),
}

impl<'a> ReplicaContext<'a> {
    pub(crate) fn alone(
        group: &'a mut Group,
        communication_stats: &'a mut CommunicationStats,
        position: ReplicaPosition,
    ) -> Self {
        let peers = Peers::Alone(group, communication_stats);
        Self { peers, position }
    }

    pub(crate) fn among_several(rendezvous: &'a Rendezvous<'a>, position: ReplicaPosition) -> Self {
        let peers = Peers::Several(rendezvous);
        Self { peers, position }
    }

    /// This replica's number among all that train together, from 0: those of worker 0 first.
    #[must_use]
    #[doc(alias = "replica_id_in_sync_group")]
    pub fn replica_id(&self) -> Rank {
        let ReplicaPosition {
            local,
            locals,
            worker: (rank, _),
            ..
        } = self.position;
        let number = u32::try_from(rank.index() * locals + local);
        Rank::new(number.expect("replicas of all workers are numbered as ranks are"))
    }

    /// This replica's number among those of its worker, from 0.
    #[must_use]
    pub fn local_id(&self) -> usize {
        self.position.local
    }

    /// How many replicas train together, those of all workers.
    #[must_use]
    pub fn num_replicas_in_sync(&self) -> usize {
        self.position.locals * self.position.worker.1 as usize
    }

    /// Replaces `values`, on every replica, by their sum or mean over all replicas. All replicas
    /// end with the same bits. Backwards, the gradient of the result goes through the same call.
    ///
    /// # Shapes
    /// `values` has the same length on every replica.
    ///
    /// # Errors
    /// [`Error::IntegerMean`], before anything is sent; [`Error::ShapesDiffer`] between replicas of
    /// one worker, [`Error::Group`] between workers; [`Error::ReplicaLeft`],
    /// [`Error::ReplicasDisagree`]. `values` are then unspecified.
    #[track_caller]
    pub fn all_reduce<T: Value>(
        &mut self,
        op: ReplicaReduceOp,
        values: &mut [T],
    ) -> Result<(), Error> {
        refuse_integer_mean::<T>(op)?;
        let order = self.position.order;
        if let (Peers::Alone(group, communication_stats), SumOrder::Fastest) =
            (&mut self.peers, order)
        {
            return reduce_here(group, communication_stats, op, values);
        }
        let detail = Some(Detail::Op(op));
        let sum = self.together_as("all_reduce", detail, values.to_vec(), |cross, values| {
            let (locals, replicas) = (values.len(), cross.num_replicas_in_sync());
            let values = PerReplica::new(values);
            if (order, op) != (SumOrder::TensorFlowRing, ReplicaReduceOp::Mean) {
                return Ok(vec![cross.reduce_in(order, op, values)?; locals]);
            }
            // TensorFlow compiles a division by a constant to this product.
            let mut sum = cross.reduce_in(order, ReplicaReduceOp::Sum, values)?;
            sum.iter_mut()
                .for_each(|value| *value = value.times_reciprocal(replicas));
            Ok(vec![sum; locals])
        })?;
        values.copy_from_slice(&sum);
        Ok(())
    }

    /// Waits until every replica of this worker is here, and lets one of them work on the values of
    /// all, with the other workers if it wants to. Each replica gets its part of the result.
    ///
    /// # Errors
    /// Those of `merge`; [`Error::ReplicaLeft`] when another replica's step ends without this call,
    /// [`Error::ReplicasDisagree`] when it makes another one, [`Error::ReplicaLate`];
    /// [`Error::ReplicaCount`] when the result is not one for each replica.
    #[track_caller]
    pub fn merge_call<T: Send + 'static, R: Send + 'static>(
        &mut self,
        value: T,
        merge: impl FnOnce(&mut CrossReplica<'_>, PerReplica<T>) -> Result<PerReplica<R>, Error>,
    ) -> Result<R, Error> {
        self.together_as("merge_call", None, value, |cross, values| {
            let needed = values.len();
            let merged = merge(cross, PerReplica::new(values))?.into_vec();
            match merged.len() {
                found if found == needed => Ok(merged),
                found => Err(Error::ReplicaCount { found, needed }),
            }
        })
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
        let start = values.len().saturating_sub(self.check_len());
        self.write_check(copy, &mut values[start..])?;
        self.all_reduce(ReplicaReduceOp::Sum, values)?;
        self.read_check(&values[start..])
    }

    /// Writes what [`read_check`](Self::read_check) compares, once it was summed over all replicas
    /// as exactly as `f32` can: a hash of this replica's `copy` of the model.
    ///
    /// # Shapes
    /// `room` has [`check_len`](Self::check_len) numbers, all of which are overwritten.
    ///
    /// # Errors
    /// [`Error::NoRoomForCheck`]
    pub fn write_check(&self, copy: &[f32], room: &mut [f32]) -> Result<(), Error> {
        self.write_fingerprint(Fingerprint::of(copy), room)
    }

    /// As [`write_check`](Self::write_check), of a copy that is not contiguous.
    ///
    /// # Errors
    /// [`Error::NoRoomForCheck`]
    pub fn write_fingerprint(&self, copy: Fingerprint, room: &mut [f32]) -> Result<(), Error> {
        self.check_room(room)?;
        hash::write(copy, self.replica_id(), room);
        Ok(())
    }

    /// Compares the copies of all replicas by the hashes that [`write_check`](Self::write_check)
    /// has written, once summed.
    ///
    /// # Shapes
    /// `room` has [`check_len`](Self::check_len) numbers.
    ///
    /// # Errors
    /// [`Error::ReplicasDiverged`], [`Error::NoRoomForCheck`]
    pub fn read_check(&self, room: &[f32]) -> Result<(), Error> {
        self.check_room(room)?;
        let ranks = hash::different(room);
        if ranks.is_empty() {
            Ok(())
        } else {
            Err(Error::ReplicasDiverged { ranks })
        }
    }

    fn check_room(&self, room: &[f32]) -> Result<(), Error> {
        match (room.len(), self.check_len()) {
            (found, needed) if found == needed => Ok(()),
            (found, needed) => Err(Error::NoRoomForCheck { found, needed }),
        }
    }

    /// How many numbers at the end of a buffer [`all_reduce_checked`](Self::all_reduce_checked)
    /// takes for its check: four per replica.
    #[must_use]
    pub fn check_len(&self) -> usize {
        hash::room(self.num_replicas_in_sync())
    }

    /// The group, where this is the only replica of its worker.
    pub(crate) fn only_group(&mut self) -> Result<&mut Group, Error> {
        self.only_worker().map(|(group, _)| group)
    }

    /// The same, and where communication is counted.
    pub(crate) fn only_worker(&mut self) -> Result<(&mut Group, &mut CommunicationStats), Error> {
        match &mut self.peers {
            Peers::Alone(group, communication_stats) => Ok((group, communication_stats)),
            Peers::Several(_) => Err(Error::SeveralReplicas {
                replicas: self.position.locals,
            }),
        }
    }

    #[track_caller]
    pub(crate) fn together_as<T: Send + 'static, R: Send + 'static>(
        &mut self,
        name: &'static str,
        detail: Option<Detail>,
        value: T,
        all: impl FnOnce(&mut CrossReplica<'_>, Vec<T>) -> Result<Vec<R>, Error>,
    ) -> Result<R, Error> {
        let ReplicaPosition {
            locals,
            local,
            order,
            ..
        } = self.position;
        match &mut self.peers {
            Peers::Alone(group, communication_stats) => {
                let mut cross = CrossReplica::new(group, communication_stats, locals, order);
                all(&mut cross, vec![value]).map(|results| PerReplica::new(results).into_first())
            }
            Peers::Several(rendezvous) => {
                let call = Call::new::<T>(name, detail, Location::caller());
                rendezvous.exchange(local, call, value, |cross, values| all(cross, values))
            }
        }
    }
}

/// Reduces in place, without a copy.
#[track_caller]
fn reduce_here<T: Value>(
    group: &mut Group,
    communication_stats: &mut CommunicationStats,
    op: ReplicaReduceOp,
    values: &mut [T],
) -> Result<(), Error> {
    if group.world() == 1 {
        return Ok(());
    }
    let began = Instant::now();
    let op = match op {
        ReplicaReduceOp::Sum => collectives::ReduceOp::Sum,
        ReplicaReduceOp::Mean => collectives::ReduceOp::Mean,
    };
    group.all_reduce(values, op)?;
    communication_stats.count(size_of_val(values), began.elapsed());
    Ok(())
}

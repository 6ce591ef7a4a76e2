//! Buffers that go from device to device, by a communicator of their backend.
//!
//! ```text
//!   all ranks    offer ──> decide ──> name of rank 0 ──> join, and tell each other how far they are
//!   each call    announce (the contract) ──> carry out, with an eye on the group
//! ```
//!
//! What all must agree on goes over the group, which is encrypted and knows who is alive; the bytes
//! go past it.
//!
//! Who is missing is known by name where the group knows it: a process that is gone, a rank that
//! has not announced the call, one whose device or library has failed, one that was refused. A rank
//! that has announced it and whose device does not get there cannot be told from those that wait
//! for it: NCCL says of itself that something is missing and not who. Then all give up when the
//! time is up, and NCCL's own service for this, which its program `ncclras` asks, may know more.

use std::ops::ControlFlow;
use std::panic::Location;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use meshwork_accel::{
    self as accel, CommunicatorId, CommunicatorRank, DeviceBuffer, DeviceCollective,
    DeviceCommunicator, DeviceCommunicators, DeviceId,
};

use super::rounds::Rounds;
use super::route::{Capabilities, CommunicatorScope, FallbackReason, Route, decide};
use crate::operation::OperationSpec;
use crate::session::Session;
use crate::{Group, OperationError, Rank};

/// A communicator, and the members that it is of.
pub(super) struct Direct<B> {
    communicator: Box<dyn DeviceCommunicator<Buffer = B>>,
    device: DeviceId,
    epoch: u64,
    /// The group, as only its ranks announce what is carried out; another one after a change of
    /// members.
    of: Weak<Mutex<Session>>,
}

impl<B: DeviceBuffer> Direct<B> {
    /// Makes a communicator, if all ranks can; all come to the same end.
    #[track_caller]
    pub(super) fn join<A: DeviceCommunicators<Buffer = B>>(
        group: &mut Group,
        accelerator: &A,
        device: DeviceId,
        reach: CommunicatorScope,
    ) -> Result<(Option<Self>, Route), OperationError> {
        match Self::try_join(group, accelerator, device, reach)? {
            Ok((direct, library)) => Ok((Some(direct), Route::Direct { library })),
            Err(fallback_reason) => {
                tracing::info!(%fallback_reason, "device buffers go through host memory");
                Ok((None, Route::Staged(fallback_reason)))
            }
        }
    }

    #[track_caller]
    fn try_join<A: DeviceCommunicators<Buffer = B>>(
        group: &mut Group,
        accelerator: &A,
        device: DeviceId,
        reach: CommunicatorScope,
    ) -> Result<Result<(Self, String), FallbackReason>, OperationError> {
        let available = accelerator.devices().len();
        let found = accelerator.devices().get(device.index());
        let found = found.ok_or(accel::Error::UnknownDevice { device, available })?;
        let own = accelerator.library();
        let offer = Capabilities::new(own.as_deref().ok(), found.address(), reach);
        let library = match decide(&group.hear_all(&offer)?, &group.settled().hosts()) {
            Ok(library) => library,
            Err(fallback_reason) => {
                return Ok(Err(fallback_reason.known_here(group.rank(), own.err())));
            }
        };
        let name = match group.agree_on_name(accelerator)? {
            Ok(name) => name,
            Err(fallback_reason) => return Ok(Err(fallback_reason)),
        };
        let place = CommunicatorRank::new(group.rank().index(), group.world() as usize)?;
        let patience = group.settled().timeouts.join();
        let (joined, missing) = Rounds::of(group, patience, Location::caller())
            .join(|watch| accelerator.join(device, &name, place, watch))?;
        if let Some(rank) = missing {
            let fallback_reason = FallbackReason::NotJoined { rank, error: None };
            return Ok(Err(fallback_reason.known_here(group.rank(), joined.err())));
        }
        let epoch = group.epoch().number();
        let of = Arc::downgrade(&group.session);
        Ok(joined
            .map(|communicator| Self {
                communicator,
                device,
                epoch,
                of,
            })
            .map(|direct| (direct, library))
            .map_err(|error| FallbackReason::NotJoined {
                rank: group.rank(),
                error: Some(Box::new(error)),
            }))
    }

    /// Whether it carries such a collective out; if not, no rank's does.
    pub(super) fn takes(&self, work: &DeviceCollective<'_, B>) -> bool {
        let (op, element) = (work.op(), work.target().element_type());
        op.is_none_or(|op| op.supports(element)) && self.communicator.supports(op, element)
    }

    /// Announces a collective, whose `spec` is all but its lengths, and carries it out.
    pub(super) fn carry_out(
        &mut self,
        group: &mut Group,
        spec: OperationSpec,
        work: DeviceCollective<'_, B>,
    ) -> Result<(), OperationError> {
        let now = group.epoch().number();
        if self.epoch != now {
            let made = self.epoch;
            return Err(OperationError::CommunicatorOutdated { made, now });
        }
        if !self.of.ptr_eq(&Arc::downgrade(&group.session)) {
            return Err(OperationError::CommunicatorOfOtherGroup);
        }
        for buffer in [Some(work.target()), work.source()].into_iter().flatten() {
            let (left, right) = (self.device, buffer.device());
            if left != right {
                return Err(accel::Error::DeviceMismatch { left, right }.into());
            }
        }
        let element = work.target().element_type();
        group.agree(element, spec.with_lengths(PAST_THE_GROUP))?;
        let patience = group.settled().timeouts.operation();
        let done = group.watched(patience, |watch| self.communicator.carry_out(work, watch));
        done.map_err(|error| group.communicator_failed(error))
    }
}

impl FallbackReason {
    /// With the error, on the rank that has it.
    fn known_here(self, here: Rank, known: Option<accel::Error>) -> Self {
        let known = known.map(Box::new);
        match self {
            Self::NoLibrary { rank, .. } if rank == here => Self::NoLibrary { rank, error: known },
            Self::NotJoined { rank, .. } if rank == here => Self::NotJoined { rank, error: known },
            other => other,
        }
    }
}

impl Group {
    /// What every rank offers, by rank.
    #[track_caller]
    fn hear_all(&mut self, own: &Capabilities) -> Result<Vec<Capabilities>, OperationError> {
        let mut all = vec![0; Capabilities::BYTES * self.world() as usize];
        self.all_gather(&own.encode(), &mut all)?;
        let (offers, _) = all.as_chunks();
        Ok(offers.iter().map(Capabilities::decode).collect())
    }

    /// The name that rank 0 gives all others, if it has one.
    #[track_caller]
    fn agree_on_name(
        &mut self,
        accelerator: &impl DeviceCommunicators,
    ) -> Result<Result<CommunicatorId, FallbackReason>, OperationError> {
        let rank = Rank::CHIEF;
        let made = (self.rank() == rank).then(|| accelerator.name());
        let (made, error) = match made.transpose() {
            Ok(made) => (made, None),
            Err(error) => (None, Some(error)),
        };
        let mut told = [0; 1 + CommunicatorId::BYTES];
        if let Some(name) = made {
            told[0] = 1;
            told[1..].copy_from_slice(name.as_bytes());
        }
        self.broadcast(&mut told, rank)?;
        let [1, name @ ..] = told else {
            let fallback_reason = FallbackReason::NoLibrary { rank, error: None };
            return Ok(Err(fallback_reason.known_here(self.rank(), error)));
        };
        Ok(Ok(CommunicatorId::from_bytes(name)))
    }

    /// Waits for a device until the group fails or the time is up.
    fn watched<R>(
        &self,
        patience: Duration,
        run: impl FnOnce(&mut accel::CancelCheck<'_>) -> R,
    ) -> R {
        let (failure, begun) = (self.settled().context.control.failure(), Instant::now());
        run(&mut || {
            if failure.borrow().is_some() || begun.elapsed() >= patience {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })
    }

    /// Ends the group after a communicator has failed, unless that was for the group's own end.
    fn communicator_failed(&mut self, error: accel::Error) -> OperationError {
        let mut session = self.settled();
        session.undo();
        // Who is lost to a device is soon lost to the group, which knows by name whom.
        if let accel::Error::PeerLost { .. } = error {
            let silence = session.timeouts.silence();
            session.failure_within(silence);
        }
        let told = session.alive().err();
        drop(session);
        told.unwrap_or_else(|| self.device_failed(error))
    }
}

/// Stands in an announcement for the way that the bytes go; no chunks are cut so.
const PAST_THE_GROUP: &[usize] = &[usize::MAX, 0];

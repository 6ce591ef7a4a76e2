//! What carries the bytes of a group's operations from rank to rank.
//!
//! Everything that tells shared memory from links is behind [`Medium::carry_out`]; the
//! [session](crate::session) does not know which of them it has.

pub(crate) mod truth;

use std::sync::Arc;
use std::time::Duration;

use meshwork_accel::Element;
use tokio::sync::watch;

use crate::contract::Contract;
use crate::failure::Failure;
use crate::flight_recorder::{MediumKind, OperationLog, Serial};
use crate::links::LinkMedium;
use crate::operation::{Carried, Request, Work, WorkKind};
use crate::schedule::Algorithm;
use crate::session::SessionContext;
use crate::shm::{Registry, ShmCommunicator, WaitObserver};
use crate::{Communication, MeasuredLinks, Member, OperationError, Rank};

/// How bytes get from one rank to another.
pub(crate) enum Medium {
    /// All ranks share memory.
    Shm(ShmCommunicator),
    /// By streams, and host by host where that is faster.
    Links(Box<LinkMedium>),
}

/// What a medium has to know of the session whose operation it carries out.
pub(crate) struct Conditions<'a> {
    pub(crate) rank: Rank,
    pub(crate) members: &'a [Member],
    pub(crate) context: &'a SessionContext,
    /// Tells when the group has failed.
    pub(crate) failure: &'a watch::Receiver<Option<OperationError>>,
    pub(crate) log: &'a OperationLog,
    /// How long the operation may take.
    pub(crate) limit: Duration,
}

impl Medium {
    pub(crate) fn kind(&self) -> MediumKind {
        match self {
            Self::Shm(_) => MediumKind::Memory,
            Self::Links(_) => MediumKind::Links,
        }
    }

    /// Where the buffers are registered that other ranks of the host can reach.
    pub(crate) fn registry(&self) -> Arc<Registry> {
        match self {
            Self::Shm(communicator) => communicator.registry().clone(),
            Self::Links(_) => Registry::private(),
        }
    }

    /// Makes sure that whoever waits for this rank sees that it has gone.
    pub(crate) fn close(&self) {
        match self {
            Self::Shm(communicator) => communicator.close(),
            // Streams end with it.
            Self::Links(_) => {}
        }
    }

    /// From now on operations go by these links; in memory they go as before.
    pub(crate) fn go_by(&mut self, links: &MeasuredLinks) {
        match self {
            Self::Shm(_) => {}
            Self::Links(medium) => medium.go_by(links),
        }
    }

    /// By which algorithm an operation is done, if there are several; all ranks come to the same.
    #[inline]
    pub(crate) fn algorithm(
        &mut self,
        contract: &Contract,
        digest: u64,
        work: WorkKind,
        communication: Communication,
    ) -> Option<Algorithm> {
        match self {
            Self::Shm(_) => None,
            Self::Links(links) => links.algorithm(contract, digest, work, communication),
        }
    }

    /// Carries an operation out.
    #[inline(always)]
    pub(crate) fn carry_out(
        &mut self,
        conditions: &Conditions<'_>,
        request: &Request,
        work: Carried<'_>,
    ) -> Result<(), Failure> {
        match work {
            Carried::Truth(work) => self.run_truth(conditions, request, work),
            Carried::One(work) => self.run_one(conditions, request, work),
            Carried::Two(work) => self.run_two(conditions, request, work),
            Carried::Four(work) => self.run_four(conditions, request, work),
            Carried::Eight(work) => self.run_eight(conditions, request, work),
        }
    }

    fn run_truth(
        &mut self,
        conditions: &Conditions<'_>,
        request: &Request,
        work: Work<'_, bool>,
    ) -> Result<(), Failure> {
        truth::carry_out(work, |work| self.run_one(conditions, request, work))
    }

    #[inline(always)]
    fn run<T: Element>(
        &mut self,
        conditions: &Conditions<'_>,
        request: &Request,
        work: Work<'_, T>,
    ) -> Result<(), Failure> {
        match self {
            Self::Shm(communicator) => {
                let observer = ShmStallObserver {
                    conditions,
                    serial: request.serial,
                };
                let waiter = communicator.waiter(conditions.limit, &observer);
                communicator.run(request, &waiter, work)
            }
            Self::Links(links) => links.run(conditions, request, work),
        }
    }
}

/// Each is compiled here, once, and in no crate that calls operations: unlike generic code.
macro_rules! compiled_here {
    ($($run:ident of $number:ty),+) => {
        impl Medium {$(
            fn $run(
                &mut self,
                conditions: &Conditions<'_>,
                request: &Request,
                work: Work<'_, $number>,
            ) -> Result<(), Failure> {
                self.run(conditions, request, work)
            }
        )+}
    };
}

compiled_here!(run_one of u8, run_two of u16, run_four of u32, run_eight of u64);

/// Looks on while an operation waits for ranks that share memory with this one.
struct ShmStallObserver<'a> {
    conditions: &'a Conditions<'a>,
    serial: Serial,
}

impl WaitObserver for ShmStallObserver<'_> {
    fn over(&self) -> bool {
        self.conditions.failure.borrow().is_some()
    }

    fn waits(&self, place: usize) {
        let Conditions {
            members,
            context,
            log,
            ..
        } = self.conditions;
        let awaited = members[place].rank();
        context.waits(&log.stall_observer(), self.serial, awaited);
    }
}

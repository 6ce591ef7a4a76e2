//! What stands behind every operation of a group: its contract, its deadline, and its end.

mod context;
mod spec;

use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use meshwork_accel::Element;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::contract::{Call, Contract, Kind, site};
use crate::execute::Scratch;
use crate::flight_recorder::{Ending, MediumKind, OperationLog};
use crate::links::{LinkBroken, Links};
use crate::shm::{Receiver, Registry, ShmCommunicator, ShmError, Task};
use crate::{Choices, Communication, Error, LossCause, Member, Rank, Timeouts, config};

use context::ShmStallObserver;
pub(super) use context::{ControlPlane, SessionContext};
pub(super) use spec::{OperationSpec, Work};

use super::hierarchical::HierarchicalGroups;

/// One rank's means to carry operations out, one at a time.
pub(super) struct Session {
    pub(super) rank: Rank,
    pub(super) members: Arc<[Member]>,
    pub(super) world: u32,
    pub(super) medium: Medium,
    pub(super) context: Arc<SessionContext>,
    /// Notes the operations.
    pub(super) log: OperationLog,
    /// Tells when the group has failed.
    failure: watch::Receiver<Option<Error>>,
    pub(super) communication: Communication,
    /// What the algorithms would take over links, once that was asked for.
    pub(super) choices: Option<Choices>,
    pub(super) timeouts: Timeouts,
    pub(super) sequence: u64,
    /// Operations without an error.
    pub(super) completed: u64,
    pub(super) state: State,
    pub(super) origin: Origin,
    /// Tells this group from others of the same ties; 0 for the one that was joined.
    pub(super) number: u64,
    /// How often the members of the group that was joined have changed.
    pub(super) epoch: u64,
    /// How often it has been split.
    pub(super) splits: u64,
    /// Whether groups that are split from it may share memory where they can.
    pub(super) may_share_memory: bool,
    /// The groups inside hosts and across them, where there are such.
    pub(super) hierarchical: Option<Box<HierarchicalGroups>>,
}

/// Where a group comes from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Origin {
    /// It was joined, and its end is that of everything.
    Joined,
    /// It was split from another.
    Split,
}

/// How bytes get from one rank to another.
pub(super) enum Medium {
    /// All ranks share memory.
    Memory(ShmCommunicator),
    /// By streams.
    Links(Links, Scratch),
}

#[derive(Debug)]
pub(super) enum State {
    Live,
    Left,
    /// Every later call returns this.
    Failed(Error),
}

/// How long the end of a group is waited for that may have ended without a word.
pub(super) const ABORT_GRACE: Duration = Duration::from_millis(300);

impl Session {
    pub(super) fn new(
        (rank, members): (Rank, Arc<[Member]>),
        medium: Medium,
        context: Arc<SessionContext>,
        origin: Origin,
        (epoch, number): (u64, u64),
    ) -> Result<Self, Error> {
        Ok(Self {
            failure: context.control.failure(),
            log: context
                .recorder
                .open((epoch, number), (rank, members.clone())),
            origin,
            number,
            epoch,
            splits: 0,
            may_share_memory: false,
            hierarchical: None,
            rank,
            world: config::world(members.len())?,
            members,
            medium,
            context,
            communication: Communication::Auto,
            choices: None,
            timeouts: Timeouts::default(),
            sequence: 0,
            completed: 0,
            state: State::Live,
        })
    }

    /// Where the buffers are registered that other ranks of the host can reach.
    pub(super) fn registry(&self) -> Arc<Registry> {
        match &self.medium {
            Medium::Memory(communicator) => communicator.registry().clone(),
            Medium::Links(..) => Registry::private(),
        }
    }

    /// Carries one operation out. An error ends the group.
    pub(super) fn perform<T: Element>(
        &mut self,
        spec: OperationSpec,
        caller: &'static Location<'static>,
        work: Work<'_, T>,
    ) -> Result<(), Error> {
        let contract = spec.contract::<T>(self.home(), self.sequence + 1);
        self.ready(&contract, caller)?;
        self.sequence += 1;
        self.carry_out((contract, spec.digest), caller, work)?;
        self.completed += 1;
        Ok(())
    }

    pub(super) fn send<T: Element>(
        &mut self,
        caller: &'static Location<'static>,
        input: &[T],
        to: Rank,
    ) -> Result<(), Error> {
        let (sent, _) = self.log.messages(to);
        let spec = OperationSpec::new(Kind::Send, input.len()).with_root(to);
        let contract = spec.contract::<T>(self.home(), sent + 1);
        self.ready(&contract, caller)?;
        self.log.sends(to);
        self.carry_out((contract, 0), caller, Work::Send { input, to })
    }

    pub(super) fn receive<T: Element>(
        &mut self,
        caller: &'static Location<'static>,
        output: &mut [T],
        from: Rank,
    ) -> Result<(), Error> {
        let (_, received) = self.log.messages(from);
        // The same words as those of the sender.
        let spec = OperationSpec::new(Kind::Send, output.len()).with_root(self.rank);
        let contract = spec.contract::<T>(self.home(), received + 1);
        self.ready(&contract, caller)?;
        self.log.receives(from);
        self.carry_out((contract, 0), caller, Work::Receive { output, from })
    }

    /// What was announced last has not been carried out: it does not count as completed.
    pub(super) fn undo(&mut self) {
        self.completed = self.completed.saturating_sub(1);
    }

    /// The epoch, and which of its groups this is.
    fn home(&self) -> (u64, u64) {
        (self.epoch, self.number)
    }

    /// Whether the group can carry this call out.
    fn ready(
        &mut self,
        contract: &Contract,
        caller: &'static Location<'static>,
    ) -> Result<(), Error> {
        outside_async()?;
        self.alive()
            .inspect_err(|_| self.context.recorder.came_late(contract, caller))
    }

    /// Whether the group has not failed.
    pub(super) fn alive(&mut self) -> Result<(), Error> {
        if let State::Failed(error) = &self.state {
            return Err(error.clone());
        }
        // Seen by nobody before: what is told once is kept in the state. Whoever told it may be
        // gone.
        let changed = self.failure.has_changed().unwrap_or(true);
        let failed = changed.then(|| self.failure.borrow_and_update().clone());
        if let Some(error) = failed.flatten() {
            let error = self.with_completed(error);
            self.context.recorder.fail(&error);
            self.state = State::Failed(error.clone());
            return Err(error);
        }
        Ok(())
    }

    /// Does the work on whatever carries this group's bytes. An error ends the group.
    fn carry_out<T: Element>(
        &mut self,
        (contract, digest): (Contract, u64),
        caller: &'static Location<'static>,
        work: Work<'_, T>,
    ) -> Result<(), Error> {
        let medium = match self.medium {
            Medium::Memory(_) => MediumKind::Memory,
            Medium::Links(..) => MediumKind::Links,
        };
        let serial = self.log.begin(&contract, caller, medium);
        let done = match &mut self.medium {
            Medium::Memory(communicator) => {
                let stall_observer = ShmStallObserver {
                    context: &self.context,
                    failure: &self.failure,
                    members: &self.members,
                    log: &self.log,
                    serial,
                };
                let patience = communicator.waiter(self.timeouts.operation(), &stall_observer);
                let task = Task::new(contract, digest, caller, patience);
                through_memory(communicator, &task, work)
                    .map_err(|error| self.explain(error, &Call::new(contract, site(caller))))
            }
            Medium::Links(..) => self.over_links((contract, digest), (caller, serial), work),
        };
        let ending = match done {
            Ok(()) => Ending::Well,
            Err(_) => Ending::Failed,
        };
        self.log.end(ending);
        done.map_err(|error| self.end(error))
    }

    fn explain(&self, error: ShmError, call: &Call) -> Error {
        let (call, rank) = (Box::new(call.clone()), self.name_of(self.rank));
        match error {
            ShmError::Over => {
                let told = self.failure_within(self.timeouts.silence());
                told.unwrap_or_else(|| self.lost(self.rank))
            }
            ShmError::Closed(peer) => {
                // Whoever leaves a group that was joined also says why, by another way.
                let told = self.failure_within(match self.origin {
                    Origin::Joined => self.timeouts.silence(),
                    Origin::Split => ABORT_GRACE,
                });
                told.unwrap_or_else(|| {
                    Error::lost(Member::new(peer, self.address_of(peer)), LossCause::Left)
                })
            }
            ShmError::TimedOut(peer) => Error::TimedOut {
                call,
                rank,
                peer,
                waited: self.timeouts.operation(),
            },
            ShmError::Disagrees(peer, theirs) => Error::Disagreement {
                rank,
                mine: call,
                peer,
                theirs,
            },
            ShmError::Malformed(peer, error) => Error::Protocol { peer, error },
            ShmError::Uneven {
                peer,
                offered,
                expected,
            } => Error::Uneven {
                rank,
                peer,
                offered,
                expected,
            },
            ShmError::Unreachable(peer, kind) => Error::Memory { peer, kind },
        }
    }

    /// Why a link broke. Membership knows soon: it sees the same connection end.
    pub(super) fn verdict(&self, LinkBroken(rank): LinkBroken) -> Error {
        self.failure_within(self.timeouts.silence())
            .unwrap_or_else(|| self.lost(rank))
    }

    /// The rank in the group that was joined of one in this group.
    pub(super) fn name_of(&self, rank: Rank) -> Rank {
        self.members[rank.index()].rank()
    }

    fn address_of(&self, rank: Rank) -> String {
        let member = self.members.iter().find(|member| member.rank() == rank);
        member.map_or_else(String::new, |member| member.address().to_owned())
    }

    /// What is known when nobody says why.
    fn lost(&self, rank: Rank) -> Error {
        let peer = self.members[rank.index()].clone();
        Error::lost(peer, LossCause::Disconnected)
    }

    /// A loss with what this rank had completed by then.
    fn with_completed(&self, mut error: Error) -> Error {
        if let Error::RankLost { completed, .. } = &mut error {
            *completed = self.completed;
        }
        error
    }

    /// The error that the group has failed with, or fails with in this time.
    pub(super) fn failure_within(&self, time: Duration) -> Option<Error> {
        let mut failure = self.failure.clone();
        let failed = async { timeout(time, failed(&mut failure)).await.ok() };
        self.context.driver.block_on(failed)
    }

    /// Ends the group with `error`, or the one it has ended with before, and tells the others.
    pub(super) fn end(&mut self, error: Error) -> Error {
        if let State::Failed(earlier) = &self.state {
            return earlier.clone();
        }
        let SessionContext {
            control, driver, ..
        } = &*self.context;
        driver.block_on(control.give_up(error.clone()));
        let error = self
            .failure_within(self.timeouts.silence())
            .unwrap_or(error);
        let error = self.with_completed(error);
        self.context.recorder.fail(&error);
        self.state = State::Failed(error.clone());
        error
    }

    /// Says goodbye, and waits until all have.
    pub(super) fn leave(&mut self, caller: &'static Location<'static>) -> Result<(), Error> {
        self.meet(Kind::Leave, caller)?;
        if self.origin == Origin::Split {
            self.state = State::Left;
            return Ok(());
        }
        let mut failure = self.failure.clone();
        let world = self.world;
        let left = self.context.driver.block_on(async {
            tokio::select! {
                biased;
                () = self.context.control.leave(world) => Ok(()),
                error = failed(&mut failure) => Err(error),
            }
        });
        let left = left.map_err(|error| self.with_completed(error));
        self.state = match &left {
            Ok(()) => State::Left,
            Err(error) => State::Failed(error.clone()),
        };
        left
    }

    pub(super) fn meet(
        &mut self,
        kind: Kind,
        caller: &'static Location<'static>,
    ) -> Result<(), Error> {
        self.perform::<u8>(OperationSpec::new(kind, 0), caller, Work::Meet)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let live = matches!(self.state, State::Live);
        if let (true, Medium::Memory(communicator)) = (live, &self.medium) {
            // Whoever waits for this rank sees that it has gone.
            communicator.close();
        }
        if live && self.origin == Origin::Joined && outside_async().is_ok() {
            let peer = self.members[self.rank.index()].clone();
            self.end(Error::lost(peer, LossCause::Left));
        }
        if let (State::Failed(_), Origin::Joined) = (&self.state, self.origin) {
            self.context.recorder.dropped();
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("rank", &self.rank)
            .field("sequence", &self.sequence)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

/// Does the work on memory that the ranks share.
fn through_memory<T: Element>(
    communicator: &mut ShmCommunicator,
    task: &Task<'_>,
    work: Work<'_, T>,
) -> Result<(), ShmError> {
    let done = match work {
        Work::Meet | Work::Agree => communicator.barrier(task),
        Work::Reduce {
            buffer,
            reduction,
            root,
        } => {
            let receiver = root.map_or(Receiver::All, |root| Receiver::One(root.index()));
            communicator.reduce(task, buffer, reduction, receiver)
        }
        Work::Pull(transfer) => communicator.pull(task, transfer),
        Work::Broadcast { buffer, root } => communicator.broadcast(task, buffer, root.index()),
        Work::Send { input, to } => communicator.send(task, input, to.index()),
        Work::Receive { output, from } => communicator.receive(task, output, from.index()),
    };
    communicator.wake_sleepers();
    if done.is_err() {
        // What others were told of this rank's memory ends here.
        communicator.close();
    }
    done
}

/// Returns when the group is over, with the reason.
pub(super) async fn failed(failure: &mut watch::Receiver<Option<Error>>) -> Error {
    match failure
        .wait_for(Option::is_some)
        .await
        .map(|error| error.clone())
    {
        Ok(Some(error)) => error,
        // The driver is gone: either the group was left, and nobody waits here, or it has
        // announced its failure before, and this is not reached.
        _ => std::future::pending().await,
    }
}

pub(super) fn outside_async() -> Result<(), Error> {
    if Handle::try_current().is_ok() {
        Err(Error::InsideAsync)
    } else {
        Ok(())
    }
}

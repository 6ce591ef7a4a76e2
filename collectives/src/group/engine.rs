//! What stands behind every operation of a group: its contract, its deadline, and its end.

mod asked;
mod ties;

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
use crate::links::{Broken, Links};
use crate::memory::{Domain, Halt, Receiver, Registry, Task};
use crate::recorder::{Ending, Medium, Pen};
use crate::{Choices, Communication, Error, LossCause, Member, Rank, Timeouts, config};

pub(super) use asked::{Asked, Work};
use ties::Lookout;
pub(super) use ties::{Bond, Ties};

use super::levels::Levels;

/// One rank's means to carry operations out, one at a time.
pub(super) struct Engine {
    pub(super) rank: Rank,
    pub(super) members: Arc<[Member]>,
    pub(super) world: u32,
    pub(super) transport: Transport,
    pub(super) ties: Arc<Ties>,
    /// Notes the operations.
    pub(super) pen: Pen,
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
    pub(super) levels: Option<Box<Levels>>,
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
pub(super) enum Transport {
    /// All ranks share memory.
    Memory(Domain),
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
pub(super) const HEARSAY: Duration = Duration::from_millis(300);

impl Engine {
    pub(super) fn new(
        (rank, members): (Rank, Arc<[Member]>),
        transport: Transport,
        ties: Arc<Ties>,
        origin: Origin,
        (epoch, number): (u64, u64),
    ) -> Result<Self, Error> {
        Ok(Self {
            failure: ties.bond.failure(),
            pen: ties.recorder.open((epoch, number), (rank, members.clone())),
            origin,
            number,
            epoch,
            splits: 0,
            may_share_memory: false,
            levels: None,
            rank,
            world: config::world(members.len())?,
            members,
            transport,
            ties,
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
        match &self.transport {
            Transport::Memory(domain) => domain.registry().clone(),
            Transport::Links(..) => Registry::private(),
        }
    }

    /// Carries one operation out. An error ends the group.
    pub(super) fn perform<T: Element>(
        &mut self,
        asked: Asked,
        caller: &'static Location<'static>,
        work: Work<'_, T>,
    ) -> Result<(), Error> {
        let contract = asked.contract::<T>(self.home(), self.sequence + 1);
        self.ready(&contract, caller)?;
        self.sequence += 1;
        self.carry_out((contract, asked.digest), caller, work)?;
        self.completed += 1;
        Ok(())
    }

    pub(super) fn send<T: Element>(
        &mut self,
        caller: &'static Location<'static>,
        input: &[T],
        to: Rank,
    ) -> Result<(), Error> {
        let (sent, _) = self.pen.messages(to);
        let asked = Asked::new(Kind::Send, input.len()).with_root(to);
        let contract = asked.contract::<T>(self.home(), sent + 1);
        self.ready(&contract, caller)?;
        self.pen.sends(to);
        self.carry_out((contract, 0), caller, Work::Send { input, to })
    }

    pub(super) fn receive<T: Element>(
        &mut self,
        caller: &'static Location<'static>,
        output: &mut [T],
        from: Rank,
    ) -> Result<(), Error> {
        let (_, received) = self.pen.messages(from);
        // The same words as those of the sender.
        let asked = Asked::new(Kind::Send, output.len()).with_root(self.rank);
        let contract = asked.contract::<T>(self.home(), received + 1);
        self.ready(&contract, caller)?;
        self.pen.receives(from);
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
            .inspect_err(|_| self.ties.recorder.came_late(contract, caller))
    }

    /// Whether the group has not failed.
    pub(super) fn alive(&mut self) -> Result<(), Error> {
        if let State::Failed(error) = &self.state {
            return Err(error.clone());
        }
        // Seen by nobody before: what is told once is kept in the state. Whoever told it may be gone.
        let changed = self.failure.has_changed().unwrap_or(true);
        let failed = changed.then(|| self.failure.borrow_and_update().clone());
        if let Some(error) = failed.flatten() {
            let error = self.with_completed(error);
            self.ties.recorder.fail(&error);
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
        let medium = match self.transport {
            Transport::Memory(_) => Medium::Memory,
            Transport::Links(..) => Medium::Links,
        };
        let serial = self.pen.begin(&contract, caller, medium);
        let done = match &mut self.transport {
            Transport::Memory(domain) => {
                let lookout = Lookout {
                    ties: &self.ties,
                    failure: &self.failure,
                    members: &self.members,
                    pen: &self.pen,
                    serial,
                };
                let patience = domain.patience(self.timeouts.operation(), &lookout);
                let task = Task::new(contract, digest, caller, patience);
                through_memory(domain, &task, work)
                    .map_err(|halt| self.explain(halt, &Call::new(contract, site(caller))))
            }
            Transport::Links(..) => self.over_links((contract, digest), (caller, serial), work),
        };
        let ending = match done {
            Ok(()) => Ending::Well,
            Err(_) => Ending::Failed,
        };
        self.pen.end(ending);
        done.map_err(|error| self.end(error))
    }

    fn explain(&self, halt: Halt, call: &Call) -> Error {
        let (call, rank) = (Box::new(call.clone()), self.name_of(self.rank));
        match halt {
            Halt::Over => {
                let told = self.failure_within(self.timeouts.silence());
                told.unwrap_or_else(|| self.lost(self.rank))
            }
            Halt::Closed(peer) => {
                // Whoever leaves a group that was joined also says why, by another way.
                let told = self.failure_within(match self.origin {
                    Origin::Joined => self.timeouts.silence(),
                    Origin::Split => HEARSAY,
                });
                told.unwrap_or_else(|| {
                    Error::lost(Member::new(peer, self.address_of(peer)), LossCause::Left)
                })
            }
            Halt::TimedOut(peer) => Error::TimedOut {
                call,
                rank,
                peer,
                waited: self.timeouts.operation(),
            },
            Halt::Disagrees(peer, theirs) => Error::Disagreement {
                rank,
                mine: call,
                peer,
                theirs,
            },
            Halt::Malformed(peer, error) => Error::Protocol { peer, error },
            Halt::Uneven {
                peer,
                offered,
                expected,
            } => Error::Uneven {
                rank,
                peer,
                offered,
                expected,
            },
            Halt::Unreachable(peer, kind) => Error::Memory { peer, kind },
        }
    }

    /// Why a link broke. Membership knows soon: it sees the same connection end.
    pub(super) fn verdict(&self, Broken(rank): Broken) -> Error {
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
        self.ties.pilot.block_on(failed)
    }

    /// Ends the group with `error`, or the one it has ended with before, and tells the others.
    pub(super) fn end(&mut self, error: Error) -> Error {
        if let State::Failed(earlier) = &self.state {
            return earlier.clone();
        }
        let Ties { bond, pilot, .. } = &*self.ties;
        pilot.block_on(bond.give_up(error.clone()));
        let error = self
            .failure_within(self.timeouts.silence())
            .unwrap_or(error);
        let error = self.with_completed(error);
        self.ties.recorder.fail(&error);
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
        let left = self.ties.pilot.block_on(async {
            tokio::select! {
                biased;
                () = self.ties.bond.leave(world) => Ok(()),
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
        self.perform::<u8>(Asked::new(kind, 0), caller, Work::Meet)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let live = matches!(self.state, State::Live);
        if let (true, Transport::Memory(domain)) = (live, &self.transport) {
            // Whoever waits for this rank sees that it has gone.
            domain.close();
        }
        if live && self.origin == Origin::Joined && outside_async().is_ok() {
            let peer = self.members[self.rank.index()].clone();
            self.end(Error::lost(peer, LossCause::Left));
        }
        if let (State::Failed(_), Origin::Joined) = (&self.state, self.origin) {
            self.ties.recorder.dropped();
        }
    }
}

impl fmt::Debug for Engine {
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
    domain: &mut Domain,
    task: &Task<'_>,
    work: Work<'_, T>,
) -> Result<(), Halt> {
    let done = match work {
        Work::Meet | Work::Agree => domain.barrier(task),
        Work::Reduce {
            buffer,
            reduction,
            root,
        } => {
            let receiver = root.map_or(Receiver::All, |root| Receiver::One(root.index()));
            domain.reduce(task, buffer, reduction, receiver)
        }
        Work::Pull(errand) => domain.pull(task, errand),
        Work::Broadcast { buffer, root } => domain.broadcast(task, buffer, root.index()),
        Work::Send { input, to } => domain.send(task, input, to.index()),
        Work::Receive { output, from } => domain.receive(task, output, from.index()),
    };
    domain.settle();
    if done.is_err() {
        // What others were told of this rank's memory ends here.
        domain.close();
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

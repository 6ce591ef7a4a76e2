//! From one epoch to the next: who survives goes on, and who waits outside is let in.

use std::sync::Arc;

use meshwork_accel::ReduceOp;
use tracing::Span;
use tracing::field::Empty;

use super::{Group, no_thread};
use crate::agreement::PreviousEpoch;
use crate::driver::Driver;
use crate::links::{LinkMedium, Links};
use crate::medium::Medium;
use crate::quic::{Evidence, Kept, Met, Node, Remote};
use crate::session::{ControlPlane, GroupId, Session, SessionContext, State, outside_async};
use crate::shm::ShmCommunicator;
use crate::wire::{MemberState, Newcomer, NewcomerOffer, decode_newcomers, encode_newcomers};
use crate::{Error, GroupConfig, OperationError, config};

/// A membership of a group that does not change: the ranks between two changes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Epoch {
    number: u64,
    survivors: u32,
    completed: u64,
}

impl Epoch {
    /// Counted from 1, the same on all ranks.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// How many ranks were in the epoch before, too: they are the first, in the order that they had
    /// there, and the newcomers follow. 0 in the first epoch.
    #[must_use]
    pub fn survivors(&self) -> u32 {
        self.survivors
    }

    /// Operations of the epoch before that all survivors have completed, counted from its
    /// beginning; those that some have completed besides have to be made again.
    #[must_use]
    pub fn completed_before(&self) -> u64 {
        self.completed
    }

    pub(super) fn of(control: &ControlPlane) -> Self {
        let decided = match control {
            ControlPlane::Remote(remote) => remote.view().decision.as_ref(),
            ControlPlane::Local(_) => None,
        };
        decided.map_or(
            Self {
                number: 1,
                survivors: 0,
                completed: 0,
            },
            |decision| Self {
                number: decision.epoch,
                survivors: u32::try_from(decision.survivors.len())
                    .expect("survivors have ranks, which are u32"),
                completed: decision.completed,
            },
        )
    }
}

impl Group {
    /// The epoch that the group is in.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        Epoch::of(&self.settled().context.control)
    }

    /// Operations of this epoch that this rank has completed.
    #[must_use]
    pub fn completed(&self) -> u64 {
        self.settled().completed
    }

    /// Goes on without the ranks that were lost: the survivors agree on who they are, and become
    /// the ranks of a new epoch, numbered anew from 0 without gaps.
    ///
    /// To be called by all survivors after an operation has failed with
    /// [`OperationError::RankLost`] or another error; a group that has not failed is ended by it.
    /// It waits for a rank that is alive but has not called it yet, for up to half of
    /// [`Timeouts::join`](crate::Timeouts::join).
    ///
    /// Two sides never go on: it takes more than half of the ranks of the epoch that is over, or
    /// exactly half with rank 0 among them; for two ranks see
    /// [`TwoMemberPolicy`](crate::TwoMemberPolicy). What all survivors have completed is in
    /// [`Epoch::completed_before`]. Groups that were split from this one are over, and buffers of
    /// [`alloc`](Self::alloc) are private ones from now on; what
    /// [`set_communication`](Self::set_communication) and
    /// [`set_operation_timeout`](Self::set_operation_timeout) have chosen stays.
    ///
    /// ```no_run
    /// use meshwork_collectives::{OperationError, Group, ReduceOp};
    ///
    /// fn step(group: &mut Group, gradients: &mut [f32]) -> Result<(), OperationError> {
    ///     let mine = gradients.to_vec();
    ///     while let Err(OperationError::RankLost { .. }) = group.all_reduce(gradients, ReduceOp::Sum) {
    ///         group.shrink()?;
    ///         gradients.copy_from_slice(&mine);
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// [`OperationError::NoMajority`] and [`OperationError::Excluded`], after which this group is
    /// over for good, [`OperationError::NoEpochs`] and [`OperationError::InsideOperations`]; those
    /// of [`connect`](Self::connect) when yet another rank of the new epoch is lost meanwhile: then
    /// it can be called again.
    pub fn shrink(&mut self) -> Result<(), OperationError> {
        outside_async()?;
        self.outside_operations()?;
        let span = reconfiguration("shrink").entered();
        let mut session = self.settled();
        session.is_joined()?;
        let end = session.ended();
        let change = session.next(Vec::new(), end.as_ref())?;
        drop(session);
        self.become_next(change, &span)
    }

    /// Lets in the processes that wait in [`rejoin`](Self::rejoin), if there are any and the group
    /// has room.
    ///
    /// All ranks call it, like any operation. If somebody waits, a new epoch begins, in which the
    /// ranks of this one keep their order and come first; otherwise nothing changes. Newcomers know
    /// nothing of what was before: rank 0 never is one, so a [`broadcast`](Self::broadcast) from it
    /// gives them what they need. The ranks of before keep their
    /// [choice of algorithm](Self::set_communication), which newcomers have to make too. No more
    /// are let in at once than there are ranks, so that newcomers alone are no majority; the next
    /// call lets in the others.
    ///
    /// # Errors
    /// Those of [`all_reduce`](Self::all_reduce) and [`shrink`](Self::shrink).
    #[track_caller]
    pub fn grow(&mut self) -> Result<(), OperationError> {
        self.outside_operations()?;
        let waiting = encode_newcomers(&self.settled().pending_joiners()?);
        let newcomers = self.settle_newcomers(waiting)?;
        if newcomers.is_empty() {
            return Ok(());
        }
        let span = reconfiguration("grow").entered();
        let mut session = self.settled();
        // A rank that is lost here is missed when they agree.
        let end = session.leave().err();
        let change = session.next(newcomers, end.as_ref())?;
        drop(session);
        self.become_next(change, &span)
    }

    /// Operations that were started have a group that is theirs alone, and so would its next epoch
    /// be, and its own line.
    pub(super) fn outside_operations(&self) -> Result<(), OperationError> {
        match self.is_workers {
            true => Err(OperationError::InsideOperations),
            false => Ok(()),
        }
    }

    /// How many processes this rank knows to wait in [`rejoin`](Self::rejoin): another number than
    /// other ranks may know. None wait for a group that is not to change.
    ///
    /// Waits for the operations that were started before, but for one of them that asks.
    #[must_use]
    pub fn waiting(&self) -> usize {
        let waiting = self.settled().pending_joiners();
        waiting.map_or(0, |joiners| joiners.len())
    }

    /// The newcomers whom the rank knows that knows most of them: all ranks take its list.
    #[track_caller]
    fn settle_newcomers(&mut self, waiting: Vec<u8>) -> Result<Vec<Newcomer>, OperationError> {
        let mut longest = [NewcomerOffer::of(&waiting, self.rank).word()];
        self.all_reduce(&mut longest, ReduceOp::Max)?;
        let Some(NewcomerOffer { bytes, root }) = NewcomerOffer::read(longest[0]) else {
            return Ok(Vec::new());
        };
        let mut list = waiting;
        list.resize(bytes, 0);
        self.broadcast(&mut list, root)?;
        decode_newcomers(&list).map_err(|error| {
            let error = OperationError::Protocol { peer: root, error };
            self.settled().end(error)
        })
    }

    /// Joins a group that is running: blocks until its ranks let this process in by
    /// [`grow`](Self::grow).
    ///
    /// It comes in the place of a process that was lost, with the configuration of that one, whose
    /// place in the member list nobody else has at the moment; or as one that no list names, by
    /// [`GroupConfig::newcomer`]. Its rank in the group is another than its place.
    ///
    /// It begins with [`Communication::Auto`](crate::Communication::Auto): where the others have
    /// [chosen an algorithm](Self::set_communication), it has to choose the same before its first
    /// operation. How long its operations wait is its own, as `config` says.
    ///
    /// # Errors
    /// [`JoinError::NobodyAnswered`](crate::JoinError::NobodyAnswered),
    /// [`JoinError::NotAdmitted`](crate::JoinError::NotAdmitted) and
    /// [`JoinError::Full`](crate::JoinError::Full) after [`Timeouts::join`](crate::Timeouts::join);
    /// [`JoinError::Denied`](crate::JoinError::Denied),
    /// [`JoinError::SeedOfOtherJob`](crate::JoinError::SeedOfOtherJob) and
    /// [`JoinError::SeedOfOtherRank`](crate::JoinError::SeedOfOtherRank) when all who answer refuse
    /// this process; those of [`connect`](Self::connect).
    pub fn rejoin(config: &GroupConfig) -> Result<Self, Error> {
        outside_async()?;
        let _span = tracing::info_span!("join", again = true).entered();
        let driver = Arc::new(Driver::with_background_thread().map_err(no_thread)?);
        let met = driver.block_on(async {
            let node = Node::open(config).await?;
            let (own, evidence) = (MemberState::default(), Evidence::default());
            let view = node.agree(PreviousEpoch::nowhere(), own, evidence).await?;
            node.meet(view, Kept::new()).await
        });
        let (group, begun) = Self::begin(driver, met?)?;
        begun?;
        Ok(group)
    }

    /// A group whose members have met, or have not: then it has failed already, in the new epoch.
    pub(super) fn begin(
        driver: Arc<Driver>,
        met: Met,
    ) -> Result<(Self, Result<(), OperationError>), OperationError> {
        let Met { remote, links } = met;
        let ((rank, members), settings) = (remote.place(), remote.settings());
        if remote.has_cores() {
            driver.allow_spinning();
        }
        let alone = members.len() == 1;
        let may_share = settings.1 == crate::Transport::Auto && !alone;
        let (links, met) = match links {
            Ok(links) => (links, Ok(())),
            Err(error) => (Links::new([]), Err(error)),
        };
        let medium = match alone {
            true => Medium::Shm(ShmCommunicator::alone().map_err(no_thread)?),
            false => {
                let world = config::world_of(members.len());
                let links = LinkMedium::new(links, world, remote.cost_model(&members));
                Medium::Links(Box::new(links))
            }
        };
        let (epoch, recorder) = (remote.view().number, remote.recorder().clone());
        let context = SessionContext::new(ControlPlane::Remote(Box::new(remote)), driver, recorder);
        let mut session = Session::new(GroupId::joined(epoch), rank, members, medium, context);
        session.timeouts = settings.0;
        let begun = match met {
            Ok(()) if may_share => session.find_fast_paths(),
            Ok(()) => Ok(()),
            Err(error) => {
                session.state = State::Failed(error.clone());
                Err(error)
            }
        };
        session.completed = 0;
        Ok((Self::joined(session), begun))
    }

    /// Whatever comes of it, this rank is in the next epoch now: it has no vote in the last any
    /// more.
    fn become_next(&mut self, next: NextEpoch, span: &Span) -> Result<(), OperationError> {
        let session = self.settled();
        let (communication, operation) = (session.communication, session.timeouts.operation());
        drop(session);
        let (mut next, begun) = Self::begin(next.driver, next.met)?;
        next.set_communication(communication);
        next.set_operation_timeout(operation);
        self.observer.follow(&next.observer);
        next.observer = self.observer.clone();
        *self = next;
        span.record("rank", self.rank().number());
        span.record("world", self.world());
        begun
    }
}

/// A change of members, which ends with another rank and world.
fn reconfiguration(change: &'static str) -> Span {
    tracing::info_span!("reconfigure", change, rank = Empty, world = Empty)
}

/// What it takes to begin the next epoch.
struct NextEpoch {
    driver: Arc<Driver>,
    met: Met,
}

impl Session {
    /// Why the epoch is over, which it is from now on.
    fn ended(&mut self) -> Option<OperationError> {
        match (self.alive(), &self.state) {
            (Err(error), _) => Some(error),
            (Ok(()), State::Left) => None,
            (Ok(()), _) => {
                let peer = self.members[self.rank.index()].clone();
                let message = "it shrinks".to_owned();
                Some(self.end(OperationError::Aborted { peer, message }))
            }
        }
    }

    fn is_joined(&self) -> Result<&Remote, OperationError> {
        match &self.context.control {
            ControlPlane::Remote(remote) if !self.id.is_split() => Ok(remote.as_ref()),
            ControlPlane::Remote(_) | ControlPlane::Local(_) => Err(OperationError::NoEpochs),
        }
    }

    fn pending_joiners(&self) -> Result<Vec<Newcomer>, OperationError> {
        Ok(self.is_joined()?.joiners())
    }

    fn find_fast_paths(&mut self) -> Result<(), OperationError> {
        self.may_share_memory = true;
        self.share_memory()?;
        self.find_hosts()
    }

    /// Agrees on the next epoch and meets its members.
    fn next(
        &mut self,
        newcomers: Vec<Newcomer>,
        end: Option<&OperationError>,
    ) -> Result<NextEpoch, OperationError> {
        let completed = self.completed;
        let remote = self.is_joined()?;
        if let Some(error @ (OperationError::NoMajority { .. } | OperationError::Excluded { .. })) =
            end
        {
            // Whoever has given up must not vote again: it has forgotten what it voted for.
            return Err(error.clone());
        }
        let own = MemberState {
            completed,
            newcomers,
        };
        let (node, driver) = (remote.node().clone(), self.context.driver.clone());
        driver.block_on(remote.hand_over());
        let agreed = node.agree(remote.previous_epoch(), own, remote.evidence(end));
        let view = driver.block_on(agreed);
        let view = view.inspect_err(|error| self.state = State::Failed(error.clone()))?;
        let met = driver.block_on(self.is_joined()?.meet_next(view))?;
        Ok(NextEpoch { driver, met })
    }
}

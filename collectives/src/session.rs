//! One rank's end of a group: which operation comes next, its contract and its deadline, and how
//! the group ends.
//!
//! Not here: how bytes travel, which is the [`Medium`]'s business, and what the callers' buffers
//! are for, which [`group`](crate::group) says.

mod context;

use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use meshwork_accel::{Element, ElementType};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::contract::{Contract, Kind};
use crate::failure::{Failure, Unexplained};
use crate::flight_recorder::{Ending, OperationLog, buffer_bytes};
use crate::medium::{Conditions, Medium};
use crate::operation::{Carried, OperationSpec, Request, Work, WorkKind};
use crate::{Communication, LossCause, Member, OperationError, Rank, Timeouts, config};

pub(crate) use context::{ControlPlane, SessionContext};

/// How long membership may take to find out why a link broke: something has happened, and that is
/// soon known.
const EVIDENCE: Duration = Duration::from_millis(1500);

/// One rank's means to carry operations out, one at a time.
pub(crate) struct Session {
    pub(crate) rank: Rank,
    pub(crate) members: Arc<[Member]>,
    pub(crate) world: u32,
    pub(crate) medium: Medium,
    pub(crate) context: Arc<SessionContext>,
    /// Notes the operations.
    pub(crate) log: OperationLog,
    /// Tells when the group has failed.
    failure: watch::Receiver<Option<OperationError>>,
    pub(crate) communication: Communication,
    pub(crate) timeouts: Timeouts,
    pub(crate) sequence: u64,
    /// Operations without an error.
    pub(crate) completed: u64,
    pub(crate) state: State,
    /// Which group this is.
    pub(crate) id: GroupId,
    /// How often it has been split.
    pub(crate) splits: u64,
    /// Whether groups that are split from it may share memory where they can.
    pub(crate) may_share_memory: bool,
}

/// Tells a group from all others of its job.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct GroupId {
    /// How often the members of the group that was joined have changed.
    pub(crate) epoch: u64,
    /// 0 for the group that was joined, another for each that was split from it.
    pub(crate) number: u64,
}

impl GroupId {
    /// That of the group of all members in this epoch.
    pub(crate) fn joined(epoch: u64) -> Self {
        Self { epoch, number: 0 }
    }

    /// Whether it was split from another, whose end is its own.
    pub(crate) fn is_split(self) -> bool {
        self.number != 0
    }
}

#[derive(Debug)]
pub(crate) enum State {
    Live,
    Left,
    /// Every later call returns this.
    Failed(OperationError),
}

/// How long the end of a group is waited for that may have ended without a word.
const ABORT_GRACE: Duration = Duration::from_millis(300);

impl Session {
    pub(crate) fn new(
        id: GroupId,
        rank: Rank,
        members: Arc<[Member]>,
        medium: Medium,
        context: Arc<SessionContext>,
    ) -> Self {
        Self {
            failure: context.control.failure(),
            log: context.recorder.open(id, rank, members.clone()),
            id,
            splits: 0,
            may_share_memory: false,
            rank,
            world: config::world_of(members.len()),
            members,
            medium,
            context,
            communication: Communication::Auto,
            timeouts: Timeouts::default(),
            sequence: 0,
            completed: 0,
            state: State::Live,
        }
    }

    /// Carries one operation out. An error ends the group.
    pub(crate) fn perform<T: Element>(
        &mut self,
        spec: OperationSpec,
        work: Work<'_, T>,
    ) -> Result<(), OperationError> {
        self.perform_carried(T::TYPE, spec, Carried::of(work))
    }

    /// The same of elements whose type is known at run time only.
    #[inline(always)]
    pub(crate) fn perform_carried(
        &mut self,
        element: ElementType,
        spec: OperationSpec,
        work: Carried<'_>,
    ) -> Result<(), OperationError> {
        let contract = self.contract(element, spec, self.sequence + 1);
        self.ready(&contract, spec)?;
        self.sequence += 1;
        self.carry_out(contract, spec, work)?;
        self.completed += 1;
        Ok(())
    }

    #[track_caller]
    pub(crate) fn send<T: Element>(&mut self, input: &[T], to: Rank) -> Result<(), OperationError> {
        let (sent, _) = self.log.messages(to);
        let spec = OperationSpec::new(Kind::Send, input.len()).with_root(to);
        let contract = self.contract(T::TYPE, spec, sent + 1);
        self.ready(&contract, spec)?;
        self.log.sends(to);
        self.carry_out(contract, spec, Carried::of(Work::Send { input, to }))
    }

    #[track_caller]
    pub(crate) fn receive<T: Element>(
        &mut self,
        output: &mut [T],
        from: Rank,
    ) -> Result<(), OperationError> {
        let (_, received) = self.log.messages(from);
        // The contract of the sender.
        let spec = OperationSpec::new(Kind::Send, output.len()).with_root(self.rank);
        let contract = self.contract(T::TYPE, spec, received + 1);
        self.ready(&contract, spec)?;
        self.log.receives(from);
        let work = Carried::of(Work::Receive { output, from });
        self.carry_out(contract, spec, work)
    }

    /// Changes how long operations wait, and their parts across hosts; those inside hosts wait for
    /// these.
    pub(crate) fn set_operation_timeout(&mut self, operation: Duration) {
        self.timeouts = self.timeouts.with_operation(operation);
        if let Medium::Links(links) = &mut self.medium
            && let Some(across) = links.across()
        {
            across.set_operation_timeout(operation);
        }
    }

    fn contract(&self, element: ElementType, spec: OperationSpec, sequence: u64) -> Contract {
        spec.contract(element, self.id.epoch, self.id.number, sequence)
    }

    /// What was announced last has not been carried out: it does not count as completed.
    pub(crate) fn undo(&mut self) {
        self.completed = self.completed.saturating_sub(1);
    }

    /// Whether the group can carry this call out.
    #[inline]
    fn ready(&mut self, contract: &Contract, spec: OperationSpec) -> Result<(), OperationError> {
        match is_outside_async() && self.is_as_before() {
            true => Ok(()),
            false => self.look_closer(contract, spec),
        }
    }

    #[cold]
    fn look_closer(
        &mut self,
        contract: &Contract,
        spec: OperationSpec,
    ) -> Result<(), OperationError> {
        outside_async()?;
        let ready = self.alive().and_then(|()| match self.state {
            State::Left => Err(OperationError::Aborted {
                peer: self.members[self.rank.index()].clone(),
                message: "it has left this epoch: call shrink to begin the next".to_owned(),
            }),
            State::Live | State::Failed(_) => Ok(()),
        });
        ready.inspect_err(|_| self.context.recorder.came_late(contract, spec.caller))
    }

    /// Whether the group is live, and nothing is told that nobody has seen: what is told once is
    /// kept in the state.
    #[inline]
    fn is_as_before(&self) -> bool {
        // Whoever told it may be gone.
        let changed = self.failure.has_changed().unwrap_or(true);
        !changed && matches!(self.state, State::Live)
    }

    /// Whether the group has not failed.
    pub(crate) fn alive(&mut self) -> Result<(), OperationError> {
        if let State::Failed(error) = &self.state {
            return Err(error.clone());
        }
        if self.is_as_before() {
            return Ok(());
        }
        let failed = self.failure.borrow_and_update().clone();
        if let Some(error) = failed {
            let error = self.with_completed(error);
            self.context.recorder.fail(&error);
            self.state = State::Failed(error.clone());
            return Err(error);
        }
        Ok(())
    }

    /// Does the work on whatever carries this group's bytes. An error ends the group.
    #[inline(always)]
    fn carry_out(
        &mut self,
        mut contract: Contract,
        spec: OperationSpec,
        work: Carried<'_>,
    ) -> Result<(), OperationError> {
        let kind = work.kind();
        contract.algorithm =
            self.medium
                .algorithm(&contract, spec.digest, kind, self.communication);
        let (medium, moved) = (self.medium.kind(), self.moved(&contract, kind));
        // Without a subscriber it costs a look at a number.
        let _span = tracing::debug_span!(
            "operation",
            kind = ?contract.kind,
            element = ?contract.element,
            count = contract.count,
            caller = %spec.caller,
        )
        .entered();
        let request = Request {
            contract,
            digest: spec.digest,
            caller: spec.caller,
            serial: self.log.begin(&contract, spec.caller, medium, moved),
        };
        let conditions = Conditions {
            rank: self.rank,
            members: &self.members,
            context: &self.context,
            failure: &self.failure,
            log: &self.log,
            limit: self.timeouts.operation(),
        };
        let done = self.medium.carry_out(&conditions, &request, work);
        self.log.end(match done {
            Ok(()) => Ending::Well,
            Err(_) => Ending::Failed,
        });
        done.map_err(|failure| {
            let error = self.explain(failure, &request);
            self.end(error)
        })
    }

    /// Bytes that an operation moves by this group's own medium.
    #[inline]
    fn moved(&self, contract: &Contract, work: WorkKind) -> u64 {
        // Parts of one that goes host by host count their bytes themselves.
        let by_parts = match &self.medium {
            Medium::Links(links) => links.goes_by_parts(contract.algorithm, work),
            Medium::Shm(_) => false,
        };
        match by_parts || matches!(work, WorkKind::Agree) {
            true => 0,
            false => buffer_bytes(contract, self.world),
        }
    }

    /// The error that a caller gets, with ranks called as in the group that was joined.
    fn explain(&self, failure: Failure, request: &Request) -> OperationError {
        let silence = self.timeouts.silence().min(EVIDENCE);
        let name = |rank| self.name_of(rank);
        match failure.into_error(self.rank, || request.call(), name) {
            Ok(error) if is_incomplete(&error) => self.told(ABORT_GRACE, || error),
            Ok(error) => error,
            Err(Unexplained::GroupOver) => self.told(silence, || self.disconnected(self.rank)),
            // Membership sees the same connection end, and knows why.
            Err(Unexplained::LinkBroken(peer)) => self.told(silence, || self.disconnected(peer)),
            Err(Unexplained::Closed(peer)) => {
                // Whoever leaves a group that was joined also says why, by another way.
                let within = match self.id.is_split() {
                    true => ABORT_GRACE,
                    false => silence,
                };
                let left =
                    || OperationError::lost(self.members[peer.index()].clone(), LossCause::Left);
                self.told(within, left)
            }
            Err(Unexplained::TimedOut(peer)) => OperationError::TimedOut {
                call: Box::new(request.call()),
                rank: name(self.rank),
                peer: name(peer),
                waited: self.timeouts.operation(),
            },
        }
    }

    /// What the group fails with in this time, or else what is known here.
    fn told(&self, within: Duration, known: impl FnOnce() -> OperationError) -> OperationError {
        self.failure_within(within).unwrap_or_else(known)
    }

    /// The rank in the group that was joined of one in this group.
    fn name_of(&self, rank: Rank) -> Rank {
        self.members[rank.index()].rank()
    }

    /// What is known when nobody says why.
    fn disconnected(&self, rank: Rank) -> OperationError {
        let peer = self.members[rank.index()].clone();
        OperationError::lost(peer, LossCause::Disconnected)
    }

    /// A loss with what this rank had completed by then.
    fn with_completed(&self, mut error: OperationError) -> OperationError {
        if let OperationError::RankLost { completed, .. } = &mut error {
            *completed = self.completed;
        }
        error
    }

    /// The error that the group has failed with, or fails with in this time.
    pub(crate) fn failure_within(&self, time: Duration) -> Option<OperationError> {
        let mut failure = self.failure.clone();
        let failed = async { timeout(time, failed(&mut failure)).await.ok() };
        self.context.driver.block_on(failed)
    }

    /// Ends the group with `error`, or the one it has ended with before, and tells the others.
    pub(crate) fn end(&mut self, error: OperationError) -> OperationError {
        if let State::Failed(earlier) = &self.state {
            return earlier.clone();
        }
        let error = self.give_up(error.clone()).unwrap_or(error);
        let error = self.with_completed(error);
        self.context.recorder.fail(&error);
        self.state = State::Failed(error.clone());
        error
    }

    /// Tells the others, and returns what the group ends with. Asynchronous code may end it, too,
    /// but must not drive the network: another thread does. If none can be started, the others see
    /// this rank go.
    fn give_up(&self, error: OperationError) -> Option<OperationError> {
        let (context, silence) = (&*self.context, self.timeouts.silence());
        let mut failure = self.failure.clone();
        let give_up = move || {
            context.driver.block_on(async {
                context.control.give_up(error).await;
                timeout(silence, failed(&mut failure)).await.ok()
            })
        };
        if is_outside_async() {
            return give_up();
        }
        thread::scope(|scope| {
            let waits = thread::Builder::new().spawn_scoped(scope, give_up);
            waits.ok()?.join().ok()?
        })
    }

    /// Says goodbye, and waits until all have.
    #[track_caller]
    pub(crate) fn leave(&mut self) -> Result<(), OperationError> {
        self.meet(Kind::Leave)?;
        if self.id.is_split() {
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

    #[track_caller]
    pub(crate) fn meet(&mut self, kind: Kind) -> Result<(), OperationError> {
        self.perform::<u8>(OperationSpec::new(kind, 0), Work::Barrier)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let live = matches!(self.state, State::Live);
        if live {
            self.medium.close();
        }
        if live && !self.id.is_split() && outside_async().is_ok() {
            let peer = self.members[self.rank.index()].clone();
            self.end(OperationError::lost(peer, LossCause::Left));
        }
        if matches!(self.state, State::Failed(_)) && !self.id.is_split() {
            self.context.recorder.dropped();
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("rank", &self.rank)
            .field("sequence", &self.sequence)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

/// Whether an error tells of another call, but not from where it was made: a chunk came before the
/// call itself. Whom its sender tells of its calls knows, and tells soon.
fn is_incomplete(error: &OperationError) -> bool {
    matches!(error, OperationError::Disagreement { theirs, .. } if theirs.site().is_empty())
}

/// Returns when the group is over, with the reason.
pub(crate) async fn failed(
    failure: &mut watch::Receiver<Option<OperationError>>,
) -> OperationError {
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

pub(crate) fn outside_async() -> Result<(), OperationError> {
    match is_outside_async() {
        true => Ok(()),
        false => Err(OperationError::InsideAsync),
    }
}

fn is_outside_async() -> bool {
    Handle::try_current().is_err()
}

//! [`Group`]: how ranks join, who they are, and how they leave.
//!
//! The operations are in `group/collect.rs`, those on device buffers in `group/device.rs`, changes
//! of members in `group/reconfigure.rs`; behind all of them is a [`session`](crate::session).

mod collect;
mod compressed;
mod device;
mod hierarchy;
mod measure_links;
mod observer;
mod pending;
mod reconfigure;
mod registered;
mod share_memory;
mod split;
mod started;

use std::fmt::{self, Debug};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use meshwork_accel::{Element, ElementType};
use tokio::sync::watch;

use pending::Worker;

use crate::driver::Driver;
use crate::flight_recorder::FlightRecorder;
use crate::medium::Medium;
use crate::operation::{Carried, OperationSpec, Work};
use crate::schedule::Hosts;
use crate::session::{ControlPlane, GroupId, Session, SessionContext, outside_async};
use crate::shm::{Registry, ShmCommunicator};
use crate::{
    Communication, Error, GroupConfig, JoinError, Member, OperationError, Rank, SystemError,
    config, local, quic,
};

pub use compressed::ErrorFeedback;
#[cfg(any(test, feature = "testing"))]
pub(crate) use device::decide_any;
pub use device::{CommunicatorScope, DeviceGroup, DeviceRoute, FallbackReason, Pinning, Route};
pub use observer::Observer;
pub use pending::{Operations, Pending, Prepared};
pub use reconfigure::Epoch;
pub use registered::Registered;

/// Ranks that reduce and share buffers together: this rank's end of it.
///
/// All ranks make the same calls in the same order; calls block, and each has a deadline. A call
/// that fails ends the group on every rank, with an error that names the rank at fault.
///
/// ```
/// use meshwork_collectives::{Group, ReduceOp};
///
/// let groups = Group::local(3)?;
/// std::thread::scope(|threads| {
///     for mut group in groups {
///         threads.spawn(move || {
///             let mut buffer = [group.rank().number() as f32];
///             group.all_reduce(&mut buffer, ReduceOp::Sum)?;
///             assert_eq!(buffer, [0.0 + 1.0 + 2.0]);
///             group.leave()
///         });
///     }
/// });
/// # Ok::<(), meshwork_collectives::Error>(())
/// ```
pub struct Group {
    rank: Rank,
    members: Arc<[Member]>,
    /// Ends before the engine does, once all that was started is done.
    worker: Option<Worker>,
    session: Arc<Mutex<Session>>,
    registry: Arc<Registry>,
    observer: Observer,
    /// Known without the session, which operations that were started hold.
    over: watch::Receiver<Option<OperationError>>,
    /// Whether operations that were started have it: another has the group itself.
    is_workers: bool,
}

impl Group {
    /// Joins the group of `config`: blocks until every member that begins it is known to be there.
    ///
    /// Each is then connected with at most 2⌈log₂ n⌉ others; further connections are made when an
    /// operation needs them, and closed while idle beyond
    /// [`Network::connection_budget`](crate::Network::connection_budget). Connections are mutually
    /// authenticated and encrypted by TLS 1.3 over QUIC. If all members run on one host, the bytes
    /// of operations go through memory that they share; if some do, all-reduce, broadcast,
    /// all-gather and reduce-scatter go through memory inside hosts and over the network between
    /// them.
    ///
    /// # Errors
    /// [`JoinError::NotJoined`] at the deadline; at once [`JoinError::PortTaken`],
    /// [`JoinError::OwnName`], [`JoinError::Bind`], [`JoinError::OtherJob`],
    /// [`JoinError::OtherRank`], [`JoinError::Refused`], [`OperationError::RankLost`] and others.
    pub fn connect(config: &GroupConfig) -> Result<Self, Error> {
        let (group, met) = Self::meet(config)?;
        met?;
        Ok(group)
    }

    /// As [`connect`](Self::connect), but where a member is lost or does not come, most of the
    /// others are enough: they go on as after [`shrink`](Self::shrink), and whoever comes later can
    /// [`rejoin`](Self::rejoin) them.
    ///
    /// It is for the first start of a process only; one that is started again has forgotten what it
    /// took part in, and has to [`rejoin`](Self::rejoin). Members that remember another process in
    /// its place do not count its vote. But they can do so only where they are reached: if most of
    /// the member list are started again and call this while all who remember are cut off, they
    /// begin a second group. So a process whose launcher says in [`GroupConfig::RESTARTS_ENV`] that
    /// it was started again is refused; where nobody says so, the caller has to know.
    ///
    /// # Errors
    /// Those of [`connect`](Self::connect) and [`shrink`](Self::shrink);
    /// [`JoinError::StartedAgain`].
    pub fn connect_majority(config: &GroupConfig) -> Result<Self, Error> {
        if config.restarts() > 0 {
            let restarts = config.restarts();
            return Err(JoinError::StartedAgain { restarts }.into());
        }
        let (mut group, mut met) = Self::meet(config)?;
        let absent = |error: &OperationError| {
            error.is_loss() || matches!(error, OperationError::Aborted { .. })
        };
        while met.as_ref().is_err_and(absent) {
            met = group.shrink();
        }
        met?;
        Ok(group)
    }

    /// The first epoch, which has failed where not all members could meet.
    fn meet(config: &GroupConfig) -> Result<(Self, Result<(), OperationError>), Error> {
        outside_async()?;
        if !config.is_founder() {
            let (rank, founders) = (config.rank(), config.members().len());
            return Err(JoinError::NotAFounder { rank, founders }.into());
        }
        let _span = tracing::info_span!("join", members = config.members().len()).entered();
        let members: Arc<[Member]> = Rank::all(config::world(config.members().len())?)
            .zip(config.members())
            .map(|(rank, address)| Member::new(rank, address))
            .collect();
        // Whoever may be joined has to listen, alone or not.
        if members.len() == 1 && config.most() == 1 {
            return Ok((Self::alone(config, members)?, Ok(())));
        }
        let driver = Arc::new(Driver::with_background_thread().map_err(no_thread)?);
        let met = driver.block_on(quic::join(config, members))?;
        Ok(Self::begin(driver, met)?)
    }

    /// The group of a process that nobody can join.
    fn alone(config: &GroupConfig, members: Arc<[Member]>) -> Result<Self, SystemError> {
        let recorder = FlightRecorder::new(config.rank(), members.clone(), config.dump());
        let communicator = ShmCommunicator::alone().map_err(no_thread)?;
        let mut session = in_process(local::Hub::new(), members, recorder, communicator)?;
        session.timeouts = config.timeouts();
        Ok(Self::joined(session))
    }

    /// A group of `world` ranks for threads of this process, in the order of their ranks.
    ///
    /// # Errors
    /// [`ConfigError::WorldSize`](crate::ConfigError::WorldSize), [`SystemError`].
    pub fn local(world: u32) -> Result<Vec<Self>, Error> {
        config::world(world as usize)?;
        let hub = local::Hub::new();
        let members = local::members(world);
        let communicators = ShmCommunicator::threads(members.len(), cores());
        let communicators = communicators.map_err(|error| {
            SystemError::new("allocating the memory that threads share", error.kind())
        })?;
        let group = |(rank, communicator)| {
            let recorder = FlightRecorder::new(rank, members.clone(), None);
            let session = in_process(hub.clone(), members.clone(), recorder, communicator)?;
            Ok(Self::joined(session))
        };
        Rank::all(world).zip(communicators).map(group).collect()
    }

    fn joined(session: Session) -> Self {
        let observer = Observer::new(&session.context);
        Self::with_session(session, observer)
    }

    fn with_session(session: Session, observer: Observer) -> Self {
        session.log.adopt();
        Self {
            rank: session.rank,
            members: session.members.clone(),
            worker: None,
            registry: session.medium.registry(),
            over: session.context.control.failure(),
            session: Arc::new(Mutex::new(session)),
            observer,
            is_workers: false,
        }
    }

    /// This process's or thread's rank.
    #[must_use]
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// How many ranks there are.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a group checks its size first"
    )]
    pub fn world(&self) -> u32 {
        self.members.len() as u32
    }

    /// The ranks and their addresses, in order.
    #[must_use]
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Which ranks share a host. Threads of one process do.
    ///
    /// ```
    /// let group = meshwork_collectives::Group::local(2)?.remove(1);
    /// assert!(group.hosts().share(0, 1));
    /// # Ok::<(), meshwork_collectives::Error>(())
    /// ```
    #[must_use]
    pub fn hosts(&self) -> Hosts {
        Hosts::of(self.settled().hosts())
    }

    /// Chooses the algorithm of the following operations, in the same way on every rank.
    ///
    /// Ranks that share memory need none. The choice outlasts changes of members: a process that
    /// comes by [`rejoin`](Self::rejoin) begins with [`Communication::Auto`], and makes the same
    /// call before its first operation.
    pub fn set_communication(&mut self, communication: Communication) {
        self.settled().communication = communication;
    }

    /// Changes [how long operations wait](crate::Timeouts::operation); the times of a connection's
    /// life are set when joining. It outlasts changes of members, too; a process that comes by
    /// [`rejoin`](Self::rejoin) makes its own call.
    pub fn set_operation_timeout(&mut self, operation: Duration) {
        self.settled().set_operation_timeout(operation);
    }

    /// Leaves the group: returns when every rank has finished, and nothing is under way any more.
    ///
    /// A group that is dropped without it looks to the others like a rank that was lost.
    ///
    /// # Errors
    /// Those of [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn leave(self) -> Result<(), OperationError> {
        self.settled().leave()
    }

    /// Ends the group on every rank, with a reason that all of them report.
    ///
    /// For a rank that cannot go on: its data is missing, its model differs. Returns the error
    /// that the group ends with on this rank: an earlier one, or [`OperationError::Aborted`].
    pub fn abort(&mut self, message: impl Into<String>) -> OperationError {
        let peer = self.members[self.rank.index()].clone();
        let message = message.into();
        self.settled()
            .end(OperationError::Aborted { peer, message })
    }

    /// Why the group is over, if it has failed: what every later call returns.
    #[must_use]
    pub fn failure(&self) -> Option<OperationError> {
        self.settled().alive().err()
    }

    /// Whether the group has failed by now. Does not wait for the operations that were started
    /// before: for whoever computes meanwhile.
    ///
    /// ```
    /// use meshwork_collectives::{Group, ReduceOp};
    ///
    /// let mut group = Group::local(1)?.remove(0);
    /// let sum = group.start_all_reduce(vec![1.0_f32; 4], ReduceOp::Sum)?;
    /// assert!(!group.is_over());
    /// group.abort("there is nothing to sum up");
    /// assert!(group.is_over());
    /// # let _ = sum.wait();
    /// # Ok::<(), meshwork_collectives::Error>(())
    /// ```
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over.borrow().is_some()
    }

    /// How many other ranks of the job this process is connected with: about 2·log₂ n from the
    /// start, and whom operations of any of its groups have needed and that were not closed since.
    /// 0 among threads.
    ///
    /// Waits for the operations that were started before.
    #[must_use]
    pub fn connections(&self) -> usize {
        match &self.settled().context.control {
            ControlPlane::Remote(remote) => remote.connections(),
            ControlPlane::Local(_) => 0,
        }
    }

    #[inline]
    fn perform<T: Element>(
        &mut self,
        spec: OperationSpec,
        work: Work<'_, T>,
    ) -> Result<(), OperationError> {
        self.perform_carried(T::TYPE, spec, Carried::of(work))
    }

    fn perform_carried(
        &mut self,
        element: ElementType,
        spec: OperationSpec,
        work: Carried<'_>,
    ) -> Result<(), OperationError> {
        self.settled().perform_carried(element, spec, work)
    }

    /// All ranks make one call, before any of them begins with what it is for.
    fn agree(&mut self, element: ElementType, spec: OperationSpec) -> Result<(), OperationError> {
        self.perform_carried(element, spec, Carried::One(Work::Agree))
    }

    /// The engine, when all that was started before is done.
    #[inline]
    fn settled(&self) -> MutexGuard<'_, Session> {
        if let Some(worker) = &self.worker {
            worker.settle();
        }
        // An operation that panicked has ended its group; see the engine's own state.
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group")
            .field("rank", &self.rank)
            .field("world", &self.world())
            .finish_non_exhaustive()
    }
}

/// The session of a rank whose group is in this process.
fn in_process(
    hub: Arc<local::Hub>,
    members: Arc<[Member]>,
    recorder: Arc<FlightRecorder>,
    communicator: ShmCommunicator,
) -> Result<Session, SystemError> {
    let driver = Arc::new(Driver::alone().map_err(no_thread)?);
    let rank = recorder.rank();
    let context = SessionContext::new(ControlPlane::Local(hub), driver, recorder);
    let medium = Medium::Shm(communicator);
    let id = GroupId::joined(0);
    Ok(Session::new(id, rank, members, medium, context))
}

/// The cores that the threads of this process may run on.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn no_thread(error: io::Error) -> SystemError {
    SystemError::new("starting a thread of the group", error.kind())
}

#[cfg(test)]
mod tests;

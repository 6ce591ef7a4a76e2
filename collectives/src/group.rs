mod perform;

use std::fmt::{self, Debug};
use std::io;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use meshwork_accel::{Element, ReduceOp};
use tokio::runtime::{Builder, Handle, Runtime};

use perform::{Asked, failed};

use crate::contract::Kind;
use crate::execute::Scratch;
use crate::links::Links;
use crate::schedule::Schedule;
use crate::{
    Communication, Error, GroupConfig, LossCause, Member, Rank, Timeouts, config, local, quic,
};

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
    world: u32,
    links: Links,
    bond: Bond,
    communication: Communication,
    timeouts: Timeouts,
    scratch: Scratch,
    sequence: u64,
    state: State,
    /// Taken when the group is dropped, which must not block where tasks run.
    runtime: Option<Runtime>,
}

#[derive(Debug)]
enum State {
    Live,
    Left,
    /// Every later call returns this.
    Failed(Error),
}

/// What ties the ranks together, apart from the links.
enum Bond {
    Local(Arc<local::Hub>),
    Remote(quic::Remote),
}

impl Group {
    /// Joins the group of `config`: blocks until every member is connected with every other.
    ///
    /// Connections are mutually authenticated and encrypted by TLS 1.3 over QUIC.
    ///
    /// # Errors
    /// [`Error::NotJoined`] at the deadline; at once [`Error::PortTaken`], [`Error::Bind`],
    /// [`Error::OtherJob`], [`Error::Refused`], [`Error::RankLost`] and others.
    pub fn connect(config: &GroupConfig) -> Result<Self, Error> {
        outside_async()?;
        let members: Arc<[Member]> = Rank::all(config::world(config.members().len())?)
            .zip(config.members())
            .map(|(rank, address)| Member::new(rank, address))
            .collect();
        if members.len() == 1 {
            let mut alone = Self::local(1)?;
            return alone.pop().ok_or(Error::WorldSize {
                members: 0,
                limit: config::WORLD_LIMIT,
            });
        }
        // One thread drives the network, so that heartbeats go on while this thread computes.
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("meshwork-net")
            .enable_all()
            .build()
            .map_err(no_runtime)?;
        let (links, remote) = match runtime.block_on(quic::join(config, members.clone())) {
            Ok(joined) => joined,
            Err(error) => {
                // A name that is still being looked up must not hold the error back.
                runtime.shutdown_background();
                return Err(error);
            }
        };
        let mut group = Self::over_links(
            (config.rank(), members),
            links,
            Bond::Remote(remote),
            runtime,
        )?;
        group.timeouts = config.timeouts();
        Ok(group)
    }

    /// A group of `world` ranks for threads of this process, in the order of their ranks.
    ///
    /// # Errors
    /// [`Error::WorldSize`], [`Error::System`].
    pub fn local(world: u32) -> Result<Vec<Self>, Error> {
        config::world(world as usize)?;
        let (links, hub) = local::wire(world);
        let members = local::members(world);
        let group = |(rank, links)| {
            let runtime = Builder::new_current_thread()
                .enable_time()
                .build()
                .map_err(no_runtime)?;
            Self::over_links(
                (rank, members.clone()),
                links,
                Bond::Local(hub.clone()),
                runtime,
            )
        };
        Rank::all(world).zip(links).map(group).collect()
    }

    fn over_links(
        (rank, members): (Rank, Arc<[Member]>),
        links: Links,
        bond: Bond,
        runtime: Runtime,
    ) -> Result<Self, Error> {
        Ok(Self {
            rank,
            world: config::world(members.len())?,
            members,
            links,
            bond,
            communication: Communication::Auto,
            timeouts: Timeouts::default(),
            scratch: Scratch::new(),
            sequence: 0,
            state: State::Live,
            runtime: Some(runtime),
        })
    }

    /// This process's or thread's rank.
    #[must_use]
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// How many ranks there are.
    #[must_use]
    pub fn world(&self) -> u32 {
        self.world
    }

    /// The ranks and their addresses, in order.
    #[must_use]
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Chooses the algorithm of the following operations, in the same way on every rank.
    pub fn set_communication(&mut self, communication: Communication) {
        self.communication = communication;
    }

    /// Changes how long operations wait; the times of a connection's life are set when joining.
    pub fn set_operation_timeout(&mut self, operation: Duration) {
        self.timeouts = self.timeouts.with_operation(operation);
    }

    /// Replaces `buffer`, on every rank, by the reduction of all ranks' buffers.
    ///
    /// All ranks end with the same bits.
    ///
    /// # Shapes
    /// `buffer` has the same length on every rank.
    ///
    /// # Errors
    /// [`Error::Disagreement`], [`Error::RankLost`], [`Error::Aborted`], [`Error::TimedOut`];
    /// `buffer` then holds unspecified values, and the group is over.
    #[track_caller]
    pub fn all_reduce<T: Element>(&mut self, buffer: &mut [T], op: ReduceOp) -> Result<(), Error> {
        let algorithm = self.communication.choose(self.world, size_of_val(buffer));
        let schedule = Schedule::all_reduce(algorithm, self.world, self.rank);
        let asked = Asked {
            kind: Kind::AllReduce,
            op: Some(op),
            root: None,
            algorithm,
            schedule,
        };
        self.perform(asked, Location::caller(), buffer)
    }

    /// Replaces `buffer`, on every rank, by the buffer of `root`.
    ///
    /// # Shapes
    /// `buffer` has the same length on every rank.
    ///
    /// # Errors
    /// [`Error::RankOutside`] for a root that does not exist, and those of
    /// [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn broadcast<T: Element>(&mut self, buffer: &mut [T], root: Rank) -> Result<(), Error> {
        config::inside(root, self.world)?;
        let algorithm = self.communication.choose(self.world, size_of_val(buffer));
        let schedule = Schedule::broadcast(algorithm, self.world, self.rank, root);
        let asked = Asked {
            kind: Kind::Broadcast,
            op: None,
            root: Some(root),
            algorithm,
            schedule,
        };
        self.perform(asked, Location::caller(), buffer)
    }

    /// Returns when every rank has called it.
    ///
    /// # Errors
    /// Those of [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn barrier(&mut self) -> Result<(), Error> {
        self.meet(Kind::Barrier, Location::caller())
    }

    /// Leaves the group: returns when every rank has finished, and nothing is under way any more.
    ///
    /// A group that is dropped without it looks to the others like a rank that was lost.
    ///
    /// # Errors
    /// Those of [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn leave(mut self) -> Result<(), Error> {
        self.meet(Kind::Leave, Location::caller())?;
        let Some(runtime) = &self.runtime else {
            return Ok(());
        };
        let mut failure = self.bond.failure();
        let world = self.world;
        let left = runtime.block_on(async {
            tokio::select! {
                biased;
                () = self.bond.leave(world) => Ok(()),
                error = failed(&mut failure) => Err(error),
            }
        });
        self.state = match &left {
            Ok(()) => State::Left,
            Err(error) => State::Failed(error.clone()),
        };
        left
    }

    /// Ends the group on every rank, with a reason that all of them report.
    ///
    /// For a rank that cannot go on: its data is missing, its model differs. Returns the error
    /// that the group ends with on this rank: an earlier one, or [`Error::Aborted`].
    pub fn abort(&mut self, message: impl Into<String>) -> Error {
        let peer = self.members[self.rank.index()].clone();
        self.end(Error::Aborted {
            peer,
            message: message.into(),
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let may_block = outside_async().is_ok();
        if matches!(self.state, State::Live) && may_block {
            let peer = self.members[self.rank.index()].clone();
            self.end(Error::RankLost {
                peer,
                cause: LossCause::Left,
                reporter: None,
            });
        }
        let Some(runtime) = self.runtime.take() else {
            return;
        };
        if let (Bond::Remote(remote), true) = (&self.bond, may_block) {
            runtime.block_on(remote.flush());
        }
        runtime.shutdown_background();
    }
}

impl Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group")
            .field("rank", &self.rank)
            .field("world", &self.world)
            .field("sequence", &self.sequence)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

fn outside_async() -> Result<(), Error> {
    if Handle::try_current().is_ok() {
        Err(Error::InsideAsync)
    } else {
        Ok(())
    }
}

fn no_runtime(error: io::Error) -> Error {
    Error::System {
        what: "starting the network thread",
        kind: error.kind(),
    }
}

#[cfg(test)]
mod tests;

//! Processes as a group: mutual TLS over QUIC between neighbours, and between any two ranks that an
//! operation brings together.
//!
//! ```text
//!            rank 0          rank 1          rank 2
//!   dials      -               0              0, 1        the higher rank dials the lower
//!
//!   the connection of a pair:   stream 0  control   hello, heartbeats, goodbye
//!                               stream 1  data      frames of operations
//!   further connections:        stream 0  data      its stripes of the same bytes
//! ```
//!
//! With [`DataTransport::Tls`](crate::DataTransport::Tls), the data go over connections of TCP
//! instead, one for each lane, and all else stays as it is.
//!
//! The end of a connection says why: its code, and an encoded abort as its reason. Connections that
//! nothing needs are closed where a rank has too many.

mod admission;
mod announce;
mod batches;
mod connection_counters;
mod control;
mod directory;
mod endpoint;
mod handshake_limiter;
mod heads;
mod membership_driver;
mod moves;
mod node;
mod obstacles;
mod program;
mod reconfiguration;
mod refusals;
mod rendezvous;
mod renewal;
mod roaming;
mod streams;
mod stripes;
#[cfg(test)]
pub(crate) mod testing;
mod ways;

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use quinn::VarInt;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;

pub use announce::announce_loss;
#[cfg(any(test, feature = "testing"))]
pub(crate) use heads::decode_any as decode_heads;
#[cfg(test)]
pub(crate) use node::host_digest;
pub(crate) use node::{Node, View};
pub(crate) use reconfiguration::Evidence;
pub use rendezvous::Rendezvous;

use crate::agreement::{PreviousEpoch, Proof};
use crate::config::GroupConfig;
use crate::flight_recorder::FlightRecorder;
use crate::links::Links;
use crate::membership::{Event, Membership, MembershipTimeouts};
use crate::tasks::spawn;
use crate::wait_for_graph::{WaitEdge, WaitId};
use crate::wire::Newcomer;
use crate::{
    CostModel, DataTransport, Member, OperationError, Rank, SystemError, Timeouts, Transport,
};
pub(crate) use admission::{Admission, Kept};
pub(crate) use connection_counters::ConnectionCounters;

/// The group has failed; the reason holds an encoded abort.
const ABORT: VarInt = VarInt::from_u32(1);
/// The sender has finished.
const GOODBYE: VarInt = VarInt::from_u32(2);
/// The connection was never part of the group.
const TURNED_AWAY: VarInt = VarInt::from_u32(3);
/// Neither end needs the connection.
const UNNEEDED: VarInt = VarInt::from_u32(4);

/// The number of the group that was joined, among those that are split from it.
const JOINED: u64 = 0;
/// Events that may wait for the driver; beyond it their senders wait.
const EVENTS: usize = 1024;

/// The way to a group's driver, which runs on the group's own thread.
pub(crate) struct Remote {
    node: Arc<Node>,
    view: View,
    recorder: Arc<FlightRecorder>,
    /// Which end with the epoch.
    tasks: Vec<AbortHandle>,
    /// Whether the endpoint serves another epoch.
    handed_over: AtomicBool,
    events: mpsc::Sender<Event>,
    failure: watch::Receiver<Option<OperationError>>,
    over: watch::Receiver<bool>,
    local_members: Vec<(Rank, u32)>,
    hosts: Vec<usize>,
    ranks_per_core: Vec<Option<f64>>,
    admission: Arc<Admission>,
}

/// The way from one epoch to the next.
impl Remote {
    pub(crate) fn recorder(&self) -> &Arc<FlightRecorder> {
        &self.recorder
    }

    pub(crate) fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// This process's rank, and all members.
    pub(crate) fn place(&self) -> (Rank, Arc<[Member]>) {
        (self.view.rank, self.view.members.clone())
    }

    pub(crate) fn view(&self) -> &View {
        &self.view
    }

    /// The epoch of this group, once it is over.
    pub(crate) fn previous_epoch(&self) -> PreviousEpoch {
        PreviousEpoch {
            epoch: self.view.number,
            members: self.view.member_ids.clone(),
            incarnations: Arc::new(self.admission.incarnations()),
        }
    }

    /// Who was lost when the epoch ended like this, other than this process, and whose end can be
    /// seen from here.
    pub(crate) fn evidence(&self, end: Option<&OperationError>) -> Evidence {
        let member_id = |rank: Rank| {
            let member_id = self.view.member_ids.get(rank.index()).copied();
            member_id.filter(|member_id| *member_id != self.node.me.member_id)
        };
        let culprit = match end {
            Some(OperationError::RankLost { peer, .. }) => member_id(peer.rank()),
            _ => None,
        };
        let proven = self.admission.ended().into_iter().filter_map(member_id);
        // Whoever is blamed may live on: all that is told of it is hearsay.
        let lost = culprit.map(|member_id| (member_id, Proof::Unreached));
        let local_members = self.local_members.iter();
        Evidence {
            lost: lost
                .into_iter()
                .chain(proven.map(|member_id| (member_id, Proof::Ended)))
                .collect(),
            local_members: local_members
                .filter_map(|(rank, process)| Some((member_id(*rank)?, *process)))
                .collect(),
            lent: self.admission.lend(),
        }
    }

    /// How long things may take, and how bytes get from rank to rank.
    pub(crate) fn settings(&self) -> (Timeouts, Transport) {
        let config = &self.node.config;
        (config.timeouts(), config.transport())
    }

    /// What carries the bytes of operations.
    pub(crate) fn data_transport(&self) -> DataTransport {
        self.node.config.network().data_transport()
    }

    /// Leaves the endpoint to the next epoch, and all who call from now on. Once this returns,
    /// nothing that members open is taken for this epoch.
    pub(crate) async fn hand_over(&self) {
        self.handed_over.store(true, Ordering::Relaxed);
        self.tasks.iter().for_each(AbortHandle::abort);
        self.admission.stop().await;
    }

    /// Meets the members of the epoch that follows this one, over the connections that stay.
    pub(crate) async fn meet_next(&self, view: View) -> Result<Met, OperationError> {
        let kept = self.admission.leave_to(&view).await;
        self.node.meet(view, kept).await
    }

    /// Who wants to be let in, and may be.
    pub(crate) fn joiners(&self) -> Vec<Newcomer> {
        self.admission.joiners()
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote")
            .field("local_members", &self.local_members)
            .finish_non_exhaustive()
    }
}

impl Remote {
    /// The host of each member, as the first member on it.
    pub(crate) fn hosts(&self) -> Vec<usize> {
        self.hosts.clone()
    }

    /// Streams among these members, for a group of them with this number, as they are needed.
    pub(crate) fn links(&self, members: Arc<[Member]>, number: u64) -> Links {
        self.admission.links(members, number)
    }

    /// What knows of the connections, as long as the epoch lasts.
    pub(crate) fn admission(&self) -> Weak<Admission> {
        Arc::downgrade(&self.admission)
    }

    /// How the connections of this process come about, in all epochs.
    pub(crate) fn connection_counters(&self) -> Arc<ConnectionCounters> {
        self.node.connection_counters.clone()
    }

    /// The connection with a member, the one with control.
    #[cfg(test)]
    pub(crate) fn connection(&self, rank: Rank) -> Option<quinn::Connection> {
        self.admission.connections(rank)?.first().cloned()
    }

    /// Members that this one is connected with.
    pub(crate) fn connections(&self) -> usize {
        self.admission.admitted_count()
    }

    /// The members that run on this host, by rank, this one among them, and their process ids.
    pub(crate) fn local_members(&self) -> &[(Rank, u32)] {
        &self.local_members
    }

    /// Whether this host is known to have a core for each of its ranks.
    pub(crate) fn has_cores(&self) -> bool {
        let mut local = self.local_members.iter();
        local.all(|(rank, _)| self.ranks_per_core[rank.index()].is_some_and(|ranks| ranks <= 1.0))
    }

    /// What operations take among these members, on their most heavily shared host: others run
    /// there too, at the same time, if they are in groups of their own. All members have the same.
    pub(crate) fn cost_model(&self, members: &[Member]) -> CostModel {
        let places = members.iter().map(|member| member.rank().index());
        // None is known in a group that has failed before it began.
        let told = places.filter_map(|place| self.ranks_per_core.get(place).copied().flatten());
        CostModel::over(self.data_transport()).with_ranks_per_core(told.fold(1.0, f64::max))
    }

    pub(crate) fn failure(&self) -> watch::Receiver<Option<OperationError>> {
        self.failure.clone()
    }

    pub(crate) async fn give_up(&self, error: OperationError) {
        // A driver that is gone has already ended the group.
        let _ = self.events.send(Event::GiveUp(error)).await;
    }

    /// Whether a wait of this rank, which is still there, is to be looked at.
    pub(crate) fn is_due(&self, wait: WaitId) -> bool {
        self.admission.is_due(wait)
    }

    /// Waits until a wait of this rank may be worth a look because somebody asks.
    pub(crate) async fn probe_arrival(&self) {
        self.admission.probe_arrival().await;
    }

    /// Asks, and passes on what others have asked, along this wait.
    pub(crate) fn waits(&self, wait: &WaitEdge) {
        self.admission.waits(wait);
    }

    /// Says goodbye and waits until all have.
    pub(crate) async fn leave(&self) {
        let _ = self.events.send(Event::Leave).await;
        let _ = self.over.clone().wait_for(|over| *over).await;
    }

    /// Gives the last packets, which tell the others why, a short time to go out.
    pub(crate) async fn flush(&self) {
        const CLOSING: Duration = Duration::from_millis(300);
        let closing = self.admission.farewells().await;
        // Whoever goes on with the endpoint sends them anyway.
        if self.handed_over.load(Ordering::Relaxed) {
            return;
        }
        let gone = async {
            match closing {
                Some(closing) => {
                    for one in closing {
                        one.sent().await;
                    }
                }
                // Whoever has not heard the last word is told again when a packet comes.
                None => self.node.endpoint.wait_idle().await,
            }
        };
        let _ = tokio::time::timeout(CLOSING, gone).await;
    }
}

/// Joins the group: listens, dials its neighbours, and returns when every rank is known to be
/// there.
pub(crate) async fn join(
    config: &GroupConfig,
    members: Arc<[Member]>,
) -> Result<Met, OperationError> {
    let node = Node::open(config).await?;
    let view = View::first(config.rank(), members);
    let met = node.meet(view, Kept::new()).await?;
    if let (Err(error), Ok(listens)) = (&met.links, node.endpoint.local_addr()) {
        obstacles::explain(error, config, listens).await;
    }
    Ok(met)
}

impl Node {
    /// Meets the other members of an epoch: neighbours get a connection, if none was kept, and all
    /// hear of all.
    pub(crate) async fn meet(
        self: &Arc<Self>,
        view: View,
        kept: Kept,
    ) -> Result<Met, OperationError> {
        let (events, inbox) = mpsc::channel(EVENTS);
        let admission = Admission::new(self, view.clone(), kept, events.clone());
        let (rank, members) = (view.rank, view.members.clone());
        let timeouts = timeouts(&self.config, view.number);
        let alone = members.len() == 1;
        let (own, now) = (self.record(), std::time::Instant::now());
        let membership = Membership::new(rank, own, members, timeouts, now);
        let recorder = FlightRecorder::new(rank, view.members.clone(), self.dump_of(view.number));
        let (ready, joined) = oneshot::channel();
        let (failed, failure) = watch::channel(None);
        let (ended, over) = watch::channel(false);
        let mut outbox = membership_driver::Outbox {
            admission: admission.clone(),
            recorder: recorder.clone(),
            ready: Some(ready),
            failed,
            ended,
        };
        if alone {
            outbox.begin([own].into());
        }
        spawn(membership_driver::drive(membership, inbox, outbox));
        let tasks = self.attend(&admission);
        admission.dial_neighbours();
        admission::watch_launcher(&admission, self.config.launcher());
        let mut remote = Remote {
            node: self.clone(),
            view,
            recorder,
            tasks,
            handed_over: AtomicBool::new(false),
            events,
            failure,
            over,
            local_members: Vec::new(),
            hosts: Vec::new(),
            ranks_per_core: Vec::new(),
            admission: admission.clone(),
        };
        let watching = admission.watch_newcomers();
        let joined = joined.await;
        drop(watching);
        let links = match joined {
            Ok(()) => {
                remote.local_members = admission.local_members();
                remote.hosts = admission.hosts();
                remote.ranks_per_core = admission.ranks_per_core();
                Ok(admission.links(remote.view.members.clone(), JOINED))
            }
            Err(_) => Err(remote.ended_with().await),
        };
        Ok(Met { remote, links })
    }

    /// Answers who calls, and renews and closes connections, as long as an epoch lasts.
    fn attend(self: &Arc<Self>, admission: &Arc<Admission>) -> Vec<AbortHandle> {
        let mut tasks = vec![
            spawn(admission::accept(admission.clone(), self.clone())),
            spawn(self.clone().renew()),
            spawn(admission::keep_to_budget(admission.clone())),
            spawn(admission::tell_where_this_is(admission.clone())),
        ];
        if let Some(listener) = &self.listener {
            let taking_in = admission::take_in(admission.clone(), listener.clone());
            tasks.push(spawn(taking_in));
        }
        tasks.iter().map(|task| task.abort_handle()).collect()
    }
}

/// What comes of meeting: streams to all members, or why there are none.
pub(crate) struct Met {
    pub(crate) remote: Remote,
    pub(crate) links: Result<Links, OperationError>,
}

impl Remote {
    /// The error of a group that was over before it began.
    async fn ended_with(&self) -> OperationError {
        let mut failure = self.failure.clone();
        let failure = failure
            .wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|error| error.clone());
        self.flush().await;
        failure
            .unwrap_or_else(|| SystemError::new("joining", std::io::ErrorKind::BrokenPipe).into())
    }
}

/// How often members of other hosts are told that this one lives, at least.
const HEARTBEAT: Duration = Duration::from_millis(40);
/// How often a member looks at itself and at those of its own host.
const CHECK: Duration = Duration::from_millis(250);

fn timeouts(config: &GroupConfig, epoch: u64) -> MembershipTimeouts {
    let silence = match cfg!(meshwork_bare) {
        true => Duration::from_secs(86_400),
        false => config.timeouts().silence(),
    };
    let join = config.timeouts().join();
    MembershipTimeouts {
        // All members of a later epoch were there a moment ago.
        join: if epoch == 1 {
            join
        } else {
            join.min(4 * silence)
        },
        heartbeat: HEARTBEAT.min(silence / 6),
        check: CHECK.min(silence / 6),
        silence,
    }
}

/// The first of an address's IPs that is of the same version as `like`.
async fn resolve(address: &str, like: SocketAddr) -> Result<Option<SocketAddr>, std::io::Error> {
    let found = tokio::net::lookup_host(address).await?;
    Ok(found
        .into_iter()
        .find(|candidate| candidate.is_ipv4() == like.is_ipv4()))
}

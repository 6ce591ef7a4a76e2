//! Where members are admitted: shared by all that dial and accept.

mod accept;
mod control_sender;
mod dial;
mod evidence;
mod greeting;
mod idle;
mod join_requests;
mod kept;
mod lanes;
mod lent;
mod member_link;
mod moving;
mod newcomers;
mod on_demand;
mod peers;
mod probes;
mod tcp;
mod unauthenticated_log;

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use quinn::Connection;
use ring::digest;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;

use super::node::{Node, View};
use super::streams;
use super::streams::{Arrivals, Arrived, Data, Stream};
use super::{ABORT, GOODBYE, JOINED, TURNED_AWAY};
use crate::identity::{Identity, Role};
use crate::idle::Closable;
use crate::membership::Event;
use crate::wait_for_graph::WaitForGraph;
use crate::wire::{Abort, Decision, Hello, Lane, MemberProcess, MemberRecord, Message};
use crate::{
    DataTransport, Member, Network, Rank, Refusal, Timeouts, agreement, core_sharing, host,
};

pub(super) use accept::accept;
use control_sender::{After, Closing, ControlSender, Farewell, LastWord};
pub(super) use evidence::{Sight, Whereabouts, watch_launcher};
pub(super) use idle::keep_to_budget;
use join_requests::JoinRequests;
pub(crate) use kept::Kept;
pub(crate) use lent::Lent;
pub(super) use lent::LentConnection;
pub(super) use member_link::MemberLink;
pub(super) use moving::tell_where_this_is;
use on_demand::Opening;
pub(super) use tcp::take_in;
use tcp::{Tcp, TcpBinding};
pub(super) use unauthenticated_log::UnauthenticatedLog;

/// The members so far, and what everyone who wants to be one is measured by.
pub(crate) struct Admission {
    me: Rank,
    members: Arc<[Member]>,
    /// The member id of each rank.
    member_ids: Arc<[agreement::MemberId]>,
    identity: Arc<Identity>,
    network: Network,
    timeouts: Timeouts,
    hello: Hello,
    epoch: u64,
    /// What began this epoch, for those who have missed it.
    decision: Option<Decision>,
    /// The incarnations of the members, by member id: of a later epoch all, as they were decided
    /// on, of the first those who have greeted. Each member id has one in an epoch.
    incarnations: Mutex<BTreeMap<agreement::MemberId, u64>>,
    /// Members whose processes have ended, as the kernel has told this process or its launcher.
    ended: Mutex<BTreeSet<Rank>>,
    /// Who wants to be let in.
    join_requests: JoinRequests,
    events: mpsc::Sender<Event>,
    node: Arc<Node>,
    admitted: Mutex<BTreeMap<Rank, AdmittedMember>>,
    /// How many go on with each rank that is not a member yet.
    greetings: watch::Sender<BTreeMap<Rank, usize>>,
    /// What all are told, once the group has failed.
    failed: OnceLock<Abort>,
    /// Tells that somebody has been admitted.
    admissions: Notify,
    /// What is known of every rank, once the group begins.
    roster: OnceLock<Arc<[MemberRecord]>>,
    /// Streams, by the rank at the other end, the group's number and the lane.
    arrivals: Arrivals<(Rank, u64, u8), Arrived>,
    /// Ranks that are being dialled or were, and streams of which groups are opened to whom.
    opening: Mutex<Opening>,
    /// Connections besides the one that was greeted, each with its data stream.
    lanes: Arrivals<Lane, (Connection, Data)>,
    /// Connections over TCP.
    tcp: Tcp,
    wait_for_graph: Mutex<WaitForGraph>,
    /// Tells that somebody asks whether this rank waits.
    probes: Notify,
    /// Last words on connections that were closed before the end of the group.
    farewells: Mutex<Vec<Farewell>>,
    /// Connections of the epoch before with neighbours that have not been admitted yet.
    kept: Mutex<Kept>,
    /// Ends when no agreement goes on over the connections of this epoch.
    lent: Mutex<Option<mpsc::Receiver<()>>>,
    /// What goes on over the connections; nothing any more once the endpoint is handed over.
    tasks: Mutex<Option<JoinSet<()>>>,
    /// Groups that were split from this one, and live.
    split_groups: AtomicUsize,
}

/// A member that has been admitted.
struct AdmittedMember {
    control_sender: ControlSender,
    whereabouts: Whereabouts,
    /// What its connections over TCP have to prove, where there are such.
    tcp_binding: Option<TcpBinding>,
    /// What closes it while nothing needs it, if it need not stay.
    closable: Option<Arc<Closable>>,
}

/// A connection whose two ends have agreed on everything.
struct MemberConnection {
    connections: Vec<Connection>,
    hello: Hello,
    control: Stream,
    /// One for each connection, or each lane over TCP.
    data: Vec<Data>,
    tcp_binding: Option<TcpBinding>,
}

impl Admission {
    pub(super) fn new(
        node: &Arc<Node>,
        view: View,
        kept: Kept,
        events: mpsc::Sender<Event>,
    ) -> Arc<Self> {
        let View {
            rank: me, members, ..
        } = view;
        let network = node.config.network();
        let incarnations = incarnations(view.decision.as_ref(), node.me);
        let lives = |member: MemberProcess| {
            incarnations.get(&member.member_id) == Some(&member.incarnation)
        };
        node.moves.retain(lives);
        lock(&node.told).retain(|member, _| lives(*member));
        node.ways
            .keep(|member_id| view.member_ids.contains(&member_id));
        let hello = Hello {
            rank: me.number(),
            incarnation: node.me.incarnation,
            world: u32::try_from(members.len()).expect("a group checks its size before it joins"),
            members: fingerprint(view.number, &members),
            process: std::process::id(),
            host: node.host.clone(),
            connections: network.connections(),
            data_transport: network.data_transport().code(),
        };
        Arc::new(Self {
            me,
            members,
            member_ids: view.member_ids,
            epoch: view.number,
            incarnations: Mutex::new(incarnations),
            ended: Mutex::default(),
            decision: view.decision,
            join_requests: JoinRequests::default(),
            identity: node.identity.clone(),
            network,
            timeouts: node.config.timeouts(),
            hello,
            events,
            node: node.clone(),
            admitted: Mutex::default(),
            greetings: watch::Sender::default(),
            failed: OnceLock::new(),
            admissions: Notify::new(),
            roster: OnceLock::new(),
            arrivals: Arrivals::default(),
            opening: Mutex::default(),
            lanes: Arrivals::default(),
            tcp: Tcp::default(),
            wait_for_graph: Mutex::default(),
            probes: Notify::new(),
            farewells: Mutex::default(),
            kept: Mutex::new(kept),
            lent: Mutex::default(),
            tasks: Mutex::new(Some(JoinSet::new())),
            split_groups: AtomicUsize::new(0),
        })
    }

    /// Takes in what is known of every rank. Returns one that has been met as another process than
    /// others know: of the two, one has ended.
    pub(super) fn settle(&self, records: Arc<[MemberRecord]>) -> Option<Rank> {
        let mut incarnations = lock(&self.incarnations);
        let known = self.member_ids.iter().zip(records.iter());
        let changed = known.map(|(member_id, record)| {
            *incarnations.entry(*member_id).or_insert(record.incarnation) != record.incarnation
        });
        let changed: Vec<bool> = changed.collect();
        // It is told once.
        let _ = self.roster.set(records);
        changed.iter().position(|changed| *changed).map(Rank::at)
    }

    fn roster(&self) -> &[MemberRecord] {
        self.roster.get().expect("asked once the group has begun")
    }

    /// The members that run on this host, this one among them, and their process ids, once the
    /// group has begun: then all of them live.
    pub(super) fn local_members(&self) -> Vec<(Rank, u32)> {
        let roster = self.roster();
        let own = roster.get(self.me.index()).map(|record| record.host);
        let is_here = |(place, record): &(usize, &MemberRecord)| {
            let shares_host = Some(record.host) == own && record.host != [0; 16];
            *place == self.me.index() || (shares_host && host::has_process(record.process))
        };
        let places = roster.iter().enumerate().filter(is_here);
        places
            .map(|(place, record)| (Rank::at(place), record.process))
            .collect()
    }

    /// The host of each member, as the first member on it, once the group has begun. Those that
    /// cannot tell are apart.
    pub(super) fn hosts(&self) -> Vec<usize> {
        let mut firsts = BTreeMap::new();
        let records = self.roster().iter().enumerate();
        records
            .map(|(place, record)| match record.host {
                [0, ..] if record.host == [0; 16] => place,
                host => *firsts.entry(host).or_insert(place),
            })
            .collect()
    }

    /// How many ranks share a core where each member runs, once the group has begun.
    pub(super) fn ranks_per_core(&self) -> Vec<Option<f64>> {
        core_sharing::ranks_per_core(self.roster())
    }

    pub(super) fn member(&self, rank: Rank) -> Member {
        self.members[rank.index()].clone()
    }

    /// A member's connections, the one with control first.
    pub(super) fn connections(&self, rank: Rank) -> Option<Vec<Connection>> {
        let admitted = self.admitted();
        Some(admitted.get(&rank)?.control_sender.connections().to_vec())
    }

    /// What ties a member's connections over TCP to it.
    fn member_tcp_binding(&self, rank: Rank) -> Option<TcpBinding> {
        self.admitted().get(&rank)?.tcp_binding.clone()
    }

    /// Puts a stream of a group where it is asked for, unless its connection is closed already.
    pub(super) fn arrives(&self, name: (Rank, u64, u8), arrived: Arrived) {
        let admitted = self.admitted();
        let member = admitted.get(&name.0);
        if member.is_some_and(|member| arrived.is_over(member.closable.as_ref())) {
            self.arrivals.put(name, arrived);
        }
    }

    pub(super) fn admitted_count(&self) -> usize {
        self.admitted().len()
    }

    /// How many connections each pair of ranks has.
    pub(super) fn lane_count(&self) -> u8 {
        self.hello.connections
    }

    /// What carries the bytes of operations.
    pub(super) fn data_transport(&self) -> DataTransport {
        self.network.data_transport()
    }

    /// The incarnations of the members that are known, by member id.
    pub(super) fn incarnations(&self) -> BTreeMap<agreement::MemberId, u64> {
        lock(&self.incarnations).clone()
    }

    /// Whether the process that greets is the member of this rank: the first that does is, where it
    /// was not decided before. It may have met all others too, and voted, even if it ends at once.
    fn meets(&self, rank: Rank, incarnation: u64) -> bool {
        let member_id = self.member_ids.get(rank.index());
        member_id.is_some_and(|member_id| {
            *lock(&self.incarnations)
                .entry(*member_id)
                .or_insert(incarnation)
                == incarnation
        })
    }

    /// Members whose processes have ended, and not only by hearsay.
    pub(super) fn ended(&self) -> Vec<Rank> {
        lock(&self.ended).iter().copied().collect()
    }

    /// The rank of another member by its member id, if it is in this epoch.
    fn rank_at(&self, member_id: agreement::MemberId) -> Option<Rank> {
        let place = self
            .member_ids
            .iter()
            .position(|place| *place == member_id)?;
        let rank = Rank::new(u32::try_from(place).ok()?);
        (rank != self.me).then_some(rank)
    }

    /// What the certificate of a rank says: its member id, which it keeps through all epochs.
    fn role(&self, rank: Rank) -> Role {
        Role::Rank(Rank::new(self.member_id(rank)))
    }

    fn member_id(&self, rank: Rank) -> agreement::MemberId {
        let member_id = self.member_ids.get(rank.index());
        member_id.map_or_else(|| rank.number(), |member_id| *member_id)
    }

    pub(super) fn events(&self) -> mpsc::Sender<Event> {
        self.events.clone()
    }

    pub(super) fn me(&self) -> Rank {
        self.me
    }

    /// Sends a message to a member, without waiting. An abort is the last one.
    pub(super) fn tell(&self, rank: Rank, message: Message) {
        let mut admitted = self.admitted();
        let Some(member) = admitted.get_mut(&rank) else {
            return;
        };
        match message {
            Message::Abort(ref abort) if abort.reports_end_of(rank) => {
                member.control_sender.hang_up(ABORT, &message.encode());
            }
            Message::Abort(_) => member.control_sender.part(ABORT, Some(message)),
            message => member.control_sender.tell(message),
        }
    }

    /// Waits until all last words are confirmed, for a bounded time. The connections that close, or
    /// nothing if a word is not confirmed.
    pub(super) async fn farewells(&self) -> Option<Vec<Closing>> {
        self.finish_greetings().await;
        self.close_kept();
        let mut farewells = mem::take(&mut *lock(&self.farewells));
        farewells.extend(
            self.admitted()
                .values_mut()
                .filter_map(|member| member.control_sender.farewell()),
        );
        let mut closing = Vec::new();
        for farewell in farewells {
            closing.push(match farewell.await {
                Ok(LastWord::Stays(parted)) => Some(parted.close()),
                Ok(LastWord::Closes(closing)) => Some(closing),
                Ok(LastWord::Unconfirmed) | Err(_) => None,
            });
        }
        closing.into_iter().collect()
    }

    /// Ends all connections of a group that has finished.
    pub(super) fn close_all(&self) {
        for member in self.admitted().values_mut() {
            member.control_sender.part(GOODBYE, None);
        }
    }

    fn admit(self: &Arc<Self>, rank: Rank, admitted: MemberConnection) {
        let MemberConnection {
            connections,
            hello,
            control: (send, receive),
            data,
            tcp_binding,
        } = admitted;
        let whereabouts = self.whereabouts(&hello, &connections[0]);
        let mut admitted = self.admitted();
        if admitted.contains_key(&rank) {
            control_sender::close(&connections, TURNED_AWAY, &[]);
            return;
        }
        tracing::debug!("connected to {rank}");
        self.is_reached(rank, &connections[0]);
        let reached = connections[0].remote_address();
        self.node
            .ways
            .met(self.member_id(rank), &self.member(rank), reached);
        let closable = self.closable(rank);
        // Lanes over TCP are tied to the connection, and would be those of two epochs.
        let after = match closable.is_none() && tcp_binding.is_none() && connections.len() == 1 {
            true => After::MayStay,
            false => After::Close,
        };
        let member = AdmittedMember {
            control_sender: ControlSender::new(send, connections.clone(), after),
            whereabouts: whereabouts.clone(),
            tcp_binding,
            closable: closable.clone(),
        };
        admitted.insert(rank, member);
        drop(admitted);
        self.tell_if_failed(rank);
        for (lane, data) in (0..).zip(data) {
            let arrived = Arrived::new(data, closable.clone());
            self.arrives((rank, JOINED, lane), arrived);
        }
        self.admissions.notify_waiters();
        let link = MemberLink {
            rank,
            admission: self.clone(),
            closable,
        };
        for (lane, connection) in (0..).zip(&connections) {
            let arriving = streams::receive(link.clone(), lane, connection.clone());
            self.attend(arriving);
        }
        self.attend(link.attend(receive, connections, whereabouts));
    }

    /// Whether `hello` fits this group; the certificate has been checked before.
    fn examine(&self, hello: &Hello) -> Result<(), Refusal> {
        if hello.world != self.hello.world {
            return Err(Refusal::World {
                expected: self.hello.world,
                found: hello.world,
            });
        }
        if hello.members != self.hello.members {
            return Err(Refusal::Members);
        }
        if hello.connections != self.hello.connections {
            return Err(Refusal::Connections {
                expected: self.hello.connections.into(),
                found: hello.connections.into(),
            });
        }
        if hello.data_transport != self.hello.data_transport {
            let found = DataTransport::from_code(hello.data_transport.into());
            return Err(Refusal::DataTransport {
                expected: self.network.data_transport(),
                found: found.unwrap_or_default(),
            });
        }
        Ok(())
    }

    fn admitted(&self) -> MutexGuard<'_, BTreeMap<Rank, AdmittedMember>> {
        lock(&self.admitted)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that holds a lock of an admission can panic half-way through a change.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Who is with which member id, as far as the decision that began an epoch says, or there was none.
fn incarnations(
    decision: Option<&Decision>,
    me: MemberProcess,
) -> BTreeMap<agreement::MemberId, u64> {
    let decided = decision.into_iter().flat_map(Decision::members);
    let known = decided.chain([me]);
    known
        .map(|process| (process.member_id, process.incarnation))
        .collect()
}

fn fingerprint(epoch: u64, members: &[Member]) -> [u8; 32] {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(&epoch.to_le_bytes());
    for member in members {
        context.update(member.address().as_bytes());
        context.update(b"\n");
    }
    let mut fingerprint = [0; 32];
    fingerprint.copy_from_slice(context.finish().as_ref());
    fingerprint
}

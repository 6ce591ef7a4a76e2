//! What a process keeps through all epochs, and what it knows of the present one.

use std::collections::BTreeMap;
use std::future::pending;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quinn::Endpoint;
use ring::digest;
use tokio::net::TcpListener;
use tokio::sync::OnceCell;
use tokio::task::JoinSet;

use super::admission::UnauthenticatedLog;
use super::connection_counters::ConnectionCounters;
use super::endpoint::{self, Listening};
use super::handshake_limiter::HandshakeLimiter;
use super::refusals::Refusals;
use crate::agreement::MemberId;
use crate::config::{self, GroupConfig};
use crate::identity::{Identity, Role, fill_random};
use crate::tasks::spawn_in;
use crate::wire::{self, Cores, Decision, MemberProcess, MemberRecord, Newcomer};
use crate::{JoinError, Member, Rank, SystemError, flight_recorder, host, open_files, overlay};

use super::directory::Directory;
use super::moves::Moves;
use super::program;
use super::renewal::Shown;
use super::roaming::follow;
use super::ways::Ways;

/// What a process keeps through all epochs of its job: its address, its member id and its identity.
pub(crate) struct Node {
    pub(super) config: GroupConfig,
    pub(super) identity: Arc<Identity>,
    pub(super) endpoint: Endpoint,
    pub(super) refusals: Refusals,
    pub(super) ways: Arc<Ways>,
    /// Where members are that the endpoint knows by another address.
    pub(super) moves: Arc<Moves>,
    /// The address of this process that members were last told of.
    pub(super) told: Told,
    /// Follows this machine to other addresses; ends with this.
    _roaming: JoinSet<()>,
    pub(super) handshake_limiter: Arc<HandshakeLimiter>,
    pub(super) unauthenticated_log: UnauthenticatedLog,
    pub(super) connection_counters: Arc<ConnectionCounters>,
    /// Where connections over TCP arrive, if they carry the bytes of operations.
    pub(super) listener: Option<Arc<TcpListener>>,
    pub(super) me: MemberProcess,
    pub(super) host: String,
    cores: Cores,
    /// Where this process is for others.
    address: String,
    directory: Mutex<Directory>,
    program: OnceCell<[u8; 16]>,
}

/// From which address of this machine members know that they reach it. Whoever is started again in
/// a member's place knows nothing.
pub(super) type Told = Mutex<BTreeMap<MemberProcess, IpAddr>>;

/// A membership that does not change.
#[derive(Clone)]
pub(crate) struct View {
    /// Counted from 1.
    pub(crate) number: u64,
    pub(crate) rank: Rank,
    pub(crate) members: Arc<[Member]>,
    /// The member id of each rank.
    pub(crate) member_ids: Arc<[MemberId]>,
    /// What began it; the first began with nothing.
    pub(crate) decision: Option<Decision>,
}

impl Node {
    /// Listens at this process's address.
    pub(crate) async fn open(config: &GroupConfig) -> Result<Arc<Self>, JoinError> {
        let begun = config::world_of(config.members().len());
        open_files::reserve(begun.max(config.most()), config.network())?;
        let role = Role::Rank(config.rank());
        let identity = Arc::new(Identity::of_job(config.identity(), role)?);
        let mut incarnation = [0; 8];
        fill_random(&mut incarnation)?;
        let Listening {
            endpoint,
            moves,
            refusals,
            listener,
            address,
        } = endpoint::listen(config, &identity).await?;
        let local = endpoint.local_addr();
        let local = local.map_err(|error| SystemError::new("looking at a socket", error.kind()));
        let ways = Arc::new(Ways::open(config, local?).await?);
        let mut roaming = JoinSet::new();
        let follows = (moves.clone(), ways.clone());
        let following = follow(endpoint.clone(), config.network(), follows.0, follows.1);
        spawn_in(&mut roaming, following);
        Ok(Arc::new(Self {
            _roaming: roaming,
            ways,
            moves,
            told: Told::default(),
            address,
            directory: Mutex::new(Directory::new(config.most())),
            program: OnceCell::new(),
            endpoint,
            refusals,
            handshake_limiter: Arc::default(),
            unauthenticated_log: UnauthenticatedLog::default(),
            connection_counters: Arc::default(),
            listener: listener.map(Arc::new),
            identity,
            me: MemberProcess {
                member_id: config.rank().number(),
                // As a positive number, it can be told by any element type of 64 bits.
                incarnation: (u64::from_le_bytes(incarnation) >> 1) | 1,
            },
            host: config.host().map_or_else(host::host, str::to_owned),
            cores: host::cores().unwrap_or_default(),
            config: config.clone(),
        }))
    }

    /// Takes and shows new certificates in time, without end.
    pub(super) async fn renew(self: Arc<Self>) {
        let shown = Shown {
            rank: self.config.rank(),
            identity: &self.identity,
            server: Some((&self.endpoint, self.config.network())),
        };
        shown.renew_during(pending::<()>()).await;
    }

    /// What it tells of itself.
    pub(super) fn record(&self) -> MemberRecord {
        MemberRecord {
            incarnation: self.me.incarnation,
            process: std::process::id(),
            host: host_digest(&self.host),
            cores: self.cores,
        }
    }

    /// What the certificate of the process with a member id says, in every epoch.
    pub(super) fn role(&self, member_id: MemberId) -> Role {
        Role::Rank(Rank::new(member_id))
    }

    /// Where a member is: as the decision said that admitted it, or as it is listed.
    pub(super) fn address(&self, member_id: MemberId) -> Option<String> {
        let told = self.directory().address(member_id);
        told.or_else(|| self.config.listed().get(member_id as usize).cloned())
    }

    /// What is known of where members are, besides the list.
    pub(super) fn directory(&self) -> MutexGuard<'_, Directory> {
        // Nothing that holds the lock can panic half-way through a change.
        self.directory
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is known where all are that a decision names.
    pub(super) fn knows_all(&self, decision: &Decision) -> bool {
        let mut survivors = decision.survivors.iter();
        survivors.all(|survivor| self.address(survivor.member_id).is_some())
    }

    /// Where the members of an epoch are.
    pub(super) fn directory_of(&self, epoch: u64, member_ids: &[MemberId]) -> wire::Directory {
        let most = self.directory().most();
        let entry = |member_id: &MemberId| Some((*member_id, self.address(*member_id)?));
        wire::Directory {
            epoch,
            most,
            entries: member_ids.iter().filter_map(entry).collect(),
        }
    }

    /// What this process tells when it asks to be let in.
    pub(super) fn newcomer(&self) -> Newcomer {
        let MemberRecord { process, host, .. } = self.record();
        Newcomer {
            process: self.me,
            address: self.address.clone(),
            process_id: process,
            host,
            port_is_telling: false,
        }
    }

    /// What program this process runs; zeros where it cannot be told.
    pub(super) async fn program(&self) -> [u8; 16] {
        let digest = || program::digest(self.config.program());
        *self.program.get_or_init(digest).await
    }

    /// Where dumps of an epoch that begins go.
    pub(super) fn dump_of(&self, epoch: u64) -> Option<PathBuf> {
        Some(flight_recorder::of_view(self.config.dump()?, epoch))
    }

    /// The epoch that a decision begins; `None` if this process has no place in it, or somebody has
    /// one whom the job does not know.
    pub(super) fn view(&self, decision: Decision) -> Option<View> {
        self.directory().follow(&decision);
        let place = decision.members().position(|member| member == self.me)?;
        let member = |(rank, process): (u32, MemberProcess)| {
            let address = self.address(process.member_id)?;
            Some(Member::new(Rank::new(rank), address))
        };
        let named = (0..).zip(decision.members()).map(member);
        Some(View {
            number: decision.epoch,
            rank: Rank::new(u32::try_from(place).ok()?),
            members: named.collect::<Option<_>>()?,
            member_ids: decision
                .members()
                .map(|process| process.member_id)
                .collect(),
            decision: Some(decision),
        })
    }
}

impl View {
    /// The rank of a process that is this one's neighbour in this epoch.
    pub(super) fn neighbour(&self, process: MemberProcess) -> Option<Rank> {
        let mut members = self.decision.as_ref()?.members();
        let rank = Rank::at(members.position(|member| member == process)?);
        let world = u32::try_from(self.members.len()).ok()?;
        overlay::adjacent(self.rank, rank, world).then_some(rank)
    }

    /// The first, in which ranks are member ids.
    pub(super) fn first(rank: Rank, members: Arc<[Member]>) -> Self {
        let member_ids = members.iter().map(|member| member.rank().number());
        Self {
            number: 1,
            rank,
            member_ids: member_ids.collect(),
            members,
            decision: None,
        }
    }
}

/// Names of hosts are compared, never shown: 128 bits are as good. Zeros where there is none.
pub(crate) fn host_digest(host: &str) -> [u8; 16] {
    let mut digest = [0; 16];
    if !host.is_empty() {
        let whole = digest::digest(&digest::SHA256, host.as_bytes());
        digest.copy_from_slice(&whole.as_ref()[..16]);
    }
    digest
}

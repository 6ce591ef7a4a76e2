//! What a process states before it joins: members, rank, secret, timeouts, transport, and the
//! environment variables for them.
//!
//! Nothing here opens a socket; how the network is used is in `config/network.rs`.

mod bounds;
mod network;
mod place;
mod relay;

use std::env;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::{ConfigError, DataTransport, JobIdentity, Rank, TwoMemberPolicy};

pub(crate) use bounds::Bounds;
pub use network::{Congestion, Network};
use place::Place;
use relay::RelayAt;

/// The most members a group can have: a decision about the next epoch names all in one message, of
/// 16 bytes a member, which its proposer sends to all.
pub(crate) const WORLD_LIMIT: u32 = 4096;

/// What a process needs to know to join its group.
///
/// ```
/// use meshwork_collectives::{GroupConfig, JobSecret, Rank};
///
/// let members = ["10.0.0.1:4000", "10.0.0.2:4000"];
/// let config = GroupConfig::new(members, Rank::new(1), JobSecret::generate()?)?;
/// assert_eq!(config.rank(), Rank::new(1));
/// # Ok::<(), meshwork_collectives::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct GroupConfig {
    place: Place,
    identity: JobIdentity,
    timeouts: Timeouts,
    bind: Option<SocketAddr>,
    launcher: Option<u32>,
    transport: Transport,
    host: Option<String>,
    network: Network,
    dump: Option<PathBuf>,
    pair: TwoMemberPolicy,
    restarts: u64,
    program: Option<String>,
    relay: Option<RelayAt>,
    bounds: Bounds,
}

/// How bytes get from one rank to another.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Transport {
    /// Through memory if all ranks share a host, by QUIC otherwise.
    #[default]
    Auto,
    /// By QUIC even between ranks of one host: every byte is encrypted.
    Quic,
}

impl Transport {
    /// The environment variable for it: `auto` or `quic`, the same in all processes of a job.
    pub const ENV: &'static str = "MESHWORK_TRANSPORT";

    fn from_name(name: &str) -> Result<Self, ConfigError> {
        match name {
            "auto" => Ok(Self::Auto),
            "quic" => Ok(Self::Quic),
            _ => Err(ConfigError::TransportName {
                value: name.to_owned(),
            }),
        }
    }
}

impl GroupConfig {
    /// The environment variable in which a launcher names its own process id.
    pub const LAUNCHER_ENV: &'static str = "MESHWORK_LAUNCHER_PID";

    /// The environment variable that names a folder for dumps.
    pub const DUMP_ENV: &'static str = "MESHWORK_DUMP";

    /// The environment variable in which a launcher says how often it has started this process's
    /// predecessors, each of which it has seen end: from 1 on it takes the place of one in a group
    /// that runs.
    pub const RESTARTS_ENV: &'static str = "MESHWORK_RESTARTS";

    /// This process is `rank` among `members`, which are `host:port` in the order of their ranks
    /// and the same in every process. `identity` is a [`JobSecret`](crate::JobSecret),
    /// [`Certificates`](crate::Certificates), or what the environment names,
    /// [`JobIdentity::from_env`].
    ///
    /// # Errors
    /// [`ConfigError::WorldSize`] for no members or too many, [`ConfigError::RankOutside`].
    pub fn new(
        members: impl IntoIterator<Item = impl Into<String>>,
        rank: Rank,
        identity: impl Into<JobIdentity>,
    ) -> Result<Self, ConfigError> {
        let members: Vec<String> = members.into_iter().map(Into::into).collect();
        let world = world(members.len())?;
        inside(rank, world)?;
        let place = Place::listed(members, rank, world);
        Ok(Self::at(place, identity.into()))
    }

    fn at(place: Place, identity: JobIdentity) -> Self {
        Self {
            place,
            identity,
            timeouts: Timeouts::default(),
            bind: None,
            launcher: None,
            transport: Transport::Auto,
            host: None,
            network: Network::default(),
            dump: None,
            pair: TwoMemberPolicy::default(),
            restarts: 0,
            program: None,
            relay: None,
            bounds: Bounds::default(),
        }
    }

    /// Changes how long to wait for what.
    #[must_use]
    pub fn with_timeouts(mut self, timeouts: Timeouts) -> Self {
        self.timeouts = timeouts;
        self
    }

    /// Listens on `address` instead of this rank's own address in the member list, where the
    /// others reach it through a forwarded port or a load balancer.
    #[must_use]
    pub fn with_bind(mut self, address: SocketAddr) -> Self {
        self.bind = Some(address);
        self
    }

    /// Ends the group when the process with this id, which looks after the job, ends.
    #[must_use]
    pub fn with_launcher(mut self, process: u32) -> Self {
        self.launcher = Some(process);
        self
    }

    /// Chooses how bytes get from one rank to another, in the same way on every rank.
    #[must_use]
    pub fn with_transport(mut self, transport: Transport) -> Self {
        self.transport = transport;
        self
    }

    /// Names the host of this process, instead of finding out which processes share one.
    ///
    /// Processes with one name watch each other's process ids and map each other's memory, so they
    /// must be able to. With names of their own, processes of one machine treat each other like
    /// those of others.
    #[must_use]
    pub fn with_host(mut self, host: impl Into<String>) -> Self {
        self.host = Some(host.into());
        self
    }

    /// Chooses how the network is used.
    #[must_use]
    pub fn with_network(mut self, network: Network) -> Self {
        self.network = network;
        self
    }

    /// Leaves a file with the last operations in this folder when the group fails, for
    /// `meshwork doctor --dump` and [`diagnosis`](crate::diagnosis). It is made if it is missing.
    ///
    /// The first group of a job leaves `rank-0.json` and so on there, in the place of those of an
    /// earlier run. Each time that members change, those who go on have new ranks: the files of the
    /// second group are in `epoch-2`, of the third in `epoch-3`. The folders of the last 16 stay.
    #[must_use]
    pub fn with_dump(mut self, folder: impl Into<PathBuf>) -> Self {
        self.dump = Some(folder.into());
        self
    }

    /// Chooses which of two ranks may go on without the other, in the same way on every rank.
    #[must_use]
    pub fn with_pair(mut self, pair: TwoMemberPolicy) -> Self {
        self.pair = pair;
        self
    }

    /// Takes over what the environment sets: the [`Timeouts`], the transport in [`Transport::ENV`],
    /// the carrier in [`DataTransport::ENV`], the budget of connections in [`Network::BUDGET_ENV`],
    /// who goes on of two in [`TwoMemberPolicy::ENV`], the folder for dumps in
    /// [`GroupConfig::DUMP_ENV`], the launcher's process id in [`GroupConfig::LAUNCHER_ENV`], how
    /// often it has started predecessors of this process in [`GroupConfig::RESTARTS_ENV`], how many
    /// members there may be in [`GroupConfig::WORKERS_ENV`], what program this is in
    /// [`GroupConfig::PROGRAM_ENV`], the relay in [`GroupConfig::RELAY_ENV`], and of a newcomer
    /// where others reach it in [`GroupConfig::ADDRESS_ENV`].
    ///
    /// # Errors
    /// [`ConfigError::Setting`], [`ConfigError::TransportName`],
    /// [`ConfigError::DataTransportName`], [`ConfigError::ConnectionBudget`],
    /// [`ConfigError::TwoMemberPolicyName`], [`ConfigError::Launcher`], [`ConfigError::Restarts`],
    /// [`ConfigError::WorkersFormat`], [`ConfigError::Workers`],
    /// [`ConfigError::RelayTokenMalformed`] for a variable that cannot be read;
    /// [`ConfigError::RelayTokenMissing`].
    pub fn with_environment(self) -> Result<Self, ConfigError> {
        let mut configured = self.with_timeouts(Timeouts::from_env()?);
        if let Some(name) = env::var_os(Transport::ENV) {
            configured = configured.with_transport(Transport::from_name(&name.to_string_lossy())?);
        }
        if let Some(name) = env::var_os(DataTransport::ENV) {
            let data_transport = network::data_transport(&name.to_string_lossy())?;
            configured.network = configured.network.with_data_transport(data_transport);
        }
        if let Some(ranks) = env::var_os(Network::BUDGET_ENV) {
            let ranks = network::connection_budget(&ranks.to_string_lossy())?;
            configured.network = configured.network.with_connection_budget(ranks);
        }
        if env::var_os(TwoMemberPolicy::ENV).is_some() {
            configured = configured.with_pair(TwoMemberPolicy::from_env()?);
        }
        if let Some(folder) = env::var_os(Self::DUMP_ENV).filter(|folder| !folder.is_empty()) {
            configured = configured.with_dump(folder);
        }
        if let Some(value) = env::var_os(Self::RESTARTS_ENV) {
            configured = configured.with_restarts(&value.to_string_lossy())?;
        }
        let mut configured = configured.with_place_from_env()?.with_relay_from_env()?;
        if let Some(word) = env::var_os(Self::PROGRAM_ENV) {
            configured = configured.with_program(word.to_string_lossy());
        }
        let Some(value) = env::var_os(Self::LAUNCHER_ENV) else {
            return Ok(configured);
        };
        match value.to_str().and_then(|digits| digits.parse().ok()) {
            Some(process) => Ok(configured.with_launcher(process)),
            None => Err(ConfigError::Launcher {
                value: value.to_string_lossy().into_owned(),
            }),
        }
    }

    pub(crate) fn with_restarts(mut self, value: &str) -> Result<Self, ConfigError> {
        self.restarts = value.parse().map_err(|_| ConfigError::Restarts {
            value: value.to_owned(),
        })?;
        Ok(self)
    }

    pub(crate) fn identity(&self) -> &JobIdentity {
        &self.identity
    }

    pub(crate) fn timeouts(&self) -> Timeouts {
        self.timeouts
    }

    pub(crate) fn bind(&self) -> Option<SocketAddr> {
        self.bind
    }

    pub(crate) fn transport(&self) -> Transport {
        self.transport
    }

    pub(crate) fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    pub(crate) fn dump(&self) -> Option<PathBuf> {
        self.dump.clone()
    }

    pub(crate) fn network(&self) -> Network {
        self.network
    }

    pub(crate) fn pair(&self) -> TwoMemberPolicy {
        self.pair
    }

    /// A word for the program that this process runs, if it has been given one.
    pub(crate) fn program(&self) -> Option<&str> {
        self.program.as_deref()
    }

    /// How often a launcher has started predecessors of this process; 0 where it says nothing.
    pub(crate) fn restarts(&self) -> u64 {
        self.restarts
    }

    pub(crate) fn launcher(&self) -> Option<u32> {
        self.launcher
    }

    pub(crate) fn bounds(&self) -> Bounds {
        self.bounds
    }

    #[cfg(test)]
    pub(crate) fn with_bounds(mut self, bounds: Bounds) -> Self {
        self.bounds = bounds;
        self
    }
}

/// How long a group waits before it gives up with an error. Nothing waits for ever.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Timeouts {
    join: Duration,
    silence: Duration,
    operation: Duration,
}

impl Timeouts {
    /// The environment variable for [`Timeouts::join`], in seconds.
    pub const JOIN_ENV: &'static str = "MESHWORK_JOIN_TIMEOUT";
    /// The environment variable for [`Timeouts::silence`], in seconds.
    pub const SILENCE_ENV: &'static str = "MESHWORK_PEER_TIMEOUT";
    /// The environment variable for [`Timeouts::operation`], in seconds.
    pub const OPERATION_ENV: &'static str = "MESHWORK_OPERATION_TIMEOUT";

    /// The defaults, with those replaced that the environment sets.
    ///
    /// # Errors
    /// [`ConfigError::Setting`] for a variable that is no number of seconds above 0.
    pub fn from_env() -> Result<Self, ConfigError> {
        let default = Self::default();
        Ok(Self {
            join: seconds(Self::JOIN_ENV)?.unwrap_or(default.join),
            silence: seconds(Self::SILENCE_ENV)?.unwrap_or(default.silence),
            operation: seconds(Self::OPERATION_ENV)?.unwrap_or(default.operation),
        })
    }

    /// How long to wait for all members to appear. Default: 30 s.
    #[must_use]
    pub fn join(&self) -> Duration {
        self.join
    }

    /// How long a member of another host may be silent, and any member may be stopped, before it
    /// counts as lost. Default: 10 s. This is for where nothing is known: a process that ends is
    /// noticed at once by its own host, and soon by others. A member that other members hear of is
    /// waited for twice as long, and a process that was itself starved waits up to four times as
    /// long.
    #[must_use]
    pub fn silence(&self) -> Duration {
        self.silence
    }

    /// How long an operation waits while not a byte of it comes or goes, or up to a quarter longer:
    /// by so much the slowest rank may be late. As long as bytes move, however slowly, it goes on.
    /// Default: 300 s.
    ///
    /// Where ranks share hosts, those that wait for others of their host do not see the bytes that
    /// these exchange with other hosts, and wait for a day. If one hangs there whose process lives,
    /// the group ends once a rank of another host has waited for it for this time, at the latest in
    /// its next operation.
    #[must_use]
    pub fn operation(&self) -> Duration {
        self.operation
    }

    /// Changes [`Timeouts::join`]: from a millisecond to a day.
    #[must_use]
    pub fn with_join(mut self, join: Duration) -> Self {
        self.join = bounded(join);
        self
    }

    /// Changes [`Timeouts::silence`]: from a millisecond to a day.
    #[must_use]
    pub fn with_silence(mut self, silence: Duration) -> Self {
        self.silence = bounded(silence);
        self
    }

    /// Changes [`Timeouts::operation`]: from a millisecond to a day.
    #[must_use]
    pub fn with_operation(mut self, operation: Duration) -> Self {
        self.operation = bounded(operation);
        self
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            join: Duration::from_secs(30),
            silence: Duration::from_secs(10),
            operation: Duration::from_secs(300),
        }
    }
}

pub(crate) fn world(members: usize) -> Result<u32, ConfigError> {
    u32::try_from(members)
        .ok()
        .filter(|world| (1..=WORLD_LIMIT).contains(world))
        .ok_or(ConfigError::WorldSize {
            members,
            limit: WORLD_LIMIT,
        })
}

/// How many members a group has that was made.
pub(crate) fn world_of(members: usize) -> u32 {
    u32::try_from(members).expect("a group has at most `WORLD_LIMIT` members")
}

pub(crate) fn inside(rank: Rank, world: u32) -> Result<(), ConfigError> {
    if rank.number() < world {
        Ok(())
    } else {
        Err(ConfigError::RankOutside { rank, world })
    }
}

fn seconds(variable: &'static str) -> Result<Option<Duration>, ConfigError> {
    env::var_os(variable)
        .map(|value| parse(variable, &value.to_string_lossy()))
        .transpose()
}

/// A day is longer than anything should wait, and far from overflowing any clock.
const DAY: Duration = Duration::from_secs(86_400);

fn bounded(time: Duration) -> Duration {
    time.clamp(Duration::from_millis(1), DAY)
}

fn parse(variable: &'static str, value: &str) -> Result<Duration, ConfigError> {
    match value.trim().parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds.is_finite() => {
            let seconds = seconds.min(DAY.as_secs_f64());
            Ok(bounded(Duration::from_secs_f64(seconds)))
        }
        _ => Err(ConfigError::Setting {
            variable,
            value: value.to_owned(),
        }),
    }
}

impl TwoMemberPolicy {
    /// The environment variable that chooses, the same in all processes: `proven`, `chief` or
    /// `stop`.
    pub const ENV: &'static str = "MESHWORK_PAIR";

    /// What [`TwoMemberPolicy::ENV`] chooses; the default where it is not set.
    ///
    /// # Errors
    /// [`ConfigError::TwoMemberPolicyName`] for another word.
    pub fn from_env() -> Result<Self, ConfigError> {
        match env::var_os(Self::ENV) {
            Some(name) => Self::from_name(&name.to_string_lossy()),
            None => Ok(Self::default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::JobSecret;

    #[test]
    fn groups_have_members_and_contain_their_rank() {
        let secret = JobSecret::generate().unwrap();
        let refused = |members: &[&str], rank| {
            GroupConfig::new(members.to_vec(), Rank::new(rank), secret.clone()).err()
        };
        let none = ConfigError::WorldSize {
            members: 0,
            limit: WORLD_LIMIT,
        };
        assert_eq!(refused(&[], 0), Some(none));
        let outside = ConfigError::RankOutside {
            rank: Rank::new(2),
            world: 2,
        };
        assert_eq!(refused(&["a:1", "b:1"], 2), Some(outside));
        assert_eq!(refused(&["a:1", "b:1"], 1), None);
    }

    #[test]
    fn transports_have_names() {
        assert_eq!(Transport::from_name("auto"), Ok(Transport::Auto));
        assert_eq!(Transport::from_name("quic"), Ok(Transport::Quic));
        for wrong in ["", "QUIC", "shm"] {
            let value = wrong.to_owned();
            let expected = ConfigError::TransportName { value };
            assert_eq!(Transport::from_name(wrong), Err(expected));
        }
    }

    #[test]
    fn restarts_are_counted_from_zero() {
        let config = GroupConfig::new(["a:1"], Rank::CHIEF, JobSecret::generate().unwrap());
        let config = config.unwrap();
        assert_eq!(config.restarts(), 0);
        assert_eq!(config.clone().with_restarts("2").unwrap().restarts(), 2);
        for wrong in ["", "-1", "often"] {
            let value = wrong.to_owned();
            let refused = config.clone().with_restarts(wrong).err();
            assert_eq!(refused, Some(ConfigError::Restarts { value }));
        }
    }

    #[test]
    fn no_time_is_longer_than_clocks_bear_or_none_at_all() {
        for (asked, taken) in [
            (Duration::MAX, DAY),
            (Duration::ZERO, Duration::from_millis(1)),
            (Duration::from_secs(3), Duration::from_secs(3)),
        ] {
            let timeouts = Timeouts::default().with_join(asked);
            let timeouts = timeouts.with_silence(asked).with_operation(asked);
            let times = [timeouts.join(), timeouts.silence(), timeouts.operation()];
            assert_eq!(times, [taken; 3]);
        }
    }

    #[test]
    fn settings_are_seconds_above_zero() {
        assert_eq!(parse("X", " 1.5 "), Ok(Duration::from_millis(1500)));
        assert_eq!(parse("X", "1e300"), Ok(Duration::from_secs(86_400)));
        for wrong in ["", "soon", "0", "-1", "NaN", "inf"] {
            let expected = ConfigError::Setting {
                variable: "X",
                value: wrong.to_owned(),
            };
            assert_eq!(parse("X", wrong), Err(expected));
        }
    }
}

//! Arguments of `meshwork bench`, and what they come to for the collectives crate: transport,
//! algorithm, congestion control. `bus_factor` has the factors from algorithm bandwidth to bus
//! bandwidth, as nccl-tests defines them.

use std::io;
use std::num::{NonZeroU8, NonZeroUsize};
use std::thread;

use clap::{Args, ValueEnum};
use meshwork_collectives::schedule::{Collective, Hosts};
use meshwork_collectives::{
    Communication, Compression, ConfigError, Congestion, DataTransport, Network, Rank, Rounding,
    Transport,
};
use meshwork_launcher::Cores;

/// What to measure, and how.
#[derive(Args, Clone, Debug)]
pub(crate) struct Bench {
    /// The operation
    #[arg(value_enum, default_value = "all-reduce")]
    operation: Operation,

    /// How many ranks
    #[arg(short = 'n', long, default_value = "2", value_name = "N", value_parser = ranks)]
    ranks: usize,

    /// Sizes of a rank's larger buffer, with K, M or G for powers of 1,024
    #[arg(long, default_value = "1K,64K,1M,16M,64M", value_delimiter = ',', value_parser = size)]
    bytes: Vec<usize>,

    /// How bytes get from one rank to another
    #[arg(long, value_enum, default_value = "shm")]
    transport: TransportArg,

    /// Use buffers that other ranks of the host can reach (the default)
    #[arg(long, conflicts_with = "private")]
    registered: bool,

    /// Use buffers that only their own rank can reach
    #[arg(long)]
    private: bool,

    /// The algorithm, where one can be chosen
    #[arg(long, value_enum, default_value = "auto")]
    algorithm: Algorithm,

    /// Sum up numbers that are compressed on the way; all-reduce alone
    #[arg(long, value_enum)]
    compress: Option<Compress>,

    /// The largest packet over QUIC, in bytes of UDP payload, that the search for the path's limit
    /// tries: 1200 to 65507 [default: 8952]
    #[arg(long, value_name = "BYTES")]
    mtu: Option<u16>,

    /// What carries the bytes between two ranks with --transport quic
    #[arg(long, value_enum, default_value = "quic")]
    carrier: DataTransportArg,

    /// What decides over the network how much may be under way at a time
    #[arg(long, value_enum, default_value = "cubic")]
    congestion: Control,

    /// Connections of each pair of ranks over the network: several help over long or lossy links
    #[arg(long, value_name = "N", default_value = "1")]
    connections: u8,

    /// Print what each algorithm is predicted to take over the carrier, and measure nothing
    #[arg(long)]
    explain: bool,

    /// How many cores the ranks of --explain share [default: those of this machine, as when
    /// measuring]
    #[arg(long, value_name = "N", requires = "explain")]
    cores: Option<NonZeroUsize>,

    /// Measure the links between ranks first, print the ring that they make, and choose by them
    #[arg(long, conflicts_with = "explain")]
    measure_links: bool,

    /// Give each rank its own core, or its own share of them (Linux)
    #[arg(long)]
    pin: bool,

    /// How long to measure each size
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    seconds: f64,

    /// Print comma-separated values
    #[arg(long)]
    csv: bool,

    /// The addresses of all ranks, host:port, to run as one of them
    #[arg(
        long,
        value_delimiter = ',',
        requires = "rank",
        conflicts_with_all = ["ranks", "pin"],
        value_name = "HOST:PORT,…"
    )]
    hosts: Vec<String>,

    /// Which of the hosts this is, from 0
    #[arg(long, requires = "hosts")]
    rank: Option<u32>,

    /// This process is one of the ranks that another has started
    #[arg(long, hide = true)]
    worker: bool,
}

/// The operations that can be measured.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Operation {
    AllReduce,
    AllGather,
    ReduceScatter,
    Broadcast,
    AllToAll,
    SendRecv,
}

/// Ways for bytes to travel.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum TransportArg {
    /// Memory that the processes of one host share
    Shm,
    /// QUIC, encrypted
    Quic,
    /// Threads of one process
    Local,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Algorithm {
    Auto,
    Ring,
    Tree,
    OneShot,
    Direct,
    Halving,
    Hierarchical,
    /// A tree of which each rank has up to seven others below it on each level
    Knomial,
    /// The fastest whose result depends on the contributions alone
    Reproducible,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Control {
    /// Takes every loss for a full queue
    Cubic,
    /// Goes by measured bandwidth and round trip, for links that lose packets at random
    Bbr,
}

/// The form of numbers on the wire.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Compress {
    Int8,
    Int4,
    /// The largest 8 of 128
    Topk,
}

/// What the bytes of operations go by.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum DataTransportArg {
    /// Streams of QUIC, over UDP
    Quic,
    /// TLS 1.3 over TCP, at the same port: faster where packets are small
    Tls,
}

/// Whose reach the buffers are in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Buffers {
    Registered,
    Private,
}

impl Bench {
    pub(crate) fn operation(&self) -> Operation {
        self.operation
    }

    pub(crate) fn ranks(&self) -> usize {
        self.ranks
    }

    pub(crate) fn sizes(&self) -> &[usize] {
        &self.bytes
    }

    pub(crate) fn transport_arg(&self) -> TransportArg {
        self.transport
    }

    pub(crate) fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// # Errors
    /// Where the operation is another than all-reduce.
    pub(crate) fn compression(&self) -> Result<Option<Compression>, ArgumentError> {
        match (self.compress, self.operation) {
            (None, _) => Ok(None),
            (Some(compress), Operation::AllReduce) => Ok(Some(compress.into())),
            (Some(_), _) => Err(ArgumentError::Compress),
        }
    }

    pub(crate) fn buffers(&self) -> Buffers {
        if self.private {
            Buffers::Private
        } else {
            Buffers::Registered
        }
    }

    /// # Errors
    /// Where ranks are threads, which share the cores of their process.
    pub(crate) fn cores_of_ranks(&self) -> Result<Cores, ArgumentError> {
        match (self.pin, self.transport) {
            (true, TransportArg::Local) => Err(ArgumentError::Pin),
            (true, TransportArg::Shm | TransportArg::Quic) => Ok(Cores::Split),
            (false, _) => Ok(Cores::Shared),
        }
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.seconds
    }

    pub(crate) fn prints_csv(&self) -> bool {
        self.csv
    }

    pub(crate) fn hosts(&self) -> &[String] {
        &self.hosts
    }

    /// How the network is to be used.
    pub(crate) fn network(&self) -> Result<Network, ConfigError> {
        let network = Network::default()
            .with_connections(self.connections)?
            .with_congestion(match self.congestion {
                Control::Cubic => Congestion::Cubic,
                Control::Bbr => Congestion::Bbr,
            })
            .with_data_transport(self.carrier());
        match self.mtu {
            Some(bytes) => network.with_largest_packet(bytes),
            None => Ok(network),
        }
    }

    pub(crate) fn carrier(&self) -> DataTransport {
        match self.carrier {
            DataTransportArg::Quic => DataTransport::Quic,
            DataTransportArg::Tls => DataTransport::Tls,
        }
    }

    pub(crate) fn explains(&self) -> bool {
        self.explain
    }

    /// The cores of the ranks that an explanation is about.
    ///
    /// # Errors
    /// Where none are named and the system does not tell its own.
    pub(crate) fn cores(&self) -> io::Result<NonZeroUsize> {
        self.cores.map_or_else(thread::available_parallelism, Ok)
    }

    pub(crate) fn measures_links(&self) -> bool {
        self.measure_links
    }

    pub(crate) fn is_worker(&self) -> bool {
        self.worker
    }

    /// # Errors
    /// Never where clap has seen the line, which refuses hosts without a rank.
    pub(crate) fn rank(&self) -> Result<u32, ArgumentError> {
        self.rank.ok_or(ArgumentError::Rank)
    }

    /// What ranks of several processes are told of how bytes travel.
    ///
    /// # Errors
    /// For threads, which are all in one process.
    pub(crate) fn transport_of_processes(&self) -> Result<Transport, ArgumentError> {
        match self.transport {
            TransportArg::Quic => Ok(Transport::Quic),
            TransportArg::Shm => Ok(Transport::Auto),
            TransportArg::Local => Err(ArgumentError::Threads),
        }
    }

    /// The name of what is measured among ranks on these hosts, as in the tables of others.
    pub(crate) fn peer(&self, hosts: &Hosts) -> &'static str {
        match (self.transport, self.buffers()) {
            (TransportArg::Local, _) => "meshwork-local",
            (TransportArg::Shm, Buffers::Registered) if hosts.count() == 1 => {
                "meshwork-shm-registered"
            }
            (TransportArg::Shm, Buffers::Private) if hosts.count() == 1 => "meshwork-shm-private",
            (TransportArg::Shm, _) if hosts.count() < hosts.world() && self.may_go_by_host() => {
                match self.carrier {
                    DataTransportArg::Quic => "meshwork-quic-hierarchical",
                    DataTransportArg::Tls => "meshwork-tls-hierarchical",
                }
            }
            (TransportArg::Shm | TransportArg::Quic, _) => match self.carrier {
                DataTransportArg::Quic => "meshwork-quic",
                DataTransportArg::Tls => "meshwork-tls",
            },
        }
    }

    /// Whether the operation goes through memory inside hosts, where there are several of which one
    /// has several ranks; `auto` does so for long buffers at least.
    fn may_go_by_host(&self) -> bool {
        let by_host = match (self.algorithm, self.operation) {
            (_, Operation::SendRecv) | (Algorithm::Auto, Operation::AllToAll) => false,
            (Algorithm::Auto | Algorithm::Hierarchical, _) => true,
            (
                Algorithm::Ring
                | Algorithm::Tree
                | Algorithm::OneShot
                | Algorithm::Direct
                | Algorithm::Halving
                | Algorithm::Knomial
                | Algorithm::Reproducible,
                _,
            ) => false,
        };
        by_host && self.compress.is_none()
    }
}

impl From<Compress> for Compression {
    fn from(compress: Compress) -> Self {
        match compress {
            Compress::Int8 => Self::Int8(Rounding::Nearest),
            Compress::Int4 => Self::Int4(Rounding::Nearest),
            Compress::Topk => Self::TopK(TOP_K),
        }
    }
}

/// Elements of each block of 128 that are sent.
const TOP_K: NonZeroU8 = NonZeroU8::new(8).expect("8 is not 0");

impl From<Algorithm> for Communication {
    fn from(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Auto => Self::Auto,
            Algorithm::Ring => Self::Ring,
            Algorithm::Tree => Self::Tree,
            Algorithm::OneShot => Self::OneShot,
            Algorithm::Direct => Self::Direct,
            Algorithm::Halving => Self::Halving,
            Algorithm::Hierarchical => Self::Hierarchical,
            Algorithm::Knomial => Self::Knomial,
            Algorithm::Reproducible => Self::Reproducible,
        }
    }
}

impl Operation {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "allreduce",
            Self::AllGather => "allgather",
            Self::ReduceScatter => "reducescatter",
            Self::Broadcast => "broadcast",
            Self::AllToAll => "alltoall",
            Self::SendRecv => "sendrecv",
        }
    }

    /// What algorithms it can be done by; none between two ranks alone.
    pub(crate) fn collective(self) -> Option<Collective> {
        match self {
            Self::AllReduce => Some(Collective::AllReduce),
            Self::AllGather => Some(Collective::AllGather),
            Self::ReduceScatter => Some(Collective::ReduceScatter),
            Self::Broadcast => Some(Collective::Broadcast { root: Rank::CHIEF }),
            Self::AllToAll => Some(Collective::AllToAll),
            Self::SendRecv => None,
        }
    }

    /// By what the algorithm bandwidth is multiplied to compare with that of a link, as the
    /// collectives tables of others have it.
    pub(crate) fn bus_factor(self, ranks: usize) -> f64 {
        let ranks = ranks as f64;
        match self {
            Self::AllReduce => 2.0 * (ranks - 1.0) / ranks,
            Self::AllGather | Self::ReduceScatter | Self::AllToAll => (ranks - 1.0) / ranks,
            Self::Broadcast | Self::SendRecv => 1.0,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ArgumentError {
    #[error("it takes 1 to 1024 ranks")]
    Ranks,
    #[error("it takes a number of bytes such as 65536, 64K or 16M, a multiple of 4")]
    Size,
    #[error("it takes a number of seconds above 0, such as 2 or 0.5")]
    Seconds,
    #[error("--hosts takes --rank")]
    Rank,
    #[error("--compress goes with all-reduce alone")]
    Compress,
    #[error("send-recv takes 2 ranks and there is 1: give -n 2")]
    Alone,
    #[error(
        "--pin gives cores to processes, and --transport local has threads: leave out --pin, or choose shm or quic"
    )]
    Pin,
    #[error(
        "--transport local measures threads of one process: leave out --hosts, or choose shm or quic"
    )]
    Threads,
}

fn ranks(text: &str) -> Result<usize, ArgumentError> {
    let ranks = text.parse().ok().filter(|ranks| (1..=1024).contains(ranks));
    ranks.ok_or(ArgumentError::Ranks)
}

pub(crate) fn size(text: &str) -> Result<usize, ArgumentError> {
    let (digits, shift) = match text.char_indices().next_back() {
        Some((end, 'K' | 'k')) => (&text[..end], 10),
        Some((end, 'M' | 'm')) => (&text[..end], 20),
        Some((end, 'G' | 'g')) => (&text[..end], 30),
        _ => (text, 0),
    };
    let number: usize = digits.parse().map_err(|_| ArgumentError::Size)?;
    let bytes = number.checked_mul(1 << shift);
    let whole = bytes.filter(|bytes| bytes % size_of::<f32>() == 0 && *bytes > 0);
    whole.ok_or(ArgumentError::Size)
}

fn seconds(text: &str) -> Result<f64, ArgumentError> {
    let seconds = text
        .parse()
        .ok()
        .filter(|s: &f64| s.is_finite() && *s > 0.0);
    seconds.ok_or(ArgumentError::Seconds)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn sizes_have_units_and_are_whole_elements() {
        assert_eq!(size("1K").unwrap(), 1024);
        assert_eq!(size("3m").unwrap(), 3 << 20);
        assert_eq!(size("2G").unwrap(), 2 << 30);
        assert_eq!(size("4096").unwrap(), 4096);
        for wrong in [
            "",
            "K",
            "0",
            "6",
            "-4",
            "1.5M",
            "99999999999999999999G",
            "1T",
        ] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn every_way_to_choose_an_algorithm_can_be_asked_for() {
        let named = Algorithm::value_variants().iter().copied();
        let named: Vec<_> = named.map(Communication::from).collect();
        assert_eq!(named, Communication::ALL);
    }

    #[test]
    fn only_an_all_reduce_is_compressed() {
        let compression = |line: &[&str]| bench(line).compression();
        let int8 = compression(&["all-reduce", "--compress", "int8"]);
        assert!(matches!(
            int8,
            Ok(Some(Compression::Int8(Rounding::Nearest)))
        ));
        let refused = compression(&["broadcast", "--compress", "int8"]);
        assert!(matches!(refused, Err(ArgumentError::Compress)));
        assert!(matches!(compression(&["broadcast"]), Ok(None)));
    }

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        bench: Bench,
    }

    fn bench(line: &[&str]) -> Bench {
        Line::parse_from([&["bench"], line].concat()).bench
    }

    #[test]
    fn figures_are_named_by_what_carries_the_bytes_between_these_hosts() {
        let [one, several, apart] = ["aaaa", "aabb", "abcd"].map(|hosts| Hosts::of(hosts.chars()));
        for (line, expected) in [
            (&[][..], ["shm-registered", "quic-hierarchical", "quic"]),
            (&["--private"], ["shm-private", "quic-hierarchical", "quic"]),
            (
                &["--carrier", "tls"],
                ["shm-registered", "tls-hierarchical", "tls"],
            ),
            (&["--transport", "quic"], ["quic"; 3]),
            (&["--algorithm", "ring"], ["shm-registered", "quic", "quic"]),
            (&["all-to-all"], ["shm-registered", "quic", "quic"]),
            (&["--compress", "int8"], ["shm-registered", "quic", "quic"]),
            (
                &["all-to-all", "--algorithm", "hierarchical"],
                ["shm-registered", "quic-hierarchical", "quic"],
            ),
            (&["--transport", "local"], ["local"; 3]),
        ] {
            let bench = bench(line);
            let found = [&one, &several, &apart].map(|hosts| bench.peer(hosts));
            let expected = expected.map(|name| format!("meshwork-{name}"));
            assert_eq!(found, expected, "{line:?}");
        }
    }

    #[test]
    fn threads_are_not_measured_between_processes() {
        let transport = |name| bench(&["--transport", name]).transport_of_processes();
        assert!(matches!(transport("shm"), Ok(Transport::Auto)));
        assert!(matches!(transport("quic"), Ok(Transport::Quic)));
        assert!(matches!(transport("local"), Err(ArgumentError::Threads)));
    }

    #[test]
    fn bus_bandwidth_is_that_of_the_busiest_link() {
        assert!((Operation::AllReduce.bus_factor(4) - 1.5).abs() < 1e-12);
        assert!((Operation::AllGather.bus_factor(4) - 0.75).abs() < 1e-12);
        assert!((Operation::Broadcast.bus_factor(4) - 1.0).abs() < 1e-12);
    }
}

//! Arguments of `soak`: how many faults of which kind, and the hidden ones by which it starts
//! itself again as a rank of a job.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Parser, ValueEnum};

/// Kills, stops and cuts off processes of real jobs under load, and sees that all others notice
#[derive(Debug, Parser)]
#[command(name = "soak")]
pub(crate) struct Args {
    /// How many faults, each in a job of its own
    #[arg(long, default_value_t = 10, value_name = "N")]
    kills: u32,
    /// What the bytes of the job go through
    #[arg(long, value_enum, default_value = "shm")]
    transport: DataTransport,
    /// How many ranks a job has
    #[arg(long, default_value_t = 3, value_name = "R", value_parser = clap::value_parser!(u32).range(2..=64))]
    ranks: u32,
    /// Of how many faults one stops its process (SIGSTOP) instead of killing it; 0 for none
    #[arg(long, default_value_t = 10, value_name = "K")]
    stop_every: u32,
    /// Of how many faults one is followed by another process in the place of the one that was
    /// killed, in a job of three or more that goes on; 0 for none
    #[arg(long, default_value_t = 4, value_name = "K")]
    restart_every: u32,
    /// Of how many faults one stops its process for a while, in a job of three or more that goes on
    /// without it, and lets it continue then; 0 for none
    #[arg(long, default_value_t = 3, value_name = "K")]
    pause_every: u32,
    /// Of how many faults one parts a rank from the others, where there is a network; 0 for none
    #[arg(long, default_value_t = 15, value_name = "K")]
    cut_every: u32,
    /// Each rank is on a host of its own, by network namespaces: kills are noticed from afar
    #[arg(long)]
    apart: bool,
    /// What the faults, their victims and moments are drawn from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Elements of 4 bytes in an all-reduce [default: so many that it has 16 KiB to 64 MiB, drawn
    /// for each job]
    #[arg(long, value_name = "N")]
    elements: Option<usize>,
    /// Whose reach the buffers are in [default: drawn for each job]
    #[arg(long, value_enum)]
    buffers: Option<Buffers>,
    /// Be this rank of a job
    #[arg(long, value_name = "RANK", hide = true)]
    as_rank: Option<u32>,
    #[arg(long, value_delimiter = ',', requires = "as_rank", hide = true)]
    members: Vec<String>,
    /// Go on without ranks that are lost, and with new ones
    #[arg(long, requires = "as_rank", hide = true)]
    goes_on: bool,
    /// Ask to be let into a job that runs
    #[arg(long, requires = "goes_on", hide = true)]
    rejoin: bool,
    #[arg(long, requires = "as_rank", hide = true)]
    bind: Option<SocketAddr>,
    #[arg(long, requires = "as_rank", hide = true)]
    dump: Option<PathBuf>,
    /// The step after which a rank says so
    #[arg(long, default_value_t = 3, hide = true)]
    tell: u32,
    /// Seconds that an operation may take
    #[arg(long, default_value_t = 30.0, hide = true)]
    patience: f64,
    /// What the rank does otherwise, as STEP:WHAT
    #[arg(long, requires = "as_rank", hide = true)]
    at: Option<FaultStep>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum DataTransport {
    /// Memory that the processes share
    Shm,
    /// QUIC
    Quic,
    /// QUIC, with the bytes of operations in TLS over TCP
    Tls,
}

/// Whose reach the buffers of a job are in.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Buffers {
    /// That of all ranks of the host
    Registered,
    /// That of their own rank alone
    Private,
}

/// What a rank does at a step instead of what the others do.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Deviation {
    /// Leaves the all-reduce out
    Skip,
    /// Reduces by another op
    Other,
    /// Drops its group
    Drop,
    /// Waits for a line on standard input, then goes on
    Hold,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct FaultStep {
    step: u32,
    what: Deviation,
}

/// Of so many ranks, those left after a loss are a majority.
const MAJORITY: u32 = 3;

impl Args {
    pub(crate) fn faults(&self) -> u32 {
        self.kills
    }

    pub(crate) fn carrier(&self) -> DataTransport {
        self.transport
    }

    pub(crate) fn ranks(&self) -> u32 {
        self.ranks
    }

    /// Every how many faults a process is stopped, if any.
    pub(crate) fn stop_every(&self) -> Option<u32> {
        (self.stop_every > 0).then_some(self.stop_every)
    }

    /// Every how many faults a process is started again, if any.
    pub(crate) fn restart_every(&self) -> Option<u32> {
        (self.restart_every > 0 && self.ranks >= MAJORITY).then_some(self.restart_every)
    }

    /// Every how many faults a process is stopped for a while, if any.
    pub(crate) fn pause_every(&self) -> Option<u32> {
        (self.pause_every > 0 && self.ranks >= MAJORITY).then_some(self.pause_every)
    }

    /// Every how many faults a rank is parted from others, where there are links.
    pub(crate) fn cut_every(&self) -> Option<u32> {
        let links = self.transport != DataTransport::Shm;
        (links && self.cut_every > 0).then_some(self.cut_every)
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    pub(crate) fn as_rank(&self) -> Option<u32> {
        self.as_rank
    }

    pub(crate) fn goes_on(&self) -> bool {
        self.goes_on
    }

    pub(crate) fn rejoins(&self) -> bool {
        self.rejoin
    }

    pub(crate) fn members(&self) -> &[String] {
        &self.members
    }

    pub(crate) fn bind(&self) -> Option<SocketAddr> {
        self.bind
    }

    pub(crate) fn is_apart(&self) -> bool {
        self.apart
    }

    pub(crate) fn dump(&self) -> Option<&PathBuf> {
        self.dump.as_ref()
    }

    pub(crate) fn elements(&self) -> Option<usize> {
        self.elements
    }

    pub(crate) fn buffers(&self) -> Option<Buffers> {
        self.buffers
    }

    pub(crate) fn tell(&self) -> u32 {
        self.tell
    }

    pub(crate) fn patience(&self) -> Duration {
        Duration::try_from_secs_f64(self.patience).unwrap_or(Duration::MAX)
    }

    /// What this rank does otherwise at this step.
    pub(crate) fn deviation(&self, step: u32) -> Option<Deviation> {
        let turn = self.at.filter(|turn| turn.step == step)?;
        Some(turn.what)
    }
}

impl FromStr for FaultStep {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (step, what) = text.split_once(':').ok_or("it takes STEP:WHAT")?;
        Ok(Self {
            step: step.parse().map_err(|_| format!("{step} is no step"))?,
            what: Deviation::from_str(what, false)?,
        })
    }
}

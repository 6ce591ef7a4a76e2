//! `meshwork bench`: how fast operations are here, with their values checked.

mod args;
mod explain;
mod measure;
mod table;
mod trial;

use std::error::Error;
use std::io;
use std::thread;

use meshwork_collectives::{Communication, Group, GroupConfig, JobIdentity, Rank, ReduceOp};
use meshwork_launcher::{Launch, Outcome, Output};

pub(crate) use args::{Bench, size};

use crate::tools::placement::placement;
use args::{ArgumentError, Operation, TransportArg};
use measure::Series;

type Failure = Box<dyn Error + Send + Sync>;

/// Ranks that were started here have not measured to the end.
#[derive(Debug, thiserror::Error)]
#[error("{outcome}")]
pub(crate) struct RanksEnded {
    outcome: Outcome,
}

impl RanksEnded {
    /// The exit status: theirs.
    pub(crate) fn exit_code(&self) -> u8 {
        self.outcome.exit_code()
    }
}

/// Runs the benchmark and prints its table; the text says what went wrong.
pub(crate) fn run(wanted: &Bench) -> Result<(), Failure> {
    wanted.compression()?;
    wanted.network()?;
    wanted.cores_of_ranks()?;
    if wanted.explains() {
        return explain::print(wanted);
    }
    if wanted.is_worker() || !wanted.hosts().is_empty() {
        return as_rank(wanted);
    }
    match wanted.transport_arg() {
        TransportArg::Local => among_threads(wanted),
        TransportArg::Shm | TransportArg::Quic => among_processes(wanted),
    }
}

/// Starts this program once for each rank.
fn among_processes(wanted: &Bench) -> Result<(), Failure> {
    let this = std::env::current_exe()?;
    // Behind the name of this command, as the line may end in `--` and what is no option.
    let arguments = std::env::args_os().skip(2);
    let outcome = Launch::new(this)
        .args(["bench", "--worker"])
        .args(arguments)
        .workers(wanted.ranks())?
        .output(Output::ChiefInherits)
        .cores(wanted.cores_of_ranks()?)
        .run()?;
    match outcome {
        Outcome::Succeeded => Ok(()),
        outcome => Err(RanksEnded { outcome }.into()),
    }
}

fn among_threads(wanted: &Bench) -> Result<(), Failure> {
    let ranks = u32::try_from(wanted.ranks())?;
    let groups = Group::local(ranks)?;
    thread::scope(|scope| {
        let threads: Vec<_> = groups
            .into_iter()
            .map(|group| scope.spawn(|| measure_all(wanted, group)))
            .collect();
        threads.into_iter().try_for_each(|thread| {
            thread
                .join()
                .unwrap_or_else(|_| Err("a rank panicked".into()))
        })
    })
}

/// One rank of several processes: its place comes from the command line or from the
/// environment.
fn as_rank(wanted: &Bench) -> Result<(), Failure> {
    let transport = wanted.transport_of_processes()?;
    let (members, rank) = match wanted.hosts() {
        [] => {
            let placement = placement()?;
            (placement.addresses().to_vec(), placement.rank())
        }
        hosts => (hosts.to_vec(), wanted.rank()?),
    };
    let config = GroupConfig::new(members, Rank::new(rank), JobIdentity::from_env()?)?
        .with_environment()?
        .with_transport(transport)
        .with_network(wanted.network()?);
    measure_all(wanted, Group::connect(&config)?)
}

fn measure_all(wanted: &Bench, mut group: Group) -> Result<(), Failure> {
    if wanted.operation() == Operation::SendRecv && group.world() < 2 {
        return Err(ArgumentError::Alone.into());
    }
    group.set_communication(Communication::from(wanted.algorithm()));
    let peer = wanted.peer(&group.hosts());
    // The table is the same on all ranks: one prints it.
    let mut out: Box<dyn io::Write> = match group.rank() {
        Rank::CHIEF => Box::new(io::stdout()),
        _ => Box::new(io::sink()),
    };
    if wanted.measures_links() {
        table::links(&mut out, wanted, group.measure_links()?.as_ref())?;
    }
    table::head(&mut out, wanted, peer)?;
    let mut wrong = 0;
    for bytes in wanted.sizes() {
        let row = Series::new(wanted, *bytes).run(&mut group)?;
        wrong += row.errors;
        table::row(&mut out, wanted, peer, &row)?;
    }
    let mut most = [group.connections() as u64];
    group.all_reduce(&mut most, ReduceOp::Max)?;
    table::foot(&mut out, wanted, most[0])?;
    group.leave()?;
    verdict(wanted.operation(), wrong)
}

/// Fails if there were wrong values on any rank: no time counts of an operation that is wrong.
fn verdict(operation: Operation, wrong: u64) -> Result<(), Failure> {
    match wrong {
        0 => Ok(()),
        wrong => {
            let name = operation.name();
            Err(format!("{wrong} values were wrong after {name}: its times mean nothing").into())
        }
    }
}

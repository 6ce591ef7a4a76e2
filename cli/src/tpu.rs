//! `meshwork tpu`: programs compiled for TPU slices that need not be there.

mod compile;
mod report;

use std::env;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use clap::{Args, Subcommand, ValueEnum};
use meshwork_accel_tpu::CollectiveProgram;
use meshwork_accel_tpu::tpu::{self, TopologyName};

use crate::bench::size;

/// What to do with TPUs.
#[derive(Args, Debug)]
pub(crate) struct Tpu {
    #[command(subcommand)]
    task: TpuTask,
}

#[derive(Debug, Subcommand)]
enum TpuTask {
    /// Compile a program for a slice, which need not be there
    ///
    /// Prints the devices with their place and their rank on a ring of all, the memory that the
    /// program takes on each, and how XLA moves data between them. Needs libtpu, by
    /// TPU_LIBRARY_PATH or from Python's packages (pip install libtpu); no TPU is needed.
    Compile(Compile),
}

#[derive(Args, Debug)]
pub(crate) struct Compile {
    /// The slice: a generation and its chips along each side, such as v5e:2x4 or v4:2x2x1
    #[arg(long, value_name = "NAME")]
    topology: TopologyName,

    /// A collective over all devices
    #[arg(long, value_enum, default_value_t = Program::AllReduce)]
    program: Program,

    /// The bytes that each device brings, with K, M or G for powers of 1,024
    #[arg(long, value_name = "SIZE", default_value = "4M", value_parser = size)]
    bytes: usize,

    /// A program of StableHLO instead, of one replica for each device
    #[arg(long, value_name = "FILE", conflicts_with_all = ["program", "bytes"])]
    stablehlo: Option<PathBuf>,

    /// The program is one, spread over the devices by its shardings
    #[arg(long, requires = "stablehlo")]
    partitioned: bool,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Program {
    /// A sum of all, on every device
    AllReduce,
    /// What all have, on every device
    AllGather,
    /// A sum of all, of which each device keeps its block
    ReduceScatter,
    /// A block from every device to every device
    AllToAll,
    /// What each device has, on the next
    Permute,
}

impl From<Program> for CollectiveProgram {
    fn from(program: Program) -> Self {
        match program {
            Program::AllReduce => Self::AllReduce,
            Program::AllGather => Self::AllGather,
            Program::ReduceScatter => Self::ReduceScatter,
            Program::AllToAll => Self::AllToAll,
            Program::Permute => Self::Permute,
        }
    }
}

/// Why `meshwork tpu` fails.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TpuError {
    /// The plugin, or what it was asked.
    #[error(transparent)]
    Plugin(#[from] meshwork_accel_tpu::Error),
    /// The program cannot be read.
    #[error("{} cannot be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// This program cannot be started again with what libtpu needs in its environment.
    #[error(
        "this program cannot be started again: set {} in the environment",
        variables()
    )]
    Restart(#[source] io::Error),
    /// The report cannot be written.
    #[error("standard output cannot be written")]
    Output(#[source] io::Error),
}

/// Compiles, and prints what comes of it.
///
/// libtpu reads the environment when it is loaded, and no process changes its own once it has
/// threads. So unless all is set, the work is done by this program started again.
pub(crate) fn run(wanted: &Tpu) -> Result<ExitCode, TpuError> {
    if !tpu::is_environment_set() {
        return restart();
    }
    let TpuTask::Compile(wanted) = &wanted.task;
    let text = compile::run(wanted)?;
    io::stdout()
        .write_all(text.as_bytes())
        .map_err(TpuError::Output)?;
    Ok(ExitCode::SUCCESS)
}

/// Values that the user has set stay as they are.
fn restart() -> Result<ExitCode, TpuError> {
    let missing = tpu::ENVIRONMENT
        .into_iter()
        .filter(|(variable, _)| env::var_os(variable).is_none());
    let program = env::current_exe().map_err(TpuError::Restart)?;
    let mut again = Command::new(program);
    again.args(env::args_os().skip(1)).envs(missing);
    let ended = again.status().map_err(TpuError::Restart)?;
    let code = ended.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

fn variables() -> String {
    tpu::ENVIRONMENT
        .map(|(variable, value)| format!("{variable}={value}"))
        .join(" ")
}

//! `meshwork tpu`: programs compiled for TPU slices that need not be there.

mod compile;
mod report;
mod train;

use std::env;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use clap::{Args, Subcommand, ValueEnum};
use meshwork_accel_tpu::CollectiveProgram;
use meshwork_accel_tpu::tpu::{self, TopologyName};

use crate::tools::bench::size;

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

    /// A collective over all devices, or a step of training
    #[arg(long, value_enum, default_value_t = Program::AllReduce)]
    program: Program,

    /// What the step trains
    #[arg(long, value_enum, value_name = "MODEL")]
    model: Option<Model>,

    /// Over how many devices the model is cut, each batch over as many as this leaves [default: the
    /// most of 4, 2 and 1 that divide the devices]
    #[arg(long, value_name = "NUMBER")]
    parts: Option<usize>,

    /// The bytes that each device brings to a collective, with K, M or G for powers of 1,024
    /// [default: 4M]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    bytes: Option<usize>,

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
    /// A loss, its gradients and what they change, of --model
    TrainStep,
}

/// What a step trains.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Model {
    /// A decoder of text by Adam, cut over batch and heads
    TensorParallel,
}

impl Program {
    /// The collective; none for a step of training.
    const fn collective(self) -> Option<CollectiveProgram> {
        Some(match self {
            Self::AllReduce => CollectiveProgram::AllReduce,
            Self::AllGather => CollectiveProgram::AllGather,
            Self::ReduceScatter => CollectiveProgram::ReduceScatter,
            Self::AllToAll => CollectiveProgram::AllToAll,
            Self::Permute => CollectiveProgram::Permute,
            Self::TrainStep => return None,
        })
    }
}

/// Why `meshwork tpu` fails.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TpuError {
    /// The plugin, or what it was asked.
    #[error(transparent)]
    Plugin(#[from] meshwork_accel_tpu::Error),
    /// A step of training without a model.
    #[error("--program train-step does not say what it trains: add --model tensor-parallel")]
    NoModel,
    /// A model, or parts of one, without a step of training.
    #[error("--model and --parts say what a step trains: add --program train-step")]
    NoStep,
    /// Bytes of a collective, for a step of training.
    #[error("--bytes says what a collective moves: leave it out of --program train-step")]
    StepBytes,
    /// A model cannot be cut so.
    #[error(
        "--parts {parts} does not divide {devices} devices and the {heads} heads of the model: give {example}"
    )]
    Parts {
        /// The parts asked for.
        parts: usize,
        /// How many devices the slice has.
        devices: usize,
        /// How many heads there are.
        heads: usize,
        /// What would do.
        example: usize,
    },
    /// The step cannot be traced, or not as one program.
    #[error(transparent)]
    Step(#[from] meshwork_dtensor::Error),
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
/// threads. So unless all is set, the work is done by this program started over.
pub(crate) fn run(wanted: &Tpu) -> Result<(), TpuError> {
    if !tpu::is_environment_set() {
        return restart();
    }
    let TpuTask::Compile(wanted) = &wanted.task;
    let text = compile::run(wanted)?;
    io::stdout()
        .write_all(text.as_bytes())
        .map_err(TpuError::Output)
}

/// In the same process, so that whoever ends it ends the work. Values that the user has set stay as
/// they are.
fn restart() -> Result<(), TpuError> {
    let missing = tpu::ENVIRONMENT
        .into_iter()
        .filter(|(variable, _)| env::var_os(variable).is_none());
    let program = env::current_exe().map_err(TpuError::Restart)?;
    let mut again = Command::new(program);
    again.args(env::args_os().skip(1)).envs(missing);
    Err(TpuError::Restart(again.exec()))
}

fn variables() -> String {
    tpu::ENVIRONMENT
        .map(|(variable, value)| format!("{variable}={value}"))
        .join(" ")
}

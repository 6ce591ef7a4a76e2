//! Trains a small network on a sonnet: the batch is cut by `data`, the weights by `model`, on a
//! mesh of 2×2 devices, in one process or in four.
//!
//! ```text
//!              model 0             model 1
//!   data 0   process 0           process 1      one half of the batch
//!   data 1   process 2           process 3      the other half
//!            the left columns    the right ones of the first weights
//! ```
//!
//! `tensor-parallel --processes 4` starts four processes of this program; without it, one process
//! has all four devices. Both print the same losses, to the last bit.

mod explain;
mod model;
mod text;

use std::env;
use std::io::{self, Write};
use std::num::{NonZeroU32, NonZeroUsize};
use std::process::ExitCode;

use clap::builder::RangedU64ValueParser;
use clap::{Parser, ValueEnum};
use meshwork_cluster_resolver::{EnvironmentResolver, WorkerPlacement};
use meshwork_core::CreateMesh;
use meshwork_dtensor::{CLIENT_ID, DeviceCounts, Environment, Initialize, JOBS, System, compile};
use meshwork_launcher::{Launch, LaunchError, Outcome, Output};

use model::{Layouts, Method, Model};
use text::Text;

/// Trains a small network on a sonnet, cut over a mesh of 2×2 devices.
#[derive(Debug, Parser)]
struct Args {
    /// Starts so many processes, which share the four devices: 1, 2 or 4.
    #[arg(long, default_value = "1")]
    processes: NonZeroUsize,
    /// How many steps to train.
    #[arg(long, default_value = "60")]
    steps: usize,
    /// How many places of the text each step looks at: 65536 at most.
    #[arg(long, default_value = "32")]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(1..=MOST_PLACES))]
    batch: usize,
    /// How steps are carried out.
    #[arg(long, value_enum, default_value = "tape")]
    engine: Engine,
    /// How weights follow their gradients.
    #[arg(long, value_enum, default_value = "sgd")]
    optimizer: Method,
    /// Draws which process has which part, and tells what moves between them; of a compiled step
    /// also what it does.
    #[arg(long)]
    explain: bool,
}

/// How steps are carried out.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Engine {
    /// Op by op.
    Tape,
    /// As one program, traced in the first step.
    Compiled,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Tensor(#[from] meshwork_dtensor::Error),
    #[error(transparent)]
    Cluster(#[from] meshwork_cluster_resolver::Error),
    #[error(transparent)]
    Launch(#[from] LaunchError),
    #[error("the processes cannot be started: {0}")]
    Start(io::Error),
    #[error("standard output cannot be written: {0}")]
    Output(#[from] io::Error),
    #[error("{processes} processes cannot share 4 devices evenly: use 1, 2 or 4")]
    Processes { processes: u32 },
    #[error("the processes did not succeed: {outcome}")]
    Job { outcome: String },
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody is left to tell if even this fails.
            let _ = writeln!(io::stderr(), "tensor-parallel: error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), Error> {
    if EnvironmentResolver::from_env().is_described() || args.processes.get() == 1 {
        return train(args);
    }
    let launch = Launch::new(env::current_exe().map_err(Error::Start)?)
        .args(env::args_os().skip(1))
        .workers(args.processes.get())?
        .output(Output::ChiefInherits);
    match launch.run()? {
        Outcome::Succeeded => Ok(()),
        outcome => Err(Error::Job {
            outcome: outcome.to_string(),
        }),
    }
}

fn train(args: &Args) -> Result<(), Error> {
    let environment = environment()?;
    let mut system = System::new(DeviceCounts::cpus(1));
    let processes = system.config(&environment).num_clients()?;
    let devices = NonZeroU32::new(4 / processes).filter(|each| each.get() * processes == 4);
    let devices = devices.ok_or(Error::Processes { processes })?;
    system.initialize(&environment, Initialize::new().logical_cpu_devices(devices))?;
    let context = system.initialized()?;
    let mesh = CreateMesh::new().dims([("data", 2), ("model", 2)]);
    let mesh = context.create_distributed_mesh(mesh)?;
    let (layouts, text) = (Layouts::new(&mesh)?, Text::read());
    let is_first = context.index() == 0;
    if args.explain && is_first {
        explain::print(&layouts, &text, args.batch)?;
    }
    let mut model = Model::new(&context, &layouts, &text, args.optimizer)?;
    let mut compiled = compile(Model::step);
    for step in 0..args.steps {
        let (inputs, labels) = text.batch(step, args.batch);
        let inputs = context.copy_to_mesh(inputs, &layouts.inputs)?;
        let labels = context.copy_to_mesh(labels, &layouts.labels)?;
        let batch = (inputs, labels);
        let loss = match args.engine {
            Engine::Tape => model.step(&batch)?,
            Engine::Compiled => compiled.call(&mut model, &batch)?,
        };
        let loss = loss.to_host()?.sum();
        if is_first {
            writeln!(
                io::stdout(),
                "step {} loss {loss} {:08x}",
                step + 1,
                loss.to_bits()
            )?;
        }
    }
    if let Some(program) = compiled.program().filter(|_| args.explain && is_first) {
        writeln!(io::stdout(), "{program}")?;
    }
    system.shutdown()?;
    Ok(())
}

/// The variables of this process; those of a launcher say the same as they do.
fn environment() -> Result<Environment, Error> {
    let own = Environment::of_process();
    if own.get(JOBS).is_some() {
        return Ok(own);
    }
    let launcher = EnvironmentResolver::from_env();
    if !launcher.is_described() {
        return Ok(own);
    }
    let placement = WorkerPlacement::resolve(&launcher)?;
    Ok(Environment::new([
        (JOBS, placement.addresses().join(",")),
        (CLIENT_ID, placement.rank().to_string()),
    ]))
}

/// More than the text has, and few enough to be in memory.
const MOST_PLACES: u64 = 65_536;

//! A training that workers may leave and join: a worker for tests of whole processes, or with
//! `--elastic` the launcher of several. It says on standard output which samples it tries in each
//! step, which steps are made, and who the workers are.
#![forbid(unsafe_code)]
#![expect(clippy::print_stderr, reason = "tests read what it prints")]

mod args;
mod model;
mod run;

use std::process::ExitCode;

use args::Args;
use clap::Parser;
use meshwork_integration_tests::{ended, launch_again, say};
use meshwork_launcher::Elastic;
use meshwork_strategy::{
    ClusterResolver, Error, JoinMode, MultiWorkerMirroredStrategy, TfConfigResolver,
};
use run::Run;

fn main() -> ExitCode {
    let args = Args::parse();
    match args.elastic() {
        Some(range) => {
            let elastic = Elastic::new(range.least).restarts(args.restarts());
            let launched = launch_again(&["--elastic="], range.most, Some(elastic));
            ended("trainer", launched)
        }
        None => ended("trainer", train(&args)),
    }
}

/// The place of this worker among those that the launcher has started.
fn place() -> Result<Option<u32>, Error> {
    Ok(TfConfigResolver::from_env().task_id()?)
}

fn train(args: &Args) -> Result<(), Error> {
    say!("process {}", std::process::id());
    let late = JoinMode::from_env()? == Some(JoinMode::Late);
    if late && args.fails_again() {
        eprintln!("trainer: fails again");
        std::process::exit(3);
    }
    if !late && args.fails_first().is_some() && args.fails_first() == place()? {
        eprintln!("trainer: fails first");
        std::process::exit(3);
    }
    let strategy = MultiWorkerMirroredStrategy::elastic_from_env()?;
    let mut strategy = strategy
        .with_local_replicas(args.replicas())?
        .with_options(args.options());
    let mut run = Run::new(args, &mut strategy)?;
    strategy.train(&mut run)?;
    say!(
        "trained {} steps, accuracy {:.4}, hash {:016x}",
        run.made(),
        run.model().accuracy(args.samples()),
        strategy.verify_replicas(run.model().values())?
    );
    strategy.leave()
}

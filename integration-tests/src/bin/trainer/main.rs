//! A training that workers may leave and join: a worker for tests of whole processes, or with
//! `--elastic` the launcher of several. It says on standard output which samples it tries in each
//! step, which steps are made, and who the workers are.
#![forbid(unsafe_code)]
#![expect(clippy::print_stderr, reason = "tests read what it prints")]

/// Prints a line; a reader that has gone is no reason to stop.
macro_rules! say {
    ($($part:tt)*) => {{
        let _ = writeln!(std::io::stdout(), $($part)*);
    }};
}

mod args;
mod model;
mod run;

use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

use args::{Args, Range};
use clap::Parser;
use meshwork_launcher::{Elastic, Launch};
use meshwork_strategy::{
    ClusterResolver, Error, JoinMode, MultiWorkerMirroredStrategy, TfConfigResolver,
};
use run::Run;

fn main() -> ExitCode {
    let args = Args::parse();
    let ended = match args.elastic() {
        Some(range) => launch(range, args.restarts()),
        None => train(&args)
            .map(|()| ExitCode::SUCCESS)
            .map_err(|error| error.to_string()),
    };
    ended.unwrap_or_else(|error| {
        eprintln!("trainer: error: {error}");
        ExitCode::FAILURE
    })
}

/// Starts this program again as workers, with the same arguments but for `--elastic`.
fn launch(range: Range, restarts: u32) -> Result<ExitCode, String> {
    let text = |error: &dyn Display| error.to_string();
    let program = std::env::current_exe().map_err(|error| text(&error))?;
    let args = std::env::args_os()
        .skip(1)
        .filter(|arg| !arg.to_string_lossy().starts_with("--elastic="));
    let elastic = Elastic::new(range.least).restarts(restarts);
    let launch = Launch::new(program)
        .args(args)
        .workers(range.most)
        .and_then(|launch| launch.elastic(elastic))
        .map_err(|error| text(&error))?;
    let outcome = launch.run().map_err(|error| text(&error))?;
    eprintln!("{outcome}");
    Ok(ExitCode::from(outcome.exit_code()))
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

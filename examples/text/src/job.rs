//! This process among the workers of its job: one of them, or the one that starts them.

use std::env;

use meshwork_launcher::{Cores, Launch, Outcome, Output};
use meshwork_strategy::{EnvironmentResolver, MultiWorkerMirroredStrategy};
use text::{Corpus, Error};

use crate::args::Args;
use crate::report::Reporter;
use crate::{split, train};

/// Trains as the worker that the environment says this process is; else starts the workers.
pub(crate) fn run(args: &Args) -> Result<(), Error> {
    if EnvironmentResolver::from_env().is_described() {
        return work(args);
    }
    // What would stop every worker is said once, before there are any.
    args.exchange()?;
    args.shard()?;
    Corpus::read(&args.data, args.size()?.context())?;
    Reporter::check(args)?;
    let program = env::current_exe().map_err(|source| Error::Restart { source })?;
    // candle asks these each time it multiplies matrices, and takes all cores without them.
    let launch = ["RAYON_NUM_THREADS", "CANDLE_NUM_THREADS"]
        .into_iter()
        .fold(Launch::new(program), |launch, name| launch.env(name, "1"))
        .args(env::args_os().skip(1))
        .workers(args.workers.get())?
        .cores(Cores::Split)
        .output(Output::ChiefInherits);
    match launch.run()? {
        Outcome::Succeeded => Ok(()),
        outcome => Err(Error::Job {
            status: outcome.exit_code(),
            outcome: outcome.to_string(),
        }),
    }
}

fn work(args: &Args) -> Result<(), Error> {
    // First of all, so that the others know soon whether this worker lives.
    let strategy = MultiWorkerMirroredStrategy::from_env()?;
    match args.shard()? {
        Some(shard) => split::run(args, strategy, shard),
        None => train::run(args, strategy),
    }
}

//! This process among the workers of its job: one of them, or the one that starts them.

use std::env;

use meshwork_launcher::{Cores, Elastic, Launch, Outcome, Output};
use meshwork_strategy::{EnvironmentResolver, JoinMode, MultiWorkerMirroredStrategy};
use text::{Error, Method};

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
    args.device.of_worker(0)?;
    args.corpus()?;
    Reporter::check(args)?;
    let program = env::current_exe().map_err(|source| Error::Restart { source })?;
    // candle asks these each time it multiplies matrices, and takes all cores without them.
    let launch = ["RAYON_NUM_THREADS", "CANDLE_NUM_THREADS"]
        .into_iter()
        .fold(Launch::new(program), |launch, name| launch.env(name, "1"))
        .args(env::args_os().skip(1))
        .workers(args.started())?
        .cores(Cores::Split)
        .output(Output::ChiefInherits);
    let launch = match args.elastic {
        Some(range) => launch.elastic(Elastic::new(range.least))?,
        None => launch,
    };
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
    let strategy = match (args.exchange()?.method, JoinMode::from_env()?) {
        // Workers come and go.
        (Method::Local | Method::Diloco | Method::Streaming, Some(_)) => {
            MultiWorkerMirroredStrategy::elastic_from_env()
        }
        (Method::Ddp, _) | (_, None) => MultiWorkerMirroredStrategy::from_env(),
    }?;
    match args.shard()? {
        Some(shard) => split::run(args, strategy, shard),
        None => train::run(args, strategy),
    }
}

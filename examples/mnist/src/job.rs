//! This process among the workers of its job: one of them, or the one that starts them.

use std::fs::{self, OpenOptions};
use std::path::Path;
use std::{env, io, process};

use meshwork_launcher::{Cores, Elastic, Launch, Outcome, Output};
use meshwork_strategy::{EnvironmentResolver, JoinMode, MultiWorkerMirroredStrategy};

use crate::args::{Args, Engine};
use crate::error::Error;
use crate::images::Images;
use crate::keep::Keep;
use crate::report::{Reporter, Sharers};
use crate::settings::Settings;
use crate::{plot, threads, train};

/// Trains by the engine that was asked for.
pub(crate) fn run(args: &Args) -> Result<(), Error> {
    match args.engine {
        Engine::Candle => run_candle(args),
        #[cfg(feature = "xla")]
        Engine::Xla => crate::xla::run(args),
        #[cfg(not(feature = "xla"))]
        Engine::Xla => Err(Error::WithoutXla),
    }
}

/// Trains as the worker that the environment says this process is. Else starts as many workers
/// as asked for, and is itself the only one if that is one.
fn run_candle(args: &Args) -> Result<(), Error> {
    if !EnvironmentResolver::from_env().is_described() && args.started() > 1 {
        return start_workers(args);
    }
    threads::require_environment(args.threads)?;
    threads::within(args.threads, || work(args))
}

/// Starts this program again as the workers; the chief draws on this terminal, the others are
/// prefixed.
fn start_workers(args: &Args) -> Result<(), Error> {
    // What would stop every worker is said once, before there are any.
    let workers = args.started();
    if args.global_batch.get() < workers {
        let global_batch = args.global_batch.get();
        return Err(meshwork_strategy::Error::BatchTooSmall {
            global_batch,
            workers,
        }
        .into());
    }
    Settings::new(args)?;
    Images::load(&args.data)?;
    check_results(args)?;
    let program = env::current_exe().map_err(|source| Error::Restart { source })?;
    let variables = threads::environment(args.threads);
    let launch = Launch::new(program)
        .args(env::args_os().skip(1))
        .workers(workers)?
        .cores(Cores::Split)
        .output(Output::ChiefInherits);
    let launch = match args.elastic {
        Some(range) => launch.elastic(Elastic::new(range.least))?,
        None => launch,
    };
    let launch = variables
        .into_iter()
        .fold(launch, |launch, (name, value)| launch.env(name, value));
    let outcome = launch.run()?;
    match (&outcome, &args.checkpoint) {
        (Outcome::Succeeded, _) => Ok(()),
        (Outcome::Interrupted(ended), Some(folder)) if ended.is_saved() => {
            let folder = folder.clone();
            Err(Error::Preempted { folder })
        }
        _ => Err(Error::Job {
            status: outcome.exit_code(),
            outcome: outcome.to_string(),
        }),
    }
}

fn work(args: &Args) -> Result<(), Error> {
    let settings = Settings::new(args)?;
    let keep = args.checkpoint.as_deref().map(Keep::new).transpose()?;
    // First of all, so that the others know soon whether this worker lives.
    let mut strategy = match JoinMode::from_env()? {
        // Workers come and go.
        Some(_) => MultiWorkerMirroredStrategy::elastic_from_env(),
        None => MultiWorkerMirroredStrategy::from_env(),
    }?;
    if let Some(bytes) = args.bytes_per_bucket {
        let options = strategy.options().with_bytes_per_bucket(bytes.get());
        strategy = strategy.with_options(options);
    }
    let worked = train(args, settings, &mut strategy, keep.as_ref());
    if let Err(Error::Preempted { .. }) = &worked {
        // All workers end at this step.
        strategy.leave()?;
        return worked;
    }
    if let Err(error) = &worked {
        // So that the others end with this reason; nothing if theirs is known already.
        strategy.abort(crate::error::one_line(error));
        return worked;
    }
    Ok(strategy.leave()?)
}

fn train(
    args: &Args,
    settings: Settings,
    strategy: &mut MultiWorkerMirroredStrategy,
    keep: Option<&Keep>,
) -> Result<(), Error> {
    let images = Images::load(&args.data)?;
    if strategy.is_chief() {
        check_results(args)?;
    }
    let steps = settings.epoch_steps(images.train_len());
    let mut reporter = Reporter::new(steps, args.epochs.get(), args.json.as_deref());
    let outcome = train::run(settings, &images, strategy, keep, &mut reporter)?;
    if strategy.is_chief() {
        let workers = Sharers::Workers(strategy.num_replicas_in_sync());
        reporter.finish(&outcome, workers)?;
        plot::leave(args.plot.as_deref(), &outcome.losses)?;
    }
    Ok(())
}

/// Checks that the results can be written, before minutes are spent on them.
pub(crate) fn check_results(args: &Args) -> Result<(), Error> {
    for (path, flag) in [(&args.plot, "--plot"), (&args.json, "--json")] {
        if let Some(path) = path {
            let open = OpenOptions::new().create(true).append(true).open(path);
            open.map(drop).map_err(Error::write(path, flag))?;
        }
    }
    match &args.checkpoint {
        Some(folder) => probe(folder).map_err(Error::write(folder, "--checkpoint")),
        None => Ok(()),
    }
}

/// Makes the folder if there is none, and a file in it that does not stay.
fn probe(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let file = folder.join(format!(".probe-{}", process::id()));
    fs::write(&file, [])?;
    fs::remove_file(file)
}

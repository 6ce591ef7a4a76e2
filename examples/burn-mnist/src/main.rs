//! burn's learner trains a convolutional network on MNIST, in one process or in several: they
//! differ by one argument, [`with_training_strategy`](SupervisedTraining::with_training_strategy).
//!
//! ```text
//! cargo run --release -p burn-mnist -- --workers 2 --epochs 1
//! ```
#![forbid(unsafe_code)]

mod data;
mod error;
mod model;

use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;

use burn::data::dataloader::DataLoaderBuilder;
use burn::data::dataset::InMemDataset;
use burn::lr_scheduler::constant::ConstantLr;
use burn::optim::AdamConfig;
use burn::tensor::Device;
use burn::train::metric::{AccuracyMetric, LossMetric};
use burn::train::{Learner, SupervisedTraining};
use clap::Parser;
use meshwork_burn::Distributed;
use meshwork_cluster_resolver::EnvironmentResolver;
use meshwork_launcher::{Cores, Elastic, Launch, Outcome, Output};
use mimalloc::MiMalloc;
use rayon::ThreadPoolBuilder;

use data::{Digit, DigitBatcher};
use error::Error;
use model::Model;

/// A step frees and asks for the same tensors again: glibc's allocator would give the large ones
/// back to the kernel each time.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Trains an MNIST classifier with burn, on several workers.
#[derive(Debug, Parser)]
struct Args {
    /// Processes that train together, if no environment says which of them this is
    #[arg(long, default_value = "1")]
    workers: NonZeroUsize,

    /// Times that all images are shown
    #[arg(long, default_value = "1")]
    epochs: NonZeroUsize,

    /// Images in a batch of one worker
    #[arg(long, default_value = "32")]
    batch: NonZeroUsize,

    /// Images to train with, and to validate with, at most
    #[arg(long)]
    limit: Option<NonZeroUsize>,

    /// Folder of the MNIST files, as they come
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../mnist/data"))]
    data: PathBuf,

    /// Folder for logs and checkpoints
    #[arg(long, default_value = "/tmp/burn-mnist")]
    folder: PathBuf,

    /// Go on from the last checkpoint in the folder, and write new ones; when a worker fails, all
    /// are started again, and go on from the last one
    #[arg(long)]
    resume: bool,

    /// Go on without a worker that fails, which is started again, and then comes in
    #[arg(long)]
    elastic: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let is_worker = EnvironmentResolver::from_env().is_described();
    let ended = match is_worker || args.workers.get() == 1 {
        true => on_this_thread(|| train(&args)),
        false => start_workers(&args),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // A reader that has gone is no reason to fail in another way.
            let _ = writeln!(
                io::stderr(),
                "burn-mnist: error: {}",
                error::one_line(&error)
            );
            ExitCode::from(error.exit_status())
        }
    }
}

/// Starts this program again as the workers.
fn start_workers(args: &Args) -> Result<(), Error> {
    let program = std::env::current_exe().map_err(|source| Error::Program { source })?;
    let launch = Launch::new(program)
        .args(std::env::args_os().skip(1))
        .env("RAYON_NUM_THREADS", "1")
        .workers(args.workers.get())?
        .cores(Cores::Split)
        .output(Output::ChiefInherits);
    let launch = match (args.elastic, args.resume) {
        (true, _) => launch.elastic(Elastic::new(1))?,
        // The loss of one ends all of them, and each is started again.
        (false, true) => launch.elastic(Elastic::new(args.workers.get()))?,
        (false, false) => launch,
    };
    match launch.run()? {
        Outcome::Succeeded => Ok(()),
        outcome => Err(Error::Job {
            status: outcome.exit_code(),
            outcome: outcome.to_string(),
        }),
    }
}

/// Computes on the calling thread, which is a worker's only one: handing each operation to another
/// thread of the same core would take longer than many of them.
fn on_this_thread(work: impl FnOnce() -> Result<(), Error> + Send) -> Result<(), Error> {
    let pool = ThreadPoolBuilder::new().num_threads(1);
    // The pool of the process stays for the thread that computes metrics.
    pool.use_current_thread().build()?.install(work)
}

fn train(args: &Args) -> Result<(), Error> {
    let distributed = match args.elastic {
        true => Distributed::elastic_from_env()?,
        false => Distributed::from_env()?,
    };
    let device = Device::flex().autodiff();
    // Each worker drops neurons of its own; the model begins with the chief's values.
    device.seed(SEED + distributed.worker() as u64);
    let load = |part| data::load(&args.data, part, args.limit);
    let (train, valid) = (load("train")?, load("t10k")?);
    let distributed = distributed.with_agreement(format!(
        "{} to train with and {} to validate with",
        data::text(&train),
        data::text(&valid)
    ));
    let loader = |digits: Vec<Digit>| {
        let loader = DataLoaderBuilder::new(DigitBatcher).batch_size(args.batch.get());
        // The workers take their parts out of one order.
        loader.shuffle(SEED).build(InMemDataset::new(digits))
    };
    let mut training = SupervisedTraining::new(&args.folder, loader(train), loader(valid))
        .metrics((AccuracyMetric::new(), LossMetric::new()))
        .num_epochs(args.epochs.get())
        .summary()
        .with_training_strategy(distributed.clone().into());
    if args.resume {
        training = training.with_default_checkpointers();
        if let Some(epoch) = distributed.last_checkpoint(&args.folder)? {
            if distributed.is_chief() {
                let _ = writeln!(io::stderr(), "burn-mnist: goes on behind epoch {epoch}");
            }
            training = training.checkpoint(epoch);
        }
    }
    let model = Model::new(&device);
    let learner = Learner::new(model, AdamConfig::new().init(), ConstantLr::new(1e-3));
    let result = training.launch(learner);
    if let Some(error) = result.error {
        // What has happened between workers is told by its own error.
        distributed.leave()?;
        return Err(Error::Training(error.to_string()));
    }
    Ok(distributed.leave()?)
}

/// Of the order of the images, and of the chief's device; those of the others count on from it.
const SEED: u64 = 42;

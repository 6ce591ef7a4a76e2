//! Samples a second of data-parallel training, by the number of workers: each computes on a batch
//! of the same size with one thread, so that ideal scaling is a straight line.
//!
//! ```text
//! cargo run --release -p meshwork-benches --bin scaling -- --model small --workers 1,2 --csv
//! ```
#![forbid(unsafe_code)]

mod burn;
mod candle;
mod cnn;
mod mlp;

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use meshwork_launcher::{Cores, Launch, Outcome, Output};
use meshwork_strategy::{CommunicationOptions, MultiWorkerMirroredStrategy};

/// A step frees and asks for the same tensors again: glibc's allocator would give the large ones
/// back to the kernel each time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures samples a second of training on several workers of this machine, one thread each.
#[derive(Debug, Parser)]
struct Args {
    /// What to train
    #[arg(long, value_enum, default_value = "small")]
    model: Model,

    /// What the dense layers are written in; the network for MNIST is in candle only
    #[arg(long, value_enum)]
    library: Option<Library>,

    /// Numbers of workers to measure, one after the other
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2])]
    workers: Vec<usize>,

    /// Print rows of model, workers and samples a second, separated by commas
    #[arg(long)]
    csv: bool,

    /// Seconds of each measurement, after a few steps that are not counted
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,

    /// Reduce gradients in buckets of about so many bytes, while others are computed; 0 for one
    /// bucket
    #[arg(long, default_value_t = 0)]
    bytes_per_bucket: usize,
}

/// What is trained, on numbers that are made up.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Model {
    /// Dense layers 64-512-512-10, a batch of 256
    Small,
    /// Dense layers 784-4096-4096-10, a batch of 64
    Large,
    /// The network of the MNIST example in candle, a batch of 64
    Cnn,
}

/// What computes.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Library {
    /// ndarray and no framework, as without this option
    Ndarray,
    /// candle on the CPU
    Candle,
    /// burn with its backend Flex
    Burn,
}

impl Args {
    /// The first column of a row: the model, and its library where one was asked for.
    fn name(&self) -> String {
        let model = match self.model {
            Model::Small => "small",
            Model::Large => "large",
            Model::Cnn => "cnn",
        };
        let library = match self.library {
            None => "",
            Some(Library::Ndarray) => "-ndarray",
            Some(Library::Candle) => "-candle",
            Some(Library::Burn) => "-burn",
        };
        format!("{model}{library}")
    }
}

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let args = Args::parse();
    let ended = if std::env::var_os("TF_CONFIG").is_some() {
        work(&args)
    } else {
        launch_all(&args)
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print(&mut io::stderr(), &format!("scaling: error: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn launch_all(args: &Args) -> Result<(), Failure> {
    if let (Model::Cnn, Some(Library::Ndarray | Library::Burn)) = (args.model, args.library) {
        return Err("the model cnn is written in candle only: leave out --library".into());
    }
    if args.csv {
        print(&mut io::stdout(), &"model,workers,samples_per_s");
    }
    for workers in &args.workers {
        let launch = Launch::new(std::env::current_exe()?)
            .args(std::env::args_os().skip(1))
            .env("RAYON_NUM_THREADS", "1")
            .env("CANDLE_NUM_THREADS", "1")
            .workers(*workers)?
            .cores(Cores::Split)
            .output(Output::ChiefInherits);
        match launch.run()? {
            Outcome::Succeeded => {}
            outcome => return Err(outcome.to_string().into()),
        }
    }
    Ok(())
}

fn work(args: &Args) -> Result<(), Failure> {
    let options = CommunicationOptions::new().with_bytes_per_bucket(args.bytes_per_bucket);
    let mut strategy = MultiWorkerMirroredStrategy::from_env()?.with_options(options);
    let duration = Duration::try_from_secs_f64(args.seconds)?;
    let (steps, time, batch) = match args.model {
        Model::Small => dense(args, &mut strategy, &[64, 512, 512, 10], 256, duration)?,
        Model::Large => dense(args, &mut strategy, &[784, 4096, 4096, 10], 64, duration)?,
        Model::Cnn => cnn::train(&mut strategy, 64, duration)?,
    };
    if strategy.is_chief() {
        let workers = strategy.num_replicas_in_sync();
        let rate = (steps * batch * workers) as f64 / time.as_secs_f64();
        let name = args.name();
        let line = if args.csv {
            format!("{name},{workers},{rate:.1}")
        } else {
            format!("{name}: {rate:.1} samples/s with {workers} workers")
        };
        print(&mut io::stdout(), &line);
    }
    strategy.leave()?;
    Ok(())
}

fn dense(
    args: &Args,
    strategy: &mut MultiWorkerMirroredStrategy,
    sizes: &[usize],
    batch: usize,
    duration: Duration,
) -> Result<(usize, Duration, usize), Failure> {
    Ok(match args.library.unwrap_or(Library::Ndarray) {
        Library::Ndarray => mlp::train(strategy, sizes, batch, duration)?,
        Library::Candle => candle::train(strategy, sizes, batch, duration)?,
        Library::Burn => burn::train(strategy, sizes, batch, duration)?,
    })
}

/// Steps after a few that are not counted, until the chief's time is over, which it tells the
/// others by the number that each step returns: more than 0 while it goes on.
fn measured<E>(
    duration: Duration,
    mut step: impl FnMut(f32) -> Result<f32, E>,
) -> Result<(usize, Duration), E> {
    for _ in 0..WARM_UP {
        step(1.0)?;
    }
    let began = Instant::now();
    for steps in 1.. {
        let goes_on = if began.elapsed() < duration { 1.0 } else { 0.0 };
        if step(goes_on)? <= 0.0 {
            return Ok((steps, began.elapsed()));
        }
    }
    Ok((0, Duration::ZERO))
}

/// Steps that fill caches and make what is made once.
const WARM_UP: usize = 3;

/// A line; a reader that has gone is no reason to stop.
fn print(stream: &mut impl Write, line: &impl Display) {
    let _ = writeln!(stream, "{line}").and_then(|()| stream.flush());
}

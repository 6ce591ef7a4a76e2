//! Training with a part of the state in each worker: samples a second, memory, and the loss of
//! step 50, which is the same to the last digit whatever is sharded.
//!
//! ```text
//! cargo run --release -p meshwork-benches --bin sharded -- --shard none --workers 1,2 --csv
//! ```
#![forbid(unsafe_code)]

mod mlp;

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use meshwork_launcher::{Cores, Launch, Outcome, Output};
use meshwork_strategy::sharded::{AdamW, ElementWise, Sgd, Shard, ShardedModel, Sharding, Stack};
use meshwork_strategy::{MultiWorkerMirroredStrategy, ReplicaReduceOp};
use ndarray::Array2;

use mlp::Dense;

/// Measures 50 steps of training, a batch of 64 on each worker, one thread each.
#[derive(Debug, Parser)]
struct Args {
    /// What to train
    #[arg(long, value_enum, default_value = "large")]
    model: Model,

    /// What each worker keeps a part of
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Sharded::None])]
    shard: Vec<Sharded>,

    /// What updates parameters
    #[arg(long, value_enum, default_value = "adam")]
    optimizer: Optimizer,

    /// Numbers of workers to measure, one after the other
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2])]
    workers: Vec<usize>,

    /// Print rows, separated by commas
    #[arg(long)]
    csv: bool,

    /// Units that are gathered or reduced while another is computed
    #[arg(long, default_value_t = 0)]
    prefetch: usize,

    /// Keep each part in two workers
    #[arg(long)]
    copies: bool,
}

/// What is trained, on numbers that are made up.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Model {
    /// Dense layers 784-4096-4096-10
    Large,
    /// Dense layers 784-4096-4096-4096-4096-4096-4096-10
    Wide,
}

/// What updates parameters, and what that keeps.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Optimizer {
    /// Adam, two moments of each parameter
    Adam,
    /// Gradient descent, nothing
    Sgd,
}

/// What is sharded.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Sharded {
    /// Nothing
    None,
    /// The optimizer: its state, and the work of the update
    Optimizer,
    /// These and the gradients
    Gradients,
    /// These and the parameters
    Parameters,
}

impl Model {
    fn sizes(self) -> &'static [usize] {
        match self {
            Self::Large => &[784, 4096, 4096, 10],
            Self::Wide => &[784, 4096, 4096, 4096, 4096, 4096, 4096, 10],
        }
    }
}

impl From<Sharded> for Shard {
    fn from(sharded: Sharded) -> Self {
        match sharded {
            Sharded::None => Self::Nothing,
            Sharded::Optimizer => Self::Optimizer,
            Sharded::Gradients => Self::Gradients,
            Sharded::Parameters => Self::Parameters,
        }
    }
}

/// What a worker has measured.
#[derive(Debug)]
struct Measured {
    time: Duration,
    peak: i64,
    formula: u64,
    loss: f64,
}

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let args = Args::parse();
    let ended = match std::env::var(KIND) {
        Ok(kind) => work(&args, &kind),
        Err(_) => launch_all(&args),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print(&mut io::stderr(), &format!("sharded: error: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn launch_all(args: &Args) -> Result<(), Failure> {
    if args.csv {
        print(
            &mut io::stdout(),
            &"model,shard,workers,samples_per_s,peak_bytes,formula_bytes,loss",
        );
    }
    for workers in &args.workers {
        for shard in &args.shard {
            let launch = Launch::new(std::env::current_exe()?)
                .args(std::env::args_os().skip(1))
                .env(KIND, name(*shard))
                .env("RAYON_NUM_THREADS", "1")
                .workers(*workers)?
                .cores(Cores::Split)
                .output(Output::ChiefInherits);
            match launch.run()? {
                Outcome::Succeeded => {}
                outcome => return Err(outcome.to_string().into()),
            }
        }
    }
    Ok(())
}

fn work(args: &Args, kind: &str) -> Result<(), Failure> {
    let sharded = Sharded::from_str(kind, false)?;
    let sharding = Sharding::new(sharded.into()).with_prefetch(args.prefetch);
    let sharding = match args.copies {
        true => sharding.with_neighbour_copies(),
        false => sharding,
    };
    let mut strategy = MultiWorkerMirroredStrategy::from_env()?;
    let workers = strategy.num_replicas_in_sync();
    let sizes = args.model.sizes();
    let measured = match args.optimizer {
        Optimizer::Adam => train(&mut strategy, sizes, sharding, AdamW::new(1e-4)),
        Optimizer::Sgd => train(&mut strategy, sizes, sharding, Sgd::new(0.01)),
    }?;
    if strategy.is_chief() {
        let Measured {
            time,
            peak,
            formula,
            loss,
        } = measured;
        let rate = ((STEPS - WARM_UP) * BATCH * workers) as f64 / time.as_secs_f64();
        let (model, shard) = (name(args.model), name(sharded));
        let line = match args.csv {
            true => format!("{model},{shard},{workers},{rate:.1},{peak},{formula},{loss}"),
            false => format!(
                "{model}, {shard} sharded, {workers} workers: {rate:.1} samples/s, {} MB of {} MB \
                 by the formula, loss {loss}",
                peak / 1_000_000,
                formula / 1_000_000
            ),
        };
        print(&mut io::stdout(), &line);
    }
    strategy.leave()?;
    Ok(())
}

fn train<O: ElementWise>(
    strategy: &mut MultiWorkerMirroredStrategy,
    sizes: &[usize],
    sharding: Sharding,
    optimizer: O,
) -> Result<Measured, Failure> {
    let (rank, workers) = (strategy.rank().index(), strategy.num_replicas_in_sync());
    let before = status("VmRSS:")?;
    let layers = Dense::layers(sizes);
    let stack = Stack::new(&layers);
    let specs = stack.specs()?;
    let mut model = ShardedModel::new(strategy, sharding, &specs, optimizer, mlp::initial)?;
    let sample = |row: usize, column: usize| mlp::noise((rank * BATCH + row) * 4096 + column);
    let inputs = Array2::from_shape_fn((BATCH, sizes[0]), |(row, column)| sample(row, column));
    let (mut losses, mut began) = ([0.0], Instant::now());
    for step in 0..STEPS {
        if step == WARM_UP {
            began = Instant::now();
        }
        strategy.run(|replica| {
            let inputs = inputs.clone();
            losses = [model.run(replica, &stack, inputs, |scores| Ok(mlp::loss(scores)))?];
            model.step(replica).map(drop)
        })?;
    }
    let time = began.elapsed();
    let mut peaks = vec![0_i64; workers];
    peaks[rank] = i64::try_from(status("VmHWM:")?.saturating_sub(before))?;
    strategy.run(|replica| {
        replica.all_reduce(ReplicaReduceOp::Mean, &mut losses)?;
        replica.all_reduce(ReplicaReduceOp::Sum, &mut peaks)
    })?;
    Ok(Measured {
        time,
        peak: peaks.into_iter().max().unwrap_or_default(),
        formula: sharding.bytes::<O>(&specs, workers) + activations(sizes),
        loss: losses[0],
    })
}

/// Bytes of what the layers keep for the backward pass: what each takes, and what it gives.
fn activations(sizes: &[usize]) -> u64 {
    let values: usize = sizes.windows(2).map(|pair| pair[0] + pair[1]).sum();
    (values * BATCH * size_of::<f32>()) as u64
}

/// A size in bytes that the kernel tells of this process.
fn status(field: &str) -> Result<u64, Failure> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
    let kilobytes = kilobytes.ok_or_else(|| format!("/proc/self/status has no {field}"))?;
    Ok(kilobytes.trim().parse::<u64>()? * 1024)
}

/// As an option is called.
fn name(value: impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

/// A line; a reader that has gone is no reason to stop.
fn print(stream: &mut impl Write, line: &impl Display) {
    let _ = writeln!(stream, "{line}").and_then(|()| stream.flush());
}

const BATCH: usize = 64;

/// Steps after which the loss is told.
const STEPS: usize = 50;

/// Steps that are not timed: they fill caches and make what is made once.
const WARM_UP: usize = 3;

/// What a worker is told to shard.
const KIND: &str = "MESHWORK_BENCH_SHARD";

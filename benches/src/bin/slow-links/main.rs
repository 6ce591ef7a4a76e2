//! Training a character transformer with little communication: its loss, the bytes that a worker
//! sends, and the time it takes, by method.
//!
//! ```text
//! cargo run --release -p meshwork-benches --bin slow-links -- --method diloco --workers 2 --csv
//! ```
//!
//! All workers are on this machine, and exchange by QUIC over its loopback interface. Bytes are
//! those that each hands to its socket, beside which a packet has 28 of IP's and UDP's. In a
//! network namespace of its own that interface can be as slow as the links of many sites:
//!
//! ```text
//! unshare --net sh -c 'ip link set lo up; tc qdisc add dev lo root tbf rate 40mbit burst 64kb \
//!     latency 400ms; target/release/slow-links --method ddp,streaming --workers 2 --csv'
//! ```
#![forbid(unsafe_code)]

mod args;
mod measured;
mod worker;

use std::fmt::Display;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use meshwork_launcher::{Cores, Launch, Outcome, Output};
use mimalloc::MiMalloc;

use args::{Args, Trial};
use measured::{Measured, best};

/// A step allocates and frees the same sizes again and again.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let args = Args::parse();
    let ended = match std::env::var(TRIAL) {
        Ok(trial) => work(&args, &trial),
        Err(_) => launch_all(&args),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print(&mut io::stderr(), &format!("slow-links: error: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// One trial after the other; of those that differ in their rate, the best.
fn launch_all(args: &Args) -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let result = folder.path().join("result");
    if args.csv {
        let head = "method,workers,inner_steps,compress,seed,loss,bytes_per_worker,wall_s";
        print(&mut io::stdout(), &head);
    }
    for trial in args.trials() {
        let mut all = Vec::new();
        for rate in &args.lr {
            let trial = trial.with_rate(*rate);
            let measured = launch(&trial, &result)?;
            print(&mut io::stderr(), &format!("{trial}: {measured}"));
            all.push(measured);
        }
        let Some(best) = best(&all) else {
            continue;
        };
        if !best.loss.is_finite() {
            let told = "no run has a loss; give lower rates with --lr";
            print(&mut io::stderr(), &format!("{}: {told}", trial.csv()));
        }
        if args.csv {
            print(
                &mut io::stdout(),
                &format!("{},{}", trial.csv(), best.csv()),
            );
        }
    }
    Ok(())
}

fn launch(trial: &Trial, result: &Path) -> Result<Measured, Failure> {
    let launch = Launch::new(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env(TRIAL, trial.to_text())
        .env(RESULT, result)
        .env("MESHWORK_TRANSPORT", "quic")
        .env("RAYON_NUM_THREADS", "1")
        .env("CANDLE_NUM_THREADS", "1")
        .workers(trial.workers)?
        .cores(Cores::Split)
        .output(Output::ChiefInherits);
    match launch.run()? {
        Outcome::Succeeded => Measured::parse(&std::fs::read_to_string(result)?),
        outcome => Err(outcome.to_string().into()),
    }
}

fn work(args: &Args, trial: &str) -> Result<(), Failure> {
    let trial = Trial::parse(trial)?;
    let mut strategy = meshwork_strategy::MultiWorkerMirroredStrategy::from_env()?;
    let measured = worker::train(args, &trial, &mut strategy)?;
    if strategy.is_chief() {
        let path = std::env::var_os(RESULT).ok_or("the launcher told no file for the result")?;
        std::fs::write(path, measured.csv())?;
    }
    strategy.leave()?;
    Ok(())
}

/// A line; a reader that has gone is no reason to stop.
fn print(stream: &mut impl Write, line: &impl Display) {
    let _ = writeln!(stream, "{line}").and_then(|()| stream.flush());
}

/// What a worker is told to train.
const TRIAL: &str = "MESHWORK_BENCH_TRIAL";

/// Where the chief leaves what it has measured.
const RESULT: &str = "MESHWORK_BENCH_RESULT";

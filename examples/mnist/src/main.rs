//! Trains a small convolutional network on MNIST and shows how its loss falls.
//!
//! It knows nothing of how workers reach each other: that is the business of [`replica`], which the training loop asks for
//! sums over all workers.
//!
//! ```text
//!              ┌ worker 0: its part of the batch ─ gradients ┐
//! global batch ┤                                             ├ sum ─ the same update on every worker ─ next batch
//!              └ worker 1: its part of the batch ─ gradients ┘
//! ```
//!
//! | module | |
//! |---|---|
//! | [`args`] | the command line |
//! | [`data`] | the MNIST files |
//! | [`shard`] | which worker gets which samples |
//! | [`model`], [`variables`], [`optimizer`] | the network, its variables as one run of numbers, how they are changed |
//! | [`replica`] | this worker among the others |
//! | [`train`] | the loop |
//! | [`report`], [`plot`] | progress, the log for programs, the loss curve |
//! | [`threads`], [`error`] | how many threads, what can go wrong |

mod args;
mod data;
mod error;
mod model;
mod optimizer;
mod plot;
mod replica;
mod report;
mod shard;
mod threads;
mod train;
mod variables;

use std::io;
use std::process::ExitCode;

use clap::Parser;

use args::Args;
use error::Error;
use replica::Replica;
use report::Report;
use train::{Images, Settings};

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) if error.use_stderr() => return failure(&args::usage_line(&error)),
        Err(help) => help.exit(),
    };
    let ready = threads::require_environment(args.threads);
    match ready.and_then(|()| threads::within(args.threads, || run(&args))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure(&error::one_line(&error)),
    }
}

/// One worker's run, the only one's of its job.
fn run(args: &Args) -> Result<(), Error> {
    let (settings, images) = (Settings::new(args), Images::load(&args.data)?);
    plot::require_writable(&args.plot)?;
    let mut replica = Replica::alone();
    let steps = settings.epoch_steps(images.train_len());
    let mut report = Report::new(steps, args.epochs.get(), args.json.as_deref())?;
    let outcome = train::run(settings, &images, &mut replica, &mut report)?;
    report.finish(&outcome, replica.workers())?;
    plot::write(&args.plot, &outcome.losses)?;
    report::announce_curve(&args.plot);
    Ok(())
}

fn failure(line: &str) -> ExitCode {
    report::print_line(io::stderr(), &format!("mnist: error: {line}"));
    ExitCode::FAILURE
}

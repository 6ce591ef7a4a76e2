//! Trains a small network on MNIST or CIFAR-10 and shows how its loss falls.
//!
//! The workers find each other, share every batch and hold the same network at every step; how is
//! the business of `meshwork-strategy`, and of `meshwork-candle` for candle's variables and
//! gradients.
//!
//! ```text
//!              ┌ worker 0: its part of the batch ─ gradients ┐
//! global batch ┤                                             ├ sum ─ the same update on every worker ─ next batch
//!              └ worker 1: its part of the batch ─ gradients ┘
//! ```
//!
//! | module | |
//! |---|---|
//! | [`args`], [`settings`] | the command line, and what of it decides the result |
//! | [`data`], [`images`] | the files of MNIST and CIFAR-10, both parts of a data set |
//! | [`job`] | this process among the workers: one of them, or the one that starts them |
//! | [`model`], [`initial`], [`optimizer`] | the networks, the first values of its variables, how they are changed |
//! | [`train`], [`keep`] | the loop, and what it goes on from after an interruption |
//! | `xla` | the same training as one compiled program, with the feature `xla` |
//! | [`report`], [`plot`] | progress, the log for programs, the loss curve |
//! | [`threads`], [`error`] | how many threads, what can go wrong |

mod args;
mod data;
mod error;
mod images;
mod initial;
mod job;
mod keep;
mod model;
mod optimizer;
mod plot;
mod report;
mod settings;
mod threads;
mod train;
#[cfg(feature = "xla")]
mod xla;

use std::io;
use std::process::ExitCode;

use mimalloc::MiMalloc;

use args::Args;
use error::Error;

/// A step frees and asks for the same tensors again: glibc's allocator would give the large ones
/// back to the kernel each time.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    let args = match Args::of_process() {
        Ok(args) => args,
        Err(error) if error.use_stderr() => return failure(&args::usage_line(&error), 1),
        Err(help) => help.exit(),
    };
    match job::run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(preempted @ Error::Preempted { .. }) => {
            report::print_line(io::stderr(), &format!("mnist: {preempted}"));
            ExitCode::from(keep::PREEMPTED)
        }
        Err(error) => failure(&error::one_line(&error), error.exit_status()),
    }
}

fn failure(line: &str, status: u8) -> ExitCode {
    report::print_line(io::stderr(), &format!("mnist: error: {line}"));
    ExitCode::from(status)
}

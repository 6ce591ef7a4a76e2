//! Trains a character transformer on a folder of text, with several worker processes that share
//! every batch, and lets it write.
//!
//! | module | |
//! |---|---|
//! | [`args`] | the command line |
//! | [`job`] | this process among the workers: one of them, or the one that starts them |
//! | [`agreement`] | what all workers have to have alike |
//! | [`train`], [`split`] | the loop, and the same with a part of the model in each worker |
//! | [`report`] | progress, and the log for programs |

mod agreement;
mod args;
mod job;
mod report;
mod split;
mod train;

use std::io;
use std::process::ExitCode;

use clap::Parser;
use mimalloc::MiMalloc;

use args::Args;

/// A step allocates and frees the same sizes again and again: memory that is kept in between
/// saves a fifth of the time.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) if error.use_stderr() => return failure(&args::usage_line(&error), 1),
        Err(help) => help.exit(),
    };
    match job::run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure(&text::one_line(&error), error.exit_status()),
    }
}

fn failure(line: &str, status: u8) -> ExitCode {
    report::print_line(io::stderr(), &format!("text: error: {line}"));
    ExitCode::from(status)
}

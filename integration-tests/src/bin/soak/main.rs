//! Faults at random moments in jobs of real processes under load: each must end every survivor
//! within three seconds, with an error that names the right rank, and never with a wrong value.
//!
//! A fault ends its job, and a new one begins, with buffers of another size, in memory that the
//! ranks share or in their own. But there are jobs that go on: a process is killed, the others go
//! on without it, and another takes its place; or it is stopped, and continues when the others have
//! gone on without it, whose memory it must not touch any more. The last line is for programs:
//!
//! ```text
//! 1000 faults, 0 hangs, 0 wrong values, detection p50 3 p99 21 max 40 ms
//! ```
//!
//! Its times are those of kills, from the signal to the error of each survivor; other faults have
//! lines of their own before it. With `--as-rank` the program is one rank of a job; tests make such
//! ranks do something else at a step, too.
#![forbid(unsafe_code)]
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the report, and lines that a parent process reads"
)]

mod args;
mod crew;
mod fault;
mod job;
mod lasting;
mod namespaces;
mod pause;
mod rank;
mod story;
mod tally;
mod values;
mod watch;

use std::io;
use std::process::ExitCode;

use args::Args;
use clap::Parser;
use fault::{Fault, Load, Moments, Parting};
use lasting::Lasting;
use namespaces::Namespaces;
use story::Story;
use tally::Tally;

fn main() -> ExitCode {
    let args = Args::parse();
    let ended = match args.as_rank() {
        Some(rank) => return rank::run(&args, rank),
        None => soak(&args),
    };
    match ended {
        Ok(tally) => {
            print!("{tally}");
            match tally.is_clean() {
                true => ExitCode::SUCCESS,
                false => ExitCode::FAILURE,
            }
        }
        Err(error) => {
            eprintln!("soak: {error}");
            ExitCode::FAILURE
        }
    }
}

/// One job after the other, with one fault each, and one for all faults that it outlives.
fn soak(args: &Args) -> io::Result<Tally> {
    let mut moments = Moments::from_seed(args.seed());
    println!("seed {}", args.seed());
    let parting = parting(args);
    let mut tally = Tally::default();
    let mut lasting = None;
    for turn in 1..=args.faults() {
        let fault = moments.fault(turn, args, parting);
        let load = moments.load(args);
        let (load, story) = match fault {
            Fault::Restart(victim) => outlive(args, load, &mut lasting, |job| {
                job.restart(victim, &mut moments)
            })?,
            Fault::Pause(victim, length) => outlive(args, load, &mut lasting, |job| {
                job.pause(victim, length, &mut moments)
            })?,
            Fault::Kill(_) | Fault::Stop(_) | Fault::Cut(_) | Fault::Partition(_) => {
                (load, job::suffer(args, load, fault, &mut moments)?)
            }
        };
        if let Some(problem) = story.problem() {
            let seed = args.seed();
            println!("seed {seed}, fault {turn}: {fault:?} among buffers of {load}: {problem}");
        }
        tally.add(fault, &story);
    }
    Ok(tally)
}

/// Lets the job that goes on suffer, or another if there is none; what it reduces, and what came of
/// it.
fn outlive(
    args: &Args,
    load: Load,
    lasting: &mut Option<Lasting>,
    suffers: impl FnOnce(&mut Lasting) -> io::Result<Story>,
) -> io::Result<(Load, Story)> {
    let mut job = match lasting.take() {
        Some(job) => job,
        None => Lasting::start(args, load)?,
    };
    let story = suffers(&mut job)?;
    let load = job.load();
    *lasting = Some(job).filter(Lasting::goes_on);
    Ok((load, story))
}

/// How ranks can be parted here.
fn parting(args: &Args) -> Parting {
    if args.cut_every().is_none() {
        return Parting::Relay;
    }
    match Namespaces::new(args.ranks()) {
        Ok(_) => {
            println!("ranks are parted by network namespaces");
            Parting::Namespaces
        }
        Err(error) => {
            println!("ranks are parted by a relay, as there are no network namespaces: {error}");
            Parting::Relay
        }
    }
}

//! Every operation of a group on buffers of an accelerator, beside the same on host memory: a
//! worker for tests of whole processes. It says how many results had the same bits.
#![forbid(unsafe_code)]

mod compare;

use std::process::ExitCode;

use clap::Parser;
use meshwork_collectives::{Communication, Group, GroupConfig, JobSecret, Rank};
use meshwork_integration_tests::{ended, say};

use compare::{Mismatch, compare};

/// Compares operations on an accelerator's buffers with those on host memory.
#[derive(Debug, Parser)]
struct Args {
    /// Addresses of all members
    #[arg(long, value_delimiter = ',', required_unless_present = "threads")]
    members: Vec<String>,
    /// The place of this process among them
    #[arg(long, default_value_t = 0)]
    rank: u32,
    /// So many ranks, as threads of this process
    #[arg(long, conflicts_with = "members")]
    threads: Option<u32>,
}

fn main() -> ExitCode {
    let compared = run(&Args::parse());
    let compared = compared.map(|compared| say!("{compared} results have the same bits"));
    ended("buffers", compared)
}

fn connect(args: &Args, rank: Rank) -> Result<Group, meshwork_collectives::Error> {
    let config = GroupConfig::new(args.members.clone(), rank, JobSecret::from_env()?)?;
    Group::connect(&config.with_environment()?)
}

fn run(args: &Args) -> Result<usize, Mismatch> {
    let Some(world) = args.threads else {
        let rank = Rank::new(args.rank);
        return member(connect(args, rank)?);
    };
    let groups = Group::local(world)?;
    std::thread::scope(|threads| {
        let started: Vec<_> = groups
            .into_iter()
            .map(|group| threads.spawn(|| member(group)))
            .collect();
        let ended = started.into_iter().map(|thread| match thread.join() {
            Ok(compared) => compared,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        ended.sum()
    })
}

fn member(mut group: Group) -> Result<usize, Mismatch> {
    // Links may else take another algorithm for a chunk than for the whole.
    group.set_communication(Communication::Reproducible);
    let compared = compare(&mut group)?;
    group.leave()?;
    Ok(compared)
}

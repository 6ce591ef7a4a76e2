//! A program that goes on when ranks are lost, and takes new ones in: a worker for tests of whole
//! processes. It reduces numbers, checks every sum, and says on standard output what it has
//! reached.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use meshwork_collectives::{Error, Group, GroupConfig, JobSecret, Rank, ReduceOp};
use meshwork_integration_tests::{ended, say};

/// Reduces numbers until its group has come to a certain epoch and size, and some steps further.
#[derive(Debug, Parser)]
struct Args {
    /// Addresses of all members.
    #[arg(long, value_delimiter = ',', required_unless_present = "seeds")]
    members: Vec<String>,
    /// The place of this process among them.
    #[arg(long, required_unless_present = "seeds")]
    rank: Option<u32>,
    /// Addresses of some members, for a process that is on no list.
    #[arg(long, value_delimiter = ',', conflicts_with_all = ["members", "rank"])]
    seeds: Vec<String>,
    /// Ask to be let into a group that runs.
    #[arg(long)]
    rejoin: bool,
    /// Begin with most of the members.
    #[arg(long, conflicts_with = "rejoin")]
    majority: bool,
    /// The epoch to end in.
    #[arg(long, default_value_t = 1)]
    until_epoch: u64,
    /// Members that the group must have to end.
    #[arg(long, default_value_t = 1)]
    until_world: u32,
}

/// Operations after which the group looks who waits outside.
const BETWEEN_LOOKS: u64 = 16;
/// Operations in the last epoch.
const LAST: u64 = 100;

fn main() -> ExitCode {
    ended("elastic", run(&Args::parse()))
}

fn run(args: &Args) -> Result<(), Error> {
    let secret = JobSecret::from_env()?;
    let config = match args.rank {
        Some(rank) => GroupConfig::new(args.members.clone(), Rank::new(rank), secret)?,
        None => GroupConfig::newcomer(args.seeds.clone(), secret)?,
    };
    let config = config.with_environment()?;
    let group = match (args.rejoin || args.rank.is_none(), args.majority) {
        (true, _) => Group::rejoin(&config),
        (false, true) => Group::connect_majority(&config),
        (false, false) => Group::connect(&config),
    };
    let mut program = Program {
        group: group?,
        step: 0,
        failed: None,
    };
    program.enters()?;
    while !program.is_done(args) {
        if let Err(error) = program.next() {
            program.recover(error)?;
        }
    }
    say!("leaves after step {}", program.step);
    Ok(program.group.leave()?)
}

struct Program {
    group: Group,
    /// Steps that all ranks have behind them.
    step: u64,
    /// When the last epoch failed, until the first step of this one is done.
    failed: Option<Instant>,
}

impl Program {
    /// The same on all ranks: what it looks at is.
    fn is_done(&self, args: &Args) -> bool {
        self.group.epoch().number() >= args.until_epoch
            && self.group.world() >= args.until_world
            && self.operations_here() >= LAST
    }

    fn operations_here(&self) -> u64 {
        self.group.completed()
    }

    /// A new epoch: all ranks go on from where rank 0 is.
    fn enters(&mut self) -> Result<(), Error> {
        let mut step = [self.step];
        self.group.broadcast(&mut step, Rank::CHIEF)?;
        [self.step] = step;
        let (epoch, group) = (self.group.epoch(), &self.group);
        let number = epoch.number();
        say!(
            "epoch {number}: {} of {}, step {}",
            group.rank(),
            group.world(),
            self.step
        );
        Ok(())
    }

    fn next(&mut self) -> Result<(), Error> {
        // Counted in the epoch, as newcomers do.
        if self.operations_here() % BETWEEN_LOOKS == BETWEEN_LOOKS - 1 {
            let before = self.group.epoch();
            self.group.grow()?;
            if self.group.epoch() != before {
                return self.enters();
            }
        }
        let world = u64::from(self.group.world());
        // Long enough for every way that bytes can take.
        let mut values = vec![self.step + u64::from(self.group.rank().number()); 4096];
        self.group.all_reduce(&mut values, ReduceOp::Sum)?;
        let sum = world * self.step + world * (world - 1) / 2;
        assert!(
            values.iter().all(|value| *value == sum),
            "a wrong sum in step {}",
            self.step
        );
        self.step += 1;
        if let Some(failed) = self.failed.take() {
            say!(
                "goes on {} ms after the error",
                failed.elapsed().as_millis()
            );
        }
        if self.operations_here() == 20 {
            say!("works");
        }
        // A network of one core per process has time for others.
        std::thread::sleep(Duration::from_micros(200));
        Ok(())
    }

    /// Goes on with whoever is left.
    fn recover(&mut self, error: Error) -> Result<(), Error> {
        say!("lost: {error}");
        self.failed = Some(Instant::now());
        loop {
            self.group.shrink()?;
            match self.enters() {
                Ok(()) => return Ok(()),
                Err(error) => say!("lost again: {error}"),
            }
        }
    }
}

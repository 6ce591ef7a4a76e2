//! One rank of a job under load.

use std::convert::Infallible;
use std::io::{self, BufRead, Write};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use meshwork_collectives::{Error, Group, GroupConfig, JobSecret, Rank, ReduceOp};

use crate::args::{Args, Deviation};

/// Why a rank stops.
enum Ended {
    /// Its group failed, as it should when a fault happens: why, and when the call returned.
    Failed(Error, u128),
    /// An element is not what it should be.
    Wrong { step: u32, at: usize, found: f32 },
    /// It dropped its group, as it was told to.
    Dropped,
}

impl From<Error> for Ended {
    fn from(error: Error) -> Self {
        // At once: what is left behind takes a moment to be cleared up.
        Self::Failed(error, micros())
    }
}

/// Reduces until something ends it; says on standard output what and when.
pub(crate) fn run(args: &Args, rank: u32) -> ExitCode {
    let ended = match reduce_for_ever(args, Rank::new(rank)) {
        Ok(never) => match never {},
        Err(ended) => ended,
    };
    match ended {
        Ended::Failed(error, at) => say(&format!("failed {at} {error}")),
        Ended::Wrong { step, at, found } => {
            say(&format!(
                "wrong value in step {step}: element {at} is {found}"
            ));
        }
        Ended::Dropped => say("dropped"),
    }
    ExitCode::FAILURE
}

fn reduce_for_ever(args: &Args, rank: Rank) -> Result<Infallible, Ended> {
    let mut config = GroupConfig::new(args.members(), rank, JobSecret::from_env()?)?;
    if let Some(address) = args.bind() {
        config = config.with_bind(address);
    }
    if let Some(folder) = args.dump() {
        config = config.with_dump(folder);
    }
    let mut group = Group::connect(&config.with_environment()?)?;
    group.set_operation_timeout(args.patience());
    say("joined");
    let mut buffer = vec![0.0_f32; args.elements()];
    let mut step = 0_u32;
    loop {
        step += 1;
        let deviation = args.deviation(step);
        match deviation {
            Some(Deviation::Drop) => return Err(Ended::Dropped),
            Some(Deviation::Hold) => hold(),
            Some(Deviation::Skip | Deviation::Other) | None => {}
        }
        if deviation != Some(Deviation::Skip) {
            let op = match deviation {
                Some(Deviation::Other) => ReduceOp::Max,
                _ => ReduceOp::Sum,
            };
            sum(&mut group, &mut buffer, (step, op))?;
        }
        let mut word = [u64::from(step)];
        group.broadcast(&mut word, Rank::new(step % group.world()))?;
        if step == args.tell() {
            say(&format!("reached step {step}"));
        }
    }
}

/// An all-reduce whose result is known.
fn sum(group: &mut Group, buffer: &mut [f32], (step, op): (u32, ReduceOp)) -> Result<(), Ended> {
    let part = |rank: usize, at: usize| ((at + rank + step as usize) % 1000) as f32;
    let me = group.rank().index();
    for (at, element) in buffer.iter_mut().enumerate() {
        *element = part(me, at);
    }
    group.all_reduce(buffer, op)?;
    let ranks = group.world() as usize;
    let expected = |at: usize| (0..ranks).map(|rank| part(rank, at)).sum::<f32>();
    // Small whole numbers: their sum is exact.
    let wrong = (0..buffer.len()).find(|at| buffer[*at].to_bits() != expected(*at).to_bits());
    match wrong {
        Some(at) => Err(Ended::Wrong {
            step,
            at,
            found: buffer[at],
        }),
        None => Ok(()),
    }
}

/// Waits until the parent says a line, or has gone.
fn hold() {
    say("holding");
    let _ = io::stdin().lock().read_line(&mut String::new());
}

/// Microseconds since 1970: the parent compares them with its own.
fn micros() -> u128 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_micros())
}

/// A reader that has gone is no reason to stop.
fn say(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}

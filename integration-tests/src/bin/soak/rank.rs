//! One rank of a job under load.

use std::convert::Infallible;
use std::io::{self, BufRead, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use meshwork_collectives::{Error, Group, GroupConfig, JobSecret, Rank, ReduceOp};
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::args::{Args, Buffers, Deviation};
use crate::values::Values;

/// Why a rank stops.
enum Ended {
    /// Its group failed, as it should when a fault happens: why, and when the call returned.
    Failed(Error, u128),
    /// An element is not what it should be.
    Wrong { step: u32, at: usize, found: f32 },
    /// It dropped its group, as it was told to.
    Dropped,
}

impl<E: Into<Error>> From<E> for Ended {
    fn from(error: E) -> Self {
        // At once: what is left behind takes a moment to be cleared up.
        Self::Failed(error.into(), micros())
    }
}

/// Reduces until something ends it; says on standard output what and when.
pub(crate) fn run(args: &Args, rank: u32) -> ExitCode {
    // Nobody is left behind by a parent that is killed.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let reduced = match args.goes_on() {
        true => go_on_for_ever(args, Rank::new(rank)),
        false => reduce_for_ever(args, Rank::new(rank)),
    };
    let ended = match reduced {
        Ok(never) => match never {},
        Err(ended) => ended,
    };
    match ended {
        Ended::Failed(error, at) => failed(&error, at),
        Ended::Wrong { step, at, found } => {
            say(&format!(
                "wrong value in step {step}: element {at} is {found}"
            ));
        }
        Ended::Dropped => say("dropped"),
    }
    ExitCode::FAILURE
}

fn configured(args: &Args, rank: Rank) -> Result<GroupConfig, Error> {
    let mut config = GroupConfig::new(args.members(), rank, JobSecret::from_env()?)?;
    if let Some(address) = args.bind() {
        config = config.with_bind(address);
    }
    if args.is_apart() {
        config = config.with_host(format!("the host of {rank}"));
    }
    if let Some(folder) = args.dump() {
        config = config.with_dump(folder);
    }
    Ok(config.with_environment()?)
}

fn reduce_for_ever(args: &Args, rank: Rank) -> Result<Infallible, Ended> {
    let mut group = Group::connect(&configured(args, rank)?)?;
    group.set_operation_timeout(args.patience());
    say("joined");
    let mut buffer = buffer(args, &mut group)?;
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
            sum(&mut group, (*buffer).as_mut(), step, op)?;
        }
        let mut word = [u64::from(step)];
        group.broadcast(&mut word, Rank::new(step % group.world()))?;
        if step == args.tell() {
            say(&format!("reached step {step}"));
        }
    }
}

/// Goes on without ranks that are lost, and with new ones.
fn go_on_for_ever(args: &Args, rank: Rank) -> Result<Infallible, Ended> {
    let config = configured(args, rank)?;
    let mut group = match args.rejoins() {
        true => Group::rejoin(&config)?,
        false => Group::connect(&config)?,
    };
    say("joined");
    // What other ranks reach has to stay the rank's own through all that happens to it and to them.
    let (mut buffer, mut step) = (buffer(args, &mut group)?, 0);
    loop {
        group.set_operation_timeout(args.patience());
        match reduce_in_epoch(&mut group, (*buffer).as_mut(), &mut step) {
            Ok(()) => {}
            Err(Ended::Failed(error, at)) => {
                failed(&error, at);
                group.shrink()?;
            }
            Err(other) => return Err(other),
        }
    }
}

/// Reduces until the next epoch begins; all go on from where rank 0 is.
fn reduce_in_epoch(group: &mut Group, buffer: &mut [f32], step: &mut u32) -> Result<(), Ended> {
    let epoch = group.epoch();
    let mut place = [*step];
    group.broadcast(&mut place, Rank::CHIEF)?;
    [*step] = place;
    let mut told: Option<Instant> = None;
    while group.epoch() == epoch {
        *step += 1;
        sum(group, buffer, *step, ReduceOp::Sum)?;
        if told.is_none_or(|told| told.elapsed() >= BETWEEN_WORDS) {
            told = Some(Instant::now());
            say(&format!("works {} {}", micros(), group.world()));
        }
        if step.is_multiple_of(BETWEEN_LOOKS) {
            group.grow()?;
        }
    }
    Ok(())
}

/// Steps after which a group looks who waits outside.
const BETWEEN_LOOKS: u32 = 16;
/// How often a rank says that it has had a right value.
const BETWEEN_WORDS: Duration = Duration::from_millis(100);

fn failed(error: &Error, at: u128) {
    say(&format!("failed {at} {error}"));
}

/// The buffer to reduce, in memory of the kind that was asked for.
fn buffer(args: &Args, group: &mut Group) -> Result<Box<dyn AsMut<[f32]>>, Error> {
    let elements = args.elements().unwrap_or(ELEMENTS);
    Ok(match args.buffers() {
        Some(Buffers::Registered) => Box::new(group.alloc::<f32>(elements)?),
        Some(Buffers::Private) | None => Box::new(vec![0.0_f32; elements]),
    })
}

/// What a rank reduces that is not told how much.
const ELEMENTS: usize = 4096;

/// An all-reduce whose result is known.
fn sum(group: &mut Group, buffer: &mut [f32], step: u32, op: ReduceOp) -> Result<(), Ended> {
    Values::given(group.rank().index(), step).fill(buffer);
    group.all_reduce(buffer, op)?;
    let ranks = group.world() as usize;
    match Values::summed(ranks, step).wrong(buffer) {
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

//! One worker: a training whose steps do next to nothing, with a large state.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use meshwork_strategy::{
    Change, Cursor, Error, LentArrays, MultiWorkerMirroredStrategy, Progress, ReplicaReduceOp,
    Snapshot, Training,
};

use crate::{Args, Failure, SEEDS, print};

/// What a worker measures from the moment when workers change.
#[derive(Clone, Copy, Debug)]
struct Measure {
    began: Instant,
    /// Resident bytes.
    before: u64,
}

#[derive(Debug)]
struct Heal {
    args: Args,
    values: Vec<f32>,
    steps: u64,
    is_newcomer: bool,
    /// Whether the newcomer has its state, which all learn in a step.
    has_state: bool,
    ends: bool,
    measure: Option<Measure>,
    index: u32,
    failure: Option<Failure>,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let is_newcomer = std::env::var_os(SEEDS).is_some();
    let mut strategy = MultiWorkerMirroredStrategy::elastic_from_env()?;
    // Resident before anything is measured.
    let first = if is_newcomer { 1.0 } else { 2.0 };
    let mut heal = Heal {
        args,
        values: (0..args.bytes / size_of::<f32>())
            .map(|at| at as f32 + first)
            .collect(),
        steps: 0,
        is_newcomer,
        has_state: false,
        ends: false,
        measure: None,
        index: strategy.rank().number(),
        failure: None,
    };
    strategy.train(&mut heal)?;
    strategy.leave()?;
    let right = (heal.values.iter().enumerate()).all(|(at, value)| *value == at as f32 + 2.0);
    match heal.failure {
        Some(failure) => Err(failure),
        None if right => Ok(()),
        None => Err("the state is not that of the others".into()),
    }
}

impl Heal {
    /// From now on the highest resident memory counts, not what the kernel has kept from before.
    fn measure(&mut self) -> Result<(), Failure> {
        std::fs::write("/proc/self/clear_refs", "5")?;
        self.measure = Some(Measure {
            began: Instant::now(),
            before: resident("VmRSS:")?,
        });
        Ok(())
    }

    fn report(&mut self, role: &str) -> Result<(), Failure> {
        if let Some(Measure { began, before }) = self.measure.take() {
            let seconds = began.elapsed().as_secs_f64();
            let more = resident("VmHWM:")?.saturating_sub(before) as f64 / f64::from(1 << 20);
            let Args { bytes, givers, .. } = self.args;
            let rate = bytes as f64 / 1e6 / seconds;
            let line = format!("{role},{bytes},{givers},{seconds:.3},{rate:.1},{more:.1}");
            print(&mut io::stdout(), &line);
        }
        Ok(())
    }

    fn note(&mut self, done: Result<(), Failure>) {
        if let Err(error) = done {
            self.failure = Some(error);
        }
    }
}

impl Training for Heal {
    type Error = Error;

    fn regroup(
        &mut self,
        _: &mut MultiWorkerMirroredStrategy,
        change: &Change,
    ) -> Result<(), Error> {
        // A loss on the way is part of what is measured.
        if self.measure.is_none() && change.survivors() > 0 && !self.has_state {
            let measured = self.measure();
            self.note(measured);
        }
        Ok(())
    }

    fn step(&mut self, strategy: &mut MultiWorkerMirroredStrategy) -> Result<Progress, Error> {
        if self.ends {
            return Ok(Progress::Done);
        }
        if self.measure.is_some() && !self.is_newcomer {
            self.has_state = true;
            let reported = self.report("giver");
            self.note(reported);
        }
        let mut done = [f32::from(u8::from(self.is_newcomer && self.has_state))];
        thread::sleep(Duration::from_millis(1));
        strategy.run(|replica| replica.all_reduce(ReplicaReduceOp::Sum, &mut done))?;
        self.ends = done[0] > 0.0;
        self.steps += 1;
        Ok(Progress::Step)
    }

    fn steps(&self) -> u64 {
        self.steps
    }

    fn snapshot(&mut self) -> Result<Snapshot, Error> {
        let dies = self.index as usize + 1 == self.args.givers && self.measure.is_some();
        if let (Some(millis), true) = (self.args.dies_after, dies) {
            thread::spawn(move || {
                thread::sleep(Duration::from_millis(millis));
                std::process::abort();
            });
        }
        Ok(Snapshot::new(self.steps, Cursor::start()))
    }

    fn lend(&mut self) -> LentArrays<'_> {
        LentArrays::new().with(&mut self.values)
    }

    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), Error> {
        self.steps = snapshot.step();
        if self.is_newcomer {
            self.has_state = true;
            let reported = self.report("newcomer");
            self.note(reported);
        }
        Ok(())
    }
}

/// A size in bytes that the kernel tells of this process.
fn resident(field: &str) -> Result<u64, Failure> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
    let kilobytes = kilobytes.ok_or_else(|| format!("/proc/self/status has no {field}"))?;
    Ok(kilobytes.trim().parse::<u64>()? * 1024)
}

//! How a training fares: numbers that steps set, and what follows from them when somebody asks.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use meshwork_collectives::{Observer, Statistics};

/// How a training fares on this worker.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StrategyStatistics {
    /// How the group fares.
    pub group: Statistics,
    /// Steps so far: those of [`train`](crate::MultiWorkerMirroredStrategy::train) since the
    /// training began, or else the runs of step functions that this worker has completed.
    pub steps: u64,
    /// What [`expect_steps`](crate::MultiWorkerMirroredStrategy::expect_steps) was told.
    pub total_steps: Option<u64>,
    /// Steps in a second, of the last 32.
    pub steps_per_second: Option<f64>,
    /// Samples in a second, of all workers together: those of full global batches of the data set
    /// that was distributed last.
    pub samples_per_second: Option<f64>,
    /// What [`report_loss`](crate::MultiWorkerMirroredStrategy::report_loss) was told last.
    pub loss: Option<f64>,
    /// Since the last step.
    pub since_step: Option<Duration>,
    /// Since the last checkpoint was saved.
    pub checkpoint_age: Option<Duration>,
    /// Memory of this process that is in use and not swapped out, in bytes (Linux).
    pub resident_bytes: Option<u64>,
}

/// Asks how a training fares, from any thread, while it goes on.
#[derive(Clone, Debug)]
pub struct StrategyObserver {
    group: Observer,
    meter: Arc<Meter>,
}

/// What steps set.
#[derive(Debug)]
pub(crate) struct Meter {
    began: Instant,
    steps: AtomicU64,
    /// Those that there are to be; 0 where that is not known.
    total_steps: AtomicU64,
    /// Whether a training counts its steps, of which each may run several functions.
    trains: AtomicBool,
    /// When the last steps ended, in microseconds since the beginning, the n-th at `n % LAST`.
    ended: [AtomicU64; LAST],
    /// Steps since the beginning of this process.
    own_steps: AtomicU64,
    global_batch: AtomicU64,
    /// The bits of a number; NaN where there is none.
    loss: AtomicU64,
    /// In microseconds since the beginning, plus 1; 0 for never.
    saved: AtomicU64,
}

/// Steps whose times are kept.
const LAST: usize = 32;

impl Meter {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            began: Instant::now(),
            steps: AtomicU64::new(0),
            total_steps: AtomicU64::new(0),
            trains: AtomicBool::new(false),
            ended: std::array::from_fn(|_| AtomicU64::new(0)),
            own_steps: AtomicU64::new(0),
            global_batch: AtomicU64::new(0),
            loss: AtomicU64::new(f64::NAN.to_bits()),
            saved: AtomicU64::new(0),
        })
    }

    /// A step function has run.
    pub(crate) fn ran(&self) {
        if self.trains.load(Ordering::Relaxed) {
            return;
        }
        let steps = self.steps.load(Ordering::Relaxed);
        self.stepped(steps + 1, self.now());
    }

    /// From now on only the steps of a training count.
    pub(crate) fn trains(&self) {
        self.trains.store(true, Ordering::Relaxed);
    }

    /// A training has made so many steps.
    pub(crate) fn trained(&self, steps: u64) {
        self.stepped(steps, self.now());
    }

    fn stepped(&self, steps: u64, now: u64) {
        let own = self.own_steps.load(Ordering::Relaxed);
        self.ended[place(own)].store(now, Ordering::Relaxed);
        self.own_steps.store(own + 1, Ordering::Release);
        self.steps.store(steps, Ordering::Relaxed);
    }

    /// What a full batch of all workers has.
    pub(crate) fn set_global_batch(&self, samples: usize) {
        self.global_batch.store(samples as u64, Ordering::Relaxed);
    }

    /// So many steps there are to be.
    pub(crate) fn set_total_steps(&self, steps: u64) {
        self.total_steps.store(steps, Ordering::Relaxed);
    }

    /// The program has computed a loss.
    pub(crate) fn set_loss(&self, loss: f64) {
        self.loss.store(loss.to_bits(), Ordering::Relaxed);
    }

    /// A checkpoint is there.
    pub(crate) fn saved(&self) {
        self.saved.store(self.now() + 1, Ordering::Relaxed);
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Steps in a second, of the last, and when the last of all ended.
    fn rate(&self) -> Rate {
        let own = self.own_steps.load(Ordering::Acquire);
        let at = |step: u64| self.ended[place(step)].load(Ordering::Relaxed);
        let Some(last) = own.checked_sub(1) else {
            return Rate::default();
        };
        let kept = own.min(LAST as u64);
        let micros = at(last).saturating_sub(at(own - kept));
        Rate {
            per_second: (micros > 0).then(|| (kept - 1) as f64 * 1e6 / micros as f64),
            last: Some(at(last)),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Rate {
    per_second: Option<f64>,
    last: Option<u64>,
}

impl StrategyObserver {
    pub(crate) fn new(group: Observer, meter: Arc<Meter>) -> Self {
        Self { group, meter }
    }

    #[cfg(feature = "status")]
    pub(crate) fn group(&self) -> &Observer {
        &self.group
    }

    /// The numbers at this moment.
    #[must_use]
    pub fn statistics(&self) -> StrategyStatistics {
        let (meter, rate) = (&self.meter, self.meter.rate());
        let now = meter.now();
        let since = |micros: u64| Duration::from_micros(now.saturating_sub(micros));
        let batch = meter.global_batch.load(Ordering::Relaxed);
        let saved = meter.saved.load(Ordering::Relaxed).checked_sub(1);
        StrategyStatistics {
            group: self.group.statistics(),
            steps: meter.steps.load(Ordering::Relaxed),
            total_steps: Some(meter.total_steps.load(Ordering::Relaxed)).filter(|total| *total > 0),
            steps_per_second: rate.per_second,
            samples_per_second: rate
                .per_second
                .filter(|_| batch > 0)
                .map(|steps| steps * batch as f64),
            loss: Some(f64::from_bits(meter.loss.load(Ordering::Relaxed)))
                .filter(|loss| !loss.is_nan()),
            since_step: rate.last.map(since),
            checkpoint_age: saved.map(since),
            resident_bytes: resident_bytes(),
        }
    }

    /// The worker's last operations: see [`Observer::dump`].
    #[must_use]
    pub fn dump(&self) -> String {
        self.group.dump()
    }
}

fn place(step: u64) -> usize {
    usize::try_from(step % LAST as u64).expect("it is below LAST")
}

/// As the kernel says it, in KiB.
fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MultiWorkerMirroredStrategy;

    #[test]
    fn rates_are_those_of_the_last_steps() {
        let meter = Meter::new();
        assert_eq!(meter.rate(), Rate::default());
        meter.stepped(1, 1_000_000);
        let last = Some(1_000_000);
        assert_eq!(
            meter.rate(),
            Rate {
                per_second: None,
                last
            }
        );
        // Ten in a second for a while, then a hundred.
        let mut now = 1_000_000;
        for (pause, expected) in [(100_000, 10.0), (10_000, 100.0)] {
            for step in 0..LAST as u64 {
                now += pause;
                meter.stepped(step, now);
            }
            let rate = meter.rate();
            assert!((rate.per_second.unwrap() - expected).abs() < 1e-9);
            assert_eq!(rate.last, Some(now));
        }
    }

    #[test]
    fn an_observer_knows_of_steps_batches_and_checkpoints() {
        let mut strategy = MultiWorkerMirroredStrategy::alone().unwrap();
        let observer = strategy.observer();
        assert_eq!(observer.statistics().steps, 0);
        assert_eq!(observer.statistics().checkpoint_age, None);
        strategy.distribute_dataset(100, 10).unwrap();
        for _ in 0..3 {
            strategy.run(|_| Ok::<_, crate::Error>(())).unwrap();
        }
        let failed = strategy.run(|_| Err::<(), _>(crate::Error::NoSamples));
        assert!(failed.is_err());
        let folder = tempfile::tempdir().unwrap();
        let snapshot = crate::Snapshot::new(3, crate::Cursor::start());
        let checkpoints = crate::Checkpoints::new(folder.path());
        strategy.save_checkpoint(&checkpoints, &snapshot).unwrap();
        let found = observer.statistics();
        assert_eq!((found.steps, found.loss), (3, None));
        strategy.report_loss(0.5);
        assert_eq!(observer.statistics().loss, Some(0.5));
        assert!(found.checkpoint_age.is_some() && found.since_step.is_some());
        if let (Some(samples), Some(steps)) = (found.samples_per_second, found.steps_per_second) {
            assert!((samples - 10.0 * steps).abs() < 1e-6 * samples);
        }
        #[cfg(all(target_os = "linux", not(meshwork_portable)))]
        assert!(found.resident_bytes.is_some_and(|bytes| bytes > 1 << 20));
    }
}

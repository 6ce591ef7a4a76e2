//! Arguments of `trainer`, among them at which moment which worker is to fail.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Parser;
use meshwork_collectives::GroupConfig;
use meshwork_strategy::CommunicationOptions;

/// Trains with as many workers as there are, or starts them.
#[derive(Clone, Debug, Parser)]
pub(crate) struct Args {
    /// Start workers instead of being one, as MIN:MAX
    #[arg(long, require_equals = true)]
    elastic: Option<Range>,
    /// How often in a row a worker is started again
    #[arg(long, default_value_t = 10)]
    restarts: u32,
    /// Passes over the samples
    #[arg(long, default_value_t = 10)]
    epochs: u64,
    /// Samples in the data set
    #[arg(long, default_value_t = 1000)]
    samples: usize,
    /// Samples of all workers together in each step
    #[arg(long, default_value_t = 48)]
    global_batch: usize,
    /// Replicas of each worker
    #[arg(long, default_value_t = 1)]
    replicas: usize,
    /// Microseconds that a step takes besides
    #[arg(long, default_value_t = 0)]
    pause: u64,
    /// A file: once it is there, steps take no time besides
    #[arg(long)]
    pause_until: Option<PathBuf>,
    /// Numbers in the state besides, which are lent
    #[arg(long, default_value_t = 0)]
    ballast: usize,
    /// Build another model when started for the second time
    #[arg(long)]
    odd_once: bool,
    /// Fail at once whenever started again
    #[arg(long)]
    fail_again: bool,
    /// The worker at this place fails when started first, before it meets the others
    #[arg(long)]
    fails_first: Option<u32>,
    /// The last worker fails by itself before this step, while nobody was lost before
    #[arg(long)]
    fails_before: Option<u64>,
}

/// The least and the most workers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    pub(crate) least: usize,
    pub(crate) most: usize,
}

impl Args {
    pub(crate) fn elastic(&self) -> Option<Range> {
        self.elastic
    }

    pub(crate) fn restarts(&self) -> u32 {
        self.restarts
    }

    pub(crate) fn epochs(&self) -> u64 {
        self.epochs
    }

    pub(crate) fn samples(&self) -> usize {
        self.samples
    }

    pub(crate) fn global_batch(&self) -> usize {
        self.global_batch
    }

    pub(crate) fn replicas(&self) -> usize {
        self.replicas
    }

    pub(crate) fn pause(&self) -> Duration {
        match self.pause_until.as_ref().is_some_and(|file| file.exists()) {
            true => Duration::ZERO,
            false => Duration::from_micros(self.pause),
        }
    }

    /// Other numbers in each process.
    pub(crate) fn ballast(&self) -> Vec<f32> {
        let first = std::process::id() as f32;
        (0..self.ballast).map(|at| first + at as f32).collect()
    }

    pub(crate) fn fails_again(&self) -> bool {
        self.fail_again
    }

    pub(crate) fn fails_first(&self) -> Option<u32> {
        self.fails_first
    }

    pub(crate) fn fails_before(&self) -> Option<u64> {
        self.fails_before
    }

    /// Buckets that are smaller than the model, so that there are several.
    pub(crate) fn options(&self) -> CommunicationOptions {
        CommunicationOptions::new().with_bytes_per_bucket(16)
    }

    /// Inputs that the model takes.
    pub(crate) fn inputs(&self) -> usize {
        if self.odd_once && restarts() == Some(1) {
            17
        } else {
            16
        }
    }
}

fn restarts() -> Option<u64> {
    std::env::var(GroupConfig::RESTARTS_ENV).ok()?.parse().ok()
}

impl FromStr for Range {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse().map_err(|_| format!("{text} is no number"));
        let (least, most) = text.split_once(':').ok_or("it takes MIN:MAX")?;
        Ok(Self {
            least: number(least)?,
            most: number(most)?,
        })
    }
}

//! Arguments of `mlp`, among them where a rank pauses for the test that is to kill it.

use std::str::FromStr;

use clap::Parser;
use tracing_subscriber::filter::LevelFilter;

/// A small classifier that trains with as many workers as `TF_CONFIG` says.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// Start this many workers instead of being one
    #[arg(long, require_equals = true)]
    launch: Option<usize>,
    /// Passes over the samples
    #[arg(long, default_value_t = 2)]
    epochs: u64,
    /// Samples of all workers together in each step
    #[arg(long, default_value_t = 64)]
    global_batch: usize,
    /// Samples in the data set
    #[arg(long, default_value_t = 2048)]
    samples: usize,
    /// Width of the hidden layer
    #[arg(long, default_value_t = 32)]
    hidden: usize,
    /// Another width on one rank, as RANK:WIDTH
    #[arg(long)]
    hidden_on: Option<HiddenWidth>,
    /// Where a rank holds until it is killed, as RANK:start, RANK:end or RANK:STEP
    #[arg(long)]
    hold: Option<Hold>,
    /// Say on standard error what happens
    #[arg(long)]
    verbose: bool,
}

/// A point in the life of a worker.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Point {
    /// Before it joins.
    Start,
    /// In this step, between its gradient and its all-reduce.
    Step(u64),
    /// After its last step, before it leaves.
    End,
}

#[derive(Clone, Copy, Debug)]
struct Hold {
    rank: u32,
    point: Point,
}

#[derive(Clone, Copy, Debug)]
struct HiddenWidth {
    rank: u32,
    width: usize,
}

impl Args {
    pub(crate) fn launch(&self) -> Option<usize> {
        self.launch
    }

    pub(crate) fn epochs(&self) -> u64 {
        self.epochs
    }

    pub(crate) fn global_batch(&self) -> usize {
        self.global_batch
    }

    pub(crate) fn samples(&self) -> usize {
        self.samples
    }

    pub(crate) fn hidden_on(&self, rank: u32) -> usize {
        self.hidden_on
            .filter(|pair| pair.rank == rank)
            .map_or(self.hidden, |pair| pair.width)
    }

    pub(crate) fn holds(&self, rank: u32, point: Point) -> bool {
        self.hold
            .is_some_and(|hold| hold.rank == rank && hold.point == point)
    }

    /// Before it joins, a process knows its rank from `TF_CONFIG` only.
    pub(crate) fn holds_at_start(&self) -> bool {
        let config = std::env::var("TF_CONFIG").unwrap_or_default();
        self.hold.is_some_and(|hold| {
            hold.point == Point::Start && config.contains(&format!("\"index\":{}", hold.rank))
        })
    }

    pub(crate) fn log_level(&self) -> LevelFilter {
        if self.verbose {
            LevelFilter::DEBUG
        } else {
            LevelFilter::OFF
        }
    }
}

impl FromStr for Hold {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (rank, point) = split(text)?;
        let point = match point {
            "start" => Point::Start,
            "end" => Point::End,
            step => Point::Step(step.parse().map_err(|_| format!("{step} is no step"))?),
        };
        Ok(Self { rank, point })
    }
}

impl FromStr for HiddenWidth {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (rank, width) = split(text)?;
        let width = width.parse().map_err(|_| format!("{width} is no width"))?;
        Ok(Self { rank, width })
    }
}

fn split(text: &str) -> Result<(u32, &str), String> {
    let (rank, rest) = text.split_once(':').ok_or("it takes RANK:SOMETHING")?;
    Ok((
        rank.parse().map_err(|_| format!("{rank} is no rank"))?,
        rest,
    ))
}

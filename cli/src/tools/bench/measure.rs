//! How often to repeat what, and which number to believe.

use std::time::Instant;

use meshwork_collectives::{Group, OperationError, Rank, ReduceOp};

use super::Failure;
use super::args::Bench;
use super::trial::Trial;

/// The measurement of one size.
///
/// A sample is several calls in a row after a barrier, enough that it lasts about 5 ms, and its
/// time is that of the slowest rank. The median over all samples is reported. Buffers hold zeros
/// while the time is taken; before and after, every value of a pattern is checked.
pub(super) struct Series<'a> {
    wanted: &'a Bench,
    bytes: usize,
}

/// The measurement of one size.
pub(super) struct Row {
    pub(super) ranks: usize,
    pub(super) bytes: usize,
    /// Seconds of one call.
    pub(super) median: f64,
    /// Elements that were wrong, on all ranks together.
    pub(super) errors: u64,
}

const SAMPLE_SECONDS: f64 = 5e-3;
const MOST_CALLS: f64 = 5000.0;
const LEAST_SAMPLES: usize = 7;

impl<'a> Series<'a> {
    pub(super) fn new(wanted: &'a Bench, bytes: usize) -> Self {
        Self { wanted, bytes }
    }

    pub(super) fn run(&self, group: &mut Group) -> Result<Row, Failure> {
        let elements = self.bytes / size_of::<f32>();
        let mut trial = Trial::new(self.wanted, elements, group)?;
        let mut errors = trial.errors(group)?;
        trial.clear();
        let calls = calibrate(&mut trial, group)?;
        let mut times = Vec::new();
        let mut measured = 0.0;
        // The slowest rank's time is the same on all, so all end after the same sample.
        while times.len() < LEAST_SAMPLES || measured < self.wanted.seconds() {
            let mut slowest = [seconds_of(&mut trial, calls, group)?];
            group.all_reduce(&mut slowest, ReduceOp::Max)?;
            times.push(slowest[0]);
            measured += slowest[0] * calls as f64;
        }
        times.sort_by(f64::total_cmp);
        errors += trial.errors(group)?;
        let mut errors = [errors as u64];
        group.all_reduce(&mut errors, ReduceOp::Sum)?;
        Ok(Row {
            ranks: group.world() as usize,
            bytes: trial.bytes(),
            median: times[times.len() / 2],
            errors: errors[0],
        })
    }
}

/// How many calls make a sample; the same on all ranks.
fn calibrate(trial: &mut Trial, group: &mut Group) -> Result<usize, OperationError> {
    let mut calls = 1;
    for _ in 0..3 {
        let mut each = [seconds_of(trial, calls, group)?];
        group.broadcast(&mut each, Rank::CHIEF)?;
        calls = whole((SAMPLE_SECONDS / each[0]).clamp(1.0, MOST_CALLS));
    }
    Ok(calls)
}

/// Seconds of one call, over this many in a row.
fn seconds_of(trial: &mut Trial, calls: usize, group: &mut Group) -> Result<f64, OperationError> {
    group.barrier()?;
    let begun = Instant::now();
    for _ in 0..calls {
        trial.run(group)?;
    }
    Ok(begun.elapsed().as_secs_f64() / calls as f64)
}

#[expect(clippy::cast_possible_truncation, reason = "a clamped number of calls")]
fn whole(number: f64) -> usize {
    number as usize
}

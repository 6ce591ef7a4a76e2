//! What became of a fault.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// No fault is allowed more by default, whatever its kind.
pub(crate) const LATE: Duration = Duration::from_secs(3);

/// What a fault has led to. The lists of problems say whom they are about.
#[derive(Debug, Default)]
pub(crate) struct Story {
    /// Ranks that say nothing, or do not end, for longer than anything takes.
    pub(crate) hangs: Vec<String>,
    pub(crate) wrong_values: Vec<String>,
    /// Errors of survivors that blame a rank that was not at fault, and others that nobody expects.
    pub(crate) wrong_names: Vec<String>,
    /// Errors that came later than [`LATE`], each with its time, and those that never came.
    pub(crate) late: Vec<String>,
    /// From the fault to the error of each survivor.
    pub(crate) detections: Vec<Duration>,
    /// From the fault to the first value without the lost rank, of each survivor.
    pub(crate) returns: Vec<Duration>,
    /// From the start of another process to the first value with it, of each rank.
    pub(crate) reunions: Vec<Duration>,
}

impl Story {
    /// The worst that should not have happened.
    pub(crate) fn problem(&self) -> Option<&str> {
        let worst_first = [
            &self.wrong_values,
            &self.hangs,
            &self.wrong_names,
            &self.late,
        ];
        let first = worst_first.into_iter().flatten().next()?;
        Some(first)
    }

    /// Takes in when a rank failed after a fault, and why it says that it did.
    pub(crate) fn failed(
        &mut self,
        at: SystemTime,
        failure: &str,
        blames: impl FnOnce(&str) -> bool,
    ) {
        let (micros, error) = failure.split_once(' ').unwrap_or((failure, ""));
        let detection = since(at, micros);
        self.detections.push(detection);
        if detection > LATE {
            self.late.push(format!("after {detection:.1?}: {error}"));
        }
        if !blames(error) || !error.contains("was lost") {
            self.wrong_names.push(format!("named wrongly: {error}"));
        }
    }
}

/// From a moment to another, which a rank tells in microseconds since 1970.
pub(crate) fn since(at: SystemTime, micros: &str) -> Duration {
    let micros = Duration::from_micros(micros.parse().unwrap_or(u64::MAX));
    micros.saturating_sub(at.duration_since(UNIX_EPOCH).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_of_a_loss_is_late_after_three_seconds_and_not_before() {
        for (millis, late) in [(2_999, 0), (3_001, 1)] {
            let mut story = Story::default();
            let at = UNIX_EPOCH + Duration::from_secs(1_000);
            let failure = format!("{} rank 1 was lost", 1_000_000_000 + millis * 1_000);
            story.failed(at, &failure, |_| true);
            assert_eq!((story.late.len(), story.detections.len()), (late, 1));
            assert_eq!(story.problem().is_some(), late > 0);
        }
    }
}

//! What came of all faults.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::time::Duration;

use crate::fault::Fault;
use crate::story::{LATE, Story};

/// The sums over all faults so far.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    faults: usize,
    hangs: usize,
    wrong_values: usize,
    wrong_names: usize,
    late: usize,
    /// From the fault to the error of each survivor, by kind of fault.
    detections: BTreeMap<&'static str, Vec<Duration>>,
    /// From the loss of a rank to a value without it, and from the start of another to one with it.
    returns: Vec<Duration>,
    reunions: Vec<Duration>,
}

impl Tally {
    pub(crate) fn add(&mut self, fault: Fault, story: &Story) {
        self.faults += 1;
        self.hangs += story.hangs.len();
        self.wrong_values += story.wrong_values.len();
        self.wrong_names += story.wrong_names.len();
        self.late += story.late.len();
        let kind = match fault {
            Fault::Kill(_) | Fault::Restart(_) => KILLS,
            Fault::Stop(_) => "stops",
            Fault::Pause(..) => "pauses",
            Fault::Cut(_) => "cut links",
            Fault::Partition(_) => "partitions",
        };
        let detections = self.detections.entry(kind).or_default();
        detections.extend(&story.detections);
        self.returns.extend(&story.returns);
        self.reunions.extend(&story.reunions);
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.faults > 0 && self.hangs + self.wrong_values + self.wrong_names + self.late == 0
    }
}

const KILLS: &str = "kills";

impl Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (kind, detections) in &self.detections {
            writeln!(f, "{kind}: detection {}", Spread(detections))?;
        }
        for (what, times) in [
            ("lost ranks: first value without them", &self.returns),
            ("restarts: first value with the new process", &self.reunions),
        ] {
            if !times.is_empty() {
                writeln!(f, "{what} {}", Spread(times))?;
            }
        }
        writeln!(
            f,
            "{} errors named a rank that was not at fault, {} came after more than {LATE:?}",
            self.wrong_names, self.late
        )?;
        let none = Vec::new();
        let kills = self.detections.get(KILLS).unwrap_or(&none);
        let Self {
            faults,
            hangs,
            wrong_values,
            ..
        } = self;
        writeln!(
            f,
            "{faults} faults, {hangs} hangs, {wrong_values} wrong values, detection {}",
            Spread(kills)
        )
    }
}

/// The middle and the slow end of some times.
struct Spread<'a>(&'a [Duration]);

impl Display for Spread<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sorted = self.0.to_vec();
        sorted.sort_unstable();
        // The least time that at least this share of all does not exceed.
        let at = |percent: usize| {
            let place = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
            sorted
                .get(place)
                .map_or(0.0, |time| time.as_secs_f64() * 1e3)
        };
        write!(
            f,
            "p50 {:.1} p99 {:.1} max {:.1} ms",
            at(50),
            at(99),
            at(100)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_counts_everything_and_spreads_the_kills() {
        let mut tally = Tally::default();
        for millis in 1..=200 {
            let story = Story {
                detections: vec![Duration::from_millis(millis)],
                ..Story::default()
            };
            tally.add(Fault::Kill(0), &story);
        }
        let stopped = Story {
            detections: vec![Duration::from_secs(1)],
            hangs: vec!["rank 0 does not fail".to_owned()],
            ..Story::default()
        };
        tally.add(Fault::Stop(1), &stopped);
        let text = tally.to_string();
        let last = text.lines().last();
        let expected =
            "201 faults, 1 hangs, 0 wrong values, detection p50 100.0 p99 198.0 max 200.0 ms";
        assert_eq!(last, Some(expected));
        assert!(
            text.contains("stops: detection p50 1000.0 p99 1000.0"),
            "{text}"
        );
        assert!(!tally.is_clean());
    }

    #[test]
    fn a_soak_is_clean_only_if_nothing_at_all_was_wrong_or_late() {
        let problem = || vec!["rank 0".to_owned()];
        let stories = [
            Story {
                hangs: problem(),
                ..Story::default()
            },
            Story {
                wrong_values: problem(),
                ..Story::default()
            },
            Story {
                wrong_names: problem(),
                ..Story::default()
            },
            Story {
                late: problem(),
                ..Story::default()
            },
        ];
        let clean = |stories: &[Story]| {
            let mut tally = Tally::default();
            stories
                .iter()
                .for_each(|story| tally.add(Fault::Kill(0), story));
            tally.is_clean()
        };
        assert!(clean(&[Story::default()]));
        assert!(!clean(&[]));
        for story in stories {
            assert!(!clean(&[Story::default(), story]));
        }
    }
}

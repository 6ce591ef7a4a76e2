//! Who still has something to say after a fault, or has yet to end.

use std::collections::BTreeSet;
use std::time::SystemTime;

use crate::crew::RankEvent;
use crate::fault::Fault;
use crate::story::Story;

/// The ranks of a job that a fault ends.
pub(crate) struct Watch {
    /// Names of the ranks that the error of a rank may begin with.
    culprits: Vec<Vec<String>>,
    at: SystemTime,
    /// Who has to say that it failed.
    silent: BTreeSet<usize>,
    /// Whose process has to end.
    running: BTreeSet<usize>,
}

/// What a rank that fails exits with.
pub(crate) const FAILED: i32 = 1;

impl Watch {
    /// All survivors of a fault at this moment say whom they have lost, and end.
    pub(crate) fn for_survivors(fault: Fault, at: SystemTime, members: &[String]) -> Self {
        let ranks = 0..members.len();
        let named = |by: usize| {
            let culprits = ranks.clone().filter(|rank| fault.may_be_named(*rank, by));
            culprits.map(|rank| format!("rank {rank} (")).collect()
        };
        let victim = fault.victim().map(|rank| rank as usize);
        let survivors: BTreeSet<usize> = ranks.clone().filter(|r| Some(*r) != victim).collect();
        Self {
            culprits: ranks.clone().map(named).collect(),
            at,
            silent: survivors.clone(),
            running: survivors,
        }
    }

    /// This rank ends, whatever it says.
    pub(crate) fn for_end_of(rank: usize) -> Self {
        Self {
            culprits: Vec::new(),
            at: SystemTime::now(),
            silent: BTreeSet::new(),
            running: BTreeSet::from([rank]),
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.running.is_empty()
    }

    pub(crate) fn hear(&mut self, rank: usize, rank_event: &RankEvent, story: &mut Story) {
        let line = match rank_event {
            RankEvent::Line(line) => line,
            RankEvent::Ended(status) => {
                let unexpected = self.silent.remove(&rank) || status.code() != Some(FAILED);
                if self.running.remove(&rank) && unexpected {
                    story
                        .wrong_names
                        .push(format!("rank {rank} ended by {status}"));
                }
                return;
            }
        };
        if line.starts_with("wrong") {
            self.silent.remove(&rank);
            story.wrong_values.push(format!("rank {rank}: {line}"));
        }
        let failure = line.strip_prefix("failed ");
        if let Some(failure) = failure.filter(|_| self.silent.remove(&rank)) {
            let blames = |error: &str| {
                let mut culprits = self.culprits.get(rank).into_iter().flatten();
                culprits.any(|name| error.starts_with(name))
            };
            story.failed(self.at, failure, blames);
        }
    }

    /// Nothing more is heard.
    pub(crate) fn give_up(self, story: &mut Story) {
        for rank in self.running {
            story.hangs.push(match self.silent.contains(&rank) {
                true => format!("rank {rank} does not fail"),
                false => format!("rank {rank} has failed and does not end"),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    /// What comes of news after rank 1 of three was killed.
    fn told(rank_event: &[(usize, RankEvent)]) -> Story {
        let at = UNIX_EPOCH + Duration::from_secs(1_000);
        let members = ["a:1", "b:1", "c:1"].map(str::to_owned);
        let mut watch = Watch::for_survivors(Fault::Kill(1), at, &members);
        let mut story = Story::default();
        for (rank, rank_event) in rank_event {
            watch.hear(*rank, rank_event, &mut story);
        }
        watch.give_up(&mut story);
        story
    }

    fn fails(rank: usize, culprit: usize) -> (usize, RankEvent) {
        let line = format!("failed 1000000001 rank {culprit} (b:1) was lost");
        (rank, RankEvent::Line(line))
    }

    fn ends(rank: usize, status: i32) -> (usize, RankEvent) {
        (rank, RankEvent::Ended(ExitStatus::from_raw(status)))
    }

    const EXIT: i32 = FAILED << 8;

    #[test]
    fn survivors_that_name_the_victim_and_end_are_all_that_is_expected() {
        let story = told(&[
            fails(0, 1),
            ends(1, 9),
            fails(2, 1),
            ends(0, EXIT),
            ends(2, EXIT),
        ]);
        assert_eq!(story.problem(), None);
        assert_eq!(story.detections.len(), 2);
    }

    #[test]
    fn a_survivor_that_fails_and_does_not_end_hangs() {
        let story = told(&[fails(0, 1), fails(2, 1), ends(2, EXIT)]);
        assert_eq!(story.hangs, ["rank 0 has failed and does not end"]);
        let story = told(&[fails(0, 1), ends(0, EXIT)]);
        assert_eq!(story.hangs, ["rank 2 does not fail"]);
    }

    #[test]
    fn a_survivor_that_crashes_or_names_another_is_a_problem() {
        let segmentation_fault = told(&[fails(0, 1), fails(2, 1), ends(0, 11), ends(2, EXIT)]);
        assert_eq!(segmentation_fault.wrong_names.len(), 1);
        let without_a_word = told(&[fails(0, 1), ends(0, EXIT), ends(2, EXIT)]);
        assert_eq!(without_a_word.wrong_names.len(), 1);
        let another = told(&[fails(0, 2), ends(0, EXIT), fails(2, 1), ends(2, EXIT)]);
        assert_eq!(another.wrong_names.len(), 1);
    }
}

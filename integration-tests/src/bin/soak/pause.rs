//! A rank of a job that goes on is stopped for a while, and then continues.

use std::time::{Duration, SystemTime};

use crate::crew::RankEvent;
use crate::story::{LATE, Story, since};
use crate::watch::FAILED;

/// What each rank has said since one was stopped.
///
/// If it was not for long nobody notices, and all go on as before. If it was, the others go on
/// without it; once it continues it learns that it is out, and ends, or it was in time for the next
/// epoch. Which of the two, they agree upon.
pub(crate) struct Pause<'a> {
    victim: usize,
    address: &'a str,
    stopped: SystemTime,
    continued: Option<SystemTime>,
    ranks: Vec<Rank>,
    noticed: bool,
}

enum Rank {
    /// It had a right value so many microseconds after 1970, in an epoch of so many ranks.
    AtWork {
        micros: String,
        world: String,
    },
    Unheard,
    Ended,
}

/// No stop is noticed that is shorter: ranks are patient for longer.
const UNNOTICED: Duration = Duration::from_millis(800);
/// Longer than a rank may be silent: what is settled for this time stays so.
const SETTLED: Duration = Duration::from_secs(2);

impl<'a> Pause<'a> {
    /// The rank at this address, among so many, is stopped at this moment.
    pub(crate) fn of(victim: usize, members: &'a [String], stopped: SystemTime) -> Self {
        Self {
            victim,
            address: &members[victim],
            stopped,
            continued: None,
            ranks: members.iter().map(|_| Rank::Unheard).collect(),
            noticed: false,
        }
    }

    pub(crate) fn continues(&mut self, at: SystemTime) {
        self.continued = Some(at);
    }

    pub(crate) fn hear(&mut self, rank: usize, rank_event: &RankEvent, story: &mut Story) {
        let line = match rank_event {
            RankEvent::Line(line) => line,
            RankEvent::Ended(status) => {
                self.ranks[rank] = Rank::Ended;
                if rank != self.victim || status.code() != Some(FAILED) {
                    story
                        .wrong_names
                        .push(format!("rank {rank} ended by {status}"));
                }
                return;
            }
        };
        let (what, rest) = line.split_once(' ').unwrap_or((line, ""));
        match what {
            "works" => {
                let (micros, world) = rest.split_once(' ').unwrap_or((rest, ""));
                self.ranks[rank] = Rank::AtWork {
                    micros: micros.to_owned(),
                    world: world.to_owned(),
                };
            }
            // It may blame whomever it misses.
            "failed" if rank == self.victim => self.noticed = true,
            "failed" => {
                self.noticed = true;
                let names = |error: &str| error.contains(&format!(" ({}) was lost", self.address));
                story.failed(self.stopped, rest, names);
            }
            "wrong" => story.wrong_values.push(format!("rank {rank}: {line}")),
            _ => {
                let problem = format!("rank {rank} did not expect: {line}");
                story.wrong_names.push(problem);
            }
        }
    }

    /// Whether all whose processes have not ended have been at work together for some time.
    pub(crate) fn is_settled(&self) -> bool {
        let Some(continued) = self.continued else {
            return false;
        };
        let living = self
            .ranks
            .iter()
            .filter(|rank| !matches!(rank, Rank::Ended));
        let together = living.clone().count().to_string();
        living.clone().all(|rank| match rank {
            Rank::AtWork { micros, world } => {
                *world == together && since(continued, micros) > SETTLED
            }
            Rank::Unheard | Rank::Ended => false,
        })
    }

    pub(crate) fn has_ended_its_victim(&self) -> bool {
        matches!(self.ranks[self.victim], Rank::Ended)
    }

    /// Whether a stop of this length may be noticed, or has to be.
    pub(crate) fn judge(&self, length: Duration, story: &mut Story) {
        if self.noticed && length < UNNOTICED {
            let problem = format!("a rank was given up that was stopped for {length:?}");
            story.wrong_names.push(problem);
        }
        if !self.noticed && length > LATE {
            story
                .late
                .push(format!("nobody noticed a stop of {length:?}"));
        }
    }

    /// The time is up.
    pub(crate) fn give_up(&self, story: &mut Story) {
        story
            .hangs
            .push("the ranks do not go on together".to_owned());
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;
    use std::time::UNIX_EPOCH;

    use super::*;

    const AT: u64 = 1_000;

    /// Whether all has been heard that there is to hear.
    #[derive(Eq, PartialEq)]
    enum Then {
        Settled,
        Open,
    }

    /// Rank 1 of three is stopped at second [`AT`] for so long; then this is heard.
    #[track_caller]
    fn paused(length: u64, heard: &[(usize, &str)], then: Then) -> Story {
        let members = ["a:1", "b:1", "c:1"].map(str::to_owned);
        let moment = |second| UNIX_EPOCH + Duration::from_secs(second);
        let mut pause = Pause::of(1, &members, moment(AT));
        pause.continues(moment(AT + length));
        let mut story = Story::default();
        for (rank, line) in heard {
            let rank_event = match *line {
                "ends" => RankEvent::Ended(ExitStatus::from_raw(FAILED << 8)),
                line => RankEvent::Line(line.to_owned()),
            };
            pause.hear(*rank, &rank_event, &mut story);
        }
        assert_eq!(pause.is_settled(), then == Then::Settled);
        pause.judge(Duration::from_secs(length), &mut story);
        story
    }

    #[test]
    fn after_a_long_stop_the_others_go_on_and_the_stopped_one_ends() {
        let lost = "failed 1002000000 rank 1 (b:1) was lost: its process is stopped";
        let heard = [
            (0, lost),
            (2, lost),
            (0, "works 1003000000 2"),
            (1, "failed 1004000000 rank 0 (a:1) was lost"),
            (1, "ends"),
            (0, "works 1006500000 2"),
        ];
        let story = paused(4, &heard, Then::Open);
        assert_eq!(story.problem(), None);
        let more = [&heard[..], &[(2, "works 1006500000 2")]].concat();
        assert_eq!(paused(4, &more, Then::Settled).detections.len(), 2);
        let wrong = [&more[..], &[(2, "wrong value in step 9")]].concat();
        assert_eq!(paused(4, &wrong, Then::Settled).wrong_values.len(), 1);
    }

    #[test]
    fn a_long_stop_has_to_be_noticed_and_a_short_one_must_not() {
        let all = [0, 1, 2].map(|rank| (rank, "works 1009000000 3"));
        assert_eq!(paused(0, &all, Then::Settled).problem(), None);
        assert_eq!(paused(4, &all, Then::Settled).late.len(), 1);
        let lost = (0, "failed 1000500000 rank 1 (b:1) was lost");
        let noticed = [&[lost][..], &all[..]].concat();
        assert_eq!(paused(0, &noticed, Then::Settled).wrong_names.len(), 1);
        assert_eq!(paused(2, &noticed, Then::Settled).problem(), None);
    }
}

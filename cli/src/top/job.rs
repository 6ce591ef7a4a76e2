//! All ranks of a job at one moment, and which of them is slow.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::rank::{Call, Rank};

/// What the ranks said that were asked.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Job {
    /// Those of the latest view, in order.
    pub(super) ranks: Vec<Rank>,
    /// Why others gave no answer.
    pub(super) unanswered: Vec<String>,
}

/// What a rank does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum State {
    /// It computes, or is in an operation that takes no time.
    Working,
    /// It waits for another.
    Waiting,
    /// Its group is over.
    Failed,
    /// It is in the group, and has not answered.
    Silent,
}

/// The rank that the others wait for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Slowest {
    pub(super) rank: u32,
    /// How long it has been waited for, or how much longer it has worked than most.
    pub(super) seconds: f64,
    /// Whether others wait for it at this moment.
    pub(super) now: bool,
}

/// From when on a wait is one, in seconds.
const WAIT: f64 = 0.05;
/// Which part of the time makes a difference between two ranks.
const DIFFERENCE: f64 = 0.01;

impl Job {
    pub(super) fn new(ranks: Vec<Rank>, unanswered: Vec<String>) -> Self {
        let view = ranks.iter().map(|rank| rank.view).max();
        let mut present = BTreeMap::new();
        for rank in ranks {
            if Some(rank.view) == view {
                present.entry(rank.rank).or_insert(rank);
            }
        }
        Self {
            ranks: present.into_values().collect(),
            unanswered,
        }
    }

    pub(super) fn world(&self) -> u32 {
        self.ranks.iter().map(|rank| rank.world).max().unwrap_or(0)
    }

    fn rank(&self, number: u32) -> Option<&Rank> {
        self.ranks.iter().find(|rank| rank.rank == number)
    }

    /// Of every rank of the group, in order.
    pub(super) fn states(&self) -> Vec<State> {
        let ranks = 0..self.world().min(MOST);
        ranks
            .map(|number| self.rank(number).map_or(State::Silent, Rank::state))
            .collect()
    }

    pub(super) fn slowest(&self) -> Option<Slowest> {
        self.awaited().or_else(|| self.busiest())
    }

    /// Whom the rank that has waited longest waits for in the end.
    fn awaited(&self) -> Option<Slowest> {
        let waits = self.ranks.iter().filter_map(|rank| rank.wait());
        let longest = waits.max_by(|one, other| one.seconds.total_cmp(&other.seconds))?;
        let mut rank = longest.awaited?;
        // As many hops as ranks are enough; in a circle all wait.
        for _ in 0..self.ranks.len() {
            match self.rank(rank).and_then(Rank::wait) {
                Some(next) => rank = next.awaited?,
                None => break,
            }
        }
        Some(Slowest {
            rank,
            seconds: longest.seconds,
            now: true,
        })
    }

    /// Who has spent the least time in operations: whoever is slow finds the others there already.
    fn busiest(&self) -> Option<Slowest> {
        let mut by_time: Vec<_> = self.ranks.iter().collect();
        by_time.sort_by(|one, other| one.in_operations.total_cmp(&other.in_operations));
        let (first, middle) = (by_time.first()?, by_time[by_time.len() / 2]);
        let seconds = middle.in_operations - first.in_operations;
        (seconds > DIFFERENCE * first.age).then_some(Slowest {
            rank: first.rank,
            seconds,
            now: false,
        })
    }

    /// The first of the ranks that says it: all workers count alike.
    fn any(&self, number: fn(&Rank) -> Option<f64>) -> Option<f64> {
        self.ranks.iter().find_map(number)
    }

    pub(super) fn steps(&self) -> Option<f64> {
        self.any(|rank| rank.steps)
    }

    pub(super) fn samples_per_second(&self) -> Option<f64> {
        self.any(|rank| rank.samples_per_second)
    }

    pub(super) fn checkpoint_age(&self) -> Option<f64> {
        self.any(|rank| rank.checkpoint_age)
    }

    pub(super) fn departures(&self) -> &[String] {
        self.ranks.first().map_or(&[], |rank| &rank.departures)
    }

    pub(super) fn json(&self) -> Value {
        let slowest = self.slowest().map(|slowest| {
            json!({ "rank": slowest.rank, "seconds": slowest.seconds, "now": slowest.now })
        });
        let ranks = (0..).zip(self.states());
        let ranks = ranks.map(|(number, state)| match self.rank(number) {
            Some(rank) => rank.json(state),
            None => json!({ "rank": number, "state": state.name() }),
        });
        json!({
            "world": self.world(),
            "view": self.ranks.first().map(|rank| rank.view),
            "steps": self.steps(),
            "samples_per_second": self.samples_per_second(),
            "checkpoint_age_seconds": self.checkpoint_age(),
            "slowest": slowest,
            "departures": self.departures(),
            "ranks": ranks.collect::<Vec<_>>(),
            "unanswered": self.unanswered,
        })
    }
}

/// Ranks that are shown: a group has no more.
const MOST: u32 = 1024;

impl Rank {
    fn state(&self) -> State {
        match (&self.failure, self.wait()) {
            (Some(_), _) => State::Failed,
            (None, Some(_)) => State::Waiting,
            (None, None) => State::Working,
        }
    }

    fn wait(&self) -> Option<&Call> {
        let call = self.current.as_ref();
        call.filter(|call| call.seconds >= WAIT && call.awaited.is_some())
    }

    fn json(&self, state: State) -> Value {
        let current = self.current.as_ref().map(|call| {
            json!({
                "what": call.what,
                "site": call.site,
                "seconds": call.seconds,
                "awaited": call.awaited,
            })
        });
        json!({
            "rank": self.rank,
            "state": state.name(),
            "address": self.address,
            "process": self.process,
            "waiting_share": self.waiting_share,
            "current": current,
            "operations": self.operations,
            "bytes": self.bytes,
            "gigabytes_per_second": self.gigabytes_per_second,
            "round_trip_seconds": self.round_trip,
            "packets_lost": self.packets_lost,
            "resident_bytes": self.resident_bytes,
            "failure": self.failure,
        })
    }
}

impl State {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::Waiting => "waiting",
            Self::Failed => "failed",
            Self::Silent => "no answer",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(number: u32, in_operations: f64) -> Rank {
        Rank {
            rank: number,
            world: 4,
            view: 1,
            age: 100.0,
            in_operations,
            ..Rank::default()
        }
    }

    fn waits(number: u32, awaited: u32, seconds: f64) -> Rank {
        let current = Some(Call {
            seconds,
            awaited: Some(awaited),
            ..Call::default()
        });
        Rank {
            current,
            ..rank(number, 50.0)
        }
    }

    #[test]
    fn the_end_of_a_chain_of_waits_is_slow_even_if_it_does_not_answer() {
        let job = Job::new(
            vec![waits(0, 1, 3.0), waits(1, 2, 2.0), rank(3, 9.0)],
            Vec::new(),
        );
        let slowest = job.slowest().unwrap();
        assert_eq!((slowest.rank, slowest.seconds, slowest.now), (2, 3.0, true));
        let expected = [
            State::Waiting,
            State::Waiting,
            State::Silent,
            State::Working,
        ];
        assert_eq!(job.states(), expected);
    }

    #[test]
    fn whoever_waits_least_is_slow_where_it_makes_a_difference() {
        for slow in 0..4 {
            let ranks = |by: f64| {
                let time = |number| if number == slow { 20.0 - by } else { 20.0 };
                Job::new(
                    (0..4).map(|number| rank(number, time(number))).collect(),
                    Vec::new(),
                )
            };
            assert_eq!(ranks(0.9).slowest(), None);
            let found = ranks(5.0).slowest().unwrap();
            assert_eq!((found.rank, found.seconds, found.now), (slow, 5.0, false));
        }
    }

    #[test]
    fn a_circle_of_waits_ends() {
        let job = Job::new(vec![waits(0, 1, 3.0), waits(1, 0, 3.0)], Vec::new());
        assert!(job.slowest().is_some());
    }

    #[test]
    fn ranks_of_an_older_view_are_passed_over() {
        let old = Rank {
            view: 1,
            ..rank(1, 1.0)
        };
        let new = |number| Rank {
            view: 2,
            world: 2,
            ..rank(number, 1.0)
        };
        let job = Job::new(vec![old, new(1), new(0)], Vec::new());
        assert_eq!((job.world(), job.ranks.len()), (2, 2));
        assert!(job.ranks.iter().all(|rank| rank.view == 2));
    }
}

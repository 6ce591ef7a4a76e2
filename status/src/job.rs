//! A job as it is shown: what all ranks do, and which of them makes the others wait.

use serde_json::{Value, json};

use crate::culprit::{Culprit, culprit};
use crate::look::{Look, Silence, Unanswered};
use crate::snapshot::{MemberChange, PeerLink, RankStatus};

/// Looks at a job again and again.
#[derive(Clone, Debug, Default)]
pub struct JobWatch {
    looks: Vec<Look>,
}

/// A job at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Job {
    look: Look,
    before: Option<Look>,
    culprit: Option<Culprit>,
}

/// What a rank does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum State {
    /// It computes, or is in an operation that takes no time.
    Working,
    /// It waits for another.
    Waiting,
    /// Its group is over.
    Failed,
    /// It is in the group, and has not answered.
    Silent,
    /// It is in the group, and was not asked, since nothing tells where.
    Unasked,
}

/// The rank that the others wait for.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Slowest {
    /// Which.
    pub rank: u32,
    /// How long it has been waited for, or how much longer it has worked than most, in seconds.
    pub seconds: f64,
    /// Whether others wait for it at this moment.
    pub now: bool,
}

/// Looks that are kept, and for how long, in seconds: what a culprit is found by.
const LOOKS: usize = 16;
const KEPT: f64 = 6.0;
/// Which part of the time makes a difference between two ranks.
const DIFFERENCE: f64 = 0.01;

impl JobWatch {
    /// What a look and those before it show. They come in the order of their times.
    pub fn see(&mut self, look: Look) -> Job {
        let before = self.looks.last().cloned();
        self.looks.push(look.clone());
        let last = look.at();
        self.looks.retain(|look| last - look.at() <= KEPT);
        let surplus = self.looks.len().saturating_sub(LOOKS);
        self.looks.drain(..surplus);
        Job {
            culprit: culprit(&self.looks),
            look,
            before,
        }
    }
}

impl Job {
    /// The ranks that have answered, in order.
    #[must_use]
    pub fn ranks(&self) -> &[RankStatus] {
        self.look.ranks()
    }

    /// What one rank has said.
    #[must_use]
    pub fn rank(&self, number: u32) -> Option<&RankStatus> {
        self.look.rank(number)
    }

    /// How many of its ranks are shown: 1,024 at most.
    #[must_use]
    pub fn world(&self) -> u32 {
        self.look.world()
    }

    /// How many ranks it has, shown or not.
    #[must_use]
    pub fn members(&self) -> u32 {
        self.look.members()
    }

    /// Why others gave no answer.
    #[must_use]
    pub fn unanswered(&self) -> &[Unanswered] {
        self.look.unanswered()
    }

    /// Which rank makes the others wait and why, where that is sure.
    #[must_use]
    pub fn culprit(&self) -> Option<&Culprit> {
        self.culprit.as_ref()
    }

    /// Of every rank that is shown, in order.
    #[must_use]
    pub fn states(&self) -> Vec<State> {
        let missing = |number| match self.look.silence(number) {
            Some(Silence::Unasked) => State::Unasked,
            Some(_) | None => State::Silent,
        };
        let state = |number| {
            let rank = self.rank(number);
            rank.map_or_else(|| missing(number), RankStatus::state)
        };
        (0..self.world()).map(state).collect()
    }

    /// The rank that others wait for, or that lets them wait longest; that may be by chance.
    #[must_use]
    pub fn slowest(&self) -> Option<Slowest> {
        let awaited = self.look.awaited().map(|(rank, seconds)| Slowest {
            rank,
            seconds,
            now: true,
        });
        awaited.or_else(|| self.busiest())
    }

    /// Who has spent least time in operations beside the part that the middle one spends there:
    /// whoever is slow finds the others there already. Whoever has come later has less time.
    fn busiest(&self) -> Option<Slowest> {
        let shares = self.ranks().iter().map(|rank| rank.waiting_share);
        let mut shares: Vec<f64> = shares.collect();
        shares.sort_by(f64::total_cmp);
        let middle = shares.get(shares.len() / 2)?;
        let slow = self.ranks().iter().filter_map(|rank| {
            let seconds = middle * rank.age - rank.in_operations;
            (seconds > DIFFERENCE * rank.age).then_some(Slowest {
                rank: rank.rank,
                seconds,
                now: false,
            })
        });
        slow.max_by(|one, other| one.seconds.total_cmp(&other.seconds))
    }

    /// One of the program's numbers, of the first rank that has it: all workers count alike.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<f64> {
        self.ranks().iter().find_map(|rank| rank.number(name))
    }

    /// Who left and came, as far as any rank remembers, in order.
    #[must_use]
    pub fn changes(&self) -> Vec<&MemberChange> {
        let mut changes: Vec<&MemberChange> = Vec::new();
        for change in self.ranks().iter().flat_map(|rank| &rank.changes) {
            let same = |known: &&MemberChange| {
                let of = |change: &MemberChange| (change.view, change.reason.is_some());
                of(known) == of(change) && (known.address == change.address)
            };
            if !changes.iter().any(same) {
                changes.push(change);
            }
        }
        changes.sort_by(|one, other| other.ago.total_cmp(&one.ago));
        changes
    }

    /// The share of its time that a rank has spent in operations since the look before.
    fn recent_share(&self, rank: &RankStatus) -> f64 {
        let before = self.before.as_ref().and_then(|look| look.rank(rank.rank));
        let before = before.filter(|before| before.address == rank.address);
        let passed = before.map(|before| {
            let seconds = rank.age - before.age;
            (seconds, rank.in_operations - before.in_operations)
        });
        match passed {
            Some((seconds, inside)) if seconds > 0.0 => (inside / seconds).clamp(0.0, 1.0),
            Some(_) | None => rank.waiting_share,
        }
    }

    /// All of it, as `meshwork top --once --json` prints it and the page reads it.
    #[must_use]
    pub fn json(&self) -> Value {
        let slowest = self.slowest().map(|slowest| {
            json!({ "rank": slowest.rank, "seconds": slowest.seconds, "now": slowest.now })
        });
        let ranks = (0..).zip(self.states());
        let ranks = ranks.map(|(number, state)| match self.rank(number) {
            Some(rank) => self.rank_json(rank, state),
            None => json!({ "rank": number, "state": state.name() }),
        });
        let world = self.world();
        let links = self.ranks().iter().flat_map(|rank| {
            let links = rank.links.iter().filter(move |link| link.to < world);
            links.map(|link| link_json(rank.rank, link))
        });
        json!({
            "version": 1,
            "world": world,
            "members": self.look.members(),
            "view": self.look.view(),
            "steps": self.number("training_steps"),
            "samples_per_second": self.number("training_samples_per_second"),
            "loss": self.number("training_loss"),
            "checkpoint_age_seconds": self.number("checkpoint_age_seconds"),
            "slowest": slowest,
            "culprit": self.culprit_json(),
            "changes": self.changes().into_iter().map(change_json).collect::<Vec<_>>(),
            "ranks": ranks.collect::<Vec<_>>(),
            "links": links.collect::<Vec<_>>(),
            "unanswered": self.unanswered().iter().map(|one| &*one.why).collect::<Vec<_>>(),
        })
    }

    /// [`culprit`](Self::culprit), and the same as a sentence; null where there is none.
    #[must_use]
    pub fn culprit_json(&self) -> Value {
        let culprit = self.culprit.as_ref().map(|culprit| {
            json!({
                "rank": culprit.rank,
                "cause": culprit.cause.name(),
                "peer": culprit.peer,
                "evidence": culprit.evidence,
                "text": culprit.to_string(),
            })
        });
        culprit.into()
    }

    fn rank_json(&self, rank: &RankStatus, state: State) -> Value {
        let current = rank.current.as_ref().map(|call| {
            json!({
                "what": call.what,
                "site": call.site,
                "seconds": call.seconds,
                "awaited": call.awaited,
            })
        });
        json!({
            "rank": rank.rank,
            "state": state.name(),
            "address": rank.address,
            "host": rank.host(),
            "process": rank.process,
            "age_seconds": rank.age,
            "waiting_share": rank.waiting_share,
            "recent_waiting_share": self.recent_share(rank),
            "current": current,
            "operations": rank.operations,
            "bytes": rank.bytes,
            "gigabytes_per_second": rank.gigabytes_per_second,
            "round_trip_seconds": rank.round_trip(),
            "packets_lost": rank.packets_lost(),
            "resident_bytes": rank.number("resident_memory_bytes"),
            "failure": rank.failure,
        })
    }
}

/// In few bytes, as there are many: from, to, microseconds of a round trip, bytes, packets, lost.
fn link_json(from: u32, link: &PeerLink) -> Value {
    let micros = (1e6 * link.round_trip).round();
    json!([
        from,
        link.to,
        micros,
        link.bytes_sent,
        link.packets_sent,
        link.packets_lost
    ])
}

fn change_json(change: &MemberChange) -> Value {
    json!({
        "view": change.view,
        "address": change.address,
        "reason": change.reason,
        "ago_seconds": change.ago,
    })
}

impl RankStatus {
    fn state(&self) -> State {
        match (&self.failure, self.wait()) {
            (Some(_), _) => State::Failed,
            (None, Some(_)) => State::Waiting,
            (None, None) => State::Working,
        }
    }
}

impl State {
    /// Its name, as it is shown.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::Waiting => "waiting",
            Self::Failed => "failed",
            Self::Silent => "no answer",
            Self::Unasked => "not asked",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::RankCall;

    fn rank(number: u32, in_operations: f64) -> RankStatus {
        RankStatus {
            rank: number,
            world: 4,
            view: 1,
            age: 100.0,
            in_operations,
            waiting_share: in_operations / 100.0,
            ..RankStatus::default()
        }
    }

    fn waits(number: u32, awaited: u32, seconds: f64) -> RankStatus {
        let current = Some(RankCall {
            seconds,
            awaited: Some(awaited),
            ..RankCall::default()
        });
        RankStatus {
            current,
            ..rank(number, 50.0)
        }
    }

    fn job(ranks: Vec<RankStatus>) -> Job {
        JobWatch::default().see(Look::new(0.0, ranks, Vec::new()))
    }

    #[test]
    fn the_end_of_a_chain_of_waits_is_slow_even_if_it_does_not_answer() {
        let job = job(vec![waits(0, 1, 3.0), waits(1, 2, 2.0), rank(3, 9.0)]);
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
    fn a_rank_that_nobody_could_ask_is_told_from_one_that_does_not_answer() {
        let missing = [(1, Silence::Unasked), (2, Silence::Unknown)];
        let unanswered = missing.map(|(number, silence)| Unanswered {
            rank: Some(number),
            silence,
            ..Unanswered::unasked()
        });
        let look = Look::new(0.0, vec![rank(0, 1.0), rank(3, 1.0)], unanswered.to_vec());
        let states = JobWatch::default().see(look).states();
        assert_eq!(states[1..3], [State::Unasked, State::Silent]);
    }

    #[test]
    fn whoever_waits_least_is_slow_where_it_makes_a_difference() {
        for slow in 0..4 {
            let ranks = |by: f64| {
                let time = |number| if number == slow { 20.0 - by } else { 20.0 };
                job((0..4).map(|number| rank(number, time(number))).collect())
            };
            assert_eq!(ranks(0.9).slowest(), None);
            let found = ranks(5.0).slowest().unwrap();
            assert_eq!((found.rank, found.seconds, found.now), (slow, 5.0, false));
        }
    }

    #[test]
    fn a_newcomer_is_slow_by_its_share_of_its_own_time() {
        let slowest = |of_rank_1: f64, of_newcomer: f64| {
            let of = |number, age: f64, in_operations: f64| RankStatus {
                age,
                waiting_share: in_operations / age,
                ..rank(number, in_operations)
            };
            let others = [18_000.0, of_rank_1, 18_000.0];
            let others = (0..)
                .zip(others)
                .map(|(number, time)| of(number, 36_000.0, time));
            let slowest = job(others.chain([of(3, 60.0, of_newcomer)]).collect()).slowest();
            slowest.map(|slowest| (slowest.rank, slowest.seconds))
        };
        assert_eq!(slowest(18_000.0, 30.0), None);
        assert_eq!(slowest(18_000.0, 15.0), Some((3, 15.0)));
        // Who has let the others wait for hours is named before it.
        assert_eq!(slowest(3_600.0, 3.0), Some((1, 14_400.0)));
        // As long a time is no difference where there was more of it.
        assert_eq!(slowest(17_900.0, 3.0), Some((3, 27.0)));
    }

    #[test]
    fn of_a_large_group_the_first_ranks_are_shown_and_the_links_between_them() {
        let link = |to| PeerLink {
            to,
            ..PeerLink::default()
        };
        let first = RankStatus {
            world: 2048,
            links: vec![link(1023), link(1024), link(2047)],
            ..rank(0, 1.0)
        };
        let told = job(vec![first]).json();
        assert_eq!(
            (&told["world"], &told["members"]),
            (&json!(1024), &json!(2048))
        );
        assert_eq!(told["links"], json!([[0, 1023, 0.0, 0, 0, 0]]));
    }

    #[test]
    fn ranks_that_a_group_does_not_have_are_passed_over() {
        let others = (4..9).map(|number| rank(number, 1.0));
        let job = job(others.chain([waits(1, 0, 3.0)]).collect());
        assert_eq!((job.world(), job.ranks().len()), (4, 1));
        assert_eq!(job.slowest().unwrap().rank, 0);
    }

    #[test]
    fn a_circle_of_waits_ends() {
        let job = job(vec![waits(0, 1, 3.0), waits(1, 0, 3.0)]);
        assert!(job.slowest().is_some());
    }

    #[test]
    fn ranks_of_an_older_view_are_passed_over() {
        let old = RankStatus {
            view: 1,
            ..rank(1, 1.0)
        };
        let new = |number| RankStatus {
            view: 2,
            world: 2,
            ..rank(number, 1.0)
        };
        let job = job(vec![old, new(1), new(0)]);
        assert_eq!((job.world(), job.ranks().len()), (2, 2));
        assert!(job.ranks().iter().all(|rank| rank.view == 2));
    }

    #[test]
    fn shares_are_those_since_the_look_before_and_changes_are_told_once() {
        let change = |reason: Option<&str>| MemberChange {
            view: 2,
            address: Some("b:1".to_owned()),
            reason: reason.map(str::to_owned),
            ago: 3.0,
        };
        let look = |at: f64| {
            let ranks = (0..4).map(|number| RankStatus {
                age: 100.0 + at,
                waiting_share: 0.9,
                changes: vec![change(Some("it died")), change(None)],
                ..rank(number, 50.0 + 0.25 * at)
            });
            Look::new(at, ranks.collect(), Vec::new())
        };
        let mut watch = JobWatch::default();
        let share = |job: &Job| job.json()["ranks"][3]["recent_waiting_share"].clone();
        assert_eq!(share(&watch.see(look(0.0))), 0.9);
        let job = watch.see(look(2.0));
        assert_eq!(share(&job), 0.25);
        assert_eq!(job.changes().len(), 2);
    }
}

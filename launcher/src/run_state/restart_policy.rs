//! Restarts in elastic runs: exponential backoff, the limit on restarts in a row, and when too few
//! workers are left. Exit status 0 says that the job is done and ends restarts, 75 that it was
//! saved and ends the run.

use std::time::{Duration, Instant};

use meshwork_collectives::{Error, Rank};

use super::{Shortage, WorkerEnd};
use crate::Elastic;
use crate::outcome::{Loss, MemoryKills};

/// The restart policy of elastic runs: which workers are restarted, and when.
#[derive(Debug)]
pub(super) struct RestartPolicy {
    elastic: Elastic,
    /// By rank.
    places: Vec<Place>,
    /// A worker has succeeded: the job is done, and none is restarted any more.
    done: bool,
    /// The first failure after that.
    failed_after: Option<(Rank, WorkerEnd)>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    state: State,
    /// Restarts since it last lived for long.
    in_a_row: u32,
    restarts: u32,
    /// How it ended last, if it has.
    end: Option<WorkerEnd>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Running { since: Option<Instant> },
    Waiting { until: Instant },
    Gone,
}

/// The tolerated exit of a worker in an elastic run, for messages.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct RestartEvent {
    pub(crate) rank: Rank,
    pub(crate) end: WorkerEnd,
    pub(crate) decision: RestartDecision,
}

/// The decision after the exit of a worker.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum RestartDecision {
    /// It is started again after a pause.
    Again {
        pause: Duration,
        in_a_row: u32,
        most: u32,
    },
    /// It was started again as often as it may be.
    GivenUp { restarts: u32 },
    /// Another has ended well before.
    JobDone,
}

/// The effect of a worker's exit on the run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ExitEffect {
    /// The run goes on.
    Tolerated(Option<RestartEvent>),
    /// The run is to end, as if it were not elastic.
    Fatal,
}

impl RestartPolicy {
    pub(super) fn new(elastic: Elastic, workers: usize) -> Self {
        let place = Place {
            state: State::Running { since: None },
            in_a_row: 0,
            restarts: 0,
            end: None,
        };
        Self {
            elastic,
            places: vec![place; workers],
            done: false,
            failed_after: None,
        }
    }

    /// A worker has ended.
    pub(super) fn ended(&mut self, now: Instant, rank: Rank, end: WorkerEnd) -> ExitEffect {
        let Some(place) = self.places.get_mut(rank.index()) else {
            return ExitEffect::Fatal;
        };
        place.end = Some(end);
        if end == WorkerEnd::SAVED || end == MISCONFIGURED {
            return ExitEffect::Fatal;
        }
        if end.is_success() {
            place.state = State::Gone;
            self.done = true;
            self.stop();
            return ExitEffect::Tolerated(None);
        }
        if self.done {
            place.state = State::Gone;
            self.failed_after.get_or_insert((rank, end));
            return ExitEffect::Tolerated(Some(RestartEvent {
                rank,
                end,
                decision: RestartDecision::JobDone,
            }));
        }
        let lived_long = matches!(place.state, State::Running { since: Some(since) }
            if now.saturating_duration_since(since) >= LONG);
        place.in_a_row = if lived_long { 1 } else { place.in_a_row + 1 };
        let (in_a_row, most) = (place.in_a_row, self.elastic.restarts);
        let decision = if in_a_row > most {
            place.state = State::Gone;
            let restarts = place.restarts;
            RestartDecision::GivenUp { restarts }
        } else {
            let pause = pause(in_a_row);
            place.state = State::Waiting { until: now + pause };
            RestartDecision::Again {
                pause,
                in_a_row,
                most,
            }
        };
        ExitEffect::Tolerated(Some(RestartEvent {
            rank,
            end,
            decision,
        }))
    }

    /// The workers that are to be started now, each with how often it has been.
    pub(super) fn due(&mut self, now: Instant) -> Vec<(Rank, u32)> {
        let mut due = Vec::new();
        for (rank, place) in Rank::all(u32::MAX).zip(&mut self.places) {
            if matches!(place.state, State::Waiting { until } if until <= now) {
                place.state = State::Running { since: Some(now) };
                place.restarts += 1;
                due.push((rank, place.restarts));
            }
        }
        due
    }

    /// When the next worker is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let until = |place: &Place| match place.state {
            State::Waiting { until } => Some(until),
            _ => None,
        };
        self.places.iter().filter_map(until).min()
    }

    /// Stops all restarts.
    pub(super) fn stop(&mut self) {
        for place in &mut self.places {
            if matches!(place.state, State::Waiting { .. }) {
                place.state = State::Gone;
            }
        }
    }

    /// Why there are too few workers, and will be, if so.
    pub(super) fn shortage(&self) -> Option<Shortage> {
        let left = self.left();
        if self.done || left >= self.elastic.least {
            return None;
        }
        let lost = Rank::all(u32::MAX).zip(&self.places);
        let lost = lost.filter(|(_, place)| place.state == State::Gone);
        let loss = |(rank, place): (Rank, &Place)| {
            let restarts = place.restarts;
            place.end.map(|end| Loss {
                rank,
                end,
                restarts,
            })
        };
        Some(Shortage {
            least: self.elastic.least,
            left,
            lost: lost.filter_map(loss).collect(),
            memory_kills: MemoryKills::default(),
        })
    }

    /// How many workers have to succeed.
    pub(super) fn least(&self) -> usize {
        self.elastic.least
    }

    /// Who is named where too few have succeeded: who failed first once the job was done, or else
    /// one that was to be started again then.
    pub(super) fn blamed(&self) -> Option<(Rank, WorkerEnd)> {
        let mut places = Rank::all(u32::MAX).zip(&self.places);
        let failed = |(rank, place): (Rank, &Place)| {
            let end = place.end.filter(|end| !end.is_success())?;
            Some((rank, end))
        };
        self.failed_after.or_else(|| places.find_map(failed))
    }

    fn left(&self) -> usize {
        let places = self.places.iter();
        places.filter(|place| place.state != State::Gone).count()
    }
}

/// The pause before a restart: the shortest at first, and twice as long each further time.
fn pause(in_a_row: u32) -> Duration {
    let doubled = 2_u32.saturating_pow(in_a_row.saturating_sub(1));
    SHORTEST.saturating_mul(doubled).min(LONGEST)
}

/// Who cannot begin before somebody changes its configuration would fail again.
const MISCONFIGURED: WorkerEnd = WorkerEnd::Exited {
    status: Error::EXIT_CONFIG,
};
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);
/// The uptime after which a worker's failures no longer count as in a row.
const LONG: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Signal;

    const KILLED: WorkerEnd = WorkerEnd::Killed {
        signal: Signal::new(9),
    };

    fn restart_policy(least: usize, workers: usize, restarts: u32) -> RestartPolicy {
        RestartPolicy::new(Elastic { least, restarts }, workers)
    }

    /// The pause before this worker is started again.
    fn pause_after(restart_policy: &mut RestartPolicy, now: Instant) -> Option<Duration> {
        match restart_policy.ended(now, Rank::new(1), KILLED) {
            ExitEffect::Tolerated(Some(RestartEvent {
                decision: RestartDecision::Again { pause, .. },
                ..
            })) => Some(pause),
            _ => None,
        }
    }

    #[test]
    fn pauses_double_until_a_worker_has_lived_long_and_end_with_the_restarts() {
        let mut restart_policy = restart_policy(1, 2, 3);
        let mut now = Instant::now();
        for millis in [100, 200] {
            let pause = Duration::from_millis(millis);
            assert_eq!(pause_after(&mut restart_policy, now), Some(pause));
            assert_eq!(restart_policy.deadline(), Some(now + pause));
            assert_eq!(restart_policy.due(now), []);
            now += pause;
            assert_eq!(restart_policy.due(now).len(), 1);
        }
        now += LONG;
        for millis in [100, 200, 400] {
            let pause = Duration::from_millis(millis);
            assert_eq!(pause_after(&mut restart_policy, now), Some(pause));
            now += pause;
            restart_policy.due(now);
        }
        assert_eq!(pause_after(&mut restart_policy, now), None);
        assert_eq!(restart_policy.shortage(), None, "one is enough");
        assert_eq!(pause(40), LONGEST);
    }

    #[test]
    fn too_few_are_told_with_their_ends_only_when_nobody_comes_back() {
        let mut restart_policy = restart_policy(2, 2, 1);
        let now = Instant::now();
        assert!(pause_after(&mut restart_policy, now).is_some());
        assert_eq!(restart_policy.shortage(), None);
        assert_eq!(restart_policy.due(now + LONGEST), [(Rank::new(1), 1)]);
        assert!(pause_after(&mut restart_policy, now + LONGEST).is_none());
        let lost = Loss {
            rank: Rank::new(1),
            end: KILLED,
            restarts: 1,
        };
        let shortage = Shortage {
            least: 2,
            left: 1,
            lost: vec![lost],
            memory_kills: MemoryKills::default(),
        };
        assert_eq!(restart_policy.shortage(), Some(shortage));
    }

    #[test]
    fn nobody_is_started_again_that_would_fail_in_the_same_way() {
        let mut restart_policy = restart_policy(1, 2, 9);
        let ended = restart_policy.ended(Instant::now(), Rank::CHIEF, MISCONFIGURED);
        assert_eq!(ended, ExitEffect::Fatal);
    }

    #[test]
    fn nobody_is_started_again_once_one_has_ended_well_or_the_job_was_saved() {
        let mut restart_policy = restart_policy(2, 3, 9);
        let now = Instant::now();
        pause_after(&mut restart_policy, now);
        let well = WorkerEnd::Exited { status: 0 };
        assert_eq!(
            restart_policy.ended(now, Rank::CHIEF, well),
            ExitEffect::Tolerated(None)
        );
        assert_eq!(restart_policy.due(now + LONGEST), []);
        // Who was to be started again is named only as long as nobody has failed since.
        assert_eq!(restart_policy.blamed(), Some((Rank::new(1), KILLED)));
        let told = RestartEvent {
            rank: Rank::new(2),
            end: KILLED,
            decision: RestartDecision::JobDone,
        };
        assert_eq!(
            restart_policy.ended(now, Rank::new(2), KILLED),
            ExitEffect::Tolerated(Some(told))
        );
        assert_eq!(restart_policy.shortage(), None);
        assert_eq!(restart_policy.blamed(), Some((Rank::new(2), KILLED)));
        let mut other = self::restart_policy(2, 3, 9);
        let saved = other.ended(now, Rank::CHIEF, WorkerEnd::SAVED);
        assert_eq!(saved, ExitEffect::Fatal);
    }
}

//! The state machine of a run: from exits, signals and time to steps to take (warn, terminate,
//! kill, restart). It does no I/O and reads no clock, so tests run it in virtual time; `supervisor`
//! carries out the steps.

mod restart_policy;

use std::time::{Duration, Instant};

use meshwork_collectives::Rank;

use crate::outcome::{MemoryKills, Shortage};
use crate::output::OutputSummary;
use crate::{Elastic, Failure, Interruption, Outcome, Signal, WorkerEnd};
use restart_policy::{ExitEffect, RestartPolicy};

pub(crate) use restart_policy::{RestartDecision, RestartEvent};

/// The state machine of a run: given exits, signals and the time, it decides what to do to the
/// workers.
///
/// ```text
///            first failure            1 s over             grace over
///   Running ───────────────> Warned ────────────> Ending ────────────> Killed
///      └──── SIGINT or SIGTERM ─────────────────────^ └─ a second one ────^
/// ```
///
/// Who has not ended 5 s after that is on a host that no word reaches, or has left something behind
/// that holds its connection open: the connection is ended.
///
/// In an elastic run a failure leaves it running, as long as enough workers are left or come back,
/// or one has succeeded; then as many have to succeed as it needs.
#[derive(Debug)]
pub(crate) struct RunState {
    workers: usize,
    living: usize,
    grace: Duration,
    phase: Phase,
    cause: Option<Cause>,
    /// SIGINT and SIGTERM that have come.
    interrupts: usize,
    /// Workers that did not exit with status 0, but those that an elastic run does without.
    failed: usize,
    /// Workers that did.
    succeeded: usize,
    /// Of those that failed, workers that have saved the job.
    saved: usize,
    /// And those that SIGTERM has ended, as one that was only just starting again.
    terminated: usize,
    /// Workers living when SIGKILL was sent.
    killed: usize,
    /// Only in an elastic run.
    restart_policy: Option<RestartPolicy>,
}

/// One thing to do; [`RunState`] decides and the supervisor does it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Step {
    /// Tell the survivors that this rank was lost.
    Announce(Rank),
    /// Tell people about the end of a worker.
    Tell(RestartEvent),
    /// Restart the worker of this rank; the number counts its restarts, this one included.
    Restart(Rank, u32),
    /// Send this signal to all workers.
    Send(Signal),
    /// Send SIGKILL to all workers.
    Kill,
    /// End the connections to workers on other hosts.
    Disconnect,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Running,
    Warned {
        until: Instant,
    },
    /// `None` if the grace time ends beyond what the clock can count.
    Ending {
        until: Option<Instant>,
    },
    Killed {
        /// `None` once it is over.
        until: Option<Instant>,
    },
}

/// How long SIGKILL may be on its way to another host, and the end of a worker on its way back.
const THERE_AND_BACK: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
enum Cause {
    Failure {
        rank: Rank,
        end: WorkerEnd,
        others: usize,
    },
    Interruption(Signal),
    Shortage(Shortage),
}

impl RunState {
    /// The time that survivors of a failure have to end by themselves: a second, and more where
    /// there are many for few cores.
    pub(crate) fn warning(workers: usize) -> Duration {
        let workers = u32::try_from(workers).expect("a run has at most `Launch::MOST_WORKERS`");
        Duration::from_secs(1).max(Duration::from_millis(30) * workers)
    }

    pub(crate) fn new(workers: usize, grace: Duration) -> Self {
        Self {
            workers,
            living: workers,
            grace,
            phase: Phase::Running,
            cause: None,
            interrupts: 0,
            failed: 0,
            succeeded: 0,
            saved: 0,
            terminated: 0,
            killed: 0,
            restart_policy: None,
        }
    }

    /// Restarts workers that fail.
    pub(crate) fn with_restart_policy(mut self, elastic: Option<Elastic>) -> Self {
        self.restart_policy = elastic.map(|elastic| RestartPolicy::new(elastic, self.workers));
        self
    }

    /// Handles the exits of workers, in this order as far as it could be seen; all at one moment.
    pub(crate) fn ended(&mut self, now: Instant, ended: &[(Rank, WorkerEnd)], out: &mut Vec<Step>) {
        let others = self.living.saturating_sub(1);
        self.living = self.living.saturating_sub(ended.len());
        self.succeeded += ended.iter().filter(|(_, end)| end.is_success()).count();
        let ended = &self.not_tolerated(now, ended, out)[..];
        self.failed += ended.iter().filter(|(_, end)| !end.is_success()).count();
        let saved = ended.iter().filter(|(_, end)| *end == WorkerEnd::SAVED);
        self.saved += saved.count();
        let by_request = WorkerEnd::Killed {
            signal: Signal::TERMINATE,
        };
        let terminated = ended.iter().filter(|(_, end)| *end == by_request);
        self.terminated += terminated.count();
        if self.cause.is_some() {
            return;
        }
        let Some(&(rank, end)) = first_failure(ended) else {
            return;
        };
        self.cause = Some(Cause::Failure { rank, end, others });
        if self.living > 0 {
            self.phase = Phase::Warned {
                until: now + Self::warning(self.workers),
            };
            out.push(Step::Announce(rank));
        }
    }

    /// The exits that the run does not tolerate: all, unless it is elastic.
    fn not_tolerated(
        &mut self,
        now: Instant,
        ended: &[(Rank, WorkerEnd)],
        out: &mut Vec<Step>,
    ) -> Vec<(Rank, WorkerEnd)> {
        let Some(restart_policy) = self
            .restart_policy
            .as_mut()
            .filter(|_| self.cause.is_none())
        else {
            return ended.to_vec();
        };
        let mut not_tolerated = Vec::new();
        for &(rank, end) in ended {
            match restart_policy.ended(now, rank, end) {
                ExitEffect::Tolerated(event) => out.extend(event.map(Step::Tell)),
                ExitEffect::Fatal => not_tolerated.push((rank, end)),
            }
        }
        if let Some(shortage) = restart_policy.shortage() {
            self.cause = Some(Cause::Shortage(shortage));
            self.end_by(now.checked_add(self.grace));
            out.push(Step::Send(Signal::TERMINATE));
        } else if !not_tolerated.is_empty() {
            restart_policy.stop();
        }
        not_tolerated
    }

    /// Stops restarts; running workers have until `until` to end.
    fn end_by(&mut self, until: Option<Instant>) {
        if let Some(restart_policy) = &mut self.restart_policy {
            restart_policy.stop();
        }
        self.phase = Phase::Ending { until };
    }

    /// Handles a signal that is to be forwarded.
    pub(crate) fn signalled(&mut self, now: Instant, signal: Signal, out: &mut Vec<Step>) {
        out.push(Step::Send(signal));
        if !signal.asks_to_end() {
            return;
        }
        self.interrupts += 1;
        self.cause.get_or_insert(Cause::Interruption(signal));
        match self.phase {
            _ if self.interrupts > 1 => self.kill(now, out),
            Phase::Running | Phase::Warned { .. } => self.end_by(now.checked_add(self.grace)),
            Phase::Ending { .. } | Phase::Killed { .. } => {}
        }
    }

    /// Handles the passing of time.
    pub(crate) fn tick(&mut self, now: Instant, out: &mut Vec<Step>) {
        if let Some(restart_policy) = &mut self.restart_policy {
            let due = restart_policy.due(now);
            self.living += due.len();
            out.extend(due.iter().map(|(rank, count)| Step::Restart(*rank, *count)));
        }
        if self.phase_ends().is_none_or(|deadline| now < deadline) {
            return;
        }
        match self.phase {
            Phase::Warned { .. } => {
                out.push(Step::Send(Signal::TERMINATE));
                let until = now.checked_add(self.grace);
                self.phase = Phase::Ending { until };
            }
            Phase::Ending { .. } => self.kill(now, out),
            Phase::Killed { .. } => {
                out.push(Step::Disconnect);
                self.phase = Phase::Killed { until: None };
            }
            Phase::Running => {}
        }
    }

    /// When [`RunState::tick`] is due next, if nothing else happens.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let restart = self
            .restart_policy
            .as_ref()
            .and_then(RestartPolicy::deadline);
        self.phase_ends().into_iter().chain(restart).min()
    }

    fn phase_ends(&self) -> Option<Instant> {
        match self.phase {
            Phase::Warned { until } => Some(until),
            Phase::Ending { until } | Phase::Killed { until } => until,
            Phase::Running => None,
        }
    }

    /// Whether all workers have ended, and none is started again.
    pub(crate) fn is_over(&self) -> bool {
        let waiting = self
            .restart_policy
            .as_ref()
            .and_then(RestartPolicy::deadline);
        self.living == 0 && waiting.is_none()
    }

    /// The worker whose failure ends the run, if one has failed.
    pub(crate) fn failed_first(&self) -> Option<Rank> {
        match self.cause {
            Some(Cause::Failure { rank, .. }) => Some(rank),
            Some(Cause::Interruption(_) | Cause::Shortage(_)) | None => None,
        }
    }

    /// Whether workers have been sent SIGKILL.
    pub(crate) fn has_killed(&self) -> bool {
        matches!(self.phase, Phase::Killed { .. })
    }

    /// How it went, once it is over and its output is read.
    pub(crate) fn outcome(&self, mut output: OutputSummary) -> Outcome {
        let mut failed = |rank, end, others| {
            Outcome::Failed(Failure {
                rank,
                end,
                others,
                last_words: output.last_words_of(rank),
                hidden: output.hidden,
                memory_kills: MemoryKills::default(),
            })
        };
        match self.cause.clone() {
            None => match self.shortfall() {
                None => Outcome::Succeeded,
                Some((rank, end)) => failed(rank, end, 0),
            },
            Some(Cause::Interruption(_)) if self.failed == 0 && self.succeeded >= self.least() => {
                Outcome::Succeeded
            }
            Some(Cause::Interruption(signal)) => Outcome::Interrupted(Interruption {
                signal,
                workers: self.workers,
                killed: self.killed,
                is_saved: self.is_saved_by(signal),
            }),
            Some(Cause::Failure { rank, end, others }) => failed(rank, end, others),
            Some(Cause::Shortage(shortage)) => Outcome::TooFew(shortage),
        }
    }

    /// How many workers have to succeed at the least, where not all have to.
    fn least(&self) -> usize {
        self.restart_policy.as_ref().map_or(1, RestartPolicy::least)
    }

    /// The failure that has kept an elastic run from having as many successes as it needs.
    fn shortfall(&self) -> Option<(Rank, WorkerEnd)> {
        let restart_policy = self.restart_policy.as_ref()?;
        match self.succeeded < restart_policy.least() {
            true => restart_policy.blamed(),
            false => None,
        }
    }

    /// Whether a signal has led workers to save the job, and to nothing else; an elastic run does
    /// without a worker that it has ended. Who interrupts a run by hand is told of the signal.
    fn is_saved_by(&self, signal: Signal) -> bool {
        let dispensable = match self.restart_policy {
            Some(_) => self.terminated,
            None => 0,
        };
        let all = self.saved > 0 && self.saved + dispensable == self.failed;
        signal == Signal::TERMINATE && self.killed == 0 && all
    }

    fn kill(&mut self, now: Instant, out: &mut Vec<Step>) {
        if !self.has_killed() {
            self.killed = self.living;
            let until = now.checked_add(THERE_AND_BACK);
            self.phase = Phase::Killed { until };
            out.push(Step::Kill);
        }
    }
}

/// Of failures seen at one moment one by a signal comes first: a worker that loses a peer exits
/// with an error of its own, so it is the likelier consequence.
fn first_failure(ended: &[(Rank, WorkerEnd)]) -> Option<&(Rank, WorkerEnd)> {
    let killed = ended
        .iter()
        .find(|(_, end)| matches!(end, WorkerEnd::Killed { .. }));
    killed.or_else(|| ended.iter().find(|(_, end)| !end.is_success()))
}

#[cfg(test)]
mod tests;

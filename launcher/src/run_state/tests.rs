//! `RunState` in virtual time: grace periods, who is blamed for a cascade of failures, interrupts,
//! and elastic restarts.

use super::*;

const GRACE: Duration = Duration::from_secs(5);
const KILLED: WorkerEnd = WorkerEnd::Killed {
    signal: Signal::new(9),
};
const INTERRUPT: Signal = Signal::INTERRUPT;
const TERMINATE: Signal = Signal::TERMINATE;
const OK: WorkerEnd = exited(0);
const SAVED: WorkerEnd = WorkerEnd::SAVED;

const fn exited(status: u8) -> WorkerEnd {
    WorkerEnd::Exited { status }
}

/// A run in virtual time: seconds since its start.
struct Trial {
    start: Instant,
    run_state: RunState,
}

impl Trial {
    fn of(workers: usize) -> Self {
        Self {
            start: Instant::now(),
            run_state: RunState::new(workers, GRACE),
        }
    }

    /// One that needs `least` of its workers, and starts each again so often.
    fn elastic(workers: usize, least: usize, restarts: u32) -> Self {
        let mut trial = Self::of(workers);
        let elastic = Elastic { least, restarts };
        trial.run_state = trial.run_state.with_restart_policy(Some(elastic));
        trial
    }

    fn at(&self, seconds: f64) -> Instant {
        self.start + Duration::from_secs_f64(seconds)
    }

    fn ended(&mut self, seconds: f64, ended: &[(u32, WorkerEnd)]) -> Vec<Step> {
        let mut out = Vec::new();
        let ended: Vec<_> = ended
            .iter()
            .map(|&(rank, end)| (Rank::new(rank), end))
            .collect();
        self.run_state.ended(self.at(seconds), &ended, &mut out);
        out
    }

    fn signalled(&mut self, seconds: f64, signal: Signal) -> Vec<Step> {
        let mut out = Vec::new();
        self.run_state.signalled(self.at(seconds), signal, &mut out);
        out
    }

    fn tick(&mut self, seconds: f64) -> Vec<Step> {
        let mut out = Vec::new();
        self.run_state.tick(self.at(seconds), &mut out);
        out
    }

    fn deadline(&self) -> Option<f64> {
        let deadline = self.run_state.deadline()?;
        Some(deadline.duration_since(self.start).as_secs_f64())
    }

    #[track_caller]
    fn failure(&self) -> Failure {
        assert!(self.run_state.is_over());
        match self.run_state.outcome(OutputSummary::default()) {
            Outcome::Failed(failure) => failure,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_run_without_failure_succeeds_in_any_order() {
    let mut trial = Trial::of(3);
    for rank in [1, 0, 2] {
        assert!(!trial.run_state.is_over());
        assert_eq!(trial.ended(1.0, &[(rank, OK)]), []);
        assert_eq!(trial.deadline(), None);
    }
    assert!(trial.run_state.is_over());
    assert_eq!(
        trial.run_state.outcome(OutputSummary::default()),
        Outcome::Succeeded
    );
}

#[test]
fn after_a_failure_others_are_warned_then_asked_then_killed() {
    let mut trial = Trial::of(4);
    assert_eq!(
        trial.ended(10.0, &[(2, exited(3))]),
        [Step::Announce(Rank::new(2))]
    );
    assert_eq!(trial.deadline(), Some(11.0));
    assert_eq!(trial.tick(10.9), []);
    assert_eq!(trial.tick(11.0), [Step::Send(TERMINATE)]);
    assert_eq!(trial.deadline(), Some(16.0));
    assert_eq!(trial.tick(15.9), []);
    assert_eq!(trial.tick(16.0), [Step::Kill]);
    // On another host something may hold a connection open.
    assert_eq!(trial.deadline(), Some(21.0));
    assert_eq!(trial.tick(20.9), []);
    assert_eq!(trial.tick(21.0), [Step::Disconnect]);
    assert_eq!(trial.deadline(), None);
    trial.ended(21.1, &[(0, KILLED), (1, KILLED), (3, KILLED)]);
    let failure = trial.failure();
    assert_eq!((failure.rank().number(), failure.others()), (2, 3));
}

#[test]
fn a_cascade_is_not_blamed() {
    let mut trial = Trial::of(3);
    trial.ended(1.0, &[(1, exited(7))]);
    trial.ended(1.1, &[(0, KILLED)]);
    trial.ended(1.2, &[(2, exited(1))]);
    let failure = trial.failure();
    assert_eq!((failure.rank().number(), failure.end()), (1, exited(7)));
}

#[test]
fn of_ends_at_one_moment_a_killed_one_is_blamed_and_else_the_first_failure() {
    let ends = [OK, exited(1), KILLED];
    for all in 0..ends.len().pow(3) {
        let moment: Vec<_> = (0..3)
            .map(|rank| (rank, ends[all / ends.len().pow(rank) % ends.len()]))
            .collect();
        let mut trial = Trial::of(3);
        trial.ended(1.0, &moment);
        let first = |wanted: WorkerEnd| moment.iter().position(|&(_, end)| end == wanted);
        match first(KILLED).or_else(|| first(exited(1))) {
            Some(rank) => assert_eq!(trial.failure().rank().index(), rank, "{moment:?}"),
            None => assert_eq!(
                trial.run_state.outcome(OutputSummary::default()),
                Outcome::Succeeded
            ),
        }
    }
}

#[test]
fn workers_that_had_succeeded_before_are_no_survivors() {
    let mut trial = Trial::of(2);
    trial.ended(1.0, &[(0, OK)]);
    assert_eq!(trial.ended(2.0, &[(1, exited(1))]), []);
    assert_eq!(trial.failure().others(), 0);
}

#[test]
fn an_interrupted_run_is_killed_after_the_grace_time() {
    let mut trial = Trial::of(2);
    assert_eq!(trial.signalled(1.0, TERMINATE), [Step::Send(TERMINATE)]);
    assert_eq!(trial.deadline(), Some(6.0));
    trial.ended(2.0, &[(0, exited(1))]);
    assert_eq!(trial.deadline(), Some(6.0), "nobody is blamed");
    assert_eq!(trial.tick(6.0), [Step::Kill]);
    trial.ended(6.1, &[(1, KILLED)]);
    let outcome = trial.run_state.outcome(OutputSummary::default());
    assert_eq!(outcome.exit_code(), 143);
    let Outcome::Interrupted(interruption) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(interruption.killed(), 1);
}

#[test]
fn a_second_interrupt_kills_at_once_whichever_it_is() {
    for (first, second) in [
        (INTERRUPT, INTERRUPT),
        (INTERRUPT, TERMINATE),
        (TERMINATE, INTERRUPT),
    ] {
        let mut trial = Trial::of(2);
        trial.signalled(1.0, first);
        assert_eq!(
            trial.signalled(1.1, second),
            [Step::Send(second), Step::Kill]
        );
        assert_eq!(trial.signalled(1.2, second), [Step::Send(second)]);
        trial.ended(1.3, &[(0, KILLED), (1, KILLED)]);
        let outcome = trial.run_state.outcome(OutputSummary::default());
        assert_eq!(outcome.exit_code(), first.exit_code());
    }
}

#[test]
fn workers_that_save_the_job_after_sigterm_alone_end_it_with_their_status() {
    let ended = |signal: Signal, ends: &[(u32, WorkerEnd)]| {
        let mut trials = [Trial::of(2), Trial::elastic(2, 1, 5)];
        trials.each_mut().map(|trial| {
            trial.signalled(1.0, signal);
            trial.ended(1.1, ends);
            assert!(trial.run_state.is_over());
            let outcome = trial.run_state.outcome(OutputSummary::default());
            assert!(matches!(outcome, Outcome::Interrupted(_)), "{outcome:?}");
            outcome.exit_code()
        })
    };
    for all in [[(0, SAVED), (1, SAVED)], [(0, SAVED), (1, OK)]] {
        assert_eq!(ended(TERMINATE, &all), [75, 75]);
        assert_eq!(ended(INTERRUPT, &all), [130, 130]);
    }
    for other in [exited(1), KILLED] {
        assert_eq!(ended(TERMINATE, &[(0, SAVED), (1, other)]), [143, 143]);
    }
    // As one that was only just starting again.
    let terminated = WorkerEnd::Killed { signal: TERMINATE };
    assert_eq!(ended(TERMINATE, &[(0, SAVED), (1, terminated)]), [143, 75]);
    assert_eq!(ended(TERMINATE, &[(0, OK), (1, terminated)])[0], 143);
    let mut late = Trial::of(2);
    late.signalled(1.0, TERMINATE);
    late.ended(2.0, &[(0, SAVED)]);
    assert_eq!(late.tick(6.0), [Step::Kill]);
    // It may have been done just then.
    late.ended(6.1, &[(1, SAVED)]);
    let outcome = late.run_state.outcome(OutputSummary::default());
    assert_eq!(outcome.exit_code(), 143);
}

#[test]
fn workers_that_all_follow_an_interrupt_with_status_0_succeed() {
    let mut trial = Trial::of(2);
    trial.signalled(1.0, TERMINATE);
    trial.ended(1.1, &[(0, OK), (1, OK)]);
    assert_eq!(
        trial.run_state.outcome(OutputSummary::default()),
        Outcome::Succeeded
    );
}

#[test]
fn other_signals_are_only_handed_on() {
    let mut trial = Trial::of(1);
    let user = Signal::new(signal_hook::consts::SIGUSR1);
    for _ in 0..3 {
        assert_eq!(trial.signalled(1.0, user), [Step::Send(user)]);
    }
    assert_eq!(trial.deadline(), None);
    trial.ended(2.0, &[(0, KILLED)]);
    assert_eq!(trial.failure().rank().number(), 0);
}

#[test]
fn an_interrupt_after_a_failure_hastens_the_end_and_keeps_the_blame() {
    let mut trial = Trial::of(2);
    trial.ended(1.0, &[(1, exited(3))]);
    assert_eq!(trial.signalled(1.5, INTERRUPT), [Step::Send(INTERRUPT)]);
    assert_eq!(trial.deadline(), Some(6.5));
    trial.ended(1.6, &[(0, exited(130))]);
    assert_eq!(trial.failure().rank().number(), 1);
}

#[test]
fn a_grace_time_beyond_the_clock_never_ends() {
    let mut trial = Trial {
        start: Instant::now(),
        run_state: RunState::new(1, Duration::MAX),
    };
    trial.signalled(1.0, INTERRUPT);
    assert_eq!(trial.deadline(), None);
    assert_eq!(trial.tick(1e9), []);
}

#[test]
fn in_an_elastic_run_a_worker_that_fails_is_started_again() {
    let mut trial = Trial::elastic(3, 2, 5);
    let steps = trial.ended(1.0, &[(1, KILLED)]);
    assert!(matches!(steps[..], [Step::Tell(event)] if event.rank == Rank::new(1)));
    assert_eq!(trial.deadline(), Some(1.1));
    assert_eq!(trial.tick(1.1), [Step::Restart(Rank::new(1), 1)]);
    trial.ended(9.0, &[(0, OK), (1, OK), (2, OK)]);
    assert!(trial.run_state.is_over());
    assert_eq!(
        trial.run_state.outcome(OutputSummary::default()),
        Outcome::Succeeded
    );
}

#[test]
fn once_one_has_succeeded_each_failure_is_told_and_as_many_have_to_succeed_as_the_run_needs() {
    let told = |steps: &[Step], rank: u32| {
        let done = RestartDecision::JobDone;
        matches!(steps, [Step::Tell(event)]
            if (event.rank, event.decision) == (Rank::new(rank), done))
    };
    let mut trial = Trial::elastic(3, 2, 5);
    assert_eq!(trial.ended(1.0, &[(1, OK)]), []);
    assert!(told(&trial.ended(2.0, &[(0, exited(1))]), 0));
    assert!(told(&trial.ended(3.0, &[(2, KILLED)]), 2));
    let failure = trial.failure();
    assert_eq!((failure.rank().number(), failure.end()), (0, exited(1)));
    assert_eq!(failure.others(), 0, "nobody was ended");

    // One that came too late, and failed for that.
    let mut trial = Trial::elastic(3, 2, 5);
    trial.ended(1.0, &[(2, KILLED)]);
    assert_eq!(trial.tick(1.1), [Step::Restart(Rank::new(2), 1)]);
    trial.ended(2.0, &[(0, OK), (1, OK)]);
    assert!(told(&trial.ended(2.1, &[(2, exited(1))]), 2));
    assert!(trial.run_state.is_over());
    assert_eq!(
        trial.run_state.outcome(OutputSummary::default()),
        Outcome::Succeeded
    );

    // One that was to be started again when the other ended.
    let mut trial = Trial::elastic(2, 2, 5);
    trial.ended(1.0, &[(1, KILLED)]);
    trial.ended(1.05, &[(0, OK)]);
    assert_eq!(trial.failure().rank().number(), 1);
}

#[test]
fn an_elastic_run_that_is_interrupted_needs_as_many_successes_as_ever() {
    for (least, code) in [(1, 0), (2, 143)] {
        let mut trial = Trial::elastic(2, least, 5);
        trial.ended(1.0, &[(1, KILLED)]);
        trial.signalled(1.05, TERMINATE);
        trial.ended(1.1, &[(0, OK)]);
        assert!(trial.run_state.is_over());
        let outcome = trial.run_state.outcome(OutputSummary::default());
        assert_eq!(outcome.exit_code(), code);
    }
}

#[test]
fn an_elastic_run_of_which_nobody_lives_waits_for_who_is_started_again() {
    let mut trial = Trial::elastic(1, 1, 1);
    trial.ended(1.0, &[(0, exited(2))]);
    assert!(!trial.run_state.is_over());
    assert_eq!(trial.tick(2.0), [Step::Restart(Rank::CHIEF, 1)]);
    trial.ended(3.0, &[(0, exited(2))]);
    assert!(trial.run_state.is_over());
    let outcome = trial.run_state.outcome(OutputSummary::default());
    assert_eq!(outcome.exit_code(), 2);
    assert!(matches!(outcome, Outcome::TooFew(shortage) if shortage.left() == 0));
}

#[test]
fn an_elastic_run_with_too_few_left_is_ended_and_names_them() {
    let mut trial = Trial::elastic(3, 3, 0);
    let steps = trial.ended(1.0, &[(2, exited(9))]);
    assert!(matches!(steps[..], [Step::Tell(_), Step::Send(TERMINATE)]));
    assert_eq!(trial.deadline(), Some(6.0));
    assert_eq!(trial.tick(6.0), [Step::Kill]);
    trial.ended(6.1, &[(0, KILLED), (1, KILLED)]);
    let Outcome::TooFew(shortage) = trial.run_state.outcome(OutputSummary::default()) else {
        panic!("enough are left");
    };
    let lost: Vec<_> = shortage.lost().iter().map(|loss| loss.rank()).collect();
    assert_eq!((shortage.left(), lost), (2, vec![Rank::new(2)]));
}

#[test]
fn an_interrupted_elastic_run_starts_nobody_any_more() {
    let mut trial = Trial::elastic(2, 1, 5);
    trial.ended(1.0, &[(1, KILLED)]);
    assert_eq!(trial.signalled(1.05, INTERRUPT), [Step::Send(INTERRUPT)]);
    assert_eq!(trial.tick(1.2), []);
    trial.ended(1.3, &[(0, exited(130))]);
    assert!(trial.run_state.is_over());
    assert_eq!(
        trial
            .run_state
            .outcome(OutputSummary::default())
            .exit_code(),
        130
    );
}

#[test]
fn an_elastic_run_that_is_interrupted_while_nobody_lives_has_not_succeeded() {
    let mut trial = Trial::elastic(2, 1, 5);
    trial.ended(1.0, &[(0, exited(1)), (1, exited(1))]);
    trial.signalled(1.05, TERMINATE);
    assert!(trial.run_state.is_over());
    let outcome = trial.run_state.outcome(OutputSummary::default());
    assert!(matches!(outcome, Outcome::Interrupted(_)), "{outcome:?}");
}

#[test]
fn an_elastic_run_whose_worker_has_saved_the_job_ends_with_its_status() {
    let mut trial = Trial::elastic(2, 1, 5);
    trial.ended(1.0, &[(0, exited(75))]);
    trial.ended(1.1, &[(1, exited(75))]);
    assert!(trial.run_state.is_over());
    assert_eq!(trial.failure().end(), exited(75));
}

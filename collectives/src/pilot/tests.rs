use std::sync::mpsc;
use std::time::Instant;

use tokio::sync::oneshot;

use super::*;

/// Far more than anything here takes, so that a test that hangs fails instead.
const DEADLINE: Duration = Duration::from_secs(20);

/// A task that answers every question, on whichever thread drives.
fn echo(pilot: &Pilot) -> tokio::sync::mpsc::UnboundedSender<oneshot::Sender<()>> {
    let (ask, mut questions) = tokio::sync::mpsc::unbounded_channel::<oneshot::Sender<()>>();
    pilot.block_on(async {
        tokio::spawn(async move {
            while let Some(question) = questions.recv().await {
                let _ = question.send(());
            }
        });
    });
    ask
}

#[test]
fn tasks_go_on_while_nobody_calls() {
    let pilot = Pilot::relieved().unwrap();
    let ask = echo(&pilot);
    for _ in 0..3 {
        let (sender, answer) = oneshot::channel();
        ask.send(sender).unwrap();
        // Waits on a thread that drives nothing.
        let (done, arrived) = mpsc::channel();
        thread::spawn(move || done.send(answer.blocking_recv()));
        assert_eq!(arrived.recv_timeout(DEADLINE).unwrap(), Ok(()));
    }
}

#[test]
fn calls_from_several_threads_at_once_are_all_answered() {
    for spins in [false, true] {
        let pilot = Pilot::relieved().unwrap();
        if spins {
            pilot.allow_spinning();
        }
        let ask = echo(&pilot);
        let began = Instant::now();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let (sender, answer) = oneshot::channel();
                        ask.send(sender).unwrap();
                        pilot.carry_out(answer).unwrap();
                    }
                });
            }
        });
        assert!(began.elapsed() < DEADLINE);
    }
}

#[test]
fn a_call_after_a_pause_takes_over_from_the_relief() {
    let pilot = Pilot::relieved().unwrap();
    let ask = echo(&pilot);
    let (shift, _) = pilot.relief.as_ref().unwrap();
    for _ in 0..10 {
        while !shift.relieved.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        let (sender, answer) = oneshot::channel();
        ask.send(sender).unwrap();
        pilot.block_on(answer).unwrap();
    }
}

#[test]
fn calls_in_a_row_are_looked_at_ever_less_often_and_a_pause_as_soon_as_before() {
    let busy = |glance: &Duration| Some(next_glance(*glance, 1));
    let row: Vec<_> = std::iter::successors(Some(PAUSE), busy).take(6).collect();
    assert!(
        row.windows(2)
            .all(|pair| pair[1] == GLANCE.min(pair[0] * 2))
    );
    assert_eq!(row.last(), Some(&GLANCE));
    for glance in row {
        assert_eq!(next_glance(glance, 0), PAUSE);
    }
}

#[test]
fn what_still_runs_ends_with_the_pilot() {
    for pilot in [Pilot::alone(), Pilot::relieved()] {
        let pilot = pilot.unwrap();
        let (alive, over) = mpsc::channel::<()>();
        pilot.block_on(async {
            tokio::spawn(async move {
                std::future::pending::<()>().await;
                drop(alive);
            });
        });
        drop(pilot);
        assert_eq!(
            over.recv_timeout(DEADLINE),
            Err(mpsc::RecvTimeoutError::Disconnected)
        );
    }
}

#[test]
fn a_pilot_may_be_dropped_where_tasks_run() {
    let pilot = Pilot::relieved().unwrap();
    let outer = Builder::new_current_thread().build().unwrap();
    outer.block_on(async move { drop(pilot) });
}

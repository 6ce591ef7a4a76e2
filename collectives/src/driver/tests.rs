//! Who drives when: callers, the background thread, and what is left when all have gone.

use std::sync::mpsc;
use std::time::Instant;

use tokio::sync::oneshot;

use super::*;

/// Far more than anything here takes, so that a test that hangs fails instead.
const DEADLINE: Duration = Duration::from_secs(20);

/// A task that answers every question, on whichever thread drives.
fn echo(driver: &Driver) -> tokio::sync::mpsc::UnboundedSender<oneshot::Sender<()>> {
    let (ask, mut questions) = tokio::sync::mpsc::unbounded_channel::<oneshot::Sender<()>>();
    driver.block_on(async {
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
    let driver = Driver::with_background_thread().unwrap();
    let ask = echo(&driver);
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
        let driver = Driver::with_background_thread().unwrap();
        if spins {
            driver.allow_spinning();
        }
        let ask = echo(&driver);
        let began = Instant::now();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let (sender, answer) = oneshot::channel();
                        ask.send(sender).unwrap();
                        driver.carry_out(answer).unwrap();
                    }
                });
            }
        });
        assert!(began.elapsed() < DEADLINE);
    }
}

#[test]
fn a_call_after_a_pause_takes_over_from_the_background_thread() {
    let driver = Driver::with_background_thread().unwrap();
    let ask = echo(&driver);
    let (shift, _) = driver.background_thread.as_ref().unwrap();
    for _ in 0..10 {
        while !shift.with_background_thread.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        let (sender, answer) = oneshot::channel();
        ask.send(sender).unwrap();
        driver.block_on(answer).unwrap();
    }
}

#[test]
fn a_long_call_is_slept_through_and_its_end_noticed() {
    let driver = Driver::with_background_thread().unwrap();
    let (state, _) = driver.background_thread.as_ref().unwrap();
    assert_eq!(state.longest_interval(), SHARED_POLL_INTERVAL);
    for _ in 0..3 {
        driver.block_on(async {
            while !state.sleeps.load(Ordering::SeqCst) {
                tokio::task::yield_now().await;
            }
        });
        while !state.with_background_thread.load(Ordering::SeqCst) {
            thread::yield_now();
        }
    }
    driver.allow_spinning();
    assert_eq!(state.longest_interval(), POLL_INTERVAL);
}

#[test]
fn a_driver_that_is_dropped_during_a_sleep_ends() {
    let driver = Arc::new(Driver::with_background_thread().unwrap());
    let (state, _) = driver.background_thread.as_ref().unwrap();
    let state = state.clone();
    let call = state.begin();
    while !state.sleeps.load(Ordering::SeqCst) {
        thread::yield_now();
    }
    drop(driver);
    drop(call);
    assert!(!state.sleeps.load(Ordering::SeqCst));
}

#[test]
fn what_still_runs_ends_with_the_driver() {
    for driver in [Driver::alone(), Driver::with_background_thread()] {
        let driver = driver.unwrap();
        let (alive, over) = mpsc::channel::<()>();
        driver.block_on(async {
            tokio::spawn(async move {
                std::future::pending::<()>().await;
                drop(alive);
            });
        });
        drop(driver);
        assert_eq!(
            over.recv_timeout(DEADLINE),
            Err(mpsc::RecvTimeoutError::Disconnected)
        );
    }
}

#[test]
fn a_driver_may_be_dropped_where_tasks_run() {
    let driver = Driver::with_background_thread().unwrap();
    let outer = Builder::new_current_thread().build().unwrap();
    outer.block_on(async move { drop(driver) });
}

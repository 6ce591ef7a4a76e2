//! Waiting without sleep.

use std::future::{Future, pending};
use std::time::{Duration, Instant};

use tokio::task::yield_now;

/// How long an operation waits busily before it sleeps like any other: long beside a round trip in
/// one site, short beside anything that people wait for.
const BUSY: Duration = Duration::from_millis(2);

/// Polls the network all the time until `operation` is done, or has taken long.
///
/// A core that sleeps takes tens of microseconds to wake, several times what a packet takes.
pub(super) async fn busily<F: Future>(operation: F) -> F::Output {
    let busy = async {
        let until = Instant::now() + BUSY;
        while Instant::now() < until {
            yield_now().await;
        }
        pending::<F::Output>().await
    };
    tokio::select! {
        biased;
        done = operation => done,
        done = busy => done,
    }
}

/// Lets the task of each connection that has something to send do so: tasks have their turns in the
/// order in which they are woken, and this one is the last.
pub(super) async fn send_off() {
    // It cannot fail: it does nothing.
    let _ = tokio::spawn(async {}).await;
}

//! Tasks, as [`tokio::spawn`] has them.
//!
//! What keeps and wakes a task is compiled for each type of future anew. Behind a pointer all of
//! one result have one type, at the cost of a call for each of their turns.

use std::pin::Pin;

use tokio::task::{JoinHandle, JoinSet};

/// Does some work beside what else goes on.
pub(crate) fn spawn<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    tokio::spawn(boxed(work))
}

/// The same, and stops it when `set` is dropped.
pub(crate) fn spawn_in<T: Send + 'static>(
    set: &mut JoinSet<T>,
    work: impl Future<Output = T> + Send + 'static,
) {
    set.spawn(boxed(work));
}

fn boxed<T>(
    work: impl Future<Output = T> + Send + 'static,
) -> Pin<Box<dyn Future<Output = T> + Send>> {
    Box::pin(work)
}

//! `Prefetch`: a bounded read-ahead thread for any iterator. It does not split anything among
//! workers.

use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use crate::Error;

/// Items that another thread reads ahead, a few at most.
///
/// The thread ends with the items, or when this is dropped, after the item that it is reading:
/// nobody waits for that.
///
/// ```
/// use meshwork_strategy::Prefetch;
///
/// let lines = Prefetch::new((0..5).map(|number| format!("line {number}")), 2)?;
/// assert_eq!(lines.last().as_deref(), Some("line 4"));
/// # Ok::<(), meshwork_strategy::Error>(())
/// ```
#[derive(Debug)]
pub struct Prefetch<T> {
    items: mpsc::Receiver<T>,
    /// Until its panic has been handed on.
    thread: Option<JoinHandle<()>>,
}

impl<T: Send + 'static> Prefetch<T> {
    /// Reads up to `ahead` items of `items` before they are asked for; at least one, and not more
    /// than 65,536: there is room for all of them from the beginning.
    ///
    /// # Errors
    /// [`Error::NoThread`] when no thread can be started.
    pub fn new(
        items: impl IntoIterator<IntoIter: Send + 'static, Item = T>,
        ahead: usize,
    ) -> Result<Self, Error> {
        let mut items = items.into_iter();
        // One more is held by the thread until there is room for it.
        let (sender, receiver) = mpsc::sync_channel(ahead.clamp(1, MOST) - 1);
        let thread = thread::Builder::new()
            .name("meshwork-input".to_owned())
            .spawn(move || while items.next().is_some_and(|item| sender.send(item).is_ok()) {})
            .map_err(|error| Error::NoThread { kind: error.kind() })?;
        Ok(Self {
            items: receiver,
            thread: Some(thread),
        })
    }
}

/// Items that there is room for at most.
const MOST: usize = 1 << 16;

impl<T> Iterator for Prefetch<T> {
    type Item = T;

    /// # Panics
    /// When reading the item panicked.
    fn next(&mut self) -> Option<T> {
        let item = self.items.recv().ok();
        if item.is_none()
            && let Some(thread) = self.thread.take()
            && let Err(panic) = thread.join()
        {
            std::panic::resume_unwind(panic);
        }
        item
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    #[test]
    fn items_come_in_order_and_no_more_are_read_than_asked_for() {
        let read = Arc::new(AtomicUsize::new(0));
        let counter = read.clone();
        let (reads, ended) = mpsc::channel::<()>();
        let numbers = (0..100).inspect(move |_| {
            let _held_by_the_reader = &reads;
            counter.fetch_add(1, Ordering::SeqCst);
        });
        let mut ahead = Prefetch::new(numbers, 3).unwrap();
        assert_eq!(ahead.next(), Some(0));
        drop(ahead);
        let has_ended = ended.recv_timeout(PATIENCE);
        assert_eq!(has_ended, Err(mpsc::RecvTimeoutError::Disconnected));
        // One was taken, three may wait, and one is held by the thread that finds nobody there.
        assert!((1..=5).contains(&read.load(Ordering::SeqCst)));
        let all: Vec<i32> = Prefetch::new(0..100, 0).unwrap().collect();
        assert_eq!(all, (0..100).collect::<Vec<_>>());
        let all: Vec<i32> = Prefetch::new(0..3, usize::MAX).unwrap().collect();
        assert_eq!(all, [0, 1, 2]);
    }

    #[test]
    fn it_is_dropped_while_an_item_is_read_that_never_comes() {
        let (never, items) = mpsc::channel::<()>();
        let ahead = Prefetch::new(items, 1).unwrap();
        let (dropped, heard) = mpsc::channel();
        thread::spawn(move || {
            drop(ahead);
            dropped.send(())
        });
        assert_eq!(heard.recv_timeout(PATIENCE), Ok(()));
        drop(never);
    }

    #[test]
    #[should_panic(expected = "unreadable")]
    fn a_panic_of_the_reader_is_the_panic_of_who_asks() {
        let broken = (0..3).map(|number| {
            if number == 1 {
                panic!("unreadable")
            } else {
                number
            }
        });
        Prefetch::new(broken, 1).unwrap().for_each(drop);
    }
}

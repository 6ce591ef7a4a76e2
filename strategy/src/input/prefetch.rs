//! `Prefetch`: a bounded read-ahead thread for any iterator. It does not split anything among
//! workers.

use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use crate::Error;

/// Items that another thread reads ahead, a few at most.
///
/// The thread ends with the items, or when this is dropped, after the item that it is reading.
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
    items: Option<mpsc::Receiver<T>>,
    thread: Option<JoinHandle<()>>,
}

impl<T: Send + 'static> Prefetch<T> {
    /// Reads up to `ahead` items of `items` before they are asked for; at least one.
    ///
    /// # Errors
    /// [`Error::NoThread`] when no thread can be started.
    pub fn new(
        items: impl IntoIterator<IntoIter: Send + 'static, Item = T>,
        ahead: usize,
    ) -> Result<Self, Error> {
        let mut items = items.into_iter();
        // One more is held by the thread until there is room for it.
        let (sender, receiver) = mpsc::sync_channel(ahead.saturating_sub(1));
        let thread = thread::Builder::new()
            .name("meshwork-input".to_owned())
            .spawn(move || while items.next().is_some_and(|item| sender.send(item).is_ok()) {})
            .map_err(|error| Error::NoThread { kind: error.kind() })?;
        Ok(Self {
            items: Some(receiver),
            thread: Some(thread),
        })
    }
}

impl<T> Iterator for Prefetch<T> {
    type Item = T;

    /// # Panics
    /// When reading the item panicked.
    fn next(&mut self) -> Option<T> {
        let item = self.items.as_ref().and_then(|items| items.recv().ok());
        if item.is_none()
            && let Some(thread) = self.thread.take()
            && let Err(panic) = thread.join()
        {
            std::panic::resume_unwind(panic);
        }
        item
    }
}

impl<T> Drop for Prefetch<T> {
    fn drop(&mut self) {
        // A thread that waits for room learns that nobody takes its item any more.
        self.items = None;
        if let Some(thread) = self.thread.take() {
            // A panic there ends what nobody asks for any more.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn items_come_in_order_and_no_more_are_read_than_asked_for() {
        let read = Arc::new(AtomicUsize::new(0));
        let counter = read.clone();
        let numbers = (0..100).inspect(move |_| {
            counter.fetch_add(1, Ordering::SeqCst);
        });
        let mut ahead = Prefetch::new(numbers, 3).unwrap();
        assert_eq!(ahead.next(), Some(0));
        drop(ahead);
        // One was taken, three may wait, and one is held by the thread that finds nobody there.
        assert!((1..=5).contains(&read.load(Ordering::SeqCst)));
        let all: Vec<i32> = Prefetch::new(0..100, 0).unwrap().collect();
        assert_eq!(all, (0..100).collect::<Vec<_>>());
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

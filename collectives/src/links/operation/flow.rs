//! How far the two halves of an operation are, so that each goes on as soon as the other allows.
//!
//! A rank sends and receives at the same time, each in the order of its rounds. What is sent may
//! have to be received first, and what is received may have to wait until what it replaces is out;
//! nothing else waits. Places in the order of all that is sent, or received, are counted in bytes,
//! and one more for each transfer.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::ops::Range;
use std::task::{Poll, Waker};

use crate::schedule::Blocks;

/// How much one half has done.
#[derive(Debug, Default)]
pub(super) struct Progress {
    place: Cell<u64>,
    /// The other half, when it waits.
    waiting: RefCell<Option<Waker>>,
}

impl Progress {
    pub(super) fn advance(&self, by: usize) {
        self.place.set(self.place.get() + by as u64);
        if let Some(waiting) = self.waiting.take() {
            waiting.wake();
        }
    }

    /// Waits until so much is done.
    pub(super) async fn reach(&self, place: u64) {
        poll_fn(|context| {
            if self.place.get() >= place {
                return Poll::Ready(());
            }
            *self.waiting.borrow_mut() = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// Where in the order each block was last sent, or received.
#[derive(Debug)]
pub(super) struct Places {
    /// The place of a block's first element.
    first: Vec<Option<u64>>,
    next: u64,
}

impl Places {
    pub(super) fn new(blocks: &Blocks) -> Self {
        Self {
            first: vec![None; blocks.count()],
            next: 0,
        }
    }

    /// Counts one more transfer.
    pub(super) fn count(&mut self, blocks: &Blocks, transfer: Range<usize>) {
        self.next += 1;
        for block in transfer {
            self.first[block] = Some(self.next);
            self.next += blocks.elements(block..block + 1).len() as u64;
        }
    }

    /// How far the half must be for all that was counted.
    pub(super) fn all(&self) -> u64 {
        self.next
    }

    /// How far the half must be for these elements of these blocks, as they were counted last.
    pub(super) fn of(
        &self,
        blocks: &Blocks,
        transfer: Range<usize>,
        elements: &Range<usize>,
    ) -> u64 {
        let ends = transfer.filter_map(|block| {
            let own = blocks.elements(block..block + 1);
            let end = own.end.min(elements.end);
            let touched = elements.start.max(own.start) < end;
            let first = self.first[block].filter(|_| touched)?;
            Some(first + (end - own.start) as u64)
        });
        ends.max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_where_the_last_element_was_counted_last() {
        let blocks = Blocks::uneven([3, 0, 2]).unwrap();
        let mut places = Places::new(&blocks);
        assert_eq!(places.of(&blocks, 0..3, &(0..5)), 0);
        // One for the transfer, then elements 0 to 2.
        places.count(&blocks, 0..1);
        assert_eq!(places.of(&blocks, 0..1, &(0..1)), 2);
        assert_eq!(places.of(&blocks, 0..3, &(1..5)), 4);
        assert_eq!(places.of(&blocks, 0..3, &(3..5)), 0);
        // All again: the places of before count no more.
        places.count(&blocks, 0..3);
        assert_eq!(places.of(&blocks, 0..3, &(0..1)), 6);
        assert_eq!(places.of(&blocks, 0..3, &(0..5)), 10);
        assert_eq!(places.all(), 10);
    }

    #[test]
    fn who_waits_is_woken_by_what_it_waits_for() {
        let progress = Progress::default();
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let order = RefCell::new(Vec::new());
        runtime.unwrap().block_on(async {
            let waits = async {
                progress.reach(3).await;
                order.borrow_mut().push("reached");
            };
            let does = async {
                for _ in 0..3 {
                    order.borrow_mut().push("one");
                    progress.advance(1);
                    tokio::task::yield_now().await;
                }
                order.borrow_mut().push("end");
            };
            tokio::join!(waits, does);
        });
        let order = order.into_inner();
        let reached = order.iter().position(|what| *what == "reached");
        assert!(reached.is_some_and(|place| place >= 3), "{order:?}");
    }
}

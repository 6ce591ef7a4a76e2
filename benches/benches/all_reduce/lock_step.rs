//! Threads that carry out the same orders at the same time, one thread for each rank.

use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// When one thread began and ended what was ordered.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    pub(crate) start: Instant,
    pub(crate) end: Instant,
}

/// The threads; they end when this is dropped.
pub(crate) struct LockStep<O> {
    orders: Vec<Sender<O>>,
    spans: Receiver<Span>,
    threads: Vec<JoinHandle<()>>,
}

impl<O: Copy + Send + 'static> LockStep<O> {
    /// A thread for each of `ranks` that runs `serve`, which answers each order with one span.
    pub(crate) fn start<R: Send + 'static>(
        ranks: Vec<R>,
        serve: fn(R, Receiver<O>, Sender<Span>),
    ) -> Self {
        let (report, spans) = mpsc::channel();
        let thread = |rank: R| {
            let (order, orders) = mpsc::channel();
            let report = report.clone();
            (order, thread::spawn(move || serve(rank, orders, report)))
        };
        let (orders, threads) = ranks.into_iter().map(thread).unzip();
        Self {
            orders,
            spans,
            threads,
        }
    }

    /// Has all threads carry out `order`, and returns the time from the first start to the last
    /// end.
    pub(crate) fn run(&self, order: O) -> Duration {
        for thread in &self.orders {
            thread.send(order).expect("ranks serve until dropped");
        }
        let spans: Vec<Span> = self
            .orders
            .iter()
            .map(|_| self.spans.recv().expect("ranks serve until dropped"))
            .collect();
        let start = spans.iter().map(|span| span.start).min();
        let end = spans.iter().map(|span| span.end).max();
        start
            .zip(end)
            .map_or(Duration::ZERO, |(start, end)| end - start)
    }
}

impl<O> Drop for LockStep<O> {
    fn drop(&mut self) {
        self.orders.clear();
        for thread in self.threads.drain(..) {
            // A rank that panicked has said so, and a second panic would hide it.
            let _ = thread.join();
        }
    }
}

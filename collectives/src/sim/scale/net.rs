//! Links that take a tenth of a millisecond and lose nothing, and what went over them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use super::Cost;
use crate::wire::Message;

/// How long a message takes, and a half of a handshake.
pub(super) const LATENCY: Duration = Duration::from_micros(100);

/// An event to come, in the order of time, then of posting.
#[derive(Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Posted {
    at: Instant,
    number: u64,
    to: usize,
    /// Where the event itself is.
    place: usize,
}

/// What is on its way, and what was.
pub(super) struct Net<E> {
    pub(super) now: Instant,
    began: Instant,
    pub(super) queue: BinaryHeap<Reverse<Posted>>,
    events: Vec<Option<E>>,
    free: Vec<usize>,
    posted: u64,
    /// Of each rank.
    pub(super) messages: Vec<u64>,
    bytes: u64,
    /// When the last rank was told.
    pub(super) told: Instant,
}

impl<E> Net<E> {
    pub(super) fn new(ranks: u32) -> Self {
        let began = Instant::now();
        Self {
            now: began,
            began,
            queue: BinaryHeap::new(),
            events: Vec::new(),
            free: Vec::new(),
            posted: 0,
            messages: vec![0; ranks as usize],
            bytes: 0,
            told: began,
        }
    }

    /// Something happens to a rank after a while; things at one time in the order of posting.
    pub(super) fn post(&mut self, delay: Duration, to: usize, event: E) {
        let place = match self.free.pop() {
            Some(place) => place,
            None => {
                self.events.push(None);
                self.events.len() - 1
            }
        };
        self.events[place] = Some(event);
        self.posted += 1;
        self.queue.push(Reverse(Posted {
            at: self.now + delay,
            number: self.posted,
            to,
            place,
        }));
    }

    pub(super) fn send(&mut self, from: usize, to: usize, message: &Message, event: E) {
        self.count(from, message);
        self.post(LATENCY, to, event);
    }

    /// A message goes out, whether or not it arrives.
    pub(super) fn count(&mut self, from: usize, message: &Message) {
        self.messages[from] += 1;
        self.bytes += message.encode().len() as u64;
    }

    pub(super) fn next(&mut self) -> Option<(usize, E)> {
        let Reverse(Posted { at, to, place, .. }) = self.queue.pop()?;
        self.now = at;
        self.free.push(place);
        let event = self.events[place].take().expect("each is posted once");
        Some((to, event))
    }

    pub(super) fn cost(&self) -> Cost {
        Cost {
            took: self.told - self.began,
            messages: self.messages.iter().sum(),
            most_messages: self.messages.iter().copied().max().unwrap_or_default(),
            bytes: self.bytes,
        }
    }
}

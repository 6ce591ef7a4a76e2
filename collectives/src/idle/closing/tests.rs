//! Every history of two ends with a few operations, proposals and lost messages.

use std::collections::{BTreeSet, HashMap, VecDeque};

use super::*;

/// The places of the two ends.
const HIGHER: usize = 0;
const LOWER: usize = 1;
/// Messages that may be on their way to one end.
const ROOM: usize = 2;

/// A connection, all that is under way on it, and what is yet to happen at its ends.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct World {
    ends: [Closing; 2],
    counts: [ByteCounts; 2],
    /// On their way to each end, in order.
    messages: [VecDeque<ClosingMessage>; 2],
    /// Sent to each end and not read.
    bytes: [u64; 2],
    operations: [Operation; 2],
    operations_left: [u8; 2],
    proposals_left: [u8; 2],
    /// Messages that may still be dropped, as where too many wait.
    drops_left: u8,
}

/// What the program at one end does.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Operation {
    None,
    /// It waits for an answer.
    Waits,
    /// It holds the connection.
    Runs,
}

fn other(end: usize) -> usize {
    1 - end
}

impl World {
    fn new(now: Instant) -> Self {
        Self {
            ends: [End::Asks, End::Decides].map(|end| Closing::new(end, now)),
            counts: Default::default(),
            messages: Default::default(),
            bytes: [0; 2],
            operations: [Operation::None; 2],
            operations_left: [2; 2],
            proposals_left: [1; 2],
            drops_left: 1,
        }
    }

    /// All that can happen next.
    fn moves(&self, now: Instant) -> Vec<Self> {
        let mut next = Vec::new();
        for end in [HIGHER, LOWER] {
            self.operate(end, now, &mut next);
            self.close(end, now, &mut next);
        }
        next
    }

    fn operate(&self, end: usize, now: Instant, next: &mut Vec<Self>) {
        match self.operations[end] {
            Operation::None if self.operations_left[end] > 0 => {
                let mut begun = self.clone();
                begun.operations_left[end] -= 1;
                next.push(begun.begin(end));
            }
            Operation::None => {}
            Operation::Waits => next.push(self.clone().begin(end)),
            Operation::Runs => {
                if self.bytes[other(end)] < 2 {
                    let mut sent = self.clone();
                    sent.bytes[other(end)] += 1;
                    sent.counts[end].sent += 1;
                    next.push(sent.finish(end, now));
                }
                if self.bytes[end] > 0 {
                    let mut read = self.clone();
                    read.bytes[end] -= 1;
                    read.counts[end].received += 1;
                    next.push(read.clone());
                    next.push(read.finish(end, now));
                }
            }
        }
    }

    fn begin(mut self, end: usize) -> Self {
        self.operations[end] = match self.ends[end].begin() {
            Begin::Begun => Operation::Runs,
            Begin::Wait => Operation::Waits,
            // It dials.
            Begin::Closed => Operation::None,
        };
        self
    }

    fn finish(mut self, end: usize, now: Instant) -> Self {
        self.ends[end].end(now);
        self.operations[end] = Operation::None;
        self
    }

    fn close(&self, end: usize, now: Instant, next: &mut Vec<Self>) {
        let asked = self.ends[end].phase == Phase::Asked;
        let has_room = self.messages[other(end)].len() < ROOM;
        if has_room && (asked || self.proposals_left[end] > 0) {
            let mut proposed = self.clone();
            let left = &mut proposed.proposals_left[end];
            *left -= u8::from(!asked);
            if let Some(message) = proposed.ends[end].propose(now, self.counts[end]) {
                proposed.say(end, message, next);
            }
        }
        let mut heard = self.clone();
        if let Some(message) = heard.messages[end].pop_front() {
            match heard.ends[end].hear(now, message, self.counts[end]) {
                Reaction::Nothing | Reaction::Close(None) => next.push(heard),
                Reaction::Say(message) | Reaction::Close(Some(message)) if has_room => {
                    heard.say(end, message, next);
                }
                Reaction::Say(_) | Reaction::Close(Some(_)) => {}
            }
        }
        let mut closed = self.clone();
        if self.ends[end].phase == Phase::Agreed {
            closed.ends[end].close();
            next.push(closed);
        } else if self.ends[other(end)].is_closed() && self.messages[end].is_empty() {
            assert_ne!(closed.ends[end].breaks(), Break::Lost, "{self:?}");
            next.push(closed);
        }
    }

    fn say(self, end: usize, message: ClosingMessage, next: &mut Vec<Self>) {
        if self.drops_left > 0 {
            let mut dropped = self.clone();
            dropped.drops_left -= 1;
            next.push(dropped);
        }
        let mut said = self;
        said.messages[other(end)].push_back(message);
        next.push(said);
    }

    /// What holds at any time.
    fn check(&self) {
        let agreed = |closing: &Closing| matches!(closing.phase, Phase::Agreed | Phase::Closed);
        if self.ends.iter().any(agreed) {
            assert_eq!(self.bytes, [0; 2], "bytes are lost: {self:?}");
            let runs = self.operations.contains(&Operation::Runs);
            assert!(!runs, "an operation loses its connection: {self:?}");
        }
    }

    fn waits(&self) -> bool {
        self.operations.contains(&Operation::Waits)
    }
}

#[test]
fn no_history_loses_a_byte_or_an_operation_or_waits_for_ever() {
    let now = Instant::now();
    let mut known = HashMap::from([(World::new(now), 0)]);
    let mut worlds = vec![World::new(now)];
    let mut edges = Vec::new();
    let mut at = 0;
    while at < worlds.len() {
        let world = worlds[at].clone();
        world.check();
        for next in world.moves(now) {
            let place = *known.entry(next.clone()).or_insert_with(|| {
                worlds.push(next);
                worlds.len() - 1
            });
            edges.push((at, place));
        }
        at += 1;
    }
    let both_closed = |world: &&World| world.ends.iter().all(Closing::is_closed);
    assert!(worlds.iter().filter(both_closed).count() > 0);
    assert_eq!(
        worlds.len(),
        ended_waits(&worlds, &edges),
        "of all histories"
    );
}

/// From how many worlds there is a way to one in which nobody waits.
fn ended_waits(worlds: &[World], edges: &[(usize, usize)]) -> usize {
    let mut before = vec![Vec::new(); worlds.len()];
    for edge in edges {
        before[edge.1].push(edge.0);
    }
    let free = (0..worlds.len()).filter(|place| !worlds[*place].waits());
    let mut found: BTreeSet<usize> = free.collect();
    let mut open: Vec<usize> = found.iter().copied().collect();
    while let Some(place) = open.pop() {
        for earlier in &before[place] {
            if found.insert(*earlier) {
                open.push(*earlier);
            }
        }
    }
    found.len()
}

fn request(number: u64) -> ClosingMessage {
    ClosingMessage::Request(CloseRequest {
        number,
        sent: 0,
        received: 0,
    })
}

/// Whoever made it may have sent bytes since.
#[test]
fn a_request_that_was_refused_is_refused_again() {
    let now = Instant::now();
    let none = ByteCounts::default();
    let mut lower = Closing::new(End::Decides, now);
    assert_eq!(lower.begin(), Begin::Begun);
    let keep = Reaction::Say(ClosingMessage::Keep(1));
    assert_eq!(lower.hear(now, request(1), none), keep);
    lower.end(now);
    assert_eq!(lower.hear(now, request(1), none), keep);
    let close = Reaction::Close(Some(ClosingMessage::Close(2)));
    assert_eq!(lower.hear(now, request(2), none), close);
    assert_eq!(lower.begin(), Begin::Wait);
    lower.close();
    assert_eq!(lower.begin(), Begin::Closed);
}

#[test]
fn a_loss_is_one_unless_closing_was_asked_for() {
    let now = Instant::now();
    let mut higher = Closing::new(End::Asks, now);
    assert_eq!(higher.breaks(), Break::Lost);
    assert_eq!(higher.propose(now, ByteCounts::default()), Some(request(1)));
    assert_eq!(higher.breaks(), Break::Agreed);
    assert_eq!(higher.breaks(), Break::Known);
    let mut lower = Closing::new(End::Decides, now);
    let unneeded = Some(ClosingMessage::Unneeded);
    assert_eq!(lower.propose(now, ByteCounts::default()), unneeded);
    assert_eq!(lower.breaks(), Break::Lost);
}

#[test]
fn one_that_has_to_stay_has_its_next_turn_after_the_others() {
    let before = Instant::now();
    let later = before + std::time::Duration::from_secs(9);
    let mut higher = Closing::new(End::Asks, before);
    assert_eq!(higher.idle_since(), Some(before));
    assert!(higher.propose(later, ByteCounts::default()).is_some());
    assert_eq!(higher.idle_since(), None);
    higher.hear(later, ClosingMessage::Keep(1), ByteCounts::default());
    assert_eq!(higher.idle_since(), Some(later));
}

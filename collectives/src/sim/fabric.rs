//! What schedules take on networks that nobody has at hand: time on simulated links, beside the
//! closed form of the textbook.
//!
//! ```text
//!   host 0: ranks 0 … 7           host 1: ranks 8 … 15
//!     ├─ memory within ─┤            ├─ memory within ─┤
//!     │ │ │ │ │ │ │ │    one link of its own for every rank, both ways at once
//!   ══╧═╧═╧═╧═╧═╧═╧═╧═══════ a network without contention ══
//! ```
//!
//! A rank goes on to its next round when all that it sends has left and all that it receives is
//! here; nothing else keeps ranks together. Messages of one rank leave one after the other, and
//! arrive one after the other.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use crate::communication::LinkCost;
use crate::membership::{Event, Membership, MembershipTimeouts};
use crate::schedule::{Algorithm, Blocks, Collective, Hosts, Round, Schedule};
use crate::wire::{Cores, MemberRecord, RecordBatch};
use crate::{Member, Rank, overlay};

/// Hosts with equally many ranks, and links within and between them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fabric {
    hosts: u32,
    ranks_per_host: u32,
    within: LinkCost,
    between: LinkCost,
}

/// Memory of a host that all its ranks copy through at once.
const MEMORY: LinkCost = LinkCost {
    latency: 1e-6,
    per_message: 0.5e-6,
    per_byte: 1.0 / 20e9,
    crowding: 0.0,
};

/// 10 Gbit/s for each rank.
const NETWORK: LinkCost = LinkCost {
    latency: 10e-6,
    per_message: 1e-6,
    per_byte: 1.0 / 1.25e9,
    crowding: 0.0,
};

/// When each message of a rank in a round has left.
type Departures = SmallVec<[f64; 1]>;

/// What ranks do in a round.
struct Sent<'a> {
    rounds: &'a [Round],
    departures: &'a [Departures],
}

/// When each rank had the round before behind it, and what all rounds have in common.
struct Before<'a> {
    blocks: &'a Blocks,
    hosts: &'a Hosts,
    clocks: &'a [f64],
}

impl Fabric {
    /// Memory of 20 GB/s and 1 µs within hosts; between them 1.25 GB/s and 10 µs for each rank.
    #[must_use]
    pub fn new(hosts: u32, ranks_per_host: u32) -> Self {
        Self {
            hosts,
            ranks_per_host,
            within: MEMORY,
            between: NETWORK,
        }
    }

    /// How many ranks there are.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        self.hosts * self.ranks_per_host
    }

    /// Seconds that an all-reduce of `bytes` takes, walked round by round as every rank's schedule
    /// says.
    ///
    /// All hosts are alike, and a schedule does on each of them what it does on every other, so the
    /// ranks of one host stand for those of all where walking all would take more than
    /// some 50 million rounds of ranks.
    #[must_use]
    pub fn all_reduce(&self, algorithm: Algorithm, bytes: usize) -> f64 {
        const AFFORDABLE: usize = 50_000_000;
        let hosts = self.placement();
        let one = Schedule::new(Collective::AllReduce, algorithm, &hosts, Rank::CHIEF);
        let rounds = one.rounds().len();
        // A hierarchical round is long: each rank looks at all hosts in it.
        let work = match algorithm {
            Algorithm::Hierarchical => rounds * self.ranks() as usize * self.ranks() as usize,
            _ => rounds * self.ranks() as usize,
        };
        match work <= AFFORDABLE {
            true => self.walk(self.ranks(), &hosts, algorithm, bytes),
            false => self.walk(self.ranks_per_host, &hosts, algorithm, bytes),
        }
    }

    /// The closed form of the same: latencies one after the other, and bytes of the busiest rank.
    #[must_use]
    pub fn closed_form(&self, algorithm: Algorithm, bytes: usize) -> Option<f64> {
        let n = f64::from(self.ranks());
        let bytes = bytes as f64;
        let step = |link: &LinkCost, messages: f64, bytes: f64| {
            link.latency + messages * link.per_message + bytes * link.per_byte
        };
        match algorithm {
            // Both halves of a ring pass n - 1 times an n-th of the buffer. It moves no faster than
            // its slowest link sends, nor than a chunk gets around, one link after the other.
            Algorithm::Ring => {
                let (own, others) = match self.hosts {
                    1 => (&self.within, 0.0),
                    _ => (&self.between, f64::from(self.ranks_per_host) - 1.0),
                };
                let chunk = bytes / n;
                let around = step(own, 1.0, chunk) + others * step(&self.within, 1.0, chunk);
                let sending = own.per_message + chunk * own.per_byte;
                Some(2.0 * (n - 1.0) * sending.max(around / (others + 1.0)))
            }
            // Halves, quarters and so on there, and the same back.
            Algorithm::Halving if self.ranks_per_host == 1 && self.hosts.is_power_of_two() => {
                let steps = n.log2();
                let each = self.between.latency + self.between.per_message;
                let share = bytes * (n - 1.0) / n;
                Some(2.0 * (steps * each + share * self.between.per_byte))
            }
            // A share to each rank of the host, its parts to each host, and the same back.
            Algorithm::Hierarchical => {
                let (h, p) = (f64::from(self.hosts), f64::from(self.ranks_per_host));
                let within = step(&self.within, p - 1.0, bytes * (p - 1.0) / p);
                let between = match self.hosts {
                    1 => 0.0,
                    _ => step(&self.between, h - 1.0, bytes / p * (h - 1.0) / h),
                };
                Some(2.0 * (within + between))
            }
            _ => None,
        }
    }

    fn placement(&self) -> Hosts {
        Hosts::of((0..self.ranks()).map(|rank| rank / self.ranks_per_host))
    }

    /// Walks the schedules of the first `walked` ranks, which stand for all others in turn.
    fn walk(&self, walked: u32, hosts: &Hosts, algorithm: Algorithm, bytes: usize) -> f64 {
        let schedules: Vec<_> = Rank::all(walked)
            .map(|rank| Schedule::new(Collective::AllReduce, algorithm, hosts, rank))
            .collect();
        let blocks = Blocks::even(bytes, schedules[0].blocks());
        let mut clocks = vec![0.0_f64; walked as usize];
        let mut rounds: Vec<_> = schedules.iter().map(Schedule::rounds).collect();
        for _ in 0..schedules[0].rounds().len() {
            let current: Vec<Round> = rounds.iter_mut().filter_map(Iterator::next).collect();
            let before = Before {
                blocks: &blocks,
                hosts,
                clocks: &clocks,
            };
            let departures: Vec<_> = (0..)
                .zip(&current)
                .map(|(me, round)| self.departures(me, round, &before))
                .collect();
            let sent = Sent {
                rounds: &current,
                departures: &departures,
            };
            clocks = (0..current.len())
                .map(|me| self.after(me, &sent, &before))
                .collect();
        }
        clocks.into_iter().fold(0.0, f64::max)
    }

    /// When each message of a rank has left: one after the other, within its host and beyond it.
    fn departures(&self, me: usize, round: &Round, before: &Before<'_>) -> Departures {
        let mut free = [before.clocks[me]; 2];
        let departures = round.sends().iter().map(|send| {
            let (way, takes) = self.message([me, send.to.index()], &send.blocks, before);
            free[way] += takes;
            free[way]
        });
        departures.collect()
    }

    /// Whether a message goes between hosts, as a place in a pair, and how long it takes to send.
    fn message(
        &self,
        [from, to]: [usize; 2],
        blocks: &Range<usize>,
        before: &Before<'_>,
    ) -> (usize, f64) {
        let way = usize::from(!before.hosts.share(from, to));
        let link = self.links()[way];
        let bytes = before.blocks.elements(blocks.clone()).len();
        (way, link.per_message + bytes as f64 * link.per_byte)
    }

    fn links(&self) -> [&LinkCost; 2] {
        [&self.within, &self.between]
    }

    /// When a rank has a round behind it, from when each had the round before behind it.
    fn after(&self, me: usize, sent: &Sent<'_>, before: &Before<'_>) -> f64 {
        let begins = before.clocks[me];
        let (mut arrived, mut queued) = ([begins; 2], [0.0; 2]);
        for (place, receive) in sent.rounds[me].receives().iter().enumerate() {
            let from = receive.from.index();
            let (way, takes) = self.message([from, me], &receive.blocks, before);
            queued[way] += takes;
            let left = match before.hosts.world() == before.clocks.len() {
                true => sent.left(me, place),
                // Nearest first on both sides: what is received in this place was sent in it, as
                // all hosts do the same.
                false => before.clocks[from % before.clocks.len()] + queued[way],
            };
            arrived[way] = (arrived[way] + takes).max(left + self.links()[way].latency);
        }
        let ends = sent.departures[me].iter().copied().chain(arrived);
        ends.fold(begins, f64::max)
    }
}

impl Sent<'_> {
    /// When what a rank receives in a place has left, where all ranks are walked.
    fn left(&self, me: usize, place: usize) -> f64 {
        let (world, receives) = (self.rounds.len(), self.rounds[me].receives());
        let from = receives[place].from;
        let distance = |to: usize| (to + world - from.index()) % world;
        let sends = self.rounds[from.index()].sends();
        // Nearest first, and in one order on both sides where there are several.
        let first = sends.partition_point(|send| distance(send.to.index()) < distance(me));
        let before = receives[..place].iter().rev();
        let nth = before.take_while(|receive| receive.from == from).count();
        self.departures[from.index()][first + nth]
    }
}

/// Signs of life that a rank of so many sends at each beat, as its membership says.
#[must_use]
pub fn signs_of_life(ranks: u32, now: Instant) -> usize {
    let named = |rank| Member::new(rank, "a simulated rank");
    let members: Arc<[Member]> = Rank::all(ranks).map(named).collect();
    let timeouts = MembershipTimeouts {
        join: Duration::from_secs(30),
        heartbeat: Duration::from_millis(250),
        check: Duration::from_millis(250),
        silence: Duration::from_millis(1500),
    };
    let record = MemberRecord {
        incarnation: 1,
        process: 1,
        host: [0; 16],
        cores: Cores::default(),
    };
    let mut membership = Membership::new(Rank::CHIEF, record, members, timeouts, now);
    let mut out = Vec::new();
    for rank in overlay::neighbours(Rank::CHIEF, ranks) {
        membership.handle(now, Event::Joined(rank), &mut out);
    }
    let records = vec![record; ranks as usize];
    let others = RecordBatch { first: 0, records };
    membership.handle(now, Event::Records(others), &mut out);
    out.clear();
    membership.handle(now + timeouts.heartbeat, Event::Tick, &mut out);
    out.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: [usize; 3] = [8, 1 << 20, 64 << 20];

    #[track_caller]
    fn close(walked: f64, expected: f64) {
        let error = (walked / expected - 1.0).abs();
        assert!(error < 0.1, "{walked} s is not {expected} s");
    }

    #[test]
    fn algorithms_take_what_their_closed_forms_say() {
        for ranks in [8, 64, 128] {
            let flat = Fabric::new(ranks, 1);
            let hosts = Fabric::new(ranks / 8, 8);
            for bytes in SIZES {
                for algorithm in [Algorithm::Ring, Algorithm::Halving] {
                    let expected = flat.closed_form(algorithm, bytes).unwrap();
                    close(flat.all_reduce(algorithm, bytes), expected);
                }
                for algorithm in [Algorithm::Ring, Algorithm::Hierarchical] {
                    let expected = hosts.closed_form(algorithm, bytes).unwrap();
                    close(hosts.all_reduce(algorithm, bytes), expected);
                }
            }
        }
    }

    /// Twice up a tree of eights and twice down it. Of seven messages at a time the last comes when
    /// all have been sent or received, one after the other.
    #[test]
    fn a_message_waits_for_those_that_its_sender_sends_before_it() {
        let walked = Fabric::new(64, 1).all_reduce(Algorithm::Knomial, 8);
        let step = NETWORK.latency + 7.0 * NETWORK.per_message;
        close(walked, 4.0 * step);
    }

    #[test]
    fn the_ranks_of_one_host_stand_for_those_of_all() {
        for (hosts, ranks) in [(8, 1), (4, 4), (8, 2)] {
            let fabric = Fabric::new(hosts, ranks);
            let placement = fabric.placement();
            for algorithm in [Algorithm::Ring, Algorithm::Halving, Algorithm::Hierarchical] {
                let walk = |walked| fabric.walk(walked, &placement, algorithm, 1 << 20);
                let (all, some) = (walk(fabric.ranks()), walk(ranks));
                let differ = (all / some - 1.0).abs();
                // Halving between hosts of several ranks is not the same on all of them.
                let alike = ranks == 1 || algorithm != Algorithm::Halving;
                assert!(
                    !alike || differ < 0.01,
                    "{algorithm} on {fabric:?}: {all} and {some}"
                );
            }
        }
    }

    #[test]
    fn reducing_host_by_host_is_at_least_four_times_as_fast_as_a_flat_ring() {
        let fabric = Fabric::new(64, 8);
        for bytes in [64 << 10, 64 << 20] {
            let flat = fabric.all_reduce(Algorithm::Ring, bytes);
            let by_host = fabric.all_reduce(Algorithm::Hierarchical, bytes);
            assert!(
                flat > 4.0 * by_host,
                "{bytes} bytes: {flat} s and {by_host} s"
            );
        }
    }

    #[test]
    fn signs_of_life_grow_with_the_logarithm_of_the_group() {
        let now = Instant::now();
        for ranks in [2_u32, 8, 64, 512, 4096] {
            let signs = signs_of_life(ranks, now);
            assert!(signs <= 2 * ranks.ilog2() as usize, "{signs} of {ranks}");
            assert!(signs >= ranks.ilog2() as usize, "{signs} of {ranks}");
        }
    }
}

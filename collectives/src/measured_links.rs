//! `MeasuredLinks`: how fast bytes go from each rank of a group to each other, and the ring and the
//! times that follow from it. Measuring is the business of [`Group`](crate::Group).

use std::fmt::{self, Display};
use std::sync::Arc;
use std::time::Duration;

use crate::Rank;
use crate::schedule::{Algorithm, Blocks, Collective, Hosts, RingOrder, Round, Schedule};

/// How fast bytes go from one rank to another, while nothing else goes to or from either.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct LinkSpeed {
    /// Bytes a second, at least 1.
    pub bytes_per_second: u64,
    /// From a message of one byte to its answer.
    pub round_trip: Duration,
}

/// The links between all ranks of a group, as [`Group::measure_links`](crate::Group::measure_links)
/// has found them: the same on every rank.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MeasuredLinks {
    /// From each rank to each, in order; nothing is known from a rank to itself.
    speeds: Arc<[Option<LinkSpeed>]>,
    ring: RingOrder,
}

/// Words that stand for a link among ranks.
pub(crate) const WORDS: usize = 2;

impl LinkSpeed {
    /// What a message of so many bytes tells whose answer came after `took`.
    pub(crate) fn of_message(bytes: usize, took: Duration, round_trip: Duration) -> Self {
        // A message never goes faster than in a nanosecond.
        let sending = took.saturating_sub(round_trip).as_nanos().max(1);
        let rate = bytes as u128 * 1_000_000_000 / sending;
        Self {
            bytes_per_second: clamped(rate.max(1)),
            round_trip,
        }
    }

    pub(crate) fn words(self) -> [u64; WORDS] {
        [
            self.bytes_per_second,
            clamped(self.round_trip.as_nanos()).max(1),
        ]
    }

    /// Two zeros stand for no link.
    fn read(words: [u64; WORDS]) -> Option<Self> {
        let [bytes_per_second, nanos] = words;
        (bytes_per_second > 0).then_some(Self {
            bytes_per_second,
            round_trip: Duration::from_nanos(nanos),
        })
    }

    fn seconds(self, bytes: usize) -> f64 {
        self.round_trip.as_secs_f64() / 2.0 + bytes as f64 / self.bytes_per_second as f64
    }
}

/// What is beyond counts as the largest.
fn clamped(value: u128) -> u64 {
    u64::try_from(value.min(u64::MAX.into())).expect("it is at most that")
}

impl MeasuredLinks {
    /// From the words of all ranks, each about its links to all.
    pub(crate) fn from_words(world: u32, words: &[u64]) -> Self {
        let (each, _) = words.as_chunks();
        Self::new(world, each.iter().copied().map(LinkSpeed::read).collect())
    }

    fn new(world: u32, speeds: Arc<[Option<LinkSpeed>]>) -> Self {
        let rate = |from: Rank, to: Rank| {
            let speed = speeds[from.index() * world as usize + to.index()];
            speed.map(|speed| speed.bytes_per_second)
        };
        // Contributions go around a ring one way, and sums the other.
        let both_ways = |one, other| rate(one, other).min(rate(other, one));
        let ring = RingOrder::widest(world, |one, other| {
            both_ways(one, other).unwrap_or_default()
        });
        Self { speeds, ring }
    }

    /// The link from one rank to another; `None` for ranks that are the same or not in the group.
    #[must_use]
    pub fn speed(&self, from: Rank, to: Rank) -> Option<LinkSpeed> {
        let world = self.ring.world();
        let is_inside = from.index() < world && to.index() < world;
        is_inside.then(|| self.speeds[from.index() * world + to.index()])?
    }

    /// The ring whose slowest link, of both ways, is the fastest that a ring can have: in this
    /// order operations pass on what goes around a ring.
    #[must_use]
    pub fn ring(&self) -> &RingOrder {
        &self.ring
    }

    /// The slowest link of the ring, of both ways; `None` in a group of one rank.
    #[must_use]
    pub fn slowest_of_ring(&self) -> Option<LinkSpeed> {
        let both_ways = |(from, to)| [self.speed(from, to), self.speed(to, from)];
        let speeds = self.ring.links().flat_map(both_ways).flatten();
        speeds.min_by_key(|speed| speed.bytes_per_second)
    }

    /// The links among some of the ranks, which then are those of a group of their own.
    pub(crate) fn among(&self, ranks: &[Rank]) -> Self {
        let world = u32::try_from(ranks.len()).expect("no more ranks than there are");
        let from = |from: &Rank| ranks.iter().map(|to| self.speed(*from, *to)).collect();
        let speeds: Vec<Vec<_>> = ranks.iter().map(from).collect();
        Self::new(world, speeds.concat().into())
    }

    /// The seconds that a collective takes by an algorithm, for so many bytes in the whole buffer.
    /// A round takes as long as its slowest link, or as its busiest rank, which sends and receives
    /// no more in all than over its fastest link.
    pub(crate) fn seconds(
        &self,
        collective: Collective,
        algorithm: Algorithm,
        bytes: usize,
    ) -> f64 {
        let world = u32::try_from(self.ring.world()).expect("no more ranks than there are");
        let mut rounds: Vec<f64> = Vec::new();
        for rank in Rank::all(world) {
            let schedule = match algorithm == Algorithm::Ring {
                true => Schedule::along(collective, &self.ring, rank),
                false => Schedule::new(collective, algorithm, &Hosts::apart(world), rank),
            };
            let blocks = Blocks::even(bytes, schedule.blocks());
            rounds.resize(schedule.rounds().len(), 0.0);
            for (slowest, round) in rounds.iter_mut().zip(schedule.rounds()) {
                *slowest = slowest.max(self.round(rank, &round, &blocks));
            }
        }
        rounds.iter().sum()
    }

    fn round(&self, rank: Rank, round: &Round, blocks: &Blocks) -> f64 {
        let sends = round.sends().iter().map(|send| {
            let bytes = blocks.elements(send.blocks.clone()).len();
            (self.speed(rank, send.to), bytes)
        });
        let receives = round.receives().iter().map(|receive| {
            let bytes = blocks.elements(receive.blocks.clone()).len();
            (self.speed(receive.from, rank), bytes)
        });
        let [mut slowest, mut busiest] = [0.0_f64; 2];
        for way in [sends.collect::<Vec<_>>(), receives.collect()] {
            let known = way
                .iter()
                .filter_map(|(speed, bytes)| Some(((*speed)?, *bytes)));
            let one = known.clone().map(|(speed, bytes)| speed.seconds(bytes));
            slowest = one.fold(slowest, f64::max);
            let fastest = known
                .clone()
                .max_by_key(|(speed, _)| speed.bytes_per_second);
            let bytes = known.map(|(_, bytes)| bytes).sum();
            busiest = busiest.max(fastest.map_or(0.0, |(speed, _)| speed.seconds(bytes)));
        }
        slowest.max(busiest)
    }
}

impl Display for MeasuredLinks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ring {}", self.ring)?;
        match self.slowest_of_ring() {
            Some(slowest) => write!(
                f,
                ", its slowest link {:.1} Mbit/s with a round trip of {:.1} ms",
                slowest.bytes_per_second as f64 * 8.0 / 1e6,
                slowest.round_trip.as_secs_f64() * 1e3
            ),
            None => Ok(()),
        }
    }
}

/// Whom a rank measures its links with, one pair after the other, so that all pairs of a round are
/// of different ranks: of `world` teams each meets each other once (the circle method). A rank
/// that has nobody in a round waits for the next.
pub(crate) fn opponents(world: u32, me: Rank) -> impl Iterator<Item = Rank> {
    // One stands in the middle, and the others turn around it; an odd world has nobody there.
    let circle = match world.is_multiple_of(2) {
        true => world - 1,
        false => world,
    };
    let opponent = move |round: u32| {
        let me = me.number();
        match me == circle {
            // Of the circle, one would meet itself: twice its place is the round.
            true => (0..circle).find(|other| 2 * other % circle == round),
            false => Some((round + circle - me) % circle).map(|other| match other == me {
                true => circle,
                false => other,
            }),
        }
    };
    let rounds = if world < 2 { 0..0 } else { 0..circle };
    let there = move |other: &u32| *other < world;
    rounds.filter_map(opponent).filter(there).map(Rank::new)
}

#[cfg(test)]
mod tests;

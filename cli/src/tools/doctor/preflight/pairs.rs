//! What lies between two ranks.
//!
//! ```text
//!   up to 16 ranks    every pair, one at a time, so that none disturbs another
//!   of more, say 20   round 1: 0-1 2-3 4-5 …   round 2: 0-2 1-3 4-6 …   up to 0-16 1-17 2-18 3-19
//! ```
//!
//! In each of these log₂ n rounds a rank is in one pair at most, as its network carries no more.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use meshwork_collectives::{Error, Group, Rank, ReduceOp};

/// Two ranks, and what is between them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RankPair {
    pub(super) one: Rank,
    pub(super) other: Rank,
    /// Seconds for a small message, one way.
    pub(super) latency: f64,
    /// Bytes a second for a large one.
    pub(super) bandwidth: f64,
    /// Seconds that the other's clock is ahead of the one's.
    pub(super) clock: f64,
}

/// Small messages there and back.
const ROUND_TRIPS: usize = 50;
/// The most ranks of which all pairs are measured.
const ALL_PAIRS: u32 = 16;
/// Elements of a large message: 8 MiB, or 1 MiB where many have one.
const LARGE: usize = 1 << 21;
const LARGE_OF_MANY: usize = 1 << 18;
/// Large messages of which the fastest counts.
const REPEATS: usize = 3;

/// Measures the pairs of ranks; every rank calls it, and gets all results.
pub(super) fn measure(group: &mut Group) -> Result<Vec<RankPair>, Error> {
    let rounds = rounds(group.world());
    let both: Vec<(Rank, Rank)> = rounds.concat();
    // Each pair's numbers are known to its lower rank only: the sum over all ranks is theirs.
    let mut numbers = vec![0.0_f64; 3 * both.len()];
    let mut places = numbers.chunks_mut(3);
    for round in &rounds {
        group.barrier()?;
        for ((one, other), own) in round.iter().zip(&mut places) {
            if group.rank() == *one {
                own.copy_from_slice(&ask(group, *other)?);
            } else if group.rank() == *other {
                answer(group, *one)?;
            }
        }
    }
    if !numbers.is_empty() {
        group.all_reduce(&mut numbers, ReduceOp::Sum)?;
    }
    let pairs = both.iter().zip(numbers.chunks(3));
    Ok(pairs
        .map(|((one, other), numbers)| RankPair {
            one: *one,
            other: *other,
            latency: numbers[0],
            bandwidth: numbers[1],
            clock: numbers[2],
        })
        .collect())
}

/// Which pairs are measured at the same time, the lower rank first.
fn rounds(world: u32) -> Vec<Vec<(Rank, Rank)>> {
    let pair = |one: u32, other: u32| (Rank::new(one), Rank::new(other));
    if world <= ALL_PAIRS {
        let ones = 0..world;
        let pairs = ones.flat_map(|one| (one + 1..world).map(move |other| vec![pair(one, other)]));
        return pairs.collect();
    }
    let distances = (0..u32::BITS).map(|round| 1 << round);
    distances
        .take_while(|distance| *distance < world)
        .map(|distance| {
            let lower = (0..world - distance).filter(|one| one & distance == 0);
            lower.map(|one| pair(one, one + distance)).collect()
        })
        .collect()
}

/// Elements of a large message.
fn large(group: &Group) -> usize {
    match group.world() <= ALL_PAIRS {
        true => LARGE,
        false => LARGE_OF_MANY,
    }
}

/// Latency, bandwidth and the other's clock.
fn ask(group: &mut Group, other: Rank) -> Result<[f64; 3], Error> {
    let mut best = (f64::INFINITY, 0.0);
    let mut word = [0.0_f64];
    for _ in 0..ROUND_TRIPS {
        let (asked, began) = (clock(), Instant::now());
        group.send(&word, other)?;
        group.receive(&mut word, other)?;
        let took = began.elapsed().as_secs_f64();
        if took < best.0 {
            // The quickest answer was given most nearly half-way.
            best = (took, word[0] - (asked + took / 2.0));
        }
    }
    let buffer = vec![1.0_f32; large(group)];
    let mut fastest = f64::INFINITY;
    for _ in 0..REPEATS {
        let began = Instant::now();
        group.send(&buffer, other)?;
        group.receive(&mut word, other)?;
        fastest = fastest.min(began.elapsed().as_secs_f64());
    }
    let bytes = size_of_val(buffer.as_slice()) as f64;
    let bandwidth = bytes / (fastest - best.0 / 2.0).max(fastest / 2.0);
    Ok([best.0 / 2.0, bandwidth, best.1])
}

fn answer(group: &mut Group, one: Rank) -> Result<(), Error> {
    let mut word = [0.0_f64];
    for _ in 0..ROUND_TRIPS {
        group.receive(&mut word, one)?;
        group.send(&[clock()], one)?;
    }
    let mut buffer = vec![0.0_f32; large(group)];
    for _ in 0..REPEATS {
        group.receive(&mut buffer, one)?;
        group.send(&word, one)?;
    }
    Ok(())
}

/// Seconds since 1970.
fn clock() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn of_few_ranks_every_pair_has_a_round_of_its_own() {
        for world in 0..=ALL_PAIRS {
            let rounds = rounds(world);
            assert!(rounds.iter().all(|round| round.len() == 1));
            let pairs: BTreeSet<_> = rounds.concat().into_iter().collect();
            assert!(pairs.iter().all(|(one, other)| one < other));
            let expected = world as usize * (world as usize).saturating_sub(1) / 2;
            assert_eq!((pairs.len(), rounds.len()), (expected, expected));
        }
    }

    #[test]
    fn of_many_ranks_each_is_in_one_pair_a_round_and_all_are_joined() {
        for world in [17, 20, 31, 32, 33, 64, 100, 512] {
            let rounds = rounds(world);
            assert_eq!(rounds.len(), world.next_power_of_two().ilog2() as usize);
            for round in &rounds {
                let ranks = round.iter().flat_map(|(one, other)| [one, other]);
                let distinct: BTreeSet<_> = ranks.clone().collect();
                assert_eq!(distinct.len(), 2 * round.len(), "of {world}");
                assert!(distinct.iter().all(|rank| rank.number() < world));
            }
            let mut reached = BTreeSet::from([Rank::CHIEF]);
            for (one, other) in rounds.concat() {
                if reached.contains(&one) {
                    reached.insert(other);
                }
            }
            assert_eq!(reached.len(), world as usize, "of {world}");
        }
    }
}

//! What lies between every two ranks: measured one pair at a time, so that none disturbs another.

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
/// Elements of a large message: 8 MiB.
const LARGE: usize = 1 << 21;
/// Large messages of which the fastest counts.
const REPEATS: usize = 3;

/// Measures all pairs; every rank calls it, and gets all results.
pub(super) fn measure(group: &mut Group) -> Result<Vec<RankPair>, Error> {
    let world = group.world();
    let ranks: Vec<Rank> = Rank::all(world).collect();
    let both: Vec<(Rank, Rank)> = ranks
        .iter()
        .flat_map(|one| ranks.iter().map(move |other| (*one, *other)))
        .filter(|(one, other)| one < other)
        .collect();
    // Each pair's numbers are known to its lower rank only: the sum over all ranks is theirs.
    let mut numbers = vec![0.0_f64; 3 * both.len()];
    for ((one, other), own) in both.iter().zip(numbers.chunks_mut(3)) {
        group.barrier()?;
        if group.rank() == *one {
            own.copy_from_slice(&ask(group, *other)?);
        } else if group.rank() == *other {
            answer(group, *one)?;
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
    let buffer = vec![1.0_f32; LARGE];
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
    let mut buffer = vec![0.0_f32; LARGE];
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

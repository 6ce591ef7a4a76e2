//! The ring with the fastest slowest link: a travelling salesman who minds the worst road first.
//!
//! Up to [`EXACT`] ranks by dynamic programming over sets of ranks (Held and Karp, "A dynamic
//! programming approach to sequencing problems", 1962), once for the slowest link and once for the
//! sum over the links that are no slower. Above that from the ring of nearest neighbours, by
//! reversing parts of it and by moving ranks while that makes it better (2-opt and Or-opt).
//! Rates are whole numbers, so that all machines come to the same ring.

use std::cmp::Reverse;

/// Up to so many ranks the best ring is found.
pub(super) const EXACT: usize = 12;

/// `rates[from][to]`.
type Rates = [Vec<u64>];

/// The ranks in the order of the ring, from rank 0 on.
pub(super) fn ring(rates: &Rates) -> Vec<usize> {
    match rates.len() {
        world @ 0..=2 => (0..world).collect(),
        3..=EXACT => exact(rates),
        _ => near(rates),
    }
}

/// How good a ring is: its slowest link, then all of them together.
pub(super) fn score(ring: &[usize], rates: &Rates) -> (u64, u128) {
    let next = ring.iter().cycle().skip(1);
    let links = ring.iter().zip(next).map(|(from, to)| rates[*from][*to]);
    links.fold((u64::MAX, 0), |(slowest, sum), rate| {
        (slowest.min(rate), sum + u128::from(rate))
    })
}

fn exact(rates: &Rates) -> Vec<usize> {
    let slowest = best(rates, u128::from(u64::MAX), |so_far, rate| {
        Some(so_far.min(u128::from(rate)))
    });
    let Way { value, .. } = slowest.expect("any two ranks have a link");
    let sum = best(rates, 0, |so_far, rate| {
        let rate = u128::from(rate);
        (rate >= value).then_some(so_far + rate)
    });
    let Way { ring, .. } = sum.expect("the ring with the fastest slowest link is one");
    ring
}

/// A ring, and what it is worth.
struct Way {
    value: u128,
    ring: Vec<usize>,
}

/// The ring from rank 0 that is worth most, of equal ones the first found. `add` takes one more
/// link into account, or says that it may not be used.
fn best(rates: &Rates, start: u128, add: impl Fn(u128, u64) -> Option<u128>) -> Option<Way> {
    let others = rates.len() - 1;
    // `ways[set][last]`: what the best way is worth from rank 0 through this set of others, of
    // which `last` is the end, and the one before it. Others are counted without rank 0.
    let mut ways = vec![vec![None::<(u128, usize)>; others]; 1 << others];
    for last in 0..others {
        ways[1 << last][last] = add(start, rates[0][last + 1]).map(|value| (value, others));
    }
    for set in 1_usize..1 << others {
        for last in (0..others).filter(|last| set >> last & 1 == 1) {
            let Some((value, _)) = ways[set][last] else {
                continue;
            };
            for next in (0..others).filter(|next| set >> next & 1 == 0) {
                let longer = add(value, rates[last + 1][next + 1]);
                let known = &mut ways[set | 1 << next][next];
                if longer > known.map(|(best, _)| best) {
                    *known = longer.map(|value| (value, last));
                }
            }
        }
    }
    let all = (1 << others) - 1;
    let closed = (0..others).filter_map(|last| {
        let (value, _) = ways[all][last]?;
        Some((add(value, rates[last + 1][0])?, Reverse(last)))
    });
    let (value, Reverse(mut last)) = closed.max()?;
    let (mut set, mut ring) = (all, Vec::with_capacity(rates.len()));
    while last < others {
        ring.push(last + 1);
        let (_, before) = ways[set][last]?;
        (set, last) = (set & !(1 << last), before);
    }
    ring.push(0);
    ring.reverse();
    Some(Way { value, ring })
}

/// The best of the ring of the ranks' order and those of nearest neighbours, made better.
fn near(rates: &Rates) -> Vec<usize> {
    let world = rates.len();
    let in_order: Vec<usize> = (0..world).collect();
    let nearest = (0..world).map(|first| nearest_neighbours(first, rates));
    let mut ring = nearest.fold(in_order, |best, other| {
        match score(&other, rates) > score(&best, rates) {
            true => other,
            false => best,
        }
    });
    // Each turn makes it better; a bound all the same, as they could be very many.
    for _ in 0..world * world {
        let better = changed(&ring).find(|other| score(other, rates) > score(&ring, rates));
        match better {
            Some(better) => ring = better,
            None => break,
        }
    }
    let zero = ring.iter().position(|rank| *rank == 0);
    ring.rotate_left(zero.expect("rank 0 is in the ring"));
    ring
}

fn nearest_neighbours(first: usize, rates: &Rates) -> Vec<usize> {
    let mut ring = vec![first];
    let mut left: Vec<usize> = (0..rates.len()).filter(|rank| *rank != first).collect();
    let mut last = first;
    while let Some(at) =
        (0..left.len()).max_by_key(|at| (rates[last][left[*at]], Reverse(left[*at])))
    {
        last = left.swap_remove(at);
        ring.push(last);
    }
    ring
}

/// The rings with one part reversed, and those with one rank moved.
fn changed(ring: &[usize]) -> impl Iterator<Item = Vec<usize>> {
    let world = ring.len();
    let pairs = move || (0..world).flat_map(move |first| (0..world).map(move |last| (first, last)));
    let reversed = pairs().filter(|(first, last)| first < last);
    let reversed = reversed.map(move |(first, last)| {
        let mut other = ring.to_vec();
        other[first..=last].reverse();
        other
    });
    let moved = pairs().filter(|(from, to)| from != to);
    reversed.chain(moved.map(move |(from, to)| {
        let mut other = ring.to_vec();
        let rank = other.remove(from);
        other.insert(to, rank);
        other
    }))
}

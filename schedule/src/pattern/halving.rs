//! Recursive doubling, which backwards is recursive halving: in each round twice as much.
//!
//! Of a world that is no power of two, the first ranks pair up, and only the even one of a pair
//! takes part (Rabenseifner, "Optimization of collective reduction operations", 2004).

use std::ops::Range;

use super::Place;
use crate::Round;

/// Which blocks a rank that takes part ends a halving with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Cut {
    /// One block per rank: its own, and its partner's.
    PerRank,
    /// As many blocks as ranks that take part. Nearest neighbours halve first, so that sums are
    /// balanced trees over the ranks, and the blocks end in reversed bit order.
    Balanced,
}

/// Ranks that take part: the largest power of two in a world.
pub(crate) fn active(world: usize) -> usize {
    1 << world.ilog2()
}

/// Rounds of [`all_gather`].
pub(crate) fn rounds(world: usize) -> usize {
    world.ilog2() as usize
}

/// Rounds of [`pair_scatter`] and [`pair_broadcast`].
pub(crate) fn pair_rounds(world: usize) -> usize {
    usize::from(!world.is_power_of_two())
}

/// From the even rank of each pair, the block of the odd one.
pub(crate) fn pair_scatter(place: &Place<'_>) -> Round {
    pair(place, |odd| odd..odd + 1)
}

/// From the even rank of each pair, all blocks.
pub(crate) fn pair_broadcast(place: &Place<'_>) -> Round {
    pair(place, |_| 0..place.blocks)
}

fn pair(place: &Place<'_>, blocks: impl Fn(usize) -> Range<usize>) -> Round {
    let (me, paired) = (place.rank, 2 * (place.world - active(place.world)));
    let mut round = Round::default();
    match me % 2 {
        _ if me >= paired => {}
        0 => round.send(me, me + 1, blocks(me + 1)),
        _ => round.receive(me, me - 1, blocks(me)),
    }
    round
}

/// Every rank that takes part gives its partner all that it has.
pub(crate) fn all_gather(place: &Place<'_>, cut: Cut, index: usize) -> Round {
    let active = active(place.world);
    let extra = place.world - active;
    let me = place.rank;
    let mut round = Round::default();
    let number = match me.checked_sub(2 * extra) {
        Some(after_pairs) => extra + after_pairs,
        None if me.is_multiple_of(2) => me / 2,
        None => return round,
    };
    let step = rounds(place.world) - 1 - index;
    let partner = match cut {
        Cut::PerRank => number ^ (active >> (step + 1)),
        Cut::Balanced => number ^ (1 << step),
    };
    let rank_of = |number: usize| number + number.min(extra);
    let held = |number: usize| {
        let (size, position) = (active >> (step + 1), position(cut, active, number));
        let start = position & !(size - 1);
        match cut {
            Cut::PerRank => rank_of(start)..rank_of(start + size),
            Cut::Balanced => start..start + size,
        }
    };
    round.send(me, rank_of(partner), held(number));
    round.receive(me, rank_of(partner), held(partner));
    round
}

/// Where in the halved buffer the part ends that this participant keeps.
fn position(cut: Cut, active: usize, number: usize) -> usize {
    match cut {
        Cut::PerRank => number,
        Cut::Balanced if active == 1 => 0,
        Cut::Balanced => number.reverse_bits() >> (usize::BITS - active.ilog2()),
    }
}

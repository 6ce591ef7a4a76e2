//! Operations in which every rank has something else for every other, and those that move nothing.
//!
//! Of all-to-all, block `from * world + to` is what one rank has for another.

use super::Place;
use super::hierarchy::runs;
use crate::Round;

/// Everything at once, straight to whom it is for.
pub(crate) fn all_at_once(place: &Place<'_>) -> Round {
    let mut round = Round::default();
    for distance in 1..place.world {
        pair(place, distance, &mut round);
    }
    round
}

/// In round `r` to the rank `r + 1` places on, from the one as far back.
pub(crate) fn one_by_one(place: &Place<'_>, index: usize) -> Round {
    let mut round = Round::default();
    pair(place, index + 1, &mut round);
    round
}

fn pair(place: &Place<'_>, distance: usize, round: &mut Round) {
    let (me, world) = (place.rank, place.world);
    let (to, from) = ((me + distance) % world, (me + world - distance) % world);
    let (out, into) = (me * world + to, from * world + me);
    round.send(me, to, out..out + 1);
    round.receive(me, from, into..into + 1);
}

/// Rounds after which steps of 1, 2, 4 … lead from each rank to each.
pub(crate) fn doublings(world: usize) -> usize {
    world.next_power_of_two().trailing_zeros() as usize
}

/// A block that has a way of `d` places before it takes a step of `2^r` in round `r` if `d` has
/// that bit: few rounds, for which blocks pass through other ranks (Bruck et al., "Efficient
/// algorithms for all-to-all communications", 1997).
pub(crate) fn by_bits(place: &Place<'_>, index: usize) -> Round {
    let (me, world, step) = (place.rank, place.world, 1_usize << index);
    let behind = |rank: usize, distance: usize| (rank + world - distance) % world;
    // What lies at `at` with this bit of its way ahead has come all lower bits of it.
    let leaving = |at: usize| -> Vec<(usize, usize)> {
        let ways = (1..world).filter(|way| way & step != 0);
        ways.map(|way| {
            let from = behind(at, way & (step - 1));
            (0, from * world + (from + way) % world)
        })
        .collect()
    };
    let (to, from) = ((me + step) % world, behind(me, step));
    let mut round = Round::default();
    for (_, blocks) in runs(leaving(me)) {
        round.send(me, to, blocks);
    }
    for (_, blocks) in runs(leaving(from)) {
        round.receive(me, from, blocks);
    }
    round
}

/// In round `r` a word to the rank `2^r` places on: after all rounds each has heard from everybody
/// (Hensgen, Finkel and Manber, "Two algorithms for barrier synchronization", 1988).
pub(crate) fn barrier(place: &Place<'_>, index: usize) -> Round {
    let (me, world, step) = (place.rank, place.world, 1 << index);
    let mut round = Round::default();
    round.send(me, (me + step) % world, 0..0);
    round.receive(me, (me + world - step) % world, 0..0);
    round
}

/// The own block to one rank, and that of another from it.
pub(crate) fn permute(place: &Place<'_>, to: Option<usize>, from: Option<usize>) -> Round {
    let me = place.rank;
    let mut round = Round::default();
    if let Some(to) = to {
        round.send(me, to, me..me + 1);
    }
    if let Some(from) = from {
        round.receive(me, from, from..from + 1);
    }
    round
}

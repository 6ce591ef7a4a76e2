//! Every rank sends to its successor only, and all links are busy all the time.

use super::Place;
use crate::Round;

/// Rounds of [`scatter`] and [`all_gather`].
pub(crate) fn rounds(world: usize) -> usize {
    world - 1
}

/// In round `r` rank `k` passes on block `k - r`: its own at first, then what it has just received.
pub(crate) fn all_gather(place: &Place<'_>, index: usize) -> Round {
    // `index + 1` is at most `world`, so the difference stays above zero.
    let block_before = |rounds: usize| (place.rank + place.world - rounds) % place.world;
    let one = |block: usize| block..block + 1;
    let mut round = Round::default();
    round.send(place.rank, successor(place), one(block_before(index)));
    round.receive(place.rank, predecessor(place), one(block_before(index + 1)));
    round
}

/// Rounds of [`broadcast`].
pub(crate) fn broadcast_rounds(world: usize) -> usize {
    if world == 1 { 0 } else { 2 * world - 2 }
}

/// A chain from the root, pipelined over as many blocks as there are ranks: the rank at distance
/// `d` behind the root sends block `b` in round `d + b`.
pub(crate) fn broadcast(place: &Place<'_>, root: usize, index: usize) -> Round {
    let distance = (place.rank + place.world - root) % place.world;
    let block = |behind: usize| {
        index
            .checked_sub(behind)
            .filter(|block| *block < place.world)
    };
    let mut round = Round::default();
    if let Some(block) = block(distance).filter(|_| distance + 1 < place.world) {
        round.send(place.rank, successor(place), block..block + 1);
    }
    if let Some(block) = distance.checked_sub(1).and_then(block) {
        round.receive(place.rank, predecessor(place), block..block + 1);
    }
    round
}

/// A chain from the root that carries the farthest rank's block first, so that no block waits: the
/// rank at distance `d` passes the block for distance `world - 1 - i` on in round `d + i`.
pub(crate) fn scatter(place: &Place<'_>, root: usize, index: usize) -> Round {
    let (world, me) = (place.world, place.rank);
    let distance = (me + world - root) % world;
    let block = |behind: usize| {
        let farthest = world - 1;
        let target = farthest - index.checked_sub(behind)?;
        Some((target, (target + root) % world))
    };
    let mut round = Round::default();
    if let Some((_, block)) = block(distance).filter(|(target, _)| *target > distance) {
        round.send(me, successor(place), block..block + 1);
    }
    if let Some((_, block)) = distance
        .checked_sub(1)
        .and_then(block)
        .filter(|(target, _)| *target >= distance)
    {
        round.receive(me, predecessor(place), block..block + 1);
    }
    round
}

fn successor(place: &Place<'_>) -> usize {
    (place.rank + 1) % place.world
}

fn predecessor(place: &Place<'_>) -> usize {
    (place.rank + place.world - 1) % place.world
}

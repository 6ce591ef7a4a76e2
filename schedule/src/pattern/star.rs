//! Every transfer straight from who has it to who wants it, in one round.

use super::Place;
use crate::Round;

/// The root's blocks to everybody.
pub(crate) fn broadcast(place: &Place<'_>, root: usize) -> Round {
    let mut round = Round::default();
    if place.rank == root {
        for other in 0..place.world {
            round.send(root, other, 0..place.blocks);
        }
    } else {
        round.receive(place.rank, root, 0..place.blocks);
    }
    round
}

/// To each rank its own block, from the root.
pub(crate) fn scatter(place: &Place<'_>, root: usize) -> Round {
    let mut round = Round::default();
    if place.rank == root {
        for other in 0..place.world {
            round.send(root, other, other..other + 1);
        }
    } else {
        round.receive(place.rank, root, place.rank..place.rank + 1);
    }
    round
}

/// Everybody's own block to everybody.
pub(crate) fn all_gather(place: &Place<'_>) -> Round {
    let me = place.rank;
    let mut round = Round::default();
    for other in 0..place.world {
        round.send(me, other, me..me + 1);
        round.receive(me, other, other..other + 1);
    }
    round
}

/// Everybody's blocks to everybody.
pub(crate) fn share(place: &Place<'_>) -> Round {
    let mut round = Round::default();
    for other in 0..place.world {
        round.send(place.rank, other, 0..place.blocks);
        round.receive(place.rank, other, 0..place.blocks);
    }
    round
}

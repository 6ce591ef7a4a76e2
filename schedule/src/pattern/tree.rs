//! A binomial tree: after each round twice as many ranks have something to pass on.

use std::ops::Range;

use super::Place;
use crate::Round;

/// Levels of a binomial tree over `world` ranks.
pub(crate) fn depth(world: usize) -> usize {
    world.next_power_of_two().trailing_zeros() as usize
}

/// The root's blocks to everybody, along the tree turned so that the root is at its top; longest
/// edges first.
pub(crate) fn broadcast(place: &Place<'_>, root: usize, index: usize) -> Round {
    let mut round = Round::default();
    match edge(place, root, index) {
        Edge::Parent { child, .. } => round.send(place.rank, child, 0..place.blocks),
        Edge::Child { parent, .. } => round.receive(place.rank, parent, 0..place.blocks),
        Edge::None => {}
    }
    round
}

/// To each rank its own block, along the same tree: an edge carries all that is below it.
pub(crate) fn scatter(place: &Place<'_>, root: usize, index: usize) -> Round {
    let mut round = Round::default();
    match edge(place, root, index) {
        Edge::Parent { child, below } => {
            for blocks in turned_back(place, root, below) {
                round.send(place.rank, child, blocks);
            }
        }
        Edge::Child { parent, below } => {
            for blocks in turned_back(place, root, below) {
                round.receive(place.rank, parent, blocks);
            }
        }
        Edge::None => {}
    }
    round
}

enum Edge {
    /// This rank is the upper end.
    Parent {
        child: usize,
        below: Range<usize>,
    },
    /// This rank is the lower end.
    Child {
        parent: usize,
        below: Range<usize>,
    },
    None,
}

/// The edge at this rank in a round. Counted from the root, places that are multiples of twice the
/// stride are joined with the place a stride after them, which has the places `below` it.
fn edge(place: &Place<'_>, root: usize, index: usize) -> Edge {
    let world = place.world;
    let stride = 1 << (depth(world) - 1 - index);
    let turned = (place.rank + world - root) % world;
    let back = |turned: usize| (turned + root) % world;
    let below = |child: usize| child..(child + stride).min(world);
    match turned % (2 * stride) {
        0 if turned + stride < world => Edge::Parent {
            child: back(turned + stride),
            below: below(turned + stride),
        },
        lower if lower == stride => Edge::Child {
            parent: back(turned - stride),
            below: below(turned),
        },
        _ => Edge::None,
    }
}

/// The blocks of places that are counted from the root: the last ranks' and the first ranks' are
/// not neighbours.
fn turned_back(
    place: &Place<'_>,
    root: usize,
    turned: Range<usize>,
) -> impl Iterator<Item = Range<usize>> + use<> {
    let (world, start, end) = (place.world, turned.start + root, turned.end + root);
    let before_wrap = start.min(world)..end.min(world);
    let after_wrap = start.max(world) - world..end.max(world) - world;
    [before_wrap, after_wrap]
        .into_iter()
        .filter(|blocks| !blocks.is_empty())
}

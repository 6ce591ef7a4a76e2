use super::{OnReceive, Receive, Round, Send, rank_at};

/// Levels of a binomial tree over `world` ranks.
pub(super) fn depth(world: usize) -> usize {
    world.next_power_of_two().trailing_zeros() as usize
}

/// Contributions climb to rank 0 along the tree's edges, shortest first; the result comes down.
pub(super) fn all_reduce(world: usize, rank: usize, round: usize) -> Round {
    match round.checked_sub(depth(world)) {
        None => match edge(world, rank, 1 << round) {
            Edge::Parent(child) => receive(child, OnReceive::Reduce),
            Edge::Child(parent) => send(parent),
            Edge::None => Round::default(),
        },
        Some(down) => broadcast(world, rank, 0, down),
    }
}

/// The tree turned so that `root` is at its top; longest edges first.
pub(super) fn broadcast(world: usize, rank: usize, root: usize, round: usize) -> Round {
    let turned = (rank + world - root) % world;
    let back = |place: usize| (place + root) % world;
    match edge(world, turned, 1 << (depth(world) - 1 - round)) {
        Edge::Parent(child) => send(back(child)),
        Edge::Child(parent) => receive(back(parent), OnReceive::Replace),
        Edge::None => Round::default(),
    }
}

enum Edge {
    /// This rank is the upper end; the other end is given.
    Parent(usize),
    /// This rank is the lower end; the other end is given.
    Child(usize),
    None,
}

/// The edge of length `stride` that touches `rank`: places that are multiples of `2 * stride` are
/// joined with the place `stride` after them.
fn edge(world: usize, rank: usize, stride: usize) -> Edge {
    match rank % (2 * stride) {
        0 if rank + stride < world => Edge::Parent(rank + stride),
        place if place == stride => Edge::Child(rank - stride),
        _ => Edge::None,
    }
}

fn send(to: usize) -> Round {
    Round {
        send: Some(Send {
            to: rank_at(to),
            chunk: 0,
        }),
        receive: None,
    }
}

fn receive(from: usize, then: OnReceive) -> Round {
    Round {
        send: None,
        receive: Some(Receive {
            from: rank_at(from),
            chunk: 0,
            then,
        }),
    }
}

use super::{OnReceive, Receive, Round, Send, rank_at};

/// `n - 1` rounds that reduce and scatter, then `n - 1` that gather.
pub(super) fn all_reduce_rounds(world: usize) -> usize {
    2 * (world - 1)
}

/// In round `r` rank `k` passes on chunk `k - r`: what it has just completed by one contribution
/// (first half) or just received complete (second half). The two halves are one formula.
pub(super) fn all_reduce(world: usize, rank: usize, round: usize) -> Round {
    let then = if round < world - 1 {
        OnReceive::Reduce
    } else {
        OnReceive::Replace
    };
    // `round` is below `2 * world`, so the difference stays above zero.
    let chunk_before = |rounds: usize| (rank + 2 * world - rounds) % world;
    Round {
        send: Some(Send {
            to: successor(world, rank),
            chunk: chunk_before(round),
        }),
        receive: Some(Receive {
            from: predecessor(world, rank),
            chunk: chunk_before(round + 1),
            then,
        }),
    }
}

/// A chain from the root, pipelined over as many chunks as there are ranks.
pub(super) fn broadcast_rounds(world: usize) -> usize {
    if world == 1 { 0 } else { 2 * world - 2 }
}

/// The rank at distance `d` behind the root sends chunk `c` in round `d + c`.
pub(super) fn broadcast(world: usize, rank: usize, root: usize, round: usize) -> Round {
    let distance = (rank + world - root) % world;
    let chunk = |behind: usize| round.checked_sub(behind).filter(|chunk| *chunk < world);
    let sends = distance + 1 < world;
    Round {
        send: chunk(distance).filter(|_| sends).map(|chunk| Send {
            to: successor(world, rank),
            chunk,
        }),
        receive: distance
            .checked_sub(1)
            .and_then(chunk)
            .map(|chunk| Receive {
                from: predecessor(world, rank),
                chunk,
                then: OnReceive::Replace,
            }),
    }
}

fn successor(world: usize, rank: usize) -> crate::Rank {
    rank_at((rank + 1) % world)
}

fn predecessor(world: usize, rank: usize) -> crate::Rank {
    rank_at((rank + world - 1) % world)
}

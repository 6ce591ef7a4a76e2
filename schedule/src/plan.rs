//! Which patterns make up which collective.
//!
//! Only what spreads is listed: a collective that brings together is one that spreads, backwards.

use smallvec::{SmallVec, smallvec};

use super::pattern::halving::{Cut, active};
use super::pattern::hierarchy::Owner;
use super::pattern::tree::Tree;
use super::pattern::{Pattern, Phase, Way};
use super::{Algorithm, Collective};

/// The phases of a schedule, in order.
pub(super) type Phases = SmallVec<[Phase; 4]>;

/// What a collective is put together from, and over how many blocks.
pub(super) fn plan(collective: Collective, algorithm: Algorithm, world: usize) -> (Phases, usize) {
    let alone = |pattern| smallvec![Phase::out(pattern)];
    match collective {
        Collective::AllReduce => (all_reduce(algorithm), parts(algorithm, world)),
        Collective::Broadcast { root } => {
            let phases = broadcast(algorithm, root.index());
            (phases, pieces(algorithm, world))
        }
        Collective::Reduce { root } => {
            let phases = backwards(broadcast(algorithm, root.index()));
            (phases, pieces(algorithm, world))
        }
        Collective::AllGather => (all_gather(algorithm, Owner::Rank), world),
        Collective::ReduceScatter => {
            let phases = backwards(all_gather(algorithm, Owner::Rank));
            (phases, world)
        }
        Collective::Scatter { root } => (alone(scatter(algorithm, root.index())), world),
        Collective::Gather { root } => {
            let phases = backwards(alone(scatter(algorithm, root.index())));
            (phases, world)
        }
        Collective::AllToAll => (alone(all_to_all(algorithm)), world * world),
        Collective::Barrier => (barrier(algorithm), 0),
    }
}

/// Blocks of an all-reduce: as many as ranks that reduce a part of the buffer.
fn parts(algorithm: Algorithm, world: usize) -> usize {
    match algorithm {
        Algorithm::OneShot | Algorithm::Tree | Algorithm::Knomial => 1,
        Algorithm::Halving => active(world),
        Algorithm::Ring | Algorithm::Direct | Algorithm::Hierarchical => world,
    }
}

/// Blocks of a broadcast: as many as ranks that pass a part of the buffer on.
fn pieces(algorithm: Algorithm, world: usize) -> usize {
    match algorithm {
        Algorithm::OneShot | Algorithm::Tree | Algorithm::Knomial => 1,
        Algorithm::Ring | Algorithm::Direct | Algorithm::Halving | Algorithm::Hierarchical => world,
    }
}

fn all_reduce(algorithm: Algorithm) -> Phases {
    let spread = match algorithm {
        Algorithm::OneShot => {
            let (pattern, way) = (Pattern::StarShare, Way::Reduce);
            return smallvec![Phase { pattern, way }];
        }
        Algorithm::Tree => smallvec![Phase::out(Pattern::TreeBroadcast(Tree::binomial(0)))],
        Algorithm::Knomial => smallvec![Phase::out(Pattern::TreeBroadcast(Tree::knomial(0)))],
        Algorithm::Halving => smallvec![
            Phase::out(Pattern::Doubling(Cut::Balanced)),
            Phase::out(Pattern::PairBroadcast),
        ],
        Algorithm::Ring | Algorithm::Direct | Algorithm::Hierarchical => {
            all_gather(algorithm, Owner::LocalRank)
        }
    };
    let mut phases = backwards(spread.clone());
    phases.extend(spread);
    phases
}

fn broadcast(algorithm: Algorithm, root: usize) -> Phases {
    match algorithm {
        Algorithm::OneShot => smallvec![Phase::out(Pattern::StarBroadcast(root))],
        Algorithm::Ring => smallvec![Phase::out(Pattern::ChainBroadcast(root))],
        Algorithm::Tree => smallvec![Phase::out(Pattern::TreeBroadcast(Tree::binomial(root)))],
        Algorithm::Knomial => smallvec![Phase::out(Pattern::TreeBroadcast(Tree::knomial(root)))],
        Algorithm::Hierarchical => smallvec![
            Phase::out(Pattern::HostDeal(root)),
            Phase::out(Pattern::HostBroadcast(root)),
        ],
        // van de Geijn: hand out parts, then let all exchange them.
        Algorithm::Direct | Algorithm::Halving => {
            let mut phases: Phases = smallvec![Phase::out(scatter(algorithm, root))];
            phases.extend(all_gather(algorithm, Owner::Rank));
            phases
        }
    }
}

fn all_gather(algorithm: Algorithm, owner: Owner) -> Phases {
    match algorithm {
        Algorithm::OneShot | Algorithm::Direct => smallvec![Phase::out(Pattern::StarAllGather)],
        Algorithm::Ring => smallvec![Phase::out(Pattern::RingAllGather)],
        Algorithm::Tree => up_and_down(Tree::binomial(0)),
        Algorithm::Knomial => up_and_down(Tree::knomial(0)),
        Algorithm::Halving => smallvec![
            Phase {
                pattern: Pattern::PairScatter,
                way: Way::Back,
            },
            Phase::out(Pattern::Doubling(Cut::PerRank)),
            Phase::out(Pattern::PairBroadcast),
        ],
        Algorithm::Hierarchical => smallvec![Phase::out(Pattern::HostAllGather(owner))],
    }
}

/// All blocks to the root, and from there to all.
fn up_and_down(tree: Tree) -> Phases {
    smallvec![
        Phase {
            pattern: Pattern::TreeScatter(tree),
            way: Way::Back,
        },
        Phase::out(Pattern::TreeBroadcast(tree)),
    ]
}

fn scatter(algorithm: Algorithm, root: usize) -> Pattern {
    match algorithm {
        Algorithm::OneShot | Algorithm::Direct => Pattern::StarScatter(root),
        Algorithm::Ring => Pattern::ChainScatter(root),
        Algorithm::Tree | Algorithm::Halving => Pattern::TreeScatter(Tree::binomial(root)),
        Algorithm::Knomial => Pattern::TreeScatter(Tree::knomial(root)),
        Algorithm::Hierarchical => Pattern::HostScatter(root),
    }
}

fn all_to_all(algorithm: Algorithm) -> Pattern {
    match algorithm {
        Algorithm::OneShot | Algorithm::Direct => Pattern::AllAtOnce,
        Algorithm::Ring => Pattern::OneByOne,
        Algorithm::Tree | Algorithm::Knomial | Algorithm::Halving => Pattern::ByBits,
        Algorithm::Hierarchical => Pattern::HostAllToAll,
    }
}

/// To the top of a tree and back takes two messages a rank, and twice the rounds of dissemination,
/// which takes the logarithm of both.
fn barrier(algorithm: Algorithm) -> Phases {
    let along = |tree| {
        let down = Phase::out(Pattern::TreeBroadcast(tree));
        smallvec![down.backwards(), down]
    };
    match algorithm {
        Algorithm::Tree => along(Tree::binomial(0)),
        Algorithm::Knomial => along(Tree::knomial(0)),
        Algorithm::Ring
        | Algorithm::OneShot
        | Algorithm::Direct
        | Algorithm::Halving
        | Algorithm::Hierarchical => smallvec![Phase::out(Pattern::Barrier)],
    }
}

fn backwards(phases: Phases) -> Phases {
    phases.into_iter().rev().map(Phase::backwards).collect()
}

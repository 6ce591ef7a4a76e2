//! Who tells whom which call it makes.
//!
//! ```text
//!   up to 8 ranks   0 -> 1 -> 2 -> … -> 0                     a ring, before the first round
//!   of more         1 … 7 -> 0   9 … 15 -> 8 -> 0             a tree, with the first chunk that
//!                                                             goes the same way
//! ```
//!
//! Both join all ranks: if any two make different calls then two that tell each other do. The tree
//! is that of [`Algorithm::Knomial`](crate::schedule::Algorithm::Knomial), so the call of a short
//! operation travels in the packet of a chunk, and a rank has few others to do with.

use crate::communication::SMALL_WORLD;
use crate::{Rank, overlay};

/// Who tells whom which call it makes, in every operation of a group.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum CallGraph {
    /// Each rank tells its successor.
    Ring,
    /// Each rank tells the one above it in a tree with rank 0 at the top.
    Tree,
}

impl CallGraph {
    pub(crate) fn among(world: u32) -> Self {
        match world as usize <= SMALL_WORLD {
            true => Self::Ring,
            false => Self::Tree,
        }
    }

    /// Whom this rank tells.
    pub(super) fn told(self, me: Rank, world: u32) -> Option<Rank> {
        match self {
            Self::Ring => Some(Rank::new((me.number() + 1) % world)),
            Self::Tree => overlay::parent(me),
        }
    }

    /// Who tells this rank.
    pub(super) fn tellers(self, me: Rank, world: u32) -> Vec<Rank> {
        match self {
            Self::Ring => vec![Rank::new((me.number() + world - 1) % world)],
            Self::Tree => overlay::children(me, world).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn who_tells_is_heard_and_all_are_joined() {
        for graph in [CallGraph::Ring, CallGraph::Tree] {
            for world in 2..=70 {
                let mut joined = BTreeSet::from([Rank::CHIEF]);
                for me in Rank::all(world) {
                    let told = graph.told(me, world);
                    let heard = told.is_none_or(|to| graph.tellers(to, world).contains(&me));
                    assert!(heard, "{graph:?}, {me} of {world}");
                    for from in graph.tellers(me, world) {
                        assert_eq!(graph.told(from, world), Some(me), "{graph:?} of {world}");
                    }
                    // Each tells one that comes before it, or after all before it.
                    if told.is_some_and(|to| joined.contains(&to)) || graph == CallGraph::Ring {
                        joined.insert(me);
                    }
                }
                assert_eq!(joined.len(), world as usize, "{graph:?} of {world}");
            }
        }
    }
}

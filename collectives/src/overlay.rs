//! Which ranks are connected from the start to the end, and how words get to the others.
//!
//! ```text
//!   of 16 ranks, rank 0 is connected with     1 2   4       8      12   14 15
//! ```
//!
//! Ranks at distances of powers of two, in both directions: the partners of rings, halving and
//! dissemination, and the nearest of each level of a tree. They send each other signs of life, and
//! pass on what is for everybody. If all who watch a rank die with it, those are missed by others,
//! and the agreement that follows any loss finds who else is gone.
//!
//! Each rank has at most 2⌈log₂ n⌉ neighbours, and a word for any other takes at most ⌈log₂ n⌉
//! hops. (A circulant graph, as in Stoica et al., "Chord", 2001, in both directions.)

use std::collections::BTreeSet;

use crate::Rank;
use crate::schedule::KNOMIAL_RADIX;

/// Whether two ranks of a group of `world` are neighbours: one is a power of two behind the other.
pub(crate) fn adjacent(one: Rank, other: Rank, world: u32) -> bool {
    let ahead = one.number().abs_diff(other.number());
    ahead.is_power_of_two() || world.saturating_sub(ahead).is_power_of_two()
}

/// The neighbours of a rank, without itself.
pub(crate) fn neighbours(me: Rank, world: u32) -> BTreeSet<Rank> {
    let distances = (0..u32::BITS)
        .map(|round| 1 << round)
        .take_while(|distance| *distance < world);
    distances
        .flat_map(|distance| {
            [
                ahead(me, distance, world),
                ahead(me, world - distance, world),
            ]
        })
        .collect()
}

/// Bits of a digit, where ranks are written so that each digit is a level of the tree.
const DIGIT: u32 = KNOMIAL_RADIX.ilog2();

/// The rank above this one in the tree with rank 0 at its top by which
/// [`Algorithm::Knomial`](crate::schedule::Algorithm::Knomial) goes: this one without its last
/// digit that is not zero.
pub(crate) fn parent(me: Rank) -> Option<Rank> {
    let number = me.number();
    let digit = ((1 << DIGIT) - 1) << (number.trailing_zeros() / DIGIT * DIGIT);
    (number != 0).then(|| Rank::new(number & !digit))
}

/// The ranks below this one in that tree.
pub(crate) fn children(me: Rank, world: u32) -> impl Iterator<Item = Rank> {
    let levels = (0..u32::BITS / DIGIT).take_while(move |level| 1 << (DIGIT * level) < world);
    let below = levels.take_while(move |level| me.number().trailing_zeros() >= DIGIT * (level + 1));
    let digits = below.flat_map(|level| (1..1 << DIGIT).map(move |digit| digit << (DIGIT * level)));
    let children = digits.map(move |distance| me.number() + distance);
    children
        .take_while(move |child| *child < world)
        .map(Rank::new)
}

/// Whom to hand a word for `to`, which is another rank: the neighbour that is nearest to it on the
/// shorter way.
pub(crate) fn next_hop(me: Rank, to: Rank, world: u32) -> Rank {
    let forwards = ahead(to, world - me.number(), world).number();
    let step = |distance: u32| 1 << distance.ilog2();
    match forwards <= world / 2 {
        true => ahead(me, step(forwards), world),
        false => ahead(me, world - step(world - forwards), world),
    }
}

/// The rank `distance` behind this one, around the end.
pub(crate) fn ahead(rank: Rank, distance: u32, world: u32) -> Rank {
    let sum = u64::from(rank.number()) + u64::from(distance);
    let place = sum % u64::from(world);
    Rank::new(u32::try_from(place).expect("less than the world"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{Algorithm, Collective, Hosts, Schedule};

    fn watchers(rank: u32, world: u32) -> impl Iterator<Item = u32> {
        neighbours(Rank::new(rank), world)
            .into_iter()
            .map(Rank::number)
    }

    #[test]
    fn neighbours_are_mutual_and_their_number_grows_with_the_logarithm() {
        for world in (2_u32..=300).chain([1024, 1000, 4096]) {
            let most = 2 * world.next_power_of_two().ilog2();
            for rank in [0, 1, world / 3, world / 2, world - 1] {
                let count = watchers(rank, world).count();
                assert!(
                    (1..=most as usize).contains(&count),
                    "{count} for {rank} of {world}"
                );
                let found: Vec<u32> = watchers(rank, world).collect();
                let each = |other: &u32| adjacent(Rank::new(rank), Rank::new(*other), world);
                let expected: Vec<u32> = (0..world)
                    .filter(|other| *other != rank && each(other))
                    .collect();
                assert_eq!(found, expected, "{rank} of {world}");
            }
        }
    }

    #[test]
    fn a_word_arrives_in_at_most_as_many_hops_as_the_logarithm() {
        for world in (2_u32..=70).chain([100_000]) {
            let most = world.next_power_of_two().ilog2();
            let far = [1, 2, 3, world / 3, world / 2, world - 1];
            for distance in (1..world.min(71)).chain(far) {
                let start = Rank::new(world / 5);
                let to = ahead(start, distance % world, world);
                let (mut at, mut hops) = (start, 0);
                while at != to {
                    let next = next_hop(at, to, world);
                    assert!(adjacent(at, next, world), "{at} to {next} of {world}");
                    (at, hops) = (next, hops + 1);
                }
                assert!(hops <= most, "{hops} hops over {distance} of {world}");
            }
        }
    }

    #[test]
    fn who_is_above_and_below_is_as_a_schedule_says() {
        for world in (1..=80).chain([511, 512, 513, 600]) {
            let hosts = Hosts::apart(world);
            for me in Rank::all(world) {
                let down = Collective::Broadcast { root: Rank::CHIEF };
                let rounds = Schedule::new(down, Algorithm::Knomial, &hosts, me).rounds();
                let (mut above, mut below) = (None, BTreeSet::new());
                for round in rounds {
                    let receives = round.receives();
                    above = above.or_else(|| receives.first().map(|receive| receive.from));
                    below.extend(round.sends().iter().map(|send| send.to));
                }
                assert_eq!(parent(me), above, "{me} of {world}");
                assert_eq!(children(me, world).collect::<BTreeSet<_>>(), below);
            }
        }
    }

    #[test]
    fn in_groups_of_up_to_five_everybody_is_everybodys_neighbour() {
        for world in 2..=5 {
            for rank in 0..world {
                assert_eq!(watchers(rank, world).count(), world as usize - 1);
            }
        }
    }

    /// However many die at once, some living rank watches one of the dead.
    #[test]
    fn no_set_of_dead_ranks_is_unwatched_by_the_living() {
        for world in 2..=12_u32 {
            for dead in 1..(1_u32 << world) - 1 {
                let is_dead = |rank: u32| dead >> rank & 1 == 1;
                let mut all = (0..world).filter(|rank| is_dead(*rank));
                let seen = all.any(|rank| watchers(rank, world).any(|other| !is_dead(other)));
                assert!(seen, "dead {dead:b} of {world}");
            }
        }
    }
}

//! Who watches whom.
//!
//! ```text
//!   of 16 ranks, rank 0 watches and is watched by     1 2   4       8      12   14 15
//! ```
//!
//! If all who watch a rank die with it, those are missed by others, and the agreement that follows
//! any loss finds who else is gone.

/// Whether two ranks of a group of `world` watch each other: one is a power of two behind the
/// other.
pub(super) fn each_other(one: u32, other: u32, world: u32) -> bool {
    let ahead = one.abs_diff(other);
    ahead.is_power_of_two() || world.saturating_sub(ahead).is_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watchers(rank: u32, world: u32) -> impl Iterator<Item = u32> {
        (0..world).filter(move |other| *other != rank && each_other(rank, *other, world))
    }

    #[test]
    fn watching_is_mutual_and_its_load_grows_with_the_logarithm() {
        for world in (2_u32..=300).chain([1024, 1000, 4096]) {
            let most = 2 * world.next_power_of_two().ilog2();
            for rank in [0, 1, world / 3, world / 2, world - 1] {
                let count = watchers(rank, world).count();
                assert!(
                    (1..=most as usize).contains(&count),
                    "{count} for {rank} of {world}"
                );
                let mutual = watchers(rank, world).all(|other| each_other(other, rank, world));
                assert!(mutual, "{rank} of {world}");
            }
        }
    }

    #[test]
    fn in_groups_of_up_to_five_everybody_watches_everybody() {
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

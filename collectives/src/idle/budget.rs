//! Which connections a rank closes that has more than it is to have.

use std::time::{Duration, Instant};

use crate::Rank;

/// How long nothing has needed a connection that counts as idle: long beside a handshake, so that
/// operations which need more connections than the budget has do not spend their time on dialling.
pub(crate) const IDLE: Duration = Duration::from_secs(2);

/// How many other ranks one of `world` stays connected with, where nothing else is set: twice its
/// neighbours, which grow with the logarithm.
pub(crate) fn default_budget(world: u32) -> u32 {
    4 * world.next_power_of_two().ilog2()
}

/// A connection that nothing needs.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Idle {
    pub(crate) since: Instant,
    pub(crate) rank: Rank,
}

/// Of these connections, those that are to be closed by a rank which has `excess` too many: the
/// longest idle ones, of those that have been idle `long` enough.
pub(crate) fn to_close(now: Instant, excess: usize, long: Duration, idle: Vec<Idle>) -> Vec<Rank> {
    let mut idle = idle;
    idle.retain(|one| now.saturating_duration_since(one.since) >= long);
    idle.sort_unstable();
    idle.into_iter().take(excess).map(|one| one.rank).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// Takes out whoever nobody else has been idle for longer than, as often as it may.
    fn oracle(now: Instant, excess: usize, long: Duration, mut idle: Vec<Idle>) -> BTreeSet<Rank> {
        let mut closed = BTreeSet::new();
        for _ in 0..excess {
            let age = |one: &Idle| (now.duration_since(one.since), u32::MAX - one.rank.number());
            let Some(oldest) = idle.iter().copied().max_by_key(age) else {
                break;
            };
            if now.duration_since(oldest.since) >= long {
                closed.insert(oldest.rank);
            }
            idle.retain(|one| *one != oldest);
        }
        closed
    }

    proptest! {
        #[test]
        fn the_longest_idle_are_closed_and_no_more_than_are_too_many(
            ages in prop::collection::vec(0_u64..6, 0..9),
            excess in 0_usize..10,
            long in 0_u64..6,
        ) {
            let now = Instant::now() + Duration::from_secs(60);
            let long = Duration::from_secs(long);
            let idle: Vec<Idle> = ages
                .iter()
                .enumerate()
                .map(|(place, age)| Idle {
                    since: now - Duration::from_secs(*age),
                    rank: Rank::at(place),
                })
                .collect();
            let closed = to_close(now, excess, long, idle.clone());
            prop_assert!(closed.len() <= excess);
            let closed: BTreeSet<Rank> = closed.into_iter().collect();
            prop_assert_eq!(closed, oracle(now, excess, long, idle));
        }
    }

    #[test]
    fn the_default_has_room_for_all_of_16_ranks_and_for_all_neighbours_of_any_number() {
        for world in 2..=16 {
            assert!(default_budget(world) >= world - 1, "{world} ranks");
        }
        for world in [17, 64, 100, 4096] {
            let neighbours = crate::overlay::neighbours(Rank::CHIEF, world).len();
            assert!(
                default_budget(world) as usize >= 2 * neighbours - 2,
                "{world} ranks"
            );
        }
        assert_eq!(default_budget(4096), 48);
    }
}

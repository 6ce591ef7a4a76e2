//! All ways in which few ranks can wait for each other.

use super::model::Model;
use super::oracle::deadlocks;
use super::*;

/// Each of the ranks waits for the one of this number, or for nobody if that is its own; those who
/// are awaited hold the waiter's group if its bit is set. Its place in a line of numbers is as good
/// as drawn by lot, another one with each `seed`.
fn world(awaited: &[u32], holds: u32, seed: u64) -> Vec<WaitEdge> {
    let ranks = || (0_u32..).zip(awaited);
    let waiting = ranks().filter(|(rank, awaited)| rank != *awaited);
    let waits = waiting.map(|(rank, awaited)| {
        let waiters = ranks().filter(|(waiter, whom)| **whom == rank && *waiter != rank);
        let held: Vec<_> = waiters
            .filter(|(waiter, _)| holds >> waiter & 1 == 1)
            .map(|(waiter, _)| (u64::from(waiter) + 1, 0))
            .collect();
        let wait = wait(rank, *awaited, (u64::from(rank) + 1, 1), &held);
        WaitEdge {
            serial: wait.serial + 1000 * seed,
            ..wait
        }
    });
    waits.collect()
}

/// The digits of a number, as the ranks that each waits for.
fn awaited(number: u32, ranks: u32) -> Vec<u32> {
    (0..ranks)
        .map(|place| number / ranks.pow(place) % ranks)
        .collect()
}

fn check(waits: &[WaitEdge]) {
    // Two probes go around, with a look at each wait, and `CERTAIN` lies between.
    let bound = CERTAIN + SOON + 4 * model::LOOK * u32::try_from(waits.len()).unwrap();
    let expected = deadlocks(waits);
    let found = Model::new(Duration::from_millis(1)).run(waits, bound);
    assert_eq!(found.is_empty(), expected.is_empty(), "{waits:?}");
    for (_, deadlock) in found {
        assert!(expected.contains(&deadlock), "{deadlock:?} of {waits:?}");
    }
}

#[test]
fn of_four_ranks_every_deadlock_is_found_and_nothing_else() {
    for number in 0..4_u32.pow(4) {
        for holds in 0..1 << 4 {
            check(&world(
                &awaited(number, 4),
                holds,
                u64::from(number + holds),
            ));
        }
    }
}

#[test]
fn of_five_ranks_every_deadlock_is_found_whoever_draws_the_lowest_number() {
    for number in 0..5_u32.pow(5) {
        for seed in 0..3 {
            check(&world(&awaited(number, 5), u32::MAX, seed));
        }
    }
}

#[test]
fn a_cycle_is_found_in_the_same_time_in_every_order_of_its_numbers() {
    let ring = [1, 2, 3, 0];
    let order = |waits: &[WaitEdge]| {
        let mut ranks: Vec<_> = waits
            .iter()
            .map(|wait| (wait.id().draw(), wait.waiter))
            .collect();
        ranks.sort_unstable();
        ranks.into_iter().map(|(_, rank)| rank).collect::<Vec<_>>()
    };
    let mut orders = BTreeMap::new();
    for seed in 0..500 {
        let waits = world(&ring, u32::MAX, seed);
        orders.entry(order(&waits)).or_insert(waits);
    }
    assert_eq!(orders.len(), 24);
    for (order, waits) in orders {
        let (_, deadlock) = found(&waits, LONG).unwrap();
        assert_eq!(deadlock.one.0, Rank::CHIEF, "{order:?}");
        check(&waits);
    }
}

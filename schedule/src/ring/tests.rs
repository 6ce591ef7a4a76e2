//! Rings in every order through the checker, and the widest of them against all there are.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::{Goal, Order, Schedule, check};

/// Every order of so many ranks.
fn orders(world: usize) -> Vec<Vec<usize>> {
    let Some(last) = world.checked_sub(1) else {
        return vec![Vec::new()];
    };
    let mut all = Vec::new();
    for shorter in orders(last) {
        for at in 0..world {
            let mut order = shorter.clone();
            order.insert(at, last);
            all.push(order);
        }
    }
    all
}

fn ring_of(order: &[usize]) -> RingOrder {
    RingOrder::new(order.iter().map(|rank| rank_at(*rank))).unwrap()
}

/// All collectives, rooted ones at this rank, and what they have to reach.
fn collectives(root: Rank) -> [(Collective, Goal); 9] {
    [
        (Collective::AllReduce, Goal::AllReduce),
        (Collective::ReduceScatter, Goal::ReduceScatter),
        (Collective::AllGather, Goal::AllGather),
        (Collective::AllToAll, Goal::AllToAll),
        (Collective::Barrier, Goal::Barrier),
        (Collective::Reduce { root }, Goal::Reduce(root)),
        (Collective::Broadcast { root }, Goal::Broadcast(root)),
        (Collective::Gather { root }, Goal::Gather(root)),
        (Collective::Scatter { root }, Goal::Scatter(root)),
    ]
}

#[track_caller]
fn proves(order: &[usize], collective: Collective, goal: &Goal) {
    let ring = ring_of(order);
    let schedule = |rank| Schedule::along(collective, &ring, rank);
    let ranks = Rank::all(u32::try_from(order.len()).unwrap());
    let plan: Vec<Vec<Round>> = ranks
        .map(|rank| schedule(rank).rounds().collect())
        .collect();
    let found = check(&plan, schedule(Rank::CHIEF).blocks(), goal);
    assert!(found.is_ok(), "{collective:?} along {ring}: {found:?}");
    let is_at_once = schedule(Rank::CHIEF).combines_at_once();
    assert!(
        !is_at_once || found == Ok(Order::BalancedAtOnce),
        "{collective:?} along {ring}: {found:?}"
    );
}

#[test]
fn every_collective_is_proved_along_every_ring_of_up_to_five_ranks() {
    for world in 1..=5 {
        for order in orders(world) {
            for root in 0..world {
                for (collective, goal) in collectives(rank_at(root)) {
                    proves(&order, collective, &goal);
                }
            }
        }
    }
}

#[test]
fn all_reduces_are_proved_along_every_ring_of_six_ranks() {
    for order in orders(6) {
        proves(&order, Collective::AllReduce, &Goal::AllReduce);
    }
}

#[test]
fn along_the_order_of_the_ranks_it_is_the_ring_that_needs_none() {
    for world in 1..=9 {
        let ring = RingOrder::new(Rank::all(world)).unwrap();
        for rank in Rank::all(world) {
            for (collective, _) in collectives(Rank::CHIEF) {
                let along = Schedule::along(collective, &ring, rank);
                let hosts = crate::Hosts::apart(world);
                let ring = Schedule::new(collective, crate::Algorithm::Ring, &hosts, rank);
                assert!(
                    along.rounds().eq(ring.rounds()),
                    "{collective:?} of {world}"
                );
            }
        }
    }
}

#[test]
fn only_neighbours_on_the_ring_send_to_each_other_and_gather_one_way() {
    let ring = ring_of(&[0, 3, 1, 4, 2]);
    let links: Vec<(Rank, Rank)> = ring.links().collect();
    for rank in Rank::all(5) {
        let schedule = |collective| Schedule::along(collective, &ring, rank);
        for round in schedule(Collective::AllGather).rounds() {
            for send in round.sends() {
                assert!(links.contains(&(rank, send.to)), "{rank} to {}", send.to);
            }
        }
        for peer in schedule(Collective::AllReduce).peers() {
            let either = [(rank, peer), (peer, rank)];
            assert!(
                either.iter().any(|link| links.contains(link)),
                "{rank}, {peer}"
            );
        }
    }
    assert_eq!(links.len(), 5);
    assert_eq!(ring_of(&[0]).links().count(), 0);
}

#[test]
fn an_order_that_misses_a_rank_or_names_one_twice_is_none() {
    for wrong in [&[1_u32, 2][..], &[0, 0], &[0, 1, 3]] {
        let ranks = wrong.iter().copied().map(Rank::new);
        assert_eq!(RingOrder::new(ranks), None, "{wrong:?}");
    }
    assert_eq!(RingOrder::new([]).unwrap().world(), 0);
}

/// The best score of all rings, found by looking at each.
fn best_of_all(rates: &[Vec<u64>]) -> (u64, u128) {
    // A ring begins anywhere.
    let scores = orders(rates.len() - 1).into_iter().map(|others| {
        let others = others.into_iter().map(|one| one + 1);
        let order: Vec<usize> = std::iter::once(0).chain(others).collect();
        let links = order.iter().zip(order.iter().cycle().skip(1));
        let rates: Vec<u64> = links.map(|(from, to)| rates[*from][*to]).collect();
        let sum = rates.iter().map(|rate| u128::from(*rate)).sum();
        (*rates.iter().min().unwrap(), sum)
    });
    scores.max().unwrap()
}

fn found(rates: &[Vec<u64>]) -> (u64, u128) {
    let ring = widest::ring(rates);
    assert_eq!(ring[0], 0);
    ring_of(&ring);
    widest::score(&ring, rates)
}

/// Square rates from a row of them.
fn square(world: usize, rates: &[u64]) -> Vec<Vec<u64>> {
    rates.chunks(world).map(<[u64]>::to_vec).collect()
}

#[test]
fn of_three_and_four_ranks_the_best_ring_is_found_for_all_rates() {
    for (world, kinds) in [(3_usize, 3_u64), (4, 2)] {
        let links = world * (world - 1);
        for code in 0..kinds.pow(u32::try_from(links).unwrap()) {
            let mut digits = code;
            let mut next = || {
                let digit = digits % kinds;
                digits /= kinds;
                digit
            };
            let rates: Vec<Vec<u64>> = (0..world)
                .map(|from| {
                    let rate = |to| if from == to { 0 } else { next() };
                    (0..world).map(rate).collect()
                })
                .collect();
            assert_eq!(found(&rates), best_of_all(&rates), "{rates:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    #[test]
    fn of_up_to_eight_ranks_the_best_ring_is_found(
        (world, rates) in (2_usize..=8).prop_flat_map(|world| {
            (Just(world), vec(prop_oneof![0_u64..6, any::<u64>()], world * world))
        })
    ) {
        let rates = square(world, &rates);
        // Two ranks have one ring.
        let ring = widest::ring(&rates);
        prop_assert_eq!(widest::score(&ring, &rates), best_of_all(&rates));
    }

    #[test]
    fn of_many_ranks_a_ring_is_found_that_no_change_makes_better_than_their_order(
        (world, rates) in (widest::EXACT + 1..=20).prop_flat_map(|world| {
            (Just(world), vec(1_u64..100, world * world))
        })
    ) {
        let rates = square(world, &rates);
        let in_order: Vec<usize> = (0..world).collect();
        prop_assert!(found(&rates) >= widest::score(&in_order, &rates));
    }

    #[test]
    fn a_fast_ring_among_slow_links_is_found_whatever_its_order(
        order in (3_usize..=40).prop_flat_map(|world| {
            Just((0..world).collect::<Vec<_>>()).prop_shuffle()
        })
    ) {
        let world = order.len();
        let mut rates = vec![vec![1_u64; world]; world];
        for (from, to) in order.iter().zip(order.iter().cycle().skip(1)) {
            rates[*from][*to] = 100;
        }
        prop_assert_eq!(found(&rates), (100, 100 * world as u128));
    }

    #[test]
    fn rings_of_up_to_64_ranks_are_proved(
        order in (1_usize..=64).prop_flat_map(|world| {
            Just((0..world).collect::<Vec<_>>()).prop_shuffle()
        })
    ) {
        for (collective, goal) in &collectives(rank_at(order.len() - 1))[..3] {
            proves(&order, *collective, goal);
        }
    }
}

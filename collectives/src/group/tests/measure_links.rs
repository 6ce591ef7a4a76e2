//! Links that are measured, and operations that go by links that are known.

use super::*;
use crate::measured_links::{LinkSpeed, MeasuredLinks};

/// Links of which those along this ring are fast, as if they had been measured.
fn along(order: &[u32]) -> MeasuredLinks {
    let world = u32::try_from(order.len()).unwrap();
    let place = |rank: u32| order.iter().position(|one| *one == rank).unwrap();
    let follows = |from, to| (place(from) + 1) % order.len() == place(to);
    let are_next = |one, other| follows(one, other) || follows(other, one);
    let speed = |from, to| LinkSpeed {
        bytes_per_second: if are_next(from, to) { 1 << 30 } else { 1 << 10 },
        round_trip: Duration::from_micros(50),
    };
    let pairs = (0..world).flat_map(|from| (0..world).map(move |to| (from, to)));
    let words = pairs.flat_map(|(from, to)| match from == to {
        true => [0; 2],
        false => speed(from, to).words(),
    });
    MeasuredLinks::from_words(world, &words.collect::<Vec<_>>())
}

#[test]
fn all_ranks_measure_the_same_links_and_go_on() {
    for (over, world) in [
        (Over::Tls, 2),
        // Of an odd number one rests in each round.
        (Over::Quic, 3),
        (Over::Hosts, 4),
    ] {
        let measured = over.run(world, |mut group| {
            let links = group.measure_links().unwrap().unwrap();
            // Once more, as where they have changed.
            let again = group.measure_links().unwrap().unwrap();
            let mut sum = vec![1_u32; 100_000];
            for communication in [Communication::Auto, Communication::Ring] {
                group.set_communication(communication);
                sum.fill(1);
                group.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
                assert!(sum.iter().all(|one| *one == world), "{communication:?}");
            }
            group.leave().unwrap();
            [links, again]
        });
        for links in &measured {
            assert_eq!(links, &measured[0], "{over:?}");
            for (from, to) in links[0].ring().links() {
                assert!(links[0].speed(from, to).unwrap().bytes_per_second > 1);
            }
        }
    }
}

#[test]
fn ranks_that_share_memory_have_nothing_to_measure() {
    let found = Over::Local.run(3, |mut group| {
        let links = group.measure_links().unwrap();
        group.leave().unwrap();
        links
    });
    assert_eq!(found, [None, None, None]);
}

#[test]
fn sums_go_around_the_ring_that_the_links_make_fastest() {
    const LEN: usize = 2000;
    const RINGS: [[u32; 4]; 3] = [[0, 1, 2, 3], [0, 2, 1, 3], [0, 1, 3, 2]];
    // Sums of these depend on the order.
    let own = |rank: usize, at: usize| ((at * 31 + rank * 7919) as f32 * 0.618).sin();
    for order in RINGS {
        let results = Over::Quic.run(4, |mut group| {
            group.settled().medium.go_by(&along(&order));
            group.set_communication(Communication::Ring);
            let mut buffer: Vec<f32> = (0..LEN).map(|at| own(group.rank().index(), at)).collect();
            group.all_reduce(&mut buffer, ReduceOp::Sum).unwrap();
            group.leave().unwrap();
            buffer.into_iter().map(f32::to_bits).collect::<Vec<_>>()
        });
        assert!(results.iter().all(|bits| *bits == results[0]));
        // Each element is added up along the ring, from some rank on and in either direction.
        let along_ring = |order: [u32; 4], at: usize, bits: u32| {
            (0..8).any(|way: usize| {
                let step = if way < 4 { 1 } else { 3 };
                let ranks = (0..4).map(|place| order[(way + step * place) % 4] as usize);
                let sum = ranks
                    .map(|rank| own(rank, at))
                    .reduce(|sum, next| sum + next);
                sum.unwrap().to_bits() == bits
            })
        };
        let all = |order| (0..LEN).all(|at| along_ring(order, at, results[0][at]));
        assert!(all(order), "{order:?}");
        assert_eq!(RINGS.into_iter().filter(|ring| all(*ring)).count(), 1);
    }
}

#[test]
fn every_operation_by_every_algorithm_is_right_along_every_ring() {
    for order in [[0, 1, 3, 2], [0, 3, 1, 2], [0, 3, 2, 1]] {
        Over::Quic.run(4, |mut group| {
            let (me, world) = (group.rank(), group.world() as usize);
            group.settled().medium.go_by(&along(&order));
            for communication in Communication::ALL {
                group.set_communication(communication);
                let mut sum: Vec<i64> = (0..101).map(|at| value(me, at)).collect();
                let input = sum.clone();
                let expected = |at| fold(ReduceOp::Sum, Rank::all(4).map(|rank| value(rank, at)));
                group.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
                assert!(
                    (0..101).all(|at| sum[at] == expected(at)),
                    "{communication:?}"
                );
                let mut gathered = vec![0; 101 * world];
                group.all_gather(&input, &mut gathered).unwrap();
                let of = |at: usize| value(Rank::at(at / 101), at % 101);
                assert!(
                    (0..101 * world).all(|at| gathered[at] == of(at)),
                    "{communication:?}"
                );
                let mut own = vec![0; 25];
                group
                    .reduce_scatter(&input[..100], &mut own, ReduceOp::Sum)
                    .unwrap();
                let first = 25 * me.index();
                assert!(
                    (0..25).all(|at| own[at] == expected(first + at)),
                    "{communication:?}"
                );
                for root in Rank::all(4) {
                    let mut buffer = input.clone();
                    group.broadcast(&mut buffer, root).unwrap();
                    assert!((0..101).all(|at| buffer[at] == value(root, at)));
                    let mut buffer = input.clone();
                    group.reduce(&mut buffer, ReduceOp::Sum, root).unwrap();
                    assert!(me != root || (0..101).all(|at| buffer[at] == expected(at)));
                    let mut all = vec![0; if me == root { 101 * world } else { 0 }];
                    group.gather(&input, &mut all, root).unwrap();
                    assert!(all.iter().enumerate().all(|(at, one)| *one == of(at)));
                }
            }
            group.leave().unwrap();
        });
    }
}

#[test]
fn what_is_chosen_follows_from_the_links() {
    let links = along(&[0, 2, 1, 3]);
    let slowest = links.slowest_of_ring().unwrap();
    assert_eq!(slowest.bytes_per_second, 1 << 30, "{links}");
    let choices = crate::Choices::measured(&links);
    let fastest = |bytes| {
        let table = choices.explain(crate::schedule::Collective::AllReduce, bytes);
        (table[0].algorithm(), table[0].seconds())
    };
    let (algorithm, seconds) = fastest(64 << 20);
    assert_eq!(algorithm, crate::Algorithm::Ring);
    assert!(seconds < 1.0, "{seconds}");
    // Where bytes play no part, few rounds are best.
    assert_eq!(fastest(0).0, crate::Algorithm::OneShot);
}

//! Tournaments of all sizes, rings over links that are known, and times worked out by hand.

use std::collections::BTreeSet;

use super::*;

/// Links of these bytes a second, with a round trip of 20 ms.
fn links(world: u32, rate: impl Fn(u32, u32) -> u64) -> MeasuredLinks {
    let mut words = Vec::new();
    for from in 0..world {
        for to in 0..world {
            let speed = (from != to).then(|| LinkSpeed {
                bytes_per_second: rate(from, to),
                round_trip: Duration::from_millis(20),
            });
            words.extend(speed.map_or([0; WORDS], LinkSpeed::words));
        }
    }
    MeasuredLinks::from_words(world, &words)
}

#[test]
fn every_pair_of_ranks_meets_once_and_nobody_is_in_two_pairs_at_a_time() {
    for world in 0..=65_u32 {
        let rows: Vec<Vec<Rank>> = Rank::all(world)
            .map(|me| opponents(world, me).collect())
            .collect();
        let mut met = BTreeSet::new();
        // Each takes its pairs in its order, as soon as both are there.
        let mut next = vec![0; world as usize];
        loop {
            let ready = |me: &u32| {
                let mine = rows[*me as usize].get(next[*me as usize]);
                let theirs = mine.and_then(|other| rows[other.index()].get(next[other.index()]));
                theirs.is_some_and(|other| other.number() == *me)
            };
            let Some(me) = (0..world).find(ready) else {
                break;
            };
            let other = rows[me as usize][next[me as usize]];
            assert!(met.insert((me.min(other.number()), me.max(other.number()))));
            next[me as usize] += 1;
            next[other.index()] += 1;
        }
        // Nobody waits for somebody who never comes.
        let world = world as usize;
        assert_eq!(met.len(), world * world.saturating_sub(1) / 2, "{world}");
    }
}

#[test]
fn rounds_of_a_tournament_are_as_few_as_can_be() {
    for world in [2_u32, 8, 64] {
        for me in Rank::all(world) {
            assert_eq!(opponents(world, me).count(), world as usize - 1);
        }
    }
    let of_seven = opponents(7, Rank::CHIEF).collect::<Vec<_>>();
    assert_eq!(of_seven.len(), 6, "{of_seven:?}");
}

#[test]
fn a_link_that_is_slow_one_way_is_left_out_of_the_ring_both_ways() {
    let measured = links(4, |from, to| {
        if (from, to) == (1, 2) {
            1_000
        } else {
            1_000_000
        }
    });
    let pairs: Vec<(Rank, Rank)> = measured.ring().links().collect();
    for (one, other) in [(1, 2), (2, 1)] {
        let link = (Rank::new(one), Rank::new(other));
        assert!(!pairs.contains(&link), "{measured}");
    }
    assert_eq!(
        measured.slowest_of_ring().unwrap().bytes_per_second,
        1_000_000
    );
    let alone = links(1, |_, _| 0);
    assert_eq!(
        (alone.slowest_of_ring(), alone.to_string().as_str()),
        (None, "ring 0 > 0")
    );
}

#[test]
fn links_among_some_ranks_are_those_of_all() {
    let measured = links(4, |from, to| u64::from(10 * from + to));
    let part = measured.among(&[Rank::new(3), Rank::new(1)]);
    let rate = |from, to| {
        part.speed(Rank::new(from), Rank::new(to))
            .unwrap()
            .bytes_per_second
    };
    assert_eq!((rate(0, 1), rate(1, 0)), (31, 13));
    assert_eq!(part.speed(Rank::new(0), Rank::new(2)), None);
    assert_eq!(part.speed(Rank::new(0), Rank::new(0)), None);
}

#[test]
fn messages_tell_a_rate_without_the_round_trip_and_never_none() {
    let millis = Duration::from_millis;
    let speed = LinkSpeed::of_message(1_000_000, millis(1_100), millis(100));
    assert_eq!(
        (speed.bytes_per_second, speed.round_trip),
        (1_000_000, millis(100))
    );
    assert_eq!(
        LinkSpeed::of_message(0, millis(1), millis(0)).bytes_per_second,
        1
    );
    let at_once = LinkSpeed::of_message(1, millis(1), millis(2));
    assert_eq!(at_once.bytes_per_second, 1_000_000_000);
    assert_eq!(LinkSpeed::read(at_once.words()), Some(at_once));
}

#[test]
fn a_collective_takes_the_time_of_its_slowest_links_and_busiest_ranks() {
    // 4 ranks at 1 MB/s each way, 4 MB: rounds of 10 ms and a second for each megabyte.
    let even = links(4, |_, _| 1_000_000);
    let near = |links: &MeasuredLinks, algorithm, expected: f64| {
        let found = links.seconds(Collective::AllReduce, algorithm, 4_000_000);
        assert!(
            (found - expected).abs() < 1e-9,
            "{algorithm}: {found}, not {expected}"
        );
    };
    near(&even, Algorithm::Ring, 6.0 * 1.01);
    near(&even, Algorithm::Direct, 2.0 * 3.01);
    near(&even, Algorithm::OneShot, 12.01);
    // One pair at a hundredth: the ring goes around it, and what goes from each to each does not.
    let uneven = links(4, |from, to| match (from, to) {
        (0, 1) | (1, 0) => 10_000,
        _ => 1_000_000,
    });
    near(&uneven, Algorithm::Ring, 6.0 * 1.01);
    near(&uneven, Algorithm::Direct, 2.0 * 100.01);
}

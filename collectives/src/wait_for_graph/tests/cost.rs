//! How many probes are sent.

use super::model::Model;
use super::*;

/// Each rank waits for the next, the last for the first.
fn ring(length: u32) -> Vec<WaitEdge> {
    let group = |rank: u32| u64::from(rank) + 1;
    let wait = |rank: u32| {
        let before = (rank + length - 1) % length;
        wait(
            rank,
            (rank + 1) % length,
            (group(rank), 1),
            &[(group(before), 0)],
        )
    };
    (0..length).map(wait).collect()
}

/// Each rank waits for the next, the last for one that computes.
fn chain(length: u32) -> Vec<WaitEdge> {
    let mut waits = ring(length + 1);
    waits.pop();
    waits
}

/// Probes for each rank and round that a chain of this length costs.
fn cost(length: u32) -> f64 {
    let mut model = Model::new(Duration::from_millis(1));
    let time = Duration::from_secs(20);
    assert_eq!(model.run(&chain(length), time), []);
    // After 0, 50, 150, 350, 750 and 1,550 ms, and then each second.
    let rounds = 5 + 19;
    model.sent as f64 / f64::from(length) / f64::from(rounds)
}

#[test]
fn a_chain_of_a_thousand_costs_each_the_logarithm_and_not_the_length() {
    let costs = [10, 100, 1000].map(cost);
    for (cost, length) in costs.into_iter().zip([10.0_f64, 100.0, 1000.0]) {
        assert!(cost <= 1.5 * (length.ln() + 1.0), "{cost} of {length}");
    }
    assert!(costs[2] - costs[1] <= 1.5 * 10.0_f64.ln(), "{costs:?}");
}

#[test]
fn who_waits_for_one_that_computes_sends_one_probe_a_round() {
    let mut model = Model::new(Duration::from_millis(1));
    let waits: Vec<_> = (1..=1000).map(|rank| wait(rank, 0, (7, 1), &[])).collect();
    assert_eq!(model.run(&waits, Duration::from_secs(2)), []);
    assert_eq!(model.sent, 6 * waits.len());
}

#[test]
fn a_ring_of_a_hundred_is_found_in_the_time_of_two_ways_around() {
    let length = 100;
    let (after, _) = found(&ring(length), LONG).unwrap();
    assert!(
        after <= CERTAIN + 2 * model::LOOK * (length + 5),
        "{after:?}"
    );
}

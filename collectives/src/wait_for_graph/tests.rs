//! Cycles of waits that never end, and waits that do.

mod cost;
mod every_small_world;
mod model;
mod moving;
mod oracle;

use super::*;
use crate::contract::{Call, Contract, Kind};
use crate::wire::{WaitProbe, WaitReport};
use crate::{ElementType, ReduceOp};

use model::Model;

fn contract(kind: Kind, group: u64, sequence: u64) -> Contract {
    Contract {
        epoch: 0,
        group,
        sequence,
        kind,
        algorithm: None,
        element: ElementType::F32,
        count: 8,
        op: (kind == Kind::AllReduce).then_some(ReduceOp::Sum),
        root: None,
    }
}

/// Rank `waiter` is in operation `sequence` of `group`, has finished all before it and, in the
/// groups of `held_groups`, what is said there.
fn wait(waiter: u32, awaited: u32, operation: (u64, u64), held_groups: &[(u64, u64)]) -> WaitEdge {
    let (group, sequence) = operation;
    let own = HeldGroup {
        group,
        finished: sequence - 1,
    };
    let others = held_groups
        .iter()
        .map(|&(group, finished)| HeldGroup { group, finished });
    WaitEdge {
        waiter: Rank::new(waiter),
        awaited: Rank::new(awaited),
        serial: u64::from(waiter) * 100 + group,
        call: Call::new(
            contract(Kind::AllReduce, group, sequence),
            format!("rank{waiter}.rs:1"),
        ),
        receives: false,
        held_groups: others.chain([own]).collect(),
        message_counts: Some(Vec::new()),
    }
}

/// Rank `waiter` waits for message `number` from `awaited`; so many messages it has sent before
/// to each rank, and received from it, in their order.
fn receives(waiter: u32, awaited: u32, number: u64, message_counts: &[(u64, u64)]) -> WaitEdge {
    let message_counts = (0..)
        .zip(message_counts)
        .map(|(with, &(sent, received))| MessageCounts {
            group: 7,
            with: Rank::new(with),
            sent,
            received,
        });
    let message = Contract {
        root: Some(Rank::new(waiter)),
        ..contract(Kind::Send, 7, number)
    };
    WaitEdge {
        call: Call::new(message, format!("rank{waiter}.rs:2")),
        receives: true,
        message_counts: Some(message_counts.collect()),
        ..wait(waiter, awaited, (7, 1), &[])
    }
}

/// As [`receives`], for a message to `awaited`.
fn sends(waiter: u32, awaited: u32, number: u64, message_counts: &[(u64, u64)]) -> WaitEdge {
    let wait = receives(waiter, awaited, number, message_counts);
    let message = Contract {
        root: Some(Rank::new(awaited)),
        ..contract(Kind::Send, 7, number)
    };
    WaitEdge {
        call: Call::new(message, wait.call.site()),
        receives: false,
        ..wait
    }
}

/// The waits are there for so long: when it is found that they are in vain, and what is told.
fn found(waits: &[WaitEdge], within: Duration) -> Option<(Duration, Deadlock)> {
    let mut model = Model::new(Duration::from_millis(1));
    let mut found = model.run(waits, within);
    found.pop()
}

const LONG: Duration = Duration::from_secs(5);

fn sites(deadlock: &Deadlock) -> [&str; 2] {
    let mut sites = [deadlock.one.1.site(), deadlock.other.1.site()];
    sites.sort_unstable();
    sites
}

#[test]
fn two_ranks_in_operations_of_different_groups_are_found_by_the_second_probe() {
    let waits = [wait(0, 1, (7, 1), &[(8, 0)]), wait(1, 0, (8, 1), &[(7, 0)])];
    let (after, deadlock) = found(&waits, LONG).unwrap();
    let expected = CERTAIN..CERTAIN + SOON;
    assert!(expected.contains(&after), "after {after:?}");
    assert_eq!(sites(&deadlock), ["rank0.rs:1", "rank1.rs:1"]);
}

#[test]
fn rings_of_every_length_are_found_with_and_without_tails() {
    for length in 2..8_u32 {
        for tail in 0..3 {
            let group = |rank: u32| u64::from(rank) + 1;
            let mut waits: Vec<_> = (0..length)
                .map(|rank| {
                    let before = (rank + length - 1) % length;
                    let mut held = vec![(group(before), 0)];
                    held.extend((0..tail).map(|place| (group(length + place), 0)));
                    wait(rank, (rank + 1) % length, (group(rank), 1), &held)
                })
                .collect();
            waits.extend((0..tail).map(|place| {
                wait(
                    length + place,
                    place % length,
                    (group(length + place), 1),
                    &[],
                )
            }));
            let (_, deadlock) = found(&waits, LONG).unwrap();
            assert_eq!(
                sites(&deadlock),
                ["rank0.rs:1", "rank1.rs:1"],
                "{length} {tail}"
            );
            waits.remove(length as usize - 1);
            assert_eq!(found(&waits, LONG), None, "{length} {tail} without one");
        }
    }
}

#[test]
fn a_rank_that_has_finished_the_awaited_operation_keeps_nobody_waiting() {
    // Rank 1 has sent all that rank 0 needs; it is on its way.
    let waits = [wait(0, 1, (7, 1), &[(8, 0)]), wait(1, 0, (8, 1), &[(7, 1)])];
    assert_eq!(found(&waits, LONG), None);
    let waits = [wait(0, 1, (7, 4), &[]), wait(1, 0, (7, 5), &[])];
    assert_eq!(found(&waits, LONG), None);
}

#[test]
fn a_group_that_another_thread_uses_keeps_nobody_waiting() {
    let waits = [wait(0, 1, (7, 1), &[(8, 0)]), wait(1, 0, (8, 1), &[])];
    assert_eq!(found(&waits, LONG), None);
}

#[test]
fn ranks_that_wait_for_each_others_messages_are_found() {
    let mutual = [
        receives(0, 1, 1, &[(0, 0), (0, 1)]),
        receives(1, 0, 1, &[(0, 1), (0, 0)]),
    ];
    let (_, deadlock) = found(&mutual, LONG).unwrap();
    assert_eq!(sites(&deadlock), ["rank0.rs:2", "rank1.rs:2"]);
    let both_send = [
        sends(0, 1, 2, &[(0, 0), (2, 1)]),
        sends(1, 0, 2, &[(2, 1), (0, 0)]),
    ];
    assert!(found(&both_send, LONG).is_some());
    let elsewhere = [
        receives(0, 1, 3, &[(0, 0), (9, 3)]),
        wait(1, 0, (7, 1), &[]),
    ];
    assert!(found(&elsewhere, LONG).is_some(), "in another operation");
    let three = |rank: u32| receives(rank, (rank + 1) % 3, 1, &[(0, 0); 3]);
    assert!(found(&[three(0), three(1), three(2)], LONG).is_some());
}

#[test]
fn a_message_that_was_sent_is_on_its_way_whatever_its_sender_does() {
    // Rank 1 has made its call for message 3.
    let away = [
        receives(0, 1, 3, &[(0, 0), (0, 3)]),
        receives(1, 0, 1, &[(3, 1), (0, 0)]),
    ];
    assert_eq!(found(&away, LONG), None);
    // Rank 1 receives what rank 0 sends.
    let meets = [
        sends(0, 1, 2, &[(0, 0), (2, 0)]),
        receives(1, 0, 2, &[(0, 2), (0, 0)]),
    ];
    assert_eq!(found(&meets, LONG), None);
    let mut unknown = [receives(0, 1, 1, &[]), receives(1, 0, 1, &[])];
    unknown[1].message_counts = None;
    assert_eq!(found(&unknown, LONG), None);
}

#[test]
fn waits_in_one_and_the_same_operation_are_no_disagreement() {
    let waits = [wait(0, 1, (7, 1), &[]), wait(1, 0, (7, 1), &[])];
    assert_eq!(found(&waits, LONG), None);
}

#[test]
fn a_probe_that_is_back_once_proves_nothing() {
    let waits = [wait(0, 1, (7, 1), &[(8, 0)]), wait(1, 0, (8, 1), &[(7, 0)])];
    assert_eq!(found(&waits, CERTAIN), None);
    // Each time another thread has got on in a group that it shares with the waiting one.
    let mut model = Model::new(Duration::from_millis(1));
    for finished in 0..50 {
        let moved = wait(1, 0, (8, 1), &[(7, 0), (9, finished)]);
        assert_eq!(model.run(&[waits[0].clone(), moved], CERTAIN), []);
    }
}

#[test]
fn a_wait_that_nobody_looks_at_is_forgotten_and_so_are_probes() {
    let (mut graph, now) = (WaitForGraph::default(), Instant::now());
    let one = wait(0, 1, (7, 1), &[(8, 0)]);
    let other = wait(1, 0, (8, 1), &[(7, 0)]);
    graph.look(now, &one);
    graph.arrives(now, Probe::new(&other, Duration::ZERO));
    assert!(graph.is_due(now, one.serial));
    graph.look(now, &one);
    assert!(!graph.is_due(now, one.serial));
    let later = now + KEPT;
    graph.look(later, &wait(0, 1, (9, 1), &[]));
    assert_eq!(graph.waits.len(), 1);
    graph.arrives(later, Probe::new(&other, Duration::from_millis(1)));
    assert_eq!(graph.arrived.len(), 1);
}

#[test]
fn of_probes_that_come_like_each_other_the_last_one_counts() {
    let (mut graph, now) = (WaitForGraph::default(), Instant::now());
    let other = wait(1, 0, (8, 1), &[(7, 0)]);
    for (millis, number) in [(5, 0), (5, 0), (4, 0), (6, 1), (1, 1)] {
        graph.arrives(now, Probe::new(&other, Duration::from_millis(millis)));
        let numbers: Vec<_> = graph.arrived.iter().map(|probe| probe.number).collect();
        assert_eq!(numbers, [number], "after {millis}");
    }
}

#[test]
fn however_many_probes_come_few_are_kept_and_few_are_passed_on_at_once() {
    let (mut graph, now) = (WaitForGraph::default(), Instant::now());
    let own = wait(0, 1, (7, 1), &[(8, 0)]);
    for serial in 0..5 * LIMIT as u64 {
        let other = WaitEdge {
            serial,
            ..wait(2, 0, (8, 1), &[])
        };
        graph.arrives(now, Probe::new(&other, Duration::ZERO));
        assert!(graph.arrived.len() <= LIMIT);
    }
    let lower = |probe: &ArrivedProbe| probe.probe.initiator().draw() < own.id().draw();
    let passed = graph.arrived.iter().filter(|probe| lower(probe)).count();
    let (mut sent, mut looks) = (0, 0);
    while looks == 0 || graph.is_due(now, own.serial) {
        let actions = graph.look(now, &own).len();
        assert!(actions <= AT_ONCE + 1);
        (sent, looks) = (sent + actions, looks + 1);
    }
    assert_eq!(sent, passed + 1, "with its own");
}

#[test]
fn a_probe_of_which_nothing_makes_sense_goes_nowhere() {
    let own = wait(0, 1, (7, 1), &[(8, 0)]);
    let first = Probe::new(&wait(2, 0, (8, 1), &[]), Duration::ZERO);
    let sane = WaitProbe::from(&first);
    let absurd = [
        WaitProbe {
            hops: u32::MAX,
            ..sane.clone()
        },
        WaitProbe {
            initiator: own.waiter.number(),
            serial: own.serial,
            sent: Duration::MAX,
            ..sane.clone()
        },
        WaitProbe {
            initiator: u32::MAX,
            last: WaitReport {
                awaited: u32::MAX,
                ..sane.last.clone()
            },
            ..sane
        },
    ];
    for told in absurd {
        let (mut graph, now) = (WaitForGraph::default(), Instant::now());
        graph.arrives(now, Probe::told(Rank::new(2), &told).unwrap());
        let actions = graph.look(now, &own);
        assert_eq!(actions.len(), 1, "its own alone, and not {actions:?}");
    }
}

#[test]
fn what_is_told_is_what_was_meant() {
    let one = wait(3, 1, (7, 4), &[(8, 2), (0, 9)]);
    let message = receives(1, 3, 4, &[(1, 2), (3, 4)]);
    let probe = Probe::new(&one, Duration::from_micros(123_456));
    let passed = probe.passed_by(&message).unwrap();
    for probe in [probe, passed] {
        let from = probe.last().waiter;
        assert_eq!(Probe::told(from, &WaitProbe::from(&probe)), Ok(probe));
    }
    let many = receives(3, 1, 4, &[(1, 2); WaitReport::MESSAGE_COUNTS + 1]);
    let probe = Probe::new(&many, Duration::ZERO);
    let told = Probe::told(many.waiter, &WaitProbe::from(&probe)).unwrap();
    assert_eq!(told.last().message_counts, None);
}

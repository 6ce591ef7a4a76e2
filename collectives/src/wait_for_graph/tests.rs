//! Cycles of waits that never end, and waits that do.

use super::*;
use crate::contract::Contract;
use crate::{ElementType, ReduceOp};

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

/// Tells of the waits again and again, and says what is found and after how many rounds.
fn tell(waits: &[WaitEdge], rounds: u32, between: Duration) -> Option<(u32, Deadlock)> {
    let mut now = Instant::now();
    let mut known = WaitForGraph::default();
    for round in 0..rounds {
        for wait in waits {
            now += Duration::from_millis(1);
            if let Some(deadlock) = known.hear(now, wait.clone()) {
                return Some((round, deadlock));
            }
        }
        now += between;
    }
    None
}

const SOON: Duration = Duration::from_millis(150);

#[test]
fn two_ranks_in_operations_of_different_groups_are_found_when_both_are_heard_again() {
    let waits = [wait(0, 1, (7, 1), &[(8, 0)]), wait(1, 0, (8, 1), &[(7, 0)])];
    let (round, found) = tell(&waits, 5, SOON).unwrap();
    assert_eq!(round, 1);
    let mut sites = [found.one.1.site(), found.other.1.site()];
    sites.sort_unstable();
    assert_eq!(sites, ["rank0.rs:1", "rank1.rs:1"]);
}

#[test]
fn rings_of_every_length_are_found_from_wherever_the_last_word_comes() {
    for length in 2..8_u32 {
        for turn in 0..length {
            let mut waits: Vec<_> = (0..length)
                .map(|rank| {
                    let next = (rank + 1) % length;
                    let before = (rank + length - 1) % length;
                    let group = |rank: u32| u64::from(rank) + 1;
                    wait(rank, next, (group(rank), 1), &[(group(before), 0)])
                })
                .collect();
            waits.rotate_left(turn as usize);
            assert!(tell(&waits, 3, SOON).is_some(), "{length} {turn}");
            waits.pop();
            assert!(
                tell(&waits, 9, SOON).is_none(),
                "{length} {turn} without one"
            );
        }
    }
}

#[test]
fn a_rank_that_has_finished_the_awaited_operation_keeps_nobody_waiting() {
    // Rank 1 has sent all that rank 0 needs; it is on its way.
    let waits = [wait(0, 1, (7, 1), &[(8, 0)]), wait(1, 0, (8, 1), &[(7, 1)])];
    assert_eq!(tell(&waits, 9, SOON), None);
    let waits = [wait(0, 1, (7, 4), &[]), wait(1, 0, (7, 5), &[])];
    assert_eq!(tell(&waits, 9, SOON), None);
}

#[test]
fn a_group_that_another_thread_uses_keeps_nobody_waiting() {
    let waits = [wait(0, 1, (7, 1), &[(8, 0)]), wait(1, 0, (8, 1), &[])];
    assert_eq!(tell(&waits, 9, SOON), None);
}

#[test]
fn ranks_that_wait_for_each_others_messages_are_found() {
    let mutual = [
        receives(0, 1, 1, &[(0, 0), (0, 1)]),
        receives(1, 0, 1, &[(0, 1), (0, 0)]),
    ];
    let (_, found) = tell(&mutual, 5, SOON).unwrap();
    let mut sites = [found.one.1.site(), found.other.1.site()];
    sites.sort_unstable();
    assert_eq!(sites, ["rank0.rs:2", "rank1.rs:2"]);
    let both_send = [
        sends(0, 1, 2, &[(0, 0), (2, 1)]),
        sends(1, 0, 2, &[(2, 1), (0, 0)]),
    ];
    assert!(tell(&both_send, 5, SOON).is_some());
    let elsewhere = [
        receives(0, 1, 3, &[(0, 0), (9, 3)]),
        wait(1, 0, (7, 1), &[]),
    ];
    assert!(tell(&elsewhere, 5, SOON).is_some(), "in another operation");
    let three = |rank: u32| receives(rank, (rank + 1) % 3, 1, &[(0, 0); 3]);
    assert!(tell(&[three(0), three(1), three(2)], 5, SOON).is_some());
}

#[test]
fn a_message_that_was_sent_is_on_its_way_whatever_its_sender_does() {
    // Rank 1 has made its call for message 3.
    let away = [
        receives(0, 1, 3, &[(0, 0), (0, 3)]),
        receives(1, 0, 1, &[(3, 1), (0, 0)]),
    ];
    assert_eq!(tell(&away, 9, SOON), None);
    // Rank 1 receives what rank 0 sends.
    let meets = [
        sends(0, 1, 2, &[(0, 0), (2, 0)]),
        receives(1, 0, 2, &[(0, 2), (0, 0)]),
    ];
    assert_eq!(tell(&meets, 9, SOON), None);
    let mut unknown = [receives(0, 1, 1, &[]), receives(1, 0, 1, &[])];
    unknown[1].message_counts = None;
    assert_eq!(tell(&unknown, 9, SOON), None);
}

#[test]
fn waits_in_one_and_the_same_operation_are_no_disagreement() {
    let waits = [wait(0, 1, (7, 1), &[]), wait(1, 0, (7, 1), &[])];
    assert_eq!(tell(&waits, 9, SOON), None);
}

#[test]
fn waits_that_are_heard_of_once_prove_nothing() {
    let waits = [wait(0, 1, (7, 1), &[(8, 0)]), wait(1, 0, (8, 1), &[(7, 0)])];
    assert_eq!(tell(&waits, 1, SOON), None);
    assert_eq!(tell(&waits, 3, Duration::from_millis(1)), None);
}

#[test]
fn a_wait_that_gets_on_begins_anew_and_one_that_is_not_repeated_is_forgotten() {
    let mut known = WaitForGraph::default();
    let now = Instant::now();
    let one = wait(0, 1, (7, 1), &[(8, 0)]);
    let other = wait(1, 0, (8, 1), &[(7, 0)]);
    assert_eq!(known.hear(now, one.clone()), None);
    assert_eq!(known.hear(now + FORGOTTEN, other.clone()), None);
    assert_eq!(known.hear(now + FORGOTTEN + 2 * SOON, other), None);
    let elsewhere = WaitEdge {
        awaited: Rank::new(2),
        ..one
    };
    assert_eq!(known.hear(now, elsewhere.clone()), None);
    assert_eq!(
        known.known[&(Rank::new(0), elsewhere.serial)].wait,
        elsewhere
    );
}

#[test]
fn what_is_told_is_what_was_meant() {
    let wait = wait(3, 1, (7, 4), &[(8, 2), (0, 9)]);
    let message = receives(3, 1, 4, &[(1, 2), (3, 4)]);
    for wait in [wait, message] {
        assert_eq!(
            WaitEdge::told(Rank::new(3), &WaitReport::from(&wait)),
            Ok(wait)
        );
    }
    let many = receives(3, 1, 4, &[(1, 2); WaitReport::MESSAGE_COUNTS + 1]);
    let told = WaitEdge::told(Rank::new(3), &WaitReport::from(&many)).unwrap();
    assert_eq!(told.message_counts, None);
}

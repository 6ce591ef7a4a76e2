//! What observers are told, against what was called.

use super::*;
use crate::contract::Kind;
use crate::operation::OperationSpec;
use crate::{Departure, Statistics};

const CALLS: u64 = 5;

/// Operations and bytes by a transport.
fn carried(statistics: &Statistics, transport: &str) -> [u64; 2] {
    let mut traffic = statistics.traffic.iter();
    let traffic = traffic.find(|traffic| traffic.transport == transport);
    traffic.map_or([0, 0], |traffic| [traffic.operations, traffic.bytes])
}

/// What [`CALLS`] all-reduces of 1 KiB have added by each transport on each rank.
fn added(over: Over, world: u32) -> Vec<[[u64; 2]; 3]> {
    let sum = |group: &mut Group| group.all_reduce(&mut [1.0_f32; 256], ReduceOp::Sum);
    added_by(over, world, sum)
}

/// What [`CALLS`] calls have added by each transport on each rank.
fn added_by(
    over: Over,
    world: u32,
    call: impl Fn(&mut Group) -> Result<(), OperationError> + Sync,
) -> Vec<[[u64; 2]; 3]> {
    over.run(world, |mut group| {
        let before = group.statistics();
        for _ in 0..CALLS {
            call(&mut group).unwrap();
        }
        let after = group.statistics();
        group.leave().unwrap();
        ["memory", "quic", "tls"].map(|transport| {
            let (before, after) = (carried(&before, transport), carried(&after, transport));
            [after[0] - before[0], after[1] - before[1]]
        })
    })
}

#[test]
fn operations_and_bytes_count_by_the_transport_that_carried_them() {
    let (none, all) = ([0, 0], [CALLS, CALLS * 1024]);
    let within_host = match SHARES_MEMORY {
        true => [all, none, none],
        false => [none, all, none],
    };
    for world in 2..=3 {
        for (over, expected) in [
            (Over::Local, [all, none, none]),
            (Over::Memory, within_host),
            (Over::Quic, [none, all, none]),
            (Over::Tls, [none, none, all]),
        ] {
            for found in added(over, world) {
                assert_eq!(found, expected, "{over:?}, {world} ranks");
            }
        }
    }
}

#[test]
fn ranks_that_only_agree_move_no_bytes() {
    let spec = OperationSpec::new(Kind::AllReduce, 256);
    let [memory, quic] = [Over::Local, Over::Quic]
        .map(|over| added_by(over, 2, |group| group.agree(ElementType::F32, spec)));
    assert_eq!(memory, [[[CALLS, 0], [0, 0], [0, 0]]; 2]);
    assert_eq!(quic, [[[0, 0], [CALLS, 0], [0, 0]]; 2]);
}

#[test]
fn bytes_count_where_there_is_no_way_host_by_host_though_it_was_chosen() {
    let flat = [[0, 0], [CALLS, CALLS * 1024], [0, 0]];
    let sums = added_by(Over::Quic, 2, |group| {
        group.set_communication(Communication::Hierarchical);
        group.all_reduce(&mut [1.0_f32; 256], ReduceOp::Sum)
    });
    assert_eq!(sums, [flat; 2]);
    // A reduction to one rank has none between several hosts either.
    let to_one = added_by(Over::Hosts, 3, |group| {
        group.reduce(&mut [1.0_f32; 256], ReduceOp::Sum, Rank::CHIEF)
    });
    assert_eq!(to_one, [flat; 3]);
}

#[cfg(all(target_os = "linux", not(meshwork_portable)))]
#[test]
fn an_operation_that_goes_host_by_host_counts_once_and_its_bytes_where_they_went() {
    let found = added(Over::Hosts, 4);
    for [memory, quic, tls] in &found {
        assert_eq!((memory[0], quic[0], *tls), (0, CALLS, [0, 0]));
        // Each host reduces all of the buffer, and shares of it go across.
        assert!(memory[1] >= CALLS * 1024, "{found:?}");
    }
    // The first rank of each host has a share, and at most all of the buffer.
    for rank in [0, 3] {
        let [_, quic, _] = found[rank];
        assert!((1..=2 * CALLS * 1024).contains(&quic[1]), "{found:?}");
    }
}

#[cfg(all(target_os = "linux", not(meshwork_portable)))]
#[test]
fn an_all_to_all_that_goes_host_by_host_goes_through_memory_first() {
    let found = Over::Hosts.run(4, |mut group| {
        let before = group.statistics();
        let (input, mut output) = ([1_u32; 64], [0; 64]);
        group.all_to_all(&input, &mut output).unwrap();
        let after = group.statistics();
        group.leave().unwrap();
        ["memory", "quic"].map(|transport| {
            let (before, after) = (carried(&before, transport), carried(&after, transport));
            [after[0] - before[0], after[1] - before[1]]
        })
    });
    for (rank, [memory, quic]) in found.iter().enumerate() {
        assert_eq!((memory[0], quic[0]), (0, 1), "{found:?}");
        // The last is alone on its host.
        assert!(memory[1] > 0 || rank == 3, "{found:?}");
    }
}

#[test]
fn groups_that_were_split_count_too() {
    let counted = Over::Local.run(2, |mut group| {
        let mut half = group.split(Some(0), 0).unwrap().unwrap();
        let before = group.statistics().operations();
        half.barrier().unwrap();
        group.barrier().unwrap();
        let counted = half.statistics().operations() - before;
        group.leave().unwrap();
        counted
    });
    assert_eq!(counted, [2, 2]);
}

/// Asks until the answer is as wished.
fn until(observer: &Observer, wished: impl Fn(&Statistics) -> bool) -> Statistics {
    let began = Instant::now();
    loop {
        let statistics = observer.statistics();
        if wished(&statistics) {
            return statistics;
        }
        assert!(began.elapsed() < PATIENCE, "{statistics:?}");
        thread::yield_now();
    }
}

#[test]
fn whoever_waits_says_where_since_when_and_for_whom() {
    for over in [Over::Local, Over::Memory, Over::Quic] {
        let mut groups = over.groups(2).into_iter();
        let (mut waiting, mut slow) = (groups.next().unwrap(), groups.next().unwrap());
        let observer = waiting.observer();
        thread::scope(|scope| {
            scope.spawn(move || {
                waiting.barrier().unwrap();
                waiting.leave().unwrap();
            });
            // Joining waits, too.
            let waits = |statistics: &Statistics| {
                let call = statistics.current.as_ref();
                call.is_some_and(|call| call.awaited.is_some()) && !statistics.awaited.is_empty()
            };
            let statistics = until(&observer, waits);
            let call = statistics.current.as_ref().expect("it waits");
            assert!(call.what.starts_with("barrier"), "{over:?}: {call:?}");
            assert!(call.site.contains("statistics.rs:"), "{over:?}: {call:?}");
            assert_eq!(call.awaited, Some(Rank::new(1)), "{over:?}");
            assert_eq!(statistics.awaited[0].rank, Rank::new(1), "{over:?}");
            assert!(statistics.in_operations >= call.since, "{over:?}");
            assert!(statistics.waiting_share() > 0.0, "{over:?}");
            slow.barrier().unwrap();
            slow.leave().unwrap();
        });
        // It outlives the group.
        assert_eq!(observer.statistics().current, None, "{over:?}");
    }
}

#[test]
fn connections_tell_how_they_fare() {
    let found = Over::Quic.run(2, |mut group| {
        group
            .all_reduce(&mut [1.0_f32; 4096], ReduceOp::Sum)
            .unwrap();
        let statistics = group.statistics();
        group.leave().unwrap();
        statistics
    });
    for (own, other) in [(0, 1), (1, 0)] {
        let statistics = &found[own];
        let [peer] = &statistics.peers[..] else {
            panic!("{statistics:?}");
        };
        assert_eq!(peer.rank, Rank::new(other));
        assert!(peer.bytes_sent > 16 << 10 && peer.bytes_received > 16 << 10);
        assert!(peer.packets_sent > 0 && peer.round_trip > Duration::ZERO);
        assert_eq!((statistics.rank.index(), statistics.world), (own, 2));
        assert_eq!((statistics.view, &statistics.failure), (1, &None));
    }
}

#[test]
fn who_left_is_remembered_and_counts_go_on() {
    let mut groups = Over::Quic.groups(3);
    drop(groups.remove(1));
    for (rank, statistics) in (0..).zip(each(groups, |mut group| {
        let observer = group.observer();
        assert!(group.barrier().is_err());
        let before = observer.statistics();
        assert!(before.failure.is_some(), "{before:?}");
        group.shrink().unwrap();
        let after = observer.statistics();
        assert!(after.operations() >= before.operations(), "{after:?}");
        group.leave().unwrap();
        after
    })) {
        assert_eq!((statistics.rank, statistics.world), (Rank::new(rank), 2));
        assert_eq!((statistics.view, &statistics.failure), (2, &None));
        let [
            Departure {
                view,
                address,
                reason,
                ..
            },
        ] = &statistics.departures[..]
        else {
            panic!("{statistics:?}");
        };
        assert_eq!(*view, 1);
        assert!(address.is_some(), "{reason}");
        assert!(reason.contains("rank 1"), "{reason}");
    }
}

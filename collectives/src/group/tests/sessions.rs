//! What a session says of its operations and of those that its group is made of.

use std::fs;
use std::sync::Barrier;

use super::*;

#[test]
fn groups_are_made_inside_hosts_only_where_there_are_several() {
    let splits = |over: Over| over.run(4, |group| group.settled().splits);
    assert_eq!(splits(Over::Memory), [0; 4]);
    assert_eq!(splits(Over::Hosts), [1; 4]);
}

#[test]
fn an_error_of_another_part_of_the_job_keeps_its_names_in_a_group_that_was_split() {
    // Ranks 0 and 1 make different calls once rank 2 is about to wait for rank 3.
    let ready = Barrier::new(3);
    let errors = Over::Quic.run(4, |mut group| {
        let rank = group.rank().number();
        let mut half = group.split(Some(rank / 2), 0).unwrap().unwrap();
        if rank < 3 {
            ready.wait();
        }
        match rank {
            0 | 2 => half.barrier().unwrap_err(),
            1 => half
                .all_reduce(&mut [1.0_f32; 4], ReduceOp::Sum)
                .unwrap_err(),
            _ => loop {
                if let Some(error) = group.failure() {
                    break error;
                }
                thread::yield_now();
            },
        }
    });
    for error in errors {
        let OperationError::Disagreement { rank, peer, .. } = &error else {
            panic!("{error:?}");
        };
        let mut named = [rank.number(), peer.number()];
        named.sort_unstable();
        assert_eq!(named, [0, 1], "{error}");
    }
}

#[test]
fn a_session_that_has_left_begins_no_operation() {
    let mut group = Group::local(1).unwrap().remove(0);
    group.settled().leave().unwrap();
    let text = group.barrier().unwrap_err().to_string();
    assert!(text.contains("has left this epoch"), "{text}");
}

#[test]
fn a_process_that_nobody_can_join_is_as_it_was_configured() {
    let folder = tempfile::tempdir().unwrap();
    let (members, secret) = (free_addresses(1), JobSecret::generate().unwrap());
    let timeouts = Timeouts::default().with_operation(PATIENCE);
    let config = config(&members, Rank::CHIEF, &secret)
        .with_timeouts(timeouts)
        .with_dump(folder.path());
    let mut group = Group::connect(&config).unwrap();
    assert_eq!(group.members(), [Member::new(Rank::CHIEF, &*members[0])]);
    assert_eq!(group.settled().timeouts.operation(), PATIENCE);
    let refused = group.grow().unwrap_err().to_string();
    assert!(refused.contains("MESHWORK_WORKERS"), "{refused}");
    group.abort("it has seen enough");
    let text = fs::read_to_string(folder.path().join("rank-0.json")).unwrap();
    assert!(text.contains("it has seen enough"), "{text}");
}

#[test]
fn dumps_name_the_algorithm_of_an_operation_over_links() {
    let folder = tempfile::tempdir().unwrap();
    let groups = connected(2, |config| {
        config
            .with_transport(Transport::Quic)
            .with_dump(folder.path())
    });
    each(groups, |mut group| {
        group.set_communication(Communication::Ring);
        group.all_reduce(&mut [1.0_f32; 64], ReduceOp::Sum).unwrap();
        group.abort("it has seen enough")
    });
    for rank in 0..2 {
        let text = fs::read_to_string(folder.path().join(format!("rank-{rank}.json"))).unwrap();
        assert!(text.contains(r#""by": "ring""#), "{text}");
    }
}

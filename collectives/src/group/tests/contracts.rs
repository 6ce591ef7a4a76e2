//! Every way to disagree, over every transport: each rank learns who called what, from where.

use super::*;
use crate::contract::Kind;
use crate::operation::{OperationSpec, Work};

/// What a rank calls.
type Program = fn(&mut Groups) -> Result<(), OperationError>;

/// The group that was joined, and two of all its ranks that were split from it.
struct Groups {
    joined: Group,
    split: [Group; 2],
}

/// Ranks 0 and 1 make one call, rank 2 another.
struct Case {
    name: &'static str,
    usual: Program,
    odd: Program,
    /// What tells the two calls apart in the error.
    told: [&'static str; 2],
}

fn case(name: &'static str, usual: Program, odd: Program, told: [&'static str; 2]) -> Case {
    Case {
        name,
        usual,
        odd,
        told,
    }
}

/// The same call in other terms.
fn other_terms() -> Vec<Case> {
    let sum: Program = |all| all.joined.all_reduce(&mut [1.0_f32; 64], ReduceOp::Sum);
    vec![
        case(
            "other operation",
            sum,
            |all| all.joined.barrier(),
            ["all_reduce", "barrier"],
        ),
        case(
            "other element type",
            sum,
            |all| all.joined.all_reduce(&mut [1_i32; 64], ReduceOp::Sum),
            ["64 f32", "64 i32"],
        ),
        case(
            "other count",
            sum,
            |all| all.joined.all_reduce(&mut [1.0_f32; 63], ReduceOp::Sum),
            ["64 f32", "63 f32"],
        ),
        case(
            "other reduce op",
            sum,
            |all| all.joined.all_reduce(&mut [1.0_f32; 64], ReduceOp::Max),
            ["sum", "max"],
        ),
        case(
            "other root",
            |all| all.joined.broadcast(&mut [1_u8; 9], Rank::new(0)),
            |all| all.joined.broadcast(&mut [1_u8; 9], Rank::new(1)),
            ["from rank 0", "from rank 1"],
        ),
    ]
}

/// Another course of calls.
fn other_courses() -> Vec<Case> {
    let sum: Program = |all| all.joined.all_reduce(&mut [1.0_f32; 64], ReduceOp::Sum);
    let first: Program = |all| all.split[0].all_reduce(&mut [1.0_f32; 8], ReduceOp::Sum);
    vec![
        case(
            "other order",
            |all| {
                all.joined
                    .barrier()
                    .and_then(|()| all.joined.reduce(&mut [1_u8], ReduceOp::Max, Rank::CHIEF))
            },
            |all| {
                all.joined
                    .reduce(&mut [1_u8], ReduceOp::Max, Rank::CHIEF)
                    .and_then(|()| all.joined.barrier())
            },
            ["barrier", "reduce"],
        ),
        case(
            "an extra call",
            sum,
            |all| {
                all.joined
                    .barrier()
                    .and_then(|()| all.joined.all_reduce(&mut [1.0_f32; 64], ReduceOp::Sum))
            },
            ["all_reduce", "barrier"],
        ),
        case(
            "a missing call",
            |all| {
                all.joined
                    .barrier()
                    .and_then(|()| all.joined.all_gather(&[1_u8], &mut [0; 3]))
            },
            |all| all.joined.all_gather(&[1_u8], &mut [0; 3]),
            ["barrier", "all_gather"],
        ),
        case(
            "the other of two groups",
            first,
            |all| all.split[1].all_reduce(&mut [1.0_f32; 8], ReduceOp::Sum),
            ["all_reduce #1", "all_reduce #1"],
        ),
        case(
            "a split group instead of the one that was joined",
            sum,
            first,
            ["64 f32", "8 f32"],
        ),
    ]
}

/// Runs a case, and returns what each rank ended with.
fn outcome(over: Over, case: &Case) -> Vec<OperationError> {
    over.run(3, |joined| take_part(joined, case).unwrap_err())
}

/// The first that fails may do so while another still splits: that is an end like any other.
fn take_part(mut joined: Group, case: &Case) -> Result<(), OperationError> {
    let program = match joined.rank().number() {
        2 => case.odd,
        _ => case.usual,
    };
    let split = [joined.split(Some(0), 0)?, joined.split(Some(0), 0)?];
    let split = split.map(|group| group.expect("every rank gives a colour"));
    let mut all = Groups { joined, split };
    program(&mut all)?;
    all.joined.barrier()
}

#[test]
fn every_way_to_disagree_is_named_on_every_rank_with_both_lines() {
    let cases: Vec<Case> = other_terms().into_iter().chain(other_courses()).collect();
    each(Over::ALL, |over| {
        for case in &cases {
            let name = format!("{} over {over:?}", case.name);
            for error in outcome(over, case) {
                let OperationError::Disagreement {
                    rank,
                    mine,
                    peer,
                    theirs,
                } = &error
                else {
                    panic!("{name}: {error}")
                };
                assert!([*rank, *peer].contains(&Rank::new(2)), "{name}: {error}");
                assert_ne!(rank, peer, "{name}: {error}");
                assert_ne!(mine.site(), theirs.site(), "{name}: {error}");
                for call in [mine, theirs] {
                    assert!(call.site().contains("contracts.rs:"), "{name}: {error}");
                }
                let text = error.to_string();
                for told in case.told {
                    assert!(text.contains(told), "{name}: {text}");
                }
            }
        }
    });
}

/// Where ranks meet along a tree, none compares itself with all others while all agree.
#[test]
fn who_calls_otherwise_is_named_on_every_rank_wherever_it_is_among_many() {
    const WORLD: u32 = 20;
    let sum = |group: &mut Group, count: usize| {
        let mut buffer = vec![1.0_f32; count];
        let done = group.all_reduce(&mut buffer, ReduceOp::Sum);
        done.map(|()| assert!(buffer.iter().all(|sum| *sum == WORLD as f32)))
    };
    // At the top, at the foot right below it and far below, in between, and on a branch of its own.
    for odd in [0, 1, 15, 8, 19].map(Rank::new) {
        let errors = Over::Local.run(WORLD, |mut group| {
            sum(&mut group, 64).unwrap();
            let count = if group.rank() == odd { 63 } else { 64 };
            sum(&mut group, count).unwrap_err()
        });
        for error in errors {
            let OperationError::Disagreement { rank, peer, .. } = &error else {
                panic!("{odd}: {error}")
            };
            assert!([*rank, *peer].contains(&odd), "{error}");
        }
    }
}

#[test]
fn a_message_that_meets_another_call_is_named_with_both_lines() {
    for over in [Over::Local, Over::Memory, Over::Quic] {
        let errors = over.run(2, |mut group| match group.rank().number() {
            0 => group.receive(&mut [0_u8; 4], Rank::new(1)).unwrap_err(),
            _ => group.barrier().unwrap_err(),
        });
        for error in errors {
            let text = error.to_string();
            let sites = text.matches("contracts.rs:").count();
            assert!(
                text.contains("send #1 of 4 u8") && text.contains("barrier #1") && sites == 2,
                "{over:?}: {text}"
            );
        }
        let longer = over.run(2, |mut group| match group.rank().number() {
            0 => group.receive(&mut [0_u8; 4], Rank::new(1)).unwrap_err(),
            _ => {
                let sent = group.send(&[0_u8; 5], Rank::CHIEF);
                sent.and_then(|()| group.barrier()).unwrap_err()
            }
        });
        for error in longer {
            let text = error.to_string();
            let sites = text.matches("contracts.rs:").count();
            assert!(
                text.contains("4 u8") && text.contains("5 u8") && sites == 2,
                "{over:?}: {text}"
            );
        }
    }
}

#[test]
fn ranks_that_cut_one_buffer_in_unlike_ways_disagree_however_bytes_go() {
    for over in Over::ALL {
        let errors = over.run(2, |mut group| {
            let cut = OperationSpec::new(Kind::AllReduce, 8).with_lengths(&[group.rank().index()]);
            let agreed = group.perform(cut, Work::<u8>::Agree);
            agreed.unwrap_err()
        });
        for error in errors {
            let disagree = matches!(error, OperationError::Disagreement { .. });
            assert!(disagree, "{over:?}: {error:?}");
        }
    }
}

#[test]
fn ranks_that_permute_by_unlike_targets_disagree_however_bytes_go() {
    for over in Over::ALL {
        let errors = over.run(2, |mut group| {
            let targets = match group.rank().number() {
                0 => [0, 1],
                _ => [1, 0],
            };
            let permuted = group.permute(&[1_u8; 8], &mut [0; 8], &targets.map(Rank::new));
            permuted.unwrap_err()
        });
        for error in errors {
            let disagree = matches!(error, OperationError::Disagreement { .. });
            assert!(disagree, "{over:?}: {error:?}");
        }
    }
}

/// Of two calls one is done at once, and its rank computes on; the others go from rank to rank,
/// each of which waits for one before.
#[test]
fn a_call_that_was_carried_out_at_once_is_found_by_those_who_make_another() {
    let computes = std::sync::Barrier::new(16);
    for length in [1, 1024] {
        let errors = each(
            connected(16, |config| config.with_transport(Transport::Quic)),
            |mut group| {
                group.set_operation_timeout(PATIENCE);
                let error = match group.rank().number() {
                    1 => group.reduce(&mut [1_u32], ReduceOp::Sum, Rank::CHIEF).err(),
                    _ => {
                        let input = vec![1_u32; 16 * length];
                        group.all_to_all(&input, &mut input.clone()).err()
                    }
                };
                computes.wait();
                error
            },
        );
        assert!(errors[1].is_none(), "{:?}", errors[1]);
        for error in errors.iter().flatten() {
            let named = matches!(error, OperationError::Disagreement { .. });
            assert!(named, "{error:?}");
        }
        assert_eq!(errors.iter().flatten().count(), 15);
    }
}

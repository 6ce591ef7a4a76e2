//! Blocks that are anywhere in a buffer.

use std::ops::Range;

use super::*;

#[test]
fn what_does_not_split_evenly_is_refused_with_what_would() {
    Over::Local.run(2, |mut group| {
        let refused = group.all_to_all(&[1_u8], &mut [0]).unwrap_err().to_string();
        for part in ["has 1 elements", "multiple of 2", "all_to_all_uneven"] {
            assert!(refused.contains(part), "{refused}");
        }
        // It has not ended the group.
        group.barrier().and_then(|()| group.leave()).unwrap();
    });
}

#[test]
fn blocks_that_are_not_in_the_input_or_differ_between_ranks_are_refused() {
    let reduce = |group: &mut Group, input: &[i64], blocks: &[Range<usize>]| {
        group.reduce_scatter_at(input, blocks, &mut [0; 2], ReduceOp::Sum)
    };
    let refused = |done: Result<(), OperationError>| match done {
        Err(OperationError::Length {
            buffer,
            found,
            expected,
            ..
        }) => (buffer, found, expected),
        other => panic!("{other:?}"),
    };
    let claims = |mut group: Group| {
        let reversed = Range { start: 4, end: 2 };
        let one = reduce(&mut group, &[0; 4], &[2..4, 0..2][..1]);
        assert_eq!(refused(one), ("list of blocks", 1, 2));
        let outside = reduce(&mut group, &[0; 4], &[3..5, 0..2]);
        assert_eq!(refused(outside), ("input", 4, 5));
        let inside_out = reduce(&mut group, &[0; 4], &[0..2, reversed]);
        assert_eq!(refused(inside_out), ("block", 0, 2));
        let long = reduce(&mut group, &[0; 8], &[0..3, 3..6]);
        assert_eq!(refused(long), ("output", 2, 3));
        // None of these has ended the group, and neither has reached the other rank.
        reduce(&mut group, &[1; 4], &[0..2, 2..4]).unwrap();
        let shifted = group.rank().index();
        let done = reduce(&mut group, &[1; 5], &[shifted..shifted + 2, 3..5]);
        assert!(
            matches!(done, Err(OperationError::Disagreement { .. })),
            "blocks that lie elsewhere on the other rank: {done:?}"
        );
    };
    for over in Over::ALL {
        over.run(2, claims);
    }
}

/// Blocks as long as a digest.
#[test]
fn even_blocks_are_not_folded_with_those_at_chosen_places() {
    for over in Over::ALL {
        over.run(2, |mut group| {
            let (input, mut output) = ([1_i64; 2], [0]);
            let done = match group.rank() {
                Rank::CHIEF => group.reduce_scatter(&input, &mut output, ReduceOp::Sum),
                _ => group.reduce_scatter_at(&input, &[0..1, 1..2], &mut output, ReduceOp::Sum),
            };
            assert!(
                matches!(done, Err(OperationError::Disagreement { .. })),
                "rank {}: {done:?}",
                group.rank()
            );
        });
    }
}

/// Most ranks hear of the difference from none of those who tell them of their calls.
#[test]
fn nobody_folds_blocks_that_lie_elsewhere_on_one_of_many_ranks() {
    for (communication, world) in [(Communication::Auto, 5), (Communication::Direct, 9)] {
        Over::Quic.run(world, |mut group| {
            group.set_communication(communication);
            let odd = usize::from(group.rank() == Rank::new(2));
            let last = 2 * (world as usize - 1);
            // The last block ends in the same place, so that the calls look alike.
            let starts = (0..last).step_by(2).map(|place| place + odd).chain([last]);
            let blocks: Vec<Range<usize>> = starts.map(|start| start..start + 1).collect();
            let input = vec![1_i64; last + 1];
            let done = group.reduce_scatter_at(&input, &blocks, &mut [0], ReduceOp::Sum);
            assert!(done.is_err(), "rank {} of {world}", group.rank());
        });
    }
}

//! What reductions promise about bits, against the definition: one fold of all contributions.

use meshwork_accel::{Element, Reduction, bf16, f16};

use super::*;

/// Numbers whose sums all depend on the order.
fn contribution(rank: usize, len: usize) -> Vec<f32> {
    let value = |at: usize| ((at * 31 + rank * 7919) as f32 * 0.618).sin() * (rank as f32).exp2();
    (0..len).map(value).collect()
}

fn folded<T: Element>(op: ReduceOp, contributions: &[Vec<T>]) -> Vec<T> {
    let reduction = Reduction::new(op).unwrap();
    let slices: Vec<&[T]> = contributions.iter().map(Vec::as_slice).collect();
    let mut result = contributions[0].clone();
    reduction.complete(&mut result, &slices).unwrap();
    result
}

/// Every reduction that is reproducible, whole and in buckets.
#[track_caller]
fn depends_on_the_contributions_alone<T: Element>(
    over: Over,
    group: &mut Group,
    from_f32: impl Fn(f32) -> T,
) {
    const LEN: usize = 403;
    let world = group.world() as usize;
    let of_rank = |rank| contribution(rank, LEN).into_iter().map(&from_f32).collect();
    let contributions: Vec<Vec<T>> = (0..world).map(of_rank).collect();
    group.set_communication(Communication::Reproducible);
    for op in [
        ReduceOp::Sum,
        ReduceOp::Mean,
        ReduceOp::Product,
        ReduceOp::Max,
    ] {
        let expected = folded(op, &contributions);
        let own = &contributions[group.rank().index()];
        for bucket in [LEN, 100, 37] {
            let mut buffer = own.clone();
            for part in buffer.chunks_mut(bucket) {
                group.all_reduce(part, op).unwrap();
            }
            let what = || format!("{op} of {} over {over:?} in {bucket}s", T::TYPE);
            assert!(buffer == expected, "{}", what());
        }
        let mut buffer = own.clone();
        group.reduce(&mut buffer, op, Rank::CHIEF).unwrap();
        let kept = if group.rank() == Rank::CHIEF {
            &expected
        } else {
            own
        };
        assert!(buffer == *kept, "reduce, {op} over {over:?}");
        let lengths: Vec<usize> = (0..world).map(|rank| rank * 3 % 5).collect();
        let total: usize = lengths.iter().sum();
        let me = group.rank().index();
        let start: usize = lengths[..me].iter().sum();
        let mut block = vec![T::default(); lengths[me]];
        group
            .reduce_scatter_uneven(&own[..total], &mut block, &lengths, op)
            .unwrap();
        assert!(
            block == expected[start..start + lengths[me]],
            "scattered {op}"
        );
    }
}

#[test]
fn reproducible_results_are_those_of_one_fold_whatever_the_transport_and_the_buckets() {
    for over in Over::ALL {
        // Two ranks have no order.
        for world in [3, 5] {
            over.run(world, |mut group| {
                depends_on_the_contributions_alone(over, &mut group, |value| value);
                depends_on_the_contributions_alone(over, &mut group, bf16::from_f32);
                if world == 3 {
                    depends_on_the_contributions_alone(over, &mut group, f16::from_f32);
                }
                group.leave().unwrap();
            });
        }
    }
}

#[test]
fn a_mean_of_short_floats_is_there_where_their_sum_is_not_whatever_the_transport() {
    let large = f16::from_f32(60_000.0);
    for over in Over::ALL {
        for world in [2, 5] {
            over.run(world, |mut group| {
                group.set_communication(Communication::Auto);
                // Short, by slots or fetched, and long enough for any algorithm.
                for len in [1, 1003, 100_000] {
                    let mut buffer = vec![large; len];
                    let expected = buffer.clone();
                    group.all_reduce(&mut buffer, ReduceOp::Mean).unwrap();
                    let what = || format!("{len} over {over:?} of {world}");
                    assert!(same_bits(&buffer, &expected), "{}", what());
                    group
                        .reduce(&mut buffer, ReduceOp::Mean, Rank::CHIEF)
                        .unwrap();
                    assert!(same_bits(&buffer, &expected), "{}", what());
                }
                let (own, mut block) = (vec![large; 7 * world as usize], vec![f16::ZERO; 7]);
                group
                    .reduce_scatter(&own, &mut block, ReduceOp::Mean)
                    .unwrap();
                assert_eq!(block, [large; 7], "scattered over {over:?} of {world}");
                group.leave().unwrap();
            });
        }
    }
}

#[test]
fn algorithms_that_promise_an_order_keep_it() {
    for communication in [
        Communication::OneShot,
        Communication::Direct,
        Communication::Tree,
        Communication::Halving,
    ] {
        let contributions: Vec<_> = (0..4).map(|rank| contribution(rank, 501)).collect();
        let expected = folded(ReduceOp::Sum, &contributions);
        Over::Quic.run(4, |mut group| {
            group.set_communication(communication);
            let mut buffer = contributions[group.rank().index()].clone();
            group.all_reduce(&mut buffer, ReduceOp::Sum).unwrap();
            assert!(buffer == expected, "{communication:?}");
            group.leave().unwrap();
        });
    }
}

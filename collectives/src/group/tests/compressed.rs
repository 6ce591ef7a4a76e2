//! The compressed all-reduce against the exact sum.

use std::num::NonZeroU8;

use proptest::prelude::*;

use super::*;
use crate::{Compression, Rounding};

const NEAREST: Rounding = Rounding::Nearest;
const CHANCE: Rounding = Rounding::Stochastic { seed: 7 };

fn formats() -> [Compression; 5] {
    [
        Compression::Int8(NEAREST),
        Compression::Int8(CHANCE),
        Compression::Int4(NEAREST),
        Compression::Int4(CHANCE),
        Compression::TopK(NonZeroU8::new(8).unwrap()),
    ]
}

/// Values of every rank, of another magnitude in each block, the same for a seed.
fn inputs(world: u32, elements: usize, seed: u64) -> Vec<Vec<f32>> {
    let mut state = seed;
    let mut value = |at: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let unit = (state >> 40) as f32 / (1_u32 << 23) as f32 - 1.0;
        unit * [1e-3, 1e-2, 0.1, 1.0, 10.0, 1e2, 1e3][at / Compression::BLOCK % 7]
    };
    let mut one = || (0..elements).map(&mut value).collect();
    (0..world).map(|_| one()).collect()
}

fn exact_sum(inputs: &[Vec<f32>], at: usize) -> f64 {
    inputs.iter().map(|input| f64::from(input[at])).sum()
}

fn assert_within_bound(format: Compression, inputs: &[Vec<f32>], result: &[f32]) {
    for first in (0..result.len()).step_by(Compression::BLOCK) {
        let largest = |input: &Vec<f32>| {
            let block = input[first..].iter().take(Compression::BLOCK);
            block.fold(0.0_f32, |max, one| max.max(one.abs()))
        };
        let largest: Vec<f32> = inputs.iter().map(largest).collect();
        let bound = format.error_bound(&largest);
        for at in (first..result.len()).take(Compression::BLOCK) {
            let error = (f64::from(result[at]) - exact_sum(inputs, at)).abs();
            assert!(
                error <= bound,
                "{format:?}, element {at}: {error} is more than {bound}"
            );
        }
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// What every rank gets, which is the same.
fn reduced(over: Over, inputs: &[Vec<f32>], format: Compression) -> Vec<f32> {
    let world = u32::try_from(inputs.len()).unwrap();
    let results = over.run(world, |mut group| {
        let mut buffer = inputs[group.rank().index()].clone();
        group
            .all_reduce_compressed(&mut buffer, None, format)
            .unwrap();
        group.leave().unwrap();
        buffer
    });
    for other in &results {
        assert_eq!(bits(other), bits(&results[0]), "ranks have different bits");
    }
    results.into_iter().next().unwrap()
}

#[test]
fn up_to_16_ranks_stay_within_the_bound_with_equal_bits() {
    for world in 2..=16 {
        for format in formats() {
            for elements in [0, 1, 129, 2000 + world as usize] {
                let inputs = inputs(world, elements, u64::from(world));
                assert_within_bound(format, &inputs, &reduced(Over::Local, &inputs, format));
            }
        }
    }
}

#[test]
fn all_transports_give_the_same_bits() {
    for format in formats() {
        let inputs = inputs(3, 1000, 1);
        let expected = bits(&reduced(Over::Local, &inputs, format));
        for over in Over::ALL {
            assert_eq!(bits(&reduced(over, &inputs, format)), expected, "{over:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn any_values_stay_within_the_bound(
        world in 2_usize..6,
        format in 0_usize..5,
        values in prop::collection::vec(-1e30_f32..1e30, 6 * 200),
    ) {
        let inputs: Vec<_> = values.chunks(200).take(world).map(<[f32]>::to_vec).collect();
        let format = formats()[format];
        assert_within_bound(format, &inputs, &reduced(Over::Local, &inputs, format));
    }
}

#[test]
fn error_feedback_loses_nothing() {
    const ROUNDS: usize = 20;
    for format in formats() {
        let inputs = inputs(4, 300, 3);
        let results = Over::Local.run(4, |mut group| {
            let mut residual = vec![0.0; 300];
            let mut total = vec![0.0_f64; 300];
            for _ in 0..ROUNDS {
                let mut buffer = inputs[group.rank().index()].clone();
                group
                    .all_reduce_compressed(&mut buffer, Some(&mut residual), format)
                    .unwrap();
                for (total, one) in total.iter_mut().zip(&buffer) {
                    *total += f64::from(*one);
                }
            }
            group.leave().unwrap();
            (total, residual)
        });
        for at in 0..300 {
            let kept: f64 = results
                .iter()
                .map(|(_, residual)| f64::from(residual[at]))
                .sum();
            let exact = exact_sum(&inputs, at) * ROUNDS as f64;
            let error = (results[0].0[at] + kept - exact).abs();
            assert!(
                error < 1e-3,
                "{format:?}, element {at}: {error} of {exact} is lost"
            );
        }
    }
}

#[test]
fn a_value_that_is_not_finite_is_told_to_all_and_the_group_goes_on() {
    for over in [Over::Local, Over::Quic] {
        // In the shard of another rank, and in the own one, which is not sent.
        for (at, bad) in [
            (0, f32::NAN),
            (0, f32::INFINITY),
            (130, f32::NAN),
            (130, f32::NEG_INFINITY),
        ] {
            over.run(3, |mut group| {
                let mut buffer = vec![1.0; 200];
                if group.rank() == Rank::new(1) {
                    buffer[at] = bad;
                }
                let (before, format) = (bits(&buffer), Compression::Int8(NEAREST));
                let error = group
                    .all_reduce_compressed(&mut buffer, None, format)
                    .unwrap_err();
                assert_eq!(error, OperationError::NotFinite { rank: Rank::new(1) });
                assert_eq!(bits(&buffer), before);
                buffer.fill(1.0);
                group
                    .all_reduce_compressed(&mut buffer, None, format)
                    .unwrap();
                assert!(buffer.iter().all(|one| (one - 3.0).abs() < 1e-5));
                group.leave().unwrap();
            });
        }
    }
}

#[test]
fn a_sum_too_large_is_told_to_all_and_the_group_goes_on() {
    Over::Local.run(2, |mut group| {
        let mut buffer = vec![1.0; 300];
        buffer[0] = f32::MAX;
        let format = Compression::Int4(NEAREST);
        let error = group
            .all_reduce_compressed(&mut buffer, None, format)
            .unwrap_err();
        assert_eq!(error, OperationError::SumNotFinite { rank: Rank::new(0) });
        group.leave().unwrap();
    });
}

#[test]
fn ranks_of_different_formats_are_told() {
    Over::Local.run(3, |mut group| {
        // Both make 5 bytes of one element.
        let mut buffer = vec![1.0];
        let format = match group.rank().number() {
            2 => Compression::TopK(NonZeroU8::MIN),
            _ => Compression::Int8(NEAREST),
        };
        let error = group
            .all_reduce_compressed(&mut buffer, None, format)
            .unwrap_err();
        assert_eq!(
            error,
            OperationError::CompressionDiffers { peer: Rank::new(2) }
        );
        group.leave().unwrap();
    });
}

#[test]
fn a_residual_of_another_length_is_refused() {
    let mut group = Group::local(1).unwrap().remove(0);
    let format = Compression::Int8(NEAREST);
    let error = group
        .all_reduce_compressed(&mut [1.0; 3], Some(&mut [0.0; 2]), format)
        .unwrap_err();
    let expected = "the residual of all_reduce_compressed has 2 elements, but this call takes 3";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_started_one_gives_what_a_blocking_one_does() {
    Over::Quic.run(2, |mut group| {
        let own = &inputs(2, 500, 5)[group.rank().index()];
        let format = Compression::Int8(CHANCE);
        let (mut buffer, mut residual) = (own.clone(), vec![0.0; 500]);
        group
            .all_reduce_compressed(&mut buffer, Some(&mut residual), format)
            .unwrap();
        let started = group.start_all_reduce_compressed(own.clone(), vec![0.0; 500], format);
        let later = started.unwrap().wait().unwrap();
        assert_eq!(
            (bits(&later.buffer), bits(&later.residual)),
            (bits(&buffer), bits(&residual))
        );
        group.leave().unwrap();
    });
}

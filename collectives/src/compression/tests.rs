//! What comes back of compressed values, how far off it is, and what is refused.

use proptest::prelude::*;

use super::*;
use crate::Rank;

fn formats() -> impl Strategy<Value = Compression> {
    let rounding = prop_oneof![
        Just(Rounding::Nearest),
        any::<u64>().prop_map(|seed| Rounding::Stochastic { seed }),
    ];
    let k = any::<NonZeroU8>().prop_map(Compression::TopK);
    prop_oneof![
        rounding.clone().prop_map(Compression::Int8),
        rounding.prop_map(Compression::Int4),
        k,
    ]
}

fn there_and_back(format: Compression, values: &[f32], noise: u64) -> Vec<f32> {
    let mut bytes = vec![0; format.compressed_len(values.len())];
    assert!(format.compress(values, &mut bytes, Noise(noise)));
    let mut negative = vec![0.0; values.len()];
    format.subtract(&bytes, &mut negative).unwrap();
    let mut back = vec![17.0; values.len()];
    format.expand(&bytes, &mut back).unwrap();
    let positive = negative.iter().map(|value| 0.0 - value);
    assert_eq!(positive.collect::<Vec<_>>(), back);
    back
}

proptest! {
    #[test]
    fn a_block_is_off_by_its_part_of_the_largest(
        format in formats(),
        values in prop::collection::vec(prop::num::f32::NORMAL | prop::num::f32::ZERO, 0..400),
        noise: u64,
    ) {
        let back = there_and_back(format, &values, noise);
        for (block, back) in values.chunks(128).zip(back.chunks(128)) {
            let largest = block.iter().fold(0.0_f32, |max, one| max.max(one.abs()));
            let bound = f64::from(largest) * (format.error_part() + 1e-6) + 1e-37;
            for (value, back) in block.iter().zip(back) {
                let error = (f64::from(*value) - f64::from(*back)).abs();
                prop_assert!(error <= bound, "{value} became {back}, more than {bound} off");
            }
        }
    }

    #[test]
    fn any_bytes_are_values_or_refused(
        format in formats(),
        bytes in prop::collection::vec(any::<u8>(), 0..600),
        elements in 0_usize..400,
    ) {
        let mut sum = vec![0.0; elements];
        let read = format.subtract(&bytes, &mut sum);
        prop_assert!(read.is_err() || bytes.len() == format.compressed_len(elements));
        prop_assert!(read.is_err() || sum.iter().all(|value| value.is_finite()));
    }

    #[test]
    fn the_widest_instructions_give_the_bits_of_the_plainest(
        format in formats(),
        values in prop::collection::vec(prop::num::f32::NORMAL | prop::num::f32::ZERO, 0..400),
        noise: u64,
    ) {
        let noise = Noise(noise);
        let mut bytes = vec![0; format.compressed_len(values.len())];
        prop_assert!(format.compress(&values, &mut bytes, noise));
        let mut rest_of = vec![0.5; values.len()];
        format.subtract(&bytes, &mut rest_of).unwrap();
        // These are compiled here, for any processor of this kind.
        let (mut plain, mut rest) = (Vec::new(), bytes.as_slice());
        for (number, block) in values.chunks(Compression::BLOCK).enumerate() {
            let mut own = vec![0; format.block_len(block.len())];
            prop_assert!(format.compress_block(block, &mut own, noise, number * Compression::BLOCK));
            prop_assert_eq!(rest.split_off(..own.len()).unwrap(), &own);
            let mut left = vec![0.5; block.len()];
            format.read_block(&own, &mut left, |old, value| *old -= value).unwrap();
            plain.extend(left);
        }
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        prop_assert_eq!(bits(&rest_of), bits(&plain));
    }

    #[test]
    fn a_compressed_sum_is_that_of_all_values_in_the_order_of_ranks(
        format in formats(),
        values in prop::collection::vec(prop::array::uniform3(-1e30_f32..1e30), 0..400),
        noise: u64,
    ) {
        let of = |rank: usize| values.iter().map(|all| all[rank]).collect::<Vec<_>>();
        let compressed = |rank| {
            let mut bytes = vec![0; format.compressed_len(values.len())];
            assert!(format.compress(&of(rank), &mut bytes, Noise(7)));
            bytes
        };
        let (first, own, last) = (compressed(0), of(1), compressed(2));
        let mut expected = own.clone();
        for (at, value) in expected.iter_mut().enumerate() {
            let told = |bytes| {
                let mut values = vec![0.0; values.len()];
                format.expand(bytes, &mut values).unwrap();
                values[at]
            };
            *value = told(&first) + *value + told(&last);
        }
        let mut expected_bytes = vec![0; first.len()];
        prop_assert!(format.compress(&expected, &mut expected_bytes, Noise(noise)));

        let contributions = contributions(&first, &own, &last);
        let (mut bytes, mut kept) = (vec![0; first.len()], vec![0.0; own.len()]);
        let sum = format.compress_sum(&contributions, &mut bytes, Noise(noise), Some(&mut kept));
        prop_assert_eq!(sum, Ok(Sum::Finite));
        prop_assert_eq!(bytes, expected_bytes);
        prop_assert_eq!(kept, expected);
    }

    #[test]
    fn shards_are_whole_blocks_and_all_of_a_buffer(elements in 0_usize..10_000, world in 1_usize..17) {
        let mut end = 0;
        for rank in 0..world {
            let shard = shard(elements, world, rank);
            prop_assert_eq!(shard.start, end);
            prop_assert!(shard.start.is_multiple_of(Compression::BLOCK) || shard.is_empty());
            end = shard.end;
        }
        prop_assert_eq!(end, elements);
    }
}

fn contributions<'a>(first: &'a [u8], own: &'a [f32], last: &'a [u8]) -> Contributions<'a> {
    let shard = |rank, bytes| Shard {
        from: Rank::new(rank),
        bytes,
    };
    Contributions {
        before: vec![shard(0, first)],
        own,
        behind: vec![shard(2, last)],
    }
}

#[test]
fn a_sum_says_what_is_wrong_with_it() {
    let format = Compression::Int8(Rounding::Nearest);
    let compressed = |value: f32| {
        let mut bytes = vec![0; format.compressed_len(1)];
        assert!(format.compress(&[value], &mut bytes, Noise(0)));
        bytes
    };
    let sum = |first: &[u8], own: f32, last: &[u8]| {
        let own = [own];
        let contributions = contributions(first, &own, last);
        format.compress_sum(&contributions, &mut [0; 5], Noise(0), None)
    };
    let (one, large) = (compressed(1.0), compressed(f32::MAX));
    assert_eq!(sum(&one, 1.0, &one), Ok(Sum::Finite));
    assert_eq!(sum(&one, f32::NAN, &one), Ok(Sum::OwnNotFinite));
    assert_eq!(sum(&large, f32::MAX, &one), Ok(Sum::NotFinite));
    assert_eq!(sum(&one, 1.0, &one[..4]), Err(Rank::new(2)));
    let not_a_step = [255; 5];
    assert_eq!(sum(&not_a_step, 1.0, &one), Err(Rank::new(0)));
}

#[test]
fn top_k_keeps_the_elements_farthest_from_zero() {
    let k = Compression::TopK(NonZeroU8::new(2).unwrap());
    let values = [1.0, -5.0, 0.5, 3.0, 5.0];
    assert_eq!(there_and_back(k, &values, 0), [0.0, -5.0, 0.0, 0.0, 5.0]);
}

#[test]
fn stochastic_rounding_is_right_in_the_mean() {
    let format = Compression::Int4(Rounding::Stochastic { seed: 0 });
    let values = [7.0, 0.3];
    let sum: f32 = (0..10_000)
        .map(|noise| there_and_back(format, &values, noise)[1])
        .sum();
    assert!((sum / 10_000.0 - 0.3).abs() < 0.02, "{sum}");
}

proptest! {
    #[test]
    fn whole_numbers_are_those_of_the_standard_library(number in -254.0_f32..254.0, half in -254_i16..254) {
        for number in [number, f32::from(half) / 2.0] {
            prop_assert_eq!(floor(number), number.floor());
            let code = Rounded::new(&[127.0], 127.0, Rounding::Nearest).code(number);
            prop_assert_eq!(
                f32::from(code.cast_signed()),
                number.round_ties_even().clamp(-127.0, 127.0)
            );
        }
    }
}

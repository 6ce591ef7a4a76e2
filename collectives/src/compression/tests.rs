//! What comes back of compressed values, how far off it is, and what is refused.

use proptest::prelude::*;

use super::*;

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
    format.compress(values, &mut bytes, Noise(noise));
    let mut back = vec![0.0; values.len()];
    format.add(&bytes, &mut back).unwrap();
    let mut replaced = vec![17.0; values.len()];
    format.expand(&bytes, &mut replaced).unwrap();
    assert_eq!(replaced, back);
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
        let read = format.add(&bytes, &mut sum);
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
        format.compress(&values, &mut bytes, noise);
        let mut sum = vec![0.5; values.len()];
        format.add(&bytes, &mut sum).unwrap();
        // These are compiled here, for any processor of this kind.
        let (mut plain, mut rest) = (Vec::new(), bytes.as_slice());
        for (number, block) in values.chunks(Compression::BLOCK).enumerate() {
            let mut own = vec![0; format.block_len(block.len())];
            format.compress_block(block, &mut own, noise, number * Compression::BLOCK);
            prop_assert_eq!(rest.split_off(..own.len()).unwrap(), &own);
            let mut added = vec![0.5; block.len()];
            format.read_block(&own, &mut added, |sum, value| *sum += value).unwrap();
            plain.extend(added);
        }
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        prop_assert_eq!(bits(&sum), bits(&plain));
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

//! Half precision by the conversions that x86-64 has in hardware, eight numbers at a time.
#![expect(
    unsafe_code,
    reason = "code for instructions that not all processors have is called by an unsafe function only"
)]

use std::arch::is_x86_feature_detected;
use std::arch::x86_64::{_MM_FROUND_TO_NEAREST_INT, _mm256_cvtph_ps, _mm256_cvtps_ph};

use half::f16;

use super::accumulate::Accumulate;
use super::ops::Op;
use super::tree::{leaf, tree};

/// Like [`super::reduce`], but that `finish` makes of each result what is rounded. Where the
/// processor lacks the conversions, by arithmetic, which needs no wider instructions: no processor
/// has those and lacks these.
pub(super) fn reduce<O: Op<f32>>(into: &mut [u16], from: &[u16], finish: impl Fn(f32) -> f32) {
    if is_here() {
        // SAFETY: the processor has what this is compiled for.
        return unsafe { reduce_here::<O>(into, from, finish) };
    }
    for (a, b) in into.iter_mut().zip(from) {
        *a = f16::narrow(finish(O::of(f16::widen(*a), f16::widen(*b))));
    }
}

/// Like [`super::fold`], but that `finish` makes of each result what is rounded; where the
/// processor lacks the conversions, by arithmetic.
pub(super) fn fold<O: Op<f32>>(into: &mut [u16], sources: &[&[u16]], finish: impl Fn(f32) -> f32) {
    if !is_here() {
        return tree::<f16, O>(into, sources, |wide| f16::narrow(finish(wide)));
    }
    if sources.len() > 4 {
        // SAFETY: the processor has what this is compiled for.
        return unsafe { fold_many_here::<O>(into, sources, finish) };
    }
    // SAFETY: the processor has what this is compiled for.
    unsafe { fold_here::<O>(into, sources, finish) };
}

fn is_here() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c")
}

#[target_feature(enable = "avx2,f16c")]
fn reduce_here<O: Op<f32>>(into: &mut [u16], from: &[u16], finish: impl Fn(f32) -> f32) {
    let (blocks, rest) = into.as_chunks_mut();
    let (others, other_rest) = from.as_chunks();
    for (a, b) in blocks.iter_mut().zip(others) {
        *a = narrow(of::<O>(widen(*a), widen(*b)).map(&finish));
    }
    for (a, b) in rest.iter_mut().zip(other_rest) {
        *a = f16::narrow(finish(O::of(f16::widen(*a), f16::widen(*b))));
    }
}

#[target_feature(enable = "avx2,f16c")]
fn fold_here<O: Op<f32>>(into: &mut [u16], sources: &[&[u16]], finish: impl Fn(f32) -> f32) {
    let whole = into.len() / 8 * 8;
    let (blocks, _) = into.as_chunks_mut();
    match *sources {
        [a] => {
            for (into, a) in blocks.iter_mut().zip(eights(a)) {
                *into = narrow(widen(*a).map(&finish));
            }
        }
        [a, b] => {
            for (into, (a, b)) in blocks.iter_mut().zip(eights(a).zip(eights(b))) {
                *into = narrow(of::<O>(widen(*a), widen(*b)).map(&finish));
            }
        }
        [a, b, c] => {
            let pairs = eights(a).zip(eights(b));
            for (into, ((a, b), c)) in blocks.iter_mut().zip(pairs.zip(eights(c))) {
                let left = of::<O>(widen(*a), widen(*b));
                *into = narrow(of::<O>(left, widen(*c)).map(&finish));
            }
        }
        [a, b, c, d] => {
            let (left, right) = (eights(a).zip(eights(b)), eights(c).zip(eights(d)));
            for (into, ((a, b), (c, d))) in blocks.iter_mut().zip(left.zip(right)) {
                let left = of::<O>(widen(*a), widen(*b));
                let right = of::<O>(widen(*c), widen(*d));
                *into = narrow(of::<O>(left, right).map(&finish));
            }
        }
        _ => {}
    }
    leaf::<f16, O>(&mut into[whole..], sources, whole, |wide| {
        f16::narrow(finish(wide))
    });
}

/// More sources are widened piece by piece, and folded as what they are computed in: the same tree.
#[target_feature(enable = "avx2,f16c")]
fn fold_many_here<O: Op<f32>>(into: &mut [u16], sources: &[&[u16]], finish: impl Fn(f32) -> f32) {
    let piece = (WIDENED / sources.len()).max(1).next_multiple_of(8);
    let mut wide = vec![0; piece * sources.len()];
    let mut total = vec![0; piece];
    for (index, into) in into.chunks_mut(piece).enumerate() {
        let total = &mut total[..into.len()];
        for (wide, source) in wide.chunks_exact_mut(piece).zip(sources) {
            widen_all(&mut wide[..into.len()], &source[index * piece..]);
        }
        let pieces = wide.chunks_exact(piece).map(|wide| &wide[..into.len()]);
        super::fold::<f32, O>(total, &pieces.collect::<Vec<_>>());
        narrow_all(into, total, &finish);
    }
}

/// Numbers of all sources that are widened at a time, which a first-level cache has room for.
const WIDENED: usize = 6 << 10;

#[target_feature(enable = "avx2,f16c")]
fn widen_all(into: &mut [u32], from: &[u16]) {
    let (blocks, rest) = into.as_chunks_mut();
    let (others, _) = from.as_chunks();
    let whole = blocks.len() * 8;
    for (into, from) in blocks.iter_mut().zip(others) {
        *into = widen(*from).map(f32::to_bits);
    }
    for (into, from) in rest.iter_mut().zip(&from[whole..]) {
        *into = f16::widen(*from).to_bits();
    }
}

#[target_feature(enable = "avx2,f16c")]
fn narrow_all(into: &mut [u16], from: &[u32], finish: impl Fn(f32) -> f32) {
    let (blocks, rest) = into.as_chunks_mut();
    let (others, other_rest) = from.as_chunks::<8>();
    for (into, from) in blocks.iter_mut().zip(others) {
        *into = narrow(from.map(f32::from_bits).map(&finish));
    }
    for (into, from) in rest.iter_mut().zip(other_rest) {
        *into = f16::narrow(finish(f32::from_bits(*from)));
    }
}

fn eights(values: &[u16]) -> impl Iterator<Item = &[u16; 8]> {
    values.as_chunks().0.iter()
}

#[inline(always)]
fn of<O: Op<f32>>(left: [f32; 8], right: [f32; 8]) -> [f32; 8] {
    std::array::from_fn(|lane| O::of(left[lane], right[lane]))
}

#[inline]
#[target_feature(enable = "avx2,f16c")]
fn widen(short: [u16; 8]) -> [f32; 8] {
    bytemuck::cast(_mm256_cvtph_ps(bytemuck::cast(short)))
}

/// To the nearest, ties to even. The hardware keeps payloads and signs of NaN, so these go first.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn narrow(wide: [f32; 8]) -> [u16; 8] {
    let one_nan = wide.map(|wide| f32::widen(f32::narrow(wide)));
    let short = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(bytemuck::cast(one_nan));
    bytemuck::cast(short)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::ops::{Max, Min, Product, Sum};

    /// Zeros, ones, halfway cases, the ends of all ranges, infinities and NaN, of both signs.
    const PARTNERS: [u16; 20] = [
        0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x0400, 0x1000, 0x3BFF, 0x3C00, 0xBC00, 0x3C01,
        0x5555, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7C01, 0x7E00, 0xFE00, 0xFFFF,
    ];

    /// Every number with every partner.
    fn as_by_arithmetic<O: Op<f32>>() {
        let all: Vec<u16> = (0..=u16::MAX).collect();
        for partner in PARTNERS {
            let mut into = all.clone();
            reduce::<O>(&mut into, &vec![partner; all.len()], |wide| wide);
            let by_arithmetic = all
                .iter()
                .map(|bits| f16::narrow(O::of(f16::widen(*bits), f16::widen(partner))));
            assert!(into.into_iter().eq(by_arithmetic), "{partner:?}");
        }
    }

    #[test]
    fn every_number_is_reduced_to_the_same_bits_as_by_arithmetic() {
        as_by_arithmetic::<Sum>();
        as_by_arithmetic::<Product>();
        as_by_arithmetic::<Min>();
        as_by_arithmetic::<Max>();
    }

    #[track_caller]
    fn folds_as_by_arithmetic<O: Op<f32>>(len: u16, count: u16) {
        let number = |at: u16| at.wrapping_mul(40_503);
        let sources: Vec<Vec<u16>> = (0..count)
            .map(|seed| {
                (0..len)
                    .map(|at| number(seed.wrapping_mul(1000).wrapping_add(at + 1)))
                    .collect()
            })
            .collect();
        let slices: Vec<&[u16]> = sources.iter().map(Vec::as_slice).collect();
        let third = |wide: f32| wide / 3.0;
        let (mut into, mut expected) = (vec![1; len.into()], vec![1; len.into()]);
        fold::<O>(&mut into, &slices, third);
        tree::<f16, O>(&mut expected, &slices, |wide| f16::narrow(third(wide)));
        assert_eq!(into, expected, "{count} of {len}");
    }

    #[test]
    fn folds_of_any_number_of_sources_of_any_length_are_as_by_arithmetic() {
        for len in (0..40).chain([600, 1536, 3000]) {
            for count in 1..=19 {
                folds_as_by_arithmetic::<Sum>(len, count);
                folds_as_by_arithmetic::<Max>(len, count);
            }
        }
    }

    #[test]
    fn more_sources_than_are_widened_at_a_time_are_folded_as_by_arithmetic() {
        let many = u16::try_from(WIDENED).unwrap();
        folds_as_by_arithmetic::<Sum>(11, many + 1);
        folds_as_by_arithmetic::<Max>(9, 2 * many);
    }

    #[test]
    fn a_fold_of_nothing_leaves_what_is_there() {
        let mut into = [7; 3];
        fold::<Sum>(&mut into, &[], |sum| sum);
        assert_eq!(into, [7; 3]);
    }
}

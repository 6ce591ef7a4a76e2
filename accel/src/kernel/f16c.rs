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
use super::tree::leaf;

/// Like [`super::reduce`]. `None` where the processor lacks the conversions, and nothing is done.
pub(super) fn reduce<O: Op<f32>>(into: &mut [u16], from: &[u16]) -> Option<()> {
    if !is_here() {
        return None;
    }
    // SAFETY: the processor has what this is compiled for.
    unsafe { reduce_here::<O>(into, from) };
    Some(())
}

/// Like [`super::fold`] of one to four sources, of which `finish` makes what is rounded. `None` for
/// others, and where the processor lacks the conversions, and nothing is done.
pub(super) fn fold<O: Op<f32>>(
    into: &mut [u16],
    sources: &[&[u16]],
    finish: impl Fn(f32) -> f32,
) -> Option<()> {
    if !is_here() || sources.is_empty() || sources.len() > 4 {
        return None;
    }
    // SAFETY: the processor has what this is compiled for.
    unsafe { fold_here::<O>(into, sources, finish) };
    Some(())
}

fn is_here() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c")
}

#[target_feature(enable = "avx2,f16c")]
fn reduce_here<O: Op<f32>>(into: &mut [u16], from: &[u16]) {
    let (blocks, rest) = into.as_chunks_mut();
    let (others, other_rest) = from.as_chunks();
    for (a, b) in blocks.iter_mut().zip(others) {
        *a = narrow(of::<O>(widen(*a), widen(*b)));
    }
    for (a, b) in rest.iter_mut().zip(other_rest) {
        *a = f16::narrow(O::of(f16::widen(*a), f16::widen(*b)));
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
            if reduce::<O>(&mut into, &vec![partner; all.len()]).is_none() {
                return;
            }
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

    #[test]
    fn folds_of_one_to_four_sources_of_any_length_are_as_by_arithmetic() {
        let number = |at: u16| at.wrapping_mul(40_503);
        for len in 0..40 {
            let sources: Vec<Vec<u16>> = (0..4)
                .map(|seed| (0..len).map(|at| number(at + 1000 * seed)).collect())
                .collect();
            for count in 1..=4 {
                let slices: Vec<&[u16]> = sources[..count].iter().map(Vec::as_slice).collect();
                let mut into = vec![1; len.into()];
                if fold::<Sum>(&mut into, &slices, |sum| sum).is_none() {
                    return;
                }
                let mut expected = vec![1; len.into()];
                leaf::<f16, Sum>(&mut expected, &slices, 0, f16::narrow);
                assert_eq!(into, expected, "{count} of {len}");
            }
        }
    }

    #[test]
    fn other_counts_are_left_to_others() {
        let five = [[1; 3]; 5];
        let slices: Vec<&[u16]> = five.iter().map(<[u16; 3]>::as_slice).collect();
        assert_eq!(fold::<Sum>(&mut [0; 3], &slices, |sum| sum), None);
        assert_eq!(fold::<Sum>(&mut [0; 3], &[], |sum| sum), None);
    }
}

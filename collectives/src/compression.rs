//! Fewer bytes for values that may lose some accuracy: the formats, and how far off they are.
//!
//! Values are compressed in blocks of [`Compression::BLOCK`], each on its own. A block in integers
//! has the step between them as an `f32`, then one code an element; a block of top-k has an index
//! of one byte and an `f32` for each element that it keeps. Nothing here communicates.

mod sum;

use std::num::NonZeroU8;
use std::ops::Range;

use multiversion::multiversion;

pub(crate) use sum::{Contributions, Shard, Sum};

/// How the contributions and the sum of a compressed all-reduce travel.
///
/// ```
/// use meshwork_collectives::{Compression, Rounding};
///
/// // A byte an element, and four for each block of 128.
/// let int8 = Compression::Int8(Rounding::Nearest);
/// assert_eq!(int8.compressed_len(1280), 10 * 132);
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[doc(alias("quantization", "block-wise quantization"))]
pub enum Compression {
    /// Integers from -127 to 127 times a step for each block.
    Int8(Rounding),
    /// Integers from -7 to 7 times a step for each block.
    Int4(Rounding),
    /// The so many elements of each block that are farthest from zero, as they are.
    #[doc(alias = "sparsification")]
    TopK(NonZeroU8),
}

/// Which of the two nearest integers stands for a value.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Rounding {
    /// The nearer one.
    Nearest,
    /// Either, by chance, such that the mean is the value.
    Stochastic {
        /// The same seed gives the same numbers again: give each call another one, as by
        /// [`Compression::for_call`].
        seed: u64,
    },
}

/// Random numbers for one rank in one stage of an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Noise(pub(crate) u64);

/// Bytes that no block of this format is made of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Malformed;

const F32: usize = size_of::<f32>();
/// Bytes of an element that top-k keeps: its index, then its value.
const ENTRY: usize = 1 + F32;

impl Compression {
    /// Elements of a block; the last of a buffer may have fewer.
    pub const BLOCK: usize = 128;

    /// Bytes that so many elements become.
    #[must_use]
    pub fn compressed_len(self, elements: usize) -> usize {
        let (whole, rest) = (elements / Self::BLOCK, elements % Self::BLOCK);
        whole * self.block_len(Self::BLOCK) + self.block_len(rest)
    }

    /// The same format with other random numbers for each call of this number.
    ///
    /// ```
    /// use meshwork_collectives::{Compression, Rounding};
    ///
    /// let int4 = Compression::Int4(Rounding::Stochastic { seed: 7 });
    /// assert_ne!(int4.for_call(1), int4.for_call(2));
    /// assert_eq!(int4.for_call(1), int4.for_call(1));
    /// ```
    #[must_use]
    pub fn for_call(self, number: u64) -> Self {
        let reseeded = |rounding| match rounding {
            Rounding::Nearest => Rounding::Nearest,
            Rounding::Stochastic { seed } => Rounding::Stochastic {
                seed: mix(mix(seed) ^ number),
            },
        };
        match self {
            Self::Int8(rounding) => Self::Int8(reseeded(rounding)),
            Self::Int4(rounding) => Self::Int4(reseeded(rounding)),
            Self::TopK(k) => Self::TopK(k),
        }
    }

    /// How far, at most, the result of an element is from the exact sum, given the largest
    /// magnitude that each rank has in the element's block.
    ///
    /// With `m` the largest magnitude and `M` the sum of all ranks' `m`, compressing a
    /// contribution is off by at most `e·m`, and the sum, no larger than `(1 + e)·M`, by `e` times
    /// that: together `e·(2 + e)·M`, a part of `M` that does not depend on the number of ranks. `e`
    /// is 1/254 for int8 and 1/14 for int4, twice that with stochastic rounding, and 1 for top-k,
    /// which may drop all of a block but its largest. To it comes the rounding of `f32`.
    ///
    /// ```
    /// use meshwork_collectives::{Compression, Rounding};
    ///
    /// let bound = Compression::Int8(Rounding::Nearest).error_bound(&[1.0; 16]);
    /// assert!(bound < 0.13, "16 ranks' values from -1 to 1, whose sum is up to 16");
    /// ```
    #[must_use]
    pub fn error_bound(self, largest: &[f32]) -> f64 {
        let total: f64 = largest.iter().map(|&one| f64::from(one)).sum();
        let part = self.error_part();
        // Each of the n additions, and each code times its step, rounds a value of at most this
        // size; steps of the smallest magnitudes round to none.
        let roundings = (2 * largest.len() + 8) as f64;
        let rounding = roundings * f64::from(f32::EPSILON) * total * (1.0 + part);
        let smallest = roundings * f64::from(f32::MIN_POSITIVE);
        part * (2.0 + part) * total + rounding + smallest
    }

    /// The error of a value that is compressed once, in parts of the largest of its block.
    fn error_part(self) -> f64 {
        let of_step = |rounding| match rounding {
            Rounding::Nearest => 0.5,
            Rounding::Stochastic { .. } => 1.0,
        };
        match self {
            Self::Int8(rounding) => of_step(rounding) / 127.0,
            Self::Int4(rounding) => of_step(rounding) / 7.0,
            Self::TopK(_) => 1.0,
        }
    }

    /// What tells the format from others.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Int8(_) => 1,
            Self::Int4(_) => 2,
            Self::TopK(_) => 3,
        }
    }

    /// The seed of stochastic rounding; the other formats need none.
    pub(crate) fn seed(self) -> u64 {
        match self {
            Self::Int8(Rounding::Stochastic { seed })
            | Self::Int4(Rounding::Stochastic { seed }) => seed,
            Self::Int8(Rounding::Nearest) | Self::Int4(Rounding::Nearest) | Self::TopK(_) => 0,
        }
    }

    fn block_len(self, elements: usize) -> usize {
        if elements == 0 {
            return 0;
        }
        match self {
            Self::Int8(_) => F32 + elements,
            Self::Int4(_) => F32 + elements.div_ceil(2),
            Self::TopK(k) => ENTRY * elements.min(k.get().into()),
        }
    }

    /// Compresses values to [`compressed_len`](Self::compressed_len) bytes, and says whether all
    /// are finite; if not, the bytes stand for nothing.
    #[must_use]
    pub(crate) fn compress(self, values: &[f32], bytes: &mut [u8], noise: Noise) -> bool {
        compress(self, values, bytes, noise)
    }

    /// Takes the values of `bytes` away from `values`.
    pub(crate) fn subtract(self, bytes: &[u8], values: &mut [f32]) -> Result<(), Malformed> {
        read(self, bytes, values, |old, value| *old -= value)
    }

    /// Replaces `values` by those of `bytes`; by some of them where these are malformed.
    pub(crate) fn expand(self, bytes: &[u8], values: &mut [f32]) -> Result<(), Malformed> {
        if let Self::TopK(_) = self {
            // Those that were left out are in no bytes.
            values.fill(0.0);
        }
        read(self, bytes, values, |old, value| *old = value)
    }

    /// Whether all values are finite.
    #[inline(always)]
    fn compress_block(self, block: &[f32], bytes: &mut [u8], noise: Noise, first: usize) -> bool {
        match self {
            Self::Int8(rounding) => {
                let (step, codes) = Rounded::new(block, 127.0, rounding).codes(noise, first);
                let (scale, own) = bytes.split_at_mut(F32);
                scale.copy_from_slice(&step.to_le_bytes());
                own.copy_from_slice(&codes[..block.len()]);
                step.is_finite()
            }
            Self::Int4(rounding) => {
                let (step, codes) = Rounded::new(block, 7.0, rounding).codes(noise, first);
                let (scale, own) = bytes.split_at_mut(F32);
                scale.copy_from_slice(&step.to_le_bytes());
                for (byte, pair) in own.iter_mut().zip(codes.chunks_exact(2)) {
                    *byte = pair[1] << 4 | pair[0] & 0xf;
                }
                step.is_finite()
            }
            Self::TopK(_) => {
                compress_largest(block, bytes);
                is_finite(block)
            }
        }
    }

    #[inline(always)]
    fn read_block(
        self,
        bytes: &[u8],
        block: &mut [f32],
        put: impl Fn(&mut f32, f32),
    ) -> Result<(), Malformed> {
        match self {
            Self::Int8(_) => {
                let (step, codes) = step_of(bytes)?;
                for (old, code) in block.iter_mut().zip(codes) {
                    put(old, value(code.cast_signed(), step));
                }
            }
            Self::Int4(_) => {
                let (step, codes) = step_of(bytes)?;
                let mut halves = [0; Self::BLOCK];
                for (pair, code) in halves.chunks_exact_mut(2).zip(codes) {
                    pair[0] = (code << 4).cast_signed() >> 4;
                    pair[1] = code.cast_signed() >> 4;
                }
                for (old, half) in block.iter_mut().zip(halves) {
                    put(old, value(half, step));
                }
            }
            Self::TopK(_) => read_largest(bytes, block, put)?,
        }
        Ok(())
    }
}

/// By the widest instructions that the processor has, with the same bits by all.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn compress(compression: Compression, values: &[f32], bytes: &mut [u8], noise: Noise) -> bool {
    let mut rest = bytes;
    let mut finite = true;
    for (number, block) in values.chunks(Compression::BLOCK).enumerate() {
        let (own, behind) = rest.split_at_mut(compression.block_len(block.len()));
        rest = behind;
        finite &= compression.compress_block(block, own, noise, number * Compression::BLOCK);
    }
    finite
}

#[inline(always)]
fn is_finite(values: &[f32]) -> bool {
    // To the end, several at a time: nearly always all are.
    values
        .iter()
        .fold(true, |all, value| all & value.is_finite())
}

/// By the widest instructions that the processor has, with the same bits by all.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn read<P: Fn(&mut f32, f32)>(
    compression: Compression,
    bytes: &[u8],
    values: &mut [f32],
    put: P,
) -> Result<(), Malformed> {
    let mut rest = bytes;
    for block in values.chunks_mut(Compression::BLOCK) {
        let (own, behind) = rest
            .split_at_checked(compression.block_len(block.len()))
            .ok_or(Malformed)?;
        rest = behind;
        compression.read_block(own, block, &put)?;
    }
    rest.is_empty().then_some(()).ok_or(Malformed)
}

impl Noise {
    /// Other numbers for each list of these.
    pub(crate) fn new(sources: [u64; 4]) -> Self {
        Self(sources.into_iter().fold(0, |bits, one| mix(bits ^ one)))
    }

    /// A number from 0 up to, but not, 1, of its own for each place.
    #[inline(always)]
    fn at(self, index: usize) -> f32 {
        let bits = mix(self.0.wrapping_add(index as u64));
        // 24 bits are what an `f32` holds.
        (bits >> 40) as f32 / (1_u32 << 24) as f32
    }
}

/// `SplitMix64`.
#[inline(always)]
fn mix(state: u64) -> u64 {
    let mut bits = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// How the values of a block become integers.
struct Rounded<'a> {
    block: &'a [f32],
    step: f32,
    largest: f32,
    rounding: Rounding,
}

/// Added to a number of less than 2²², it leaves the nearest whole number, of two the even one, in
/// the lowest bits of the sum. Unlike `round_ties_even`, processors without a special instruction
/// do this to several elements at a time.
const WHOLE: f32 = 12_582_912.0;

impl<'a> Rounded<'a> {
    #[inline(always)]
    fn new(block: &'a [f32], largest: f32, rounding: Rounding) -> Self {
        // Of numbers that are not negative the bits have the same order, and are compared several
        // at a time, as numbers that may be NaN are not.
        let bits = block.iter().map(|one| one.abs().to_bits().cast_signed());
        let magnitude = f32::from_bits(bits.fold(0, i32::max).cast_unsigned());
        Self {
            block,
            step: magnitude / largest,
            largest,
            rounding,
        }
    }

    /// The step, and each element's code; behind the last, zeros.
    #[inline(always)]
    fn codes(&self, noise: Noise, first: usize) -> (f32, [u8; Compression::BLOCK]) {
        let mut codes = [0; Compression::BLOCK];
        if self.step == 0.0 {
            return (0.0, codes);
        }
        let each = codes.iter_mut().zip(self.block);
        match self.rounding {
            Rounding::Nearest => {
                for (code, value) in each {
                    *code = self.code(value / self.step);
                }
            }
            Rounding::Stochastic { .. } => {
                for (at, (code, value)) in each.enumerate() {
                    *code = self.code(floor(value / self.step + noise.at(first + at)));
                }
            }
        }
        (self.step, codes)
    }

    /// The nearest whole number that there is a code for.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the lowest byte of the bits is the number in two's complement"
    )]
    #[inline(always)]
    fn code(&self, steps: f32) -> u8 {
        (steps.clamp(-self.largest, self.largest) + WHOLE).to_bits() as u8
    }
}

/// The largest whole number up to one of less than 2²².
#[inline(always)]
fn floor(number: f32) -> f32 {
    let nearest = (number + WHOLE) - WHOLE;
    nearest - f32::from(u8::from(nearest > number))
}

/// What a code stands for, finite as `step` is.
#[inline(always)]
fn value(code: i8, step: f32) -> f32 {
    (f32::from(code) * step).clamp(f32::MIN, f32::MAX)
}

#[inline(always)]
fn step_of(block: &[u8]) -> Result<(f32, &[u8]), Malformed> {
    let (step, codes) = block.split_first_chunk().ok_or(Malformed)?;
    let step = f32::from_le_bytes(*step);
    (step.is_finite() && step >= 0.0)
        .then_some((step, codes))
        .ok_or(Malformed)
}

/// Writes the elements farthest from zero, of equal ones the first, in their order.
fn compress_largest(block: &[f32], bytes: &mut [u8]) {
    let mut order: Vec<u8> = (0..=u8::MAX).take(block.len()).collect();
    let magnitude = |&at: &u8| block[usize::from(at)].abs();
    order.sort_by(|one, other| magnitude(other).total_cmp(&magnitude(one)));
    order.truncate(bytes.len() / ENTRY);
    order.sort_unstable();
    for (entry, at) in bytes.chunks_exact_mut(ENTRY).zip(order) {
        entry[0] = at;
        entry[1..].copy_from_slice(&block[usize::from(at)].to_le_bytes());
    }
}

fn read_largest(
    bytes: &[u8],
    block: &mut [f32],
    put: impl Fn(&mut f32, f32),
) -> Result<(), Malformed> {
    let mut rest = bytes;
    let mut next = 0;
    while let Some((&[at, a, b, c, d], behind)) = rest.split_first_chunk() {
        let (at, value) = (usize::from(at), f32::from_le_bytes([a, b, c, d]));
        if at < next || !value.is_finite() {
            return Err(Malformed);
        }
        put(block.get_mut(at).ok_or(Malformed)?, value);
        (rest, next) = (behind, at + 1);
    }
    Ok(())
}

/// The elements of a buffer that a rank sums up: whole blocks, as even as that allows.
pub(crate) fn shard(elements: usize, world: usize, rank: usize) -> Range<usize> {
    let blocks = elements.div_ceil(Compression::BLOCK);
    let start = |rank: usize| {
        let block = blocks / world * rank + rank.min(blocks % world);
        (block * Compression::BLOCK).min(elements)
    };
    start(rank)..start(rank + 1)
}

#[cfg(test)]
mod tests;

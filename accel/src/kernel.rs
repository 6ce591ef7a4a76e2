//! The loops behind every reduction, one per op and element type, compiled for several instruction
//! sets and chosen when called.
//!
//! Wider vectors only do more elements at once: no loop is reordered and nothing is contracted, so
//! every machine computes the same bits.

mod accumulate;
#[cfg(target_arch = "x86_64")]
mod f16c;
mod ops;

use std::num::NonZeroU32;

use half::{bf16, f16};
use multiversion::multiversion;

use crate::ReduceOp;
use accumulate::Accumulate;
use ops::{And, Max, Min, Op, Or, Product, Sum, Xor};

/// The loops that a type has.
#[expect(
    unnameable_types,
    reason = "a sealed trait is sealed by having no path"
)]
pub trait Kernel: Sized {
    /// The loops of `op`, `None` if this type does not have the op.
    fn loops(op: ReduceOp) -> Option<Loops<Self>>;

    /// Divides each value, integers towards zero.
    fn divide(values: &mut [Self], by: NonZeroU32);
}

/// One op on slices of equal length; of longer ones, on their beginnings.
#[derive(Debug)]
#[expect(unnameable_types, reason = "part of a sealed trait")]
pub struct Loops<T> {
    /// Replaces each `into[i]` by the op of itself and `from[i]`.
    pub(crate) reduce: fn(into: &mut [T], from: &[T]),
    /// Replaces each `into[i]` by the op of all `sources[_][i]`, as a balanced tree.
    pub(crate) fold: fn(into: &mut [T], sources: &[&[T]]),
    /// The same of all contributions that there are, of which a mean is divided by their number.
    pub(crate) complete: fn(into: &mut [T], contributions: &[&[T]], number: NonZeroU32),
    /// Replaces each `into[i]` by the result of itself and `from[i]`, which are all contributions.
    pub(crate) complete_pair: fn(into: &mut [T], from: &[T]),
}

impl<T> Clone for Loops<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Loops<T> {}

macro_rules! kernel {
    ($($number:ty),+ => $loops:ident) => {$(
        impl Kernel for $number {
            fn loops(op: ReduceOp) -> Option<Loops<Self>> {
                $loops(op)
            }

            fn divide(values: &mut [Self], by: NonZeroU32) {
                for value in values {
                    *value = Self::part(value.widen(), by);
                }
            }
        }
    )+};
}

kernel!(bool => truth_loops);
kernel!(i8, i16, i32, i64, u8, u16, u32, u64 => integer_loops);
kernel!(f16 => half_loops);
kernel!(bf16, f32, f64 => float_loops);

fn loops<T: Accumulate, O: Op<T::Wide>>() -> Loops<T> {
    Loops {
        reduce: reduce::<T, O>,
        fold: fold::<T, O>,
        complete: |into, contributions, _| fold::<T, O>(into, contributions),
        complete_pair: reduce::<T, O>,
    }
}

/// A mean is a sum until all contributions are in.
fn mean_loops<T: Accumulate>() -> Loops<T>
where
    Sum: Op<T::Wide>,
{
    Loops {
        complete: mean::<T, Sum>,
        complete_pair: mean_of_pair::<T, Sum>,
        ..loops::<T, Sum>()
    }
}

fn truth_loops(op: ReduceOp) -> Option<Loops<bool>> {
    match op {
        ReduceOp::Min | ReduceOp::And => Some(loops::<_, And>()),
        ReduceOp::Max | ReduceOp::Or => Some(loops::<_, Or>()),
        ReduceOp::Xor => Some(loops::<_, Xor>()),
        ReduceOp::Sum | ReduceOp::Product | ReduceOp::Mean => None,
    }
}

fn integer_loops<T: Accumulate>(op: ReduceOp) -> Option<Loops<T>>
where
    And: Op<T::Wide>,
    Or: Op<T::Wide>,
    Xor: Op<T::Wide>,
    Sum: Op<T::Wide>,
    Product: Op<T::Wide>,
    Min: Op<T::Wide>,
    Max: Op<T::Wide>,
{
    match op {
        ReduceOp::And => Some(loops::<_, And>()),
        ReduceOp::Or => Some(loops::<_, Or>()),
        ReduceOp::Xor => Some(loops::<_, Xor>()),
        ReduceOp::Sum | ReduceOp::Product | ReduceOp::Min | ReduceOp::Max | ReduceOp::Mean => {
            float_loops(op)
        }
    }
}

fn float_loops<T: Accumulate>(op: ReduceOp) -> Option<Loops<T>>
where
    Sum: Op<T::Wide>,
    Product: Op<T::Wide>,
    Min: Op<T::Wide>,
    Max: Op<T::Wide>,
{
    match op {
        ReduceOp::Sum => Some(loops::<_, Sum>()),
        ReduceOp::Mean => Some(mean_loops()),
        ReduceOp::Product => Some(loops::<_, Product>()),
        ReduceOp::Min => Some(loops::<_, Min>()),
        ReduceOp::Max => Some(loops::<_, Max>()),
        ReduceOp::And | ReduceOp::Or | ReduceOp::Xor => None,
    }
}

/// Half precision has loops of its own where the processor converts it.
#[cfg(target_arch = "x86_64")]
fn half_loops(op: ReduceOp) -> Option<Loops<f16>> {
    fn converted<O: Op<f32>>() -> Loops<f16> {
        Loops {
            reduce: reduced::<O>,
            complete_pair: reduced::<O>,
            fold: folded::<O>,
            complete: |into, contributions, _| folded::<O>(into, contributions),
        }
    }
    fn reduced<O: Op<f32>>(into: &mut [f16], from: &[f16]) {
        f16c::reduce::<O>(into, from).unwrap_or_else(|| reduce::<f16, O>(into, from));
    }
    fn folded<O: Op<f32>>(into: &mut [f16], sources: &[&[f16]]) {
        f16c::fold::<O>(into, sources, |wide| wide)
            .unwrap_or_else(|| fold::<f16, O>(into, sources));
    }
    fn divided(into: &mut [f16], contributions: &[&[f16]], number: NonZeroU32) {
        let by = number.get() as f32;
        f16c::fold::<Sum>(into, contributions, |sum| sum / by)
            .unwrap_or_else(|| mean::<f16, Sum>(into, contributions, number));
    }
    match op {
        ReduceOp::Sum => Some(converted::<Sum>()),
        ReduceOp::Mean => Some(Loops {
            complete: divided,
            complete_pair: mean_of_pair::<f16, Sum>,
            ..converted::<Sum>()
        }),
        ReduceOp::Product => Some(converted::<Product>()),
        ReduceOp::Min => Some(converted::<Min>()),
        ReduceOp::Max => Some(converted::<Max>()),
        ReduceOp::And | ReduceOp::Or | ReduceOp::Xor => None,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn half_loops(op: ReduceOp) -> Option<Loops<f16>> {
    float_loops(op)
}

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn reduce<T: Accumulate, O: Op<T::Wide>>(into: &mut [T], from: &[T]) {
    for (a, b) in into.iter_mut().zip(from) {
        *a = T::narrow(O::of(a.widen(), b.widen()));
    }
}

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn mean_of_pair<T: Accumulate, O: Op<T::Wide>>(into: &mut [T], from: &[T]) {
    const TWO: NonZeroU32 = NonZeroU32::MIN.saturating_add(1);
    for (a, b) in into.iter_mut().zip(from) {
        *a = T::part(O::of(a.widen(), b.widen()), TWO);
    }
}

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn fold<T: Accumulate, O: Op<T::Wide>>(into: &mut [T], sources: &[&[T]]) {
    tree::<T, O>(into, sources, T::narrow);
}

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn mean<T: Accumulate, O: Op<T::Wide>>(into: &mut [T], contributions: &[&[T]], number: NonZeroU32) {
    tree::<T, O>(into, contributions, |sum| T::part(sum, number));
}

/// Up to four sources are one loop, in registers. More are reduced tile by tile, so that what is in
/// between stays in a cache: by fours, and these like the digits of a binary counter.
#[inline(always)]
fn tree<T: Accumulate, O: Op<T::Wide>>(
    into: &mut [T],
    sources: &[&[T]],
    finish: impl Fn(T::Wide) -> T,
) {
    if sources.len() <= 4 {
        return leaf::<T, O, T>(into, sources, 0, finish);
    }
    let depth = sources.len().div_ceil(4).ilog2() as usize + 1;
    // `partial[level]` is the reduction of `4 << level` sources that waits for its other half.
    let mut partial = vec![[T::default().widen(); TILE]; depth];
    for (index, tile) in into.chunks_mut(TILE).enumerate() {
        let mut total = [T::default().widen(); TILE];
        for (four, group) in sources.chunks(4).enumerate() {
            let len = tile.len();
            leaf::<T, O, T::Wide>(&mut total[..len], group, index * TILE, |wide| wide);
            let halves = four.trailing_ones() as usize;
            for earlier in &partial[..halves] {
                join::<T, O>(earlier, &mut total);
            }
            if let Some(waiting) = partial.get_mut(halves) {
                *waiting = total;
            }
        }
        let groups = sources.len().div_ceil(4);
        // The last group has joined the levels below the lowest that is left.
        let joined = groups.trailing_zeros() as usize + 1;
        for (level, earlier) in partial.iter().enumerate().skip(joined) {
            if groups >> level & 1 == 1 {
                join::<T, O>(earlier, &mut total);
            }
        }
        for (into, total) in tile.iter_mut().zip(total) {
            *into = finish(total);
        }
    }
}

/// Elements that are reduced at a time, and fit a first-level cache several times over.
const TILE: usize = 256;

#[inline(always)]
fn join<T: Accumulate, O: Op<T::Wide>>(earlier: &[T::Wide; TILE], later: &mut [T::Wide; TILE]) {
    for (later, earlier) in later.iter_mut().zip(earlier) {
        *later = O::of(*earlier, *later);
    }
}

/// The balanced tree of at most four sources, from their element `at` on.
#[inline(always)]
fn leaf<T: Accumulate, O: Op<T::Wide>, U>(
    into: &mut [U],
    sources: &[&[T]],
    at: usize,
    finish: impl Fn(T::Wide) -> U,
) {
    match *sources {
        [a] => {
            for (into, a) in into.iter_mut().zip(&a[at..]) {
                *into = finish(a.widen());
            }
        }
        [a, b] => {
            for (into, (a, b)) in into.iter_mut().zip(a[at..].iter().zip(&b[at..])) {
                *into = finish(O::of(a.widen(), b.widen()));
            }
        }
        [a, b, c] => {
            let pairs = a[at..].iter().zip(&b[at..]);
            for (into, ((a, b), c)) in into.iter_mut().zip(pairs.zip(&c[at..])) {
                *into = finish(O::of(O::of(a.widen(), b.widen()), c.widen()));
            }
        }
        [a, b, c, d] => {
            let left = a[at..].iter().zip(&b[at..]);
            let right = c[at..].iter().zip(&d[at..]);
            for (into, ((a, b), (c, d))) in into.iter_mut().zip(left.zip(right)) {
                let left = O::of(a.widen(), b.widen());
                *into = finish(O::of(left, O::of(c.widen(), d.widen())));
            }
        }
        _ => {}
    }
}

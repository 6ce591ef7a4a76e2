//! The loops behind every reduction, one per op and element type, compiled for several instruction
//! sets and chosen when called.
//!
//! Wider vectors only do more elements at once: no loop is reordered and nothing is contracted, so
//! every machine computes the same bits.

mod accumulate;
#[cfg(target_arch = "x86_64")]
mod f16c;
mod ops;
mod tree;

use std::fmt::Debug;
use std::num::NonZeroU32;

use half::{bf16, f16};
use multiversion::multiversion;

use crate::{ElementType, ReduceOp};
use accumulate::Accumulate;
use ops::{And, Max, Min, Op, Or, Product, Sum, Xor};
use tree::tree;

/// How a type of elements lies in memory, as numbers that loops are compiled for.
#[expect(
    unnameable_types,
    reason = "a sealed trait is sealed by having no path"
)]
pub trait Kernel: Sized {
    /// The unsigned number of the same size; truth values are their own, as not all bytes are some.
    type Carried: Carrier;

    /// The bits of each.
    fn bits(values: &[Self]) -> &[Self::Carried];

    /// The bits of each.
    fn bits_mut(values: &mut [Self]) -> &mut [Self::Carried];

    /// Does something with the bits of several slices.
    fn with_bits<R>(slices: &[&[Self]], then: impl FnOnce(&[&[Self::Carried]]) -> R) -> R;
}

/// Numbers that elements of their size are kept as.
#[expect(unnameable_types, reason = "part of a sealed trait")]
pub trait Carrier: Copy + Debug + 'static {
    /// The loops of `op` on such elements, `None` if these do not have the op, or other bits. They
    /// are compiled here: where this is inlined, other crates would compile them all again.
    fn loops(element: ElementType, op: ReduceOp) -> Option<&'static Loops<Self>>;
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
    /// Divides each value, integers towards zero.
    pub(crate) divide: fn(values: &mut [T], by: NonZeroU32),
}

macro_rules! kept_as_itself {
    ($($number:ty),+) => {$(
        impl Kernel for $number {
            type Carried = Self;

            fn bits(values: &[Self]) -> &[Self] {
                values
            }

            fn bits_mut(values: &mut [Self]) -> &mut [Self] {
                values
            }

            fn with_bits<R>(slices: &[&[Self]], then: impl FnOnce(&[&[Self]]) -> R) -> R {
                then(slices)
            }
        }
    )+};
}

macro_rules! kept_as {
    ($($number:ty as $bits:ty),+) => {$(
        impl Kernel for $number {
            type Carried = $bits;

            fn bits(values: &[Self]) -> &[$bits] {
                bytemuck::cast_slice(values)
            }

            fn bits_mut(values: &mut [Self]) -> &mut [$bits] {
                bytemuck::cast_slice_mut(values)
            }

            fn with_bits<R>(slices: &[&[Self]], then: impl FnOnce(&[&[$bits]]) -> R) -> R {
                let mut few: [&[$bits]; FEW] = [&[]; FEW];
                if let Some(few) = few.get_mut(..slices.len()) {
                    for (bits, slice) in few.iter_mut().zip(slices) {
                        *bits = Self::bits(slice);
                    }
                    return then(few);
                }
                let all: Vec<&[$bits]> = slices.iter().map(|slice| Self::bits(slice)).collect();
                then(&all)
            }
        }
    )+};
}

/// Slices that are listed without taking memory.
const FEW: usize = 8;

kept_as_itself!(bool, u8, u16, u32, u64);
kept_as!(i8 as u8, i16 as u16, f16 as u16, bf16 as u16);
kept_as!(i32 as u32, f32 as u32, i64 as u64, f64 as u64);

impl Carrier for bool {
    #[inline(never)]
    fn loops(element: ElementType, op: ReduceOp) -> Option<&'static Loops<Self>> {
        match element {
            ElementType::Bool => truth_loops::<Self>(op),
            _ => None,
        }
    }
}

impl Carrier for u8 {
    #[inline(never)]
    fn loops(element: ElementType, op: ReduceOp) -> Option<&'static Loops<Self>> {
        match element {
            ElementType::Bool => truth_loops::<Self>(op),
            ElementType::U8 => integer_loops::<Self, Self>(op),
            ElementType::I8 => integer_loops::<i8, Self>(op),
            _ => None,
        }
    }
}

impl Carrier for u16 {
    #[inline(never)]
    fn loops(element: ElementType, op: ReduceOp) -> Option<&'static Loops<Self>> {
        match element {
            ElementType::U16 => integer_loops::<Self, Self>(op),
            ElementType::I16 => integer_loops::<i16, Self>(op),
            ElementType::F16 => half_loops(op),
            ElementType::Bf16 => float_loops::<bf16>(op),
            _ => None,
        }
    }
}

impl Carrier for u32 {
    #[inline(never)]
    fn loops(element: ElementType, op: ReduceOp) -> Option<&'static Loops<Self>> {
        match element {
            ElementType::U32 => integer_loops::<Self, Self>(op),
            ElementType::I32 => integer_loops::<i32, Self>(op),
            ElementType::F32 => float_loops::<f32>(op),
            _ => None,
        }
    }
}

impl Carrier for u64 {
    #[inline(never)]
    fn loops(element: ElementType, op: ReduceOp) -> Option<&'static Loops<Self>> {
        match element {
            ElementType::U64 => integer_loops::<Self, Self>(op),
            ElementType::I64 => integer_loops::<i64, Self>(op),
            ElementType::F64 => float_loops::<f64>(op),
            _ => None,
        }
    }
}

const fn loops<T: Accumulate, O: Op<T::Wide>>() -> Loops<T::Bits> {
    Loops {
        reduce: reduce::<T, O>,
        fold: fold::<T, O>,
        complete: |into, contributions, _| fold::<T, O>(into, contributions),
        complete_pair: reduce::<T, O>,
        divide: divide::<T>,
    }
}

/// The same of numbers that any order makes the same of.
const fn loops_by_pairs<T: Accumulate, O: Op<T::Wide>>() -> Loops<T::Bits> {
    Loops {
        fold: fold_by_pairs::<T, O>,
        complete: |into, contributions, _| fold_by_pairs::<T, O>(into, contributions),
        ..loops::<T, O>()
    }
}

/// One source after another, a piece at a time that stays in a cache. What is seldom asked for is
/// compiled for pairs alone: loops for three and four sources took half of the time that this
/// crate takes to compile.
fn fold_by_pairs<T: Accumulate, O: Op<T::Wide>>(into: &mut [T::Bits], sources: &[&[T::Bits]]) {
    let Some((first, others)) = sources.split_first() else {
        return;
    };
    let piece = PIECE / size_of::<T::Bits>();
    for (index, into) in into.chunks_mut(piece).enumerate() {
        let begin = index * piece;
        into.copy_from_slice(&first[begin..begin + into.len()]);
        for other in others {
            reduce::<T, O>(into, &other[begin..]);
        }
    }
}

/// Bytes, which a first-level cache has room for besides a source's.
const PIECE: usize = 8 << 10;

fn divide<T: Accumulate>(values: &mut [T::Bits], by: NonZeroU32) {
    for value in values {
        *value = T::part(T::widen(*value), by);
    }
}

fn truth_loops<T: Accumulate>(op: ReduceOp) -> Option<&'static Loops<T::Bits>>
where
    And: Op<T::Wide>,
    Or: Op<T::Wide>,
    Xor: Op<T::Wide>,
{
    match op {
        ReduceOp::Min | ReduceOp::And => Some(const { &loops_by_pairs::<T, And>() }),
        ReduceOp::Max | ReduceOp::Or => Some(const { &loops_by_pairs::<T, Or>() }),
        ReduceOp::Xor => Some(const { &loops_by_pairs::<T, Xor>() }),
        ReduceOp::Sum | ReduceOp::Product | ReduceOp::Mean => None,
    }
}

/// The loops of integers `T`, which are kept as `U`. Only what depends on the sign is `T`'s own.
fn integer_loops<T, U>(op: ReduceOp) -> Option<&'static Loops<U>>
where
    T: Accumulate<Bits = U>,
    U: Accumulate<Bits = U>,
    And: Op<U::Wide>,
    Or: Op<U::Wide>,
    Xor: Op<U::Wide>,
    Sum: Op<U::Wide>,
    Product: Op<U::Wide>,
    Min: Op<T::Wide>,
    Max: Op<T::Wide>,
{
    Some(match op {
        ReduceOp::And => const { &loops_by_pairs::<U, And>() },
        ReduceOp::Or => const { &loops_by_pairs::<U, Or>() },
        ReduceOp::Xor => const { &loops_by_pairs::<U, Xor>() },
        ReduceOp::Product => const { &loops_by_pairs::<U, Product>() },
        ReduceOp::Min => const { &loops_by_pairs::<T, Min>() },
        ReduceOp::Max => const { &loops_by_pairs::<T, Max>() },
        ReduceOp::Sum => const { &loops::<U, Sum>() },
        // A mean is a sum until all contributions are in. What divides takes longest by far.
        ReduceOp::Mean => {
            const {
                &Loops {
                    complete: |into, contributions, number| {
                        fold::<U, Sum>(into, contributions);
                        divide::<T>(into, number);
                    },
                    complete_pair: |into, from| {
                        reduce::<U, Sum>(into, from);
                        divide::<T>(into, TWO);
                    },
                    divide: divide::<T>,
                    ..loops::<U, Sum>()
                }
            }
        }
    })
}

const TWO: NonZeroU32 = NonZeroU32::MIN.saturating_add(1);

fn float_loops<T: Accumulate>(op: ReduceOp) -> Option<&'static Loops<T::Bits>>
where
    Sum: Op<T::Wide>,
    Product: Op<T::Wide>,
    Min: Op<T::Wide>,
    Max: Op<T::Wide>,
{
    match op {
        ReduceOp::Sum => Some(const { &loops::<T, Sum>() }),
        ReduceOp::Mean => Some(
            const {
                &Loops {
                    complete: mean::<T, Sum>,
                    complete_pair: mean_of_pair::<T, Sum>,
                    ..loops::<T, Sum>()
                }
            },
        ),
        ReduceOp::Product => Some(const { &loops::<T, Product>() }),
        ReduceOp::Min => Some(const { &loops::<T, Min>() }),
        ReduceOp::Max => Some(const { &loops::<T, Max>() }),
        ReduceOp::And | ReduceOp::Or | ReduceOp::Xor => None,
    }
}

/// Half precision has loops of its own where the processor converts it.
#[cfg(target_arch = "x86_64")]
fn half_loops(op: ReduceOp) -> Option<&'static Loops<u16>> {
    const fn converted<O: Op<f32>>() -> Loops<u16> {
        Loops {
            reduce: reduced::<O>,
            complete_pair: reduced::<O>,
            fold: folded::<O>,
            complete: |into, contributions, _| folded::<O>(into, contributions),
            divide: divide::<f16>,
        }
    }
    fn reduced<O: Op<f32>>(into: &mut [u16], from: &[u16]) {
        f16c::reduce::<O>(into, from, |wide| wide);
    }
    fn folded<O: Op<f32>>(into: &mut [u16], sources: &[&[u16]]) {
        f16c::fold::<O>(into, sources, |wide| wide);
    }
    fn divided(into: &mut [u16], contributions: &[&[u16]], number: NonZeroU32) {
        let by = number.get() as f32;
        f16c::fold::<Sum>(into, contributions, |sum| sum / by);
    }
    fn halved(into: &mut [u16], from: &[u16]) {
        f16c::reduce::<Sum>(into, from, |sum| sum / 2.0);
    }
    match op {
        ReduceOp::Sum => Some(const { &converted::<Sum>() }),
        ReduceOp::Mean => Some(
            const {
                &Loops {
                    complete: divided,
                    complete_pair: halved,
                    ..converted::<Sum>()
                }
            },
        ),
        ReduceOp::Product => Some(const { &converted::<Product>() }),
        ReduceOp::Min => Some(const { &converted::<Min>() }),
        ReduceOp::Max => Some(const { &converted::<Max>() }),
        ReduceOp::And | ReduceOp::Or | ReduceOp::Xor => None,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn half_loops(op: ReduceOp) -> Option<&'static Loops<u16>> {
    float_loops::<f16>(op)
}

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn reduce<T: Accumulate, O: Op<T::Wide>>(into: &mut [T::Bits], from: &[T::Bits]) {
    for (a, b) in into.iter_mut().zip(from) {
        *a = T::narrow(O::of(T::widen(*a), T::widen(*b)));
    }
}

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn mean_of_pair<T: Accumulate, O: Op<T::Wide>>(into: &mut [T::Bits], from: &[T::Bits]) {
    for (a, b) in into.iter_mut().zip(from) {
        *a = T::part(O::of(T::widen(*a), T::widen(*b)), TWO);
    }
}

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn fold<T: Accumulate, O: Op<T::Wide>>(into: &mut [T::Bits], sources: &[&[T::Bits]]) {
    tree::<T, O>(into, sources, T::narrow);
}

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn mean<T: Accumulate, O: Op<T::Wide>>(
    into: &mut [T::Bits],
    contributions: &[&[T::Bits]],
    number: NonZeroU32,
) {
    tree::<T, O>(into, contributions, |sum| T::part(sum, number));
}

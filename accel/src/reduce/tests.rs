//! Each op on each element type against an oracle that combines one pair of values at a time,
//! compared bit by bit; besides overflow, NaN, rounding of 16-bit floats and refusals.

#![expect(
    clippy::cast_possible_truncation,
    reason = "the definition of wrapping, and bits for any type"
)]

use half::{bf16, f16};
use proptest::prelude::*;

use super::*;
use crate::ElementType;

/// The definition of every op, one pair of values at a time, written without the loops under test.
trait Oracle: Element {
    /// What is computed with.
    type Exact: Copy;

    /// The element with these low bits.
    fn of(bits: u64) -> Self;
    fn exact(self) -> Self::Exact;
    fn rounded(exact: Self::Exact) -> Self;
    fn pair(op: ReduceOp, a: Self::Exact, b: Self::Exact) -> Self::Exact;
    /// One of so many parts, rounded when it is divided.
    fn part(exact: Self::Exact, by: u32) -> Self;
}

fn tree<T: Oracle>(op: ReduceOp, values: &[T]) -> T::Exact {
    match balanced_split(values.len()) {
        None => values[0].exact(),
        Some(split) => {
            let (left, right) = values.split_at(split);
            T::pair(op, tree(op, left), tree(op, right))
        }
    }
}

impl Oracle for bool {
    type Exact = i32;

    fn of(bits: u64) -> Self {
        bits % 2 == 1
    }

    fn exact(self) -> i32 {
        i32::from(self)
    }

    fn rounded(exact: i32) -> Self {
        exact == 1
    }

    fn pair(op: ReduceOp, a: i32, b: i32) -> i32 {
        match op {
            ReduceOp::Min | ReduceOp::And => a * b,
            ReduceOp::Max | ReduceOp::Or => (a + b + 1) / 2,
            ReduceOp::Xor => (a + b) % 2,
            _ => unreachable!("{op} of bool"),
        }
    }

    fn part(exact: i32, _: u32) -> Self {
        Self::rounded(exact)
    }
}

macro_rules! integer_oracle {
    ($($number:ty),+) => {$(
        impl Oracle for $number {
            type Exact = i128;

            fn of(bits: u64) -> Self {
                bits as Self
            }

            fn exact(self) -> i128 {
                i128::from(self)
            }

            fn rounded(exact: i128) -> Self {
                exact as Self
            }

            fn pair(op: ReduceOp, a: i128, b: i128) -> i128 {
                let exact = match op {
                    ReduceOp::Sum | ReduceOp::Mean => a + b,
                    ReduceOp::Product => a.wrapping_mul(b),
                    ReduceOp::Min => if b < a { b } else { a },
                    ReduceOp::Max => if b < a { a } else { b },
                    ReduceOp::And => !(!a | !b),
                    ReduceOp::Or => !(!a & !b),
                    ReduceOp::Xor => (a | b) & !(a & b),
                };
                i128::from(exact as Self)
            }

            fn part(exact: i128, by: u32) -> Self {
                (exact / i128::from(by)) as Self
            }
        }
    )+};
}

integer_oracle!(i8, i16, i32, i64, u8, u16, u32, u64);

macro_rules! float_oracle {
    ($($number:ty, $exact:ty, $of:expr, $exactly:expr, $rounded:expr);+) => {$(
        impl Oracle for $number {
            type Exact = $exact;

            fn of(bits: u64) -> Self {
                const SPECIAL: [f32; 6] = [0.0, -0.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1.0];
                match SPECIAL.get(bits as usize % 29) {
                    Some(special) => $rounded(<$exact>::from(*special)),
                    None => $of(bits >> 5),
                }
            }

            fn exact(self) -> $exact {
                $exactly(self)
            }

            fn rounded(exact: $exact) -> Self {
                if exact.is_nan() { Self::NAN } else { $rounded(exact) }
            }

            fn pair(op: ReduceOp, a: $exact, b: $exact) -> $exact {
                let either_nan = a.is_nan() || b.is_nan();
                match op {
                    ReduceOp::Sum | ReduceOp::Mean => a + b,
                    ReduceOp::Product => a * b,
                    ReduceOp::Min | ReduceOp::Max if either_nan => <$exact>::NAN,
                    ReduceOp::Min => if a.total_cmp(&b).is_lt() { a } else { b },
                    ReduceOp::Max => if a.total_cmp(&b).is_gt() { a } else { b },
                    _ => unreachable!("{op} of floats"),
                }
            }

            fn part(exact: $exact, by: u32) -> Self {
                Self::rounded(exact / by as $exact)
            }
        }
    )+};
}

float_oracle!(
    f16, f32, |bits| Self::from_bits(bits as u16), Self::to_f32, Self::from_f32;
    bf16, f32, |bits| Self::from_bits(bits as u16), Self::to_f32, Self::from_f32;
    f32, f32, |bits| Self::from_bits(bits as u32), |x| x, |x| x;
    f64, f64, f64::from_bits, |x| x, |x| x
);

/// Values that look like chance, of which none is like its neighbours.
fn values<T: Oracle>(seed: usize, len: usize) -> Vec<T> {
    let mut state = seed as u64 + 1;
    let mut next = || {
        // Vigna, "An experimental exploration of Marsaglia's xorshift generators", 2016.
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        T::of(state.wrapping_mul(0x2545_F491_4F6C_DD1D).rotate_left(29))
    };
    (0..len).map(|_| next()).collect()
}

#[track_caller]
fn same_bits<T: Oracle>(got: &[T], expected: &[T], what: impl Fn() -> String) {
    let bytes = |values| bytemuck::cast_slice::<T, u8>(values).to_vec();
    assert!(
        bytes(got) == bytes(expected),
        "{} of {}: {got:?}, not {expected:?}",
        what(),
        T::TYPE
    );
}

fn ops<T: Oracle>() -> impl Iterator<Item = Reduction<T>> {
    ReduceOp::ALL
        .into_iter()
        .filter_map(|op| Reduction::new(op).ok())
}

fn folds_and_reductions_match_the_definition<T: Oracle>() {
    for reduction in ops::<T>() {
        let op = reduction.op();
        // Every shape of the tree up to 20 leaves and one of several levels; every end of a tile.
        for count in (1..=20).chain([37]) {
            for len in [0, 1, 31, 255, 256, 257, 600] {
                let sources: Vec<Vec<T>> = (0..count).map(|k| values(31 * k, len)).collect();
                let slices: Vec<&[T]> = sources.iter().map(Vec::as_slice).collect();
                let column = |i: usize| -> Vec<T> { slices.iter().map(|s| s[i]).collect() };
                let expected: Vec<T> = (0..len).map(|i| T::rounded(tree(op, &column(i)))).collect();
                let mut folded = values(7, len);
                reduction.fold(&mut folded, &slices).unwrap();
                same_bits(&folded, &expected, || {
                    format!("fold {op} of {count} sources")
                });
                if count == 2 {
                    let mut reduced = sources[1].clone();
                    reduction.reduce(&mut reduced, &sources[0]).unwrap();
                    same_bits(&reduced, &expected, || format!("reduce {op}, swapped"));
                }
            }
        }
    }
}

fn complete_results_are_divided_before_they_are_rounded<T: Oracle>() {
    for reduction in ops::<T>() {
        let op = reduction.op();
        for count in [1, 2, 3, 4, 5, 8, 13, 37] {
            for len in [0, 1, 31, 256, 600] {
                let sources: Vec<Vec<T>> = (0..count).map(|k| values(31 * k, len)).collect();
                let slices: Vec<&[T]> = sources.iter().map(Vec::as_slice).collect();
                let result = |i: usize| {
                    let column: Vec<T> = slices.iter().map(|s| s[i]).collect();
                    let exact = tree(op, &column);
                    match op {
                        ReduceOp::Mean => T::part(exact, count as u32),
                        _ => T::rounded(exact),
                    }
                };
                let expected: Vec<T> = (0..len).map(result).collect();
                let mut found = values(7, len);
                reduction.complete(&mut found, &slices).unwrap();
                same_bits(&found, &expected, || format!("{op} of all {count}"));
                if count == 2 {
                    let mut found = sources[1].clone();
                    reduction.complete_pair(&mut found, &sources[0]).unwrap();
                    same_bits(&found, &expected, || format!("{op} of both"));
                }
            }
        }
    }
}

fn only_a_mean_is_divided<T: Oracle>() {
    for reduction in ops::<T>() {
        for by in [1, 2, 3, 7, 300, 70_000, u32::MAX] {
            let before: Vec<T> = values(by as usize, 200);
            let mut after = before.clone();
            reduction.finish(&mut after, NonZeroU32::new(by).unwrap());
            let expected: Vec<T> = match reduction.op() {
                ReduceOp::Mean => before
                    .iter()
                    .map(|value| T::part(value.exact(), by))
                    .collect(),
                _ => before,
            };
            same_bits(&after, &expected, || format!("{} / {by}", reduction.op()));
        }
    }
}

fn ops_are_those_of_the_table<T: Oracle>() {
    for op in ReduceOp::ALL {
        let refused = Reduction::<T>::new(op).err();
        let element = T::TYPE;
        let expected = (!op.supports(element)).then_some(Error::UnsupportedOp { op, element });
        assert_eq!(refused, expected);
    }
}

macro_rules! every_type {
    ($check:ident) => {
        $check::<bool>();
        every_type!($check: i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64);
    };
    ($check:ident: $($number:ty),+) => { $($check::<$number>();)+ };
}

#[test]
fn folds_and_reductions_match_the_definition_bit_by_bit() {
    every_type!(folds_and_reductions_match_the_definition);
}

#[test]
fn results_of_all_contributions_match_the_definition_bit_by_bit() {
    every_type!(complete_results_are_divided_before_they_are_rounded);
}

#[test]
fn a_mean_of_short_floats_is_there_where_their_sum_is_not() {
    let mean = Reduction::new(ReduceOp::Mean).unwrap();
    let large = [f16::from_f32(60_000.0); 9];
    for count in 1..=9 {
        let mut into = [f16::ZERO; 9];
        mean.complete(&mut into, &vec![large.as_slice(); count])
            .unwrap();
        assert_eq!(into, large, "{count} contributions");
    }
    let mut pair = large;
    mean.complete_pair(&mut pair, &large).unwrap();
    assert_eq!(pair, large);
    let mut sum = large;
    mean.reduce(&mut sum, &large).unwrap();
    assert_eq!(sum, [f16::INFINITY; 9], "which is rounded between");
}

#[test]
fn a_mean_is_divided_and_nothing_else() {
    every_type!(only_a_mean_is_divided);
}

#[test]
fn a_type_has_the_ops_of_the_table_and_no_other() {
    every_type!(ops_are_those_of_the_table);
    let undefined = ElementType::ALL.map(|kind| {
        let lacks = ReduceOp::ALL.into_iter().filter(|op| !op.supports(kind));
        lacks.map(|op| format!("{op} ")).collect::<String>()
    });
    let (integers, floats) = ("", "and or xor ");
    let expected = [
        integers,
        integers,
        integers,
        integers,
        integers,
        floats,
        floats,
        "sum product mean ",
        integers,
        integers,
        integers,
        floats,
        floats,
    ];
    assert_eq!(undefined, expected);
}

#[test]
fn codes_and_ops_are_inverse_and_other_codes_are_refused() {
    for code in 0..=u8::MAX {
        let op = ReduceOp::from_code(code);
        assert_eq!(op.map(ReduceOp::code), op.is_some().then_some(code));
    }
    let known = (0..=u8::MAX).filter_map(ReduceOp::from_code);
    assert!(known.eq(ReduceOp::ALL));
}

#[test]
fn codes_never_change() {
    let names = ReduceOp::ALL.map(|op| op.to_string()).join(" ");
    assert_eq!(names, "sum product min max mean and or xor");
    assert_eq!(ReduceOp::ALL.map(ReduceOp::code), [1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn numbers_carry_the_elements_of_their_size_and_no_others() {
    fn check<T: Element>(carried: &[ElementType]) {
        for element in ElementType::ALL {
            for op in ReduceOp::ALL {
                let carries = carried.contains(&element) && op.supports(element);
                let made = Reduction::<T>::carrying(element, op);
                assert_eq!(made.is_ok(), carries, "{op} of {element}");
                assert!(made.is_ok_and(|made| made.element() == element) == carries);
            }
        }
    }
    use ElementType::{Bf16, Bool, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};
    check::<bool>(&[Bool]);
    check::<u8>(&[Bool, I8, U8]);
    check::<u16>(&[I16, U16, F16, Bf16]);
    check::<u32>(&[I32, U32, F32]);
    check::<u64>(&[I64, U64, F64]);
}

#[test]
fn unequal_lengths_and_no_sources_are_refused_and_nothing_is_written() {
    let sum = Reduction::new(ReduceOp::Sum).unwrap();
    let mut into = [1_i32, 2];
    let unequal = Error::LengthMismatch { left: 2, right: 1 };
    assert_eq!(sum.reduce(&mut into, &[1]), Err(unequal.clone()));
    assert_eq!(sum.fold(&mut into, &[&[1, 2], &[1]]), Err(unequal));
    let none = Error::NoSources { op: ReduceOp::Sum };
    assert_eq!(sum.fold(&mut into, &[]), Err(none.clone()));
    assert_eq!(sum.complete(&mut into, &[]), Err(none));
    assert_eq!(into, [1, 2]);
}

#[test]
fn integers_wrap() {
    let mut into = [u8::MAX, 200];
    reduce_slice(ReduceOp::Sum, &mut into, &[1, 100]).unwrap();
    assert_eq!(into, [0, 44]);
    reduce_slice(ReduceOp::Product, &mut into, &[3, 8]).unwrap();
    assert_eq!(into, [0, 96]);
}

#[test]
fn a_nan_of_any_bits_on_either_side_becomes_the_one_nan() {
    let nans = [0x7FC0_0001, 0xFFC0_0000, 0x7F80_0001].map(f32::from_bits);
    for reduction in ops::<f32>() {
        for nan in nans {
            let mut into = [nan, 1.0, nan, f32::INFINITY];
            reduction
                .reduce(&mut into, &[1.0, nan, nans[0], nan])
                .unwrap();
            assert_eq!(
                into.map(f32::to_bits),
                [0x7FC0_0000; 4],
                "{}",
                reduction.op()
            );
        }
    }
}

#[test]
fn sixteen_bit_floats_are_rounded_once_in_a_fold() {
    let sum = Reduction::new(ReduceOp::Sum).unwrap();
    // Each quarter alone is lost in 2048, whose neighbour is 2050; together they are not.
    let (large, quarter) = ([f16::from_f32(2048.0)], [f16::from_f32(0.25)]);
    let mut sources = vec![&large[..]];
    sources.extend([&quarter[..]; 8]);
    let mut into = [f16::ZERO];
    sum.fold(&mut into, &sources).unwrap();
    assert_eq!(into, [f16::from_f32(2050.0)]);
}

proptest! {
    #[test]
    fn the_split_is_the_largest_power_of_two_that_leaves_something(places in 2_usize..10_000) {
        let split = balanced_split(places).unwrap();
        prop_assert!(split.is_power_of_two() && split < places && 2 * split >= places);
    }
}

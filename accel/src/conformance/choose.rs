//! Elements chosen by steps, indices and conditions, and scanned, against loops over indices.

use std::num::NonZeroIsize;

use super::bench::Bench;
use super::values::{Sample, reduction_along, samples, terms};
use super::violation::{Found, UNCOUNTED, Violation, refused, refused_uncounted};
use crate::{
    Arrange, Element, ElementType, Elementwise, Error, Fold, ReduceOp, StridedRange, StridedSlice,
    convert_slice,
};

pub(super) fn by_places<A: Arrange, T: Sample>(bench: Bench<'_, A>) -> Result<(), Violation> {
    let case = || bench.case::<T>(24);
    steps::<A, T>(bench).map_err(|found| found.of("axes are stepped along", case()))?;
    takes::<A, T>(bench)
        .map_err(|found| found.of("elements are taken at the indices that are given", case()))?;
    rows::<A, T>(bench).map_err(|found| found.of("each index has its one-hot row", case()))
}

pub(super) fn by_conditions<A: Elementwise, T: Sample>(
    bench: Bench<'_, A>,
) -> Result<(), Violation> {
    let found = selects::<A, T, bool>(bench).and_then(|()| selects::<A, T, f32>(bench));
    found.map_err(|found| {
        let case = bench.case::<T>(24);
        found.of("elements are chosen by conditions", case)
    })
}

pub(super) fn scan<A: Fold, T: Sample>(bench: Bench<'_, A>) -> Result<(), Violation> {
    for op in ReduceOp::ALL {
        let case = format!("{op}, {}", bench.case::<T>(30));
        scans::<A, T>(bench, op)
            .map_err(|found| found.of("each element meets all before it", case))?;
    }
    Ok(())
}

/// The refusals of bad indices, whatever is chosen by them.
pub(super) fn index_refusals<A: Arrange>(bench: Bench<'_, A>) -> Result<(), Violation> {
    let found = refusals(bench);
    found.map_err(|found| found.of("choices refuse what does not fit", String::new()))
}

fn steps<A: Arrange, T: Sample>(bench: Bench<'_, A>) -> Result<(), Found> {
    let whole = [2, 3, 4];
    let values = samples::<T>(1, 24);
    let buffer = bench.with(&values)?;
    for along in [
        [(0, 1, 2), (0, 1, 3), (0, 1, 4)],
        [(1, -1, 2), (0, 2, 2), (3, -2, 2)],
        [(1, 5, 1), (2, -2, 2), (1, 2, 2)],
        [(0, 1, 2), (0, 1, 0), (0, 1, 4)],
    ] {
        let strides = along.map(|(first, step, count)| {
            let step = NonZeroIsize::new(step).unwrap_or(NonZeroIsize::MIN);
            StridedRange { first, step, count }
        });
        let by = StridedSlice::new(&whole, &strides)?;
        let made = bench.accelerator.step(&buffer, &by)?;
        let indices = |axis: usize| {
            let (first, step, count) = along[axis];
            (0..count).map(move |at: usize| first.saturating_add_signed(at.cast_signed() * step))
        };
        let mut expected = Vec::new();
        for first in indices(0) {
            for second in indices(1) {
                expected.extend(indices(2).map(|third| values[first * 12 + second * 4 + third]));
            }
        }
        bench.holds(&made, &expected)?;
    }
    let long = [0, usize::MAX];
    let by = StridedSlice::new(&long, &long.map(StridedRange::all))?;
    let none = bench.with::<T>(&[])?;
    bench.holds::<T>(&bench.accelerator.step(&none, &by)?, &[])?;
    bench.holds(&buffer, &values)
}

fn takes<A: Arrange, T: Sample>(bench: Bench<'_, A>) -> Result<(), Found> {
    let indices = [2_i64, 0, -1, 3, 2, i64::MAX, 1];
    for sizes in [
        [2, 3, 4],
        [1, 4, 1],
        [2, 0, 3],
        [0, 3, 2],
        [0, 3, usize::MAX],
    ] {
        taken::<A, T, i64>(bench, sizes, &indices, &indices)?;
    }
    let narrow = [2_i8, 0, -1, 3, 2, i8::MAX, 1];
    taken::<A, T, i8>(bench, [2, 3, 4], &narrow, &indices)?;
    // One that a signed number of as many bits does not have.
    let wide = [2, 0, u64::MAX, 3, 2, 1 << 63, 1];
    taken::<A, T, u64>(bench, [2, 3, 4], &wide, &indices)?;
    taken::<A, T, u32>(bench, [2, 3, 4], &[], &[])
}

fn taken<A: Arrange, T: Sample, I: Element>(
    bench: Bench<'_, A>,
    sizes: [usize; 3],
    given: &[I],
    indices: &[i64],
) -> Result<(), Found> {
    let [outer, len, inner] = sizes;
    let chosen = bench.with(given)?;
    let values = samples::<T>(1, outer * len * inner);
    let buffer = bench.with(&values)?;
    let made = bench.accelerator.take(&buffer, sizes, &chosen)?;
    let mut expected = Vec::new();
    for block in 0..outer {
        for index in indices {
            let inside = usize::try_from(*index).ok().filter(|index| *index < len);
            expected.extend((0..inner).map(|at| match inside {
                Some(index) => values[(block * len + index) * inner + at],
                None => T::default(),
            }));
        }
    }
    bench.holds(&made, &expected)?;
    bench.holds(&buffer, &values)?;
    bench.holds(&chosen, given)
}

fn rows<A: Arrange, T: Sample>(bench: Bench<'_, A>) -> Result<(), Found> {
    let indices = [4_i32, 0, -2, 6, 3, 9];
    let given = bench.with(&indices)?;
    for classes in [0..7, 3..5, 2..2] {
        let rows = bench
            .accelerator
            .one_hot(&given, classes.clone(), T::TYPE)?;
        let mut expected = Vec::new();
        for index in indices {
            let is_right = |class| usize::try_from(index) == Ok(class);
            let one_or_none = |class| {
                if is_right(class) {
                    T::ONE
                } else {
                    T::default()
                }
            };
            expected.extend(classes.clone().map(one_or_none));
        }
        bench.holds(&rows, &expected)?;
    }
    let none = bench.with::<i32>(&[])?;
    bench.holds::<T>(&bench.accelerator.one_hot(&none, 0..3, T::TYPE)?, &[])
}

fn selects<A: Elementwise, T: Sample, C: Sample>(bench: Bench<'_, A>) -> Result<(), Found> {
    for len in [0, 24] {
        let conditions: Vec<C> = (0..len)
            .map(|at| match at % 3 {
                0 => C::default(),
                1 => C::ONE,
                _ => C::sample(at),
            })
            .collect();
        let mut holds = vec![false; conditions.len()];
        convert_slice(&conditions, &mut holds)?;
        let (yes, no) = (
            samples::<T>(1, conditions.len()),
            samples::<T>(2, conditions.len()),
        );
        let ends = [bench.with(&yes)?, bench.with(&no)?];
        let condition = bench.with(&conditions)?;
        let made = bench.accelerator.select(&condition, &ends[0], &ends[1])?;
        let chosen = holds.iter().zip(yes.iter().zip(&no));
        let chosen = chosen.map(|(holds, (yes, no))| if *holds { *yes } else { *no });
        bench.holds(&made, &chosen.collect::<Vec<_>>())?;
        bench.holds(&ends[0], &yes)?;
        bench.holds(&condition, &conditions)?;
    }
    let (two, three) = (bench.with(&[true; 2])?, bench.with(&samples::<T>(1, 3))?);
    let (left, right) = (3, 2);
    let lengths = Error::LengthMismatch { left, right };
    let short = bench.accelerator.select(&two, &three, &three);
    refused(short.map(drop), &lengths)
}

fn scans<A: Fold, T: Sample>(bench: Bench<'_, A>, op: ReduceOp) -> Result<(), Found> {
    let reduction = match reduction_along::<T>(op) {
        Ok(reduction) => reduction,
        Err(unsupported) => {
            let buffer = bench.with(&[T::default()])?;
            let scanned = bench.accelerator.scan(op, [1, 1, 1], &buffer);
            return refused(scanned.map(drop), &unsupported);
        }
    };
    let [many, _, others] = UNCOUNTED;
    for sizes in [
        [2, 5, 3],
        [1, 33, 1],
        [0, 5, 3],
        [2, 0, 3],
        [0, many, others],
    ] {
        let [outer, len, inner] = sizes;
        let values = terms::<T>(op, outer * len * inner);
        let mut expected = values.clone();
        for at in 0..expected.len() {
            if at / inner % len > 0 {
                let (before, rest) = expected.split_at_mut(at);
                reduction.reduce(&mut rest[..1], &before[at - inner..=at - inner])?;
            }
        }
        let buffer = bench.with(&values)?;
        bench.holds(&bench.accelerator.scan(op, sizes, &buffer)?, &expected)?;
        bench.holds(&buffer, &values)?;
    }
    let four = bench.with(&terms::<T>(op, 4))?;
    let scanned = bench.accelerator.scan(op, [2, 3, 1], &four);
    let (left, right) = (4, 6);
    refused(scanned.map(drop), &Error::LengthMismatch { left, right })?;
    let none = bench.with::<T>(&[])?;
    refused_uncounted(bench.accelerator.scan(op, UNCOUNTED, &none))?;
    large_totals::<A, T>(bench, op)
}

/// Of numbers of which 16-bit floats do not have all sums and products: each is rounded once.
fn large_totals<A: Fold, T: Sample>(bench: Bench<'_, A>, op: ReduceOp) -> Result<(), Found> {
    let (number, totals): (T, Vec<T>) = match op {
        ReduceOp::Sum => (T::ONE, (1..=3000).map(T::whole).collect()),
        ReduceOp::Product => {
            let powers = (1..=12).map(|times| T::whole(3_usize.pow(times)));
            (T::whole(3), powers.collect())
        }
        _ => return Ok(()),
    };
    let buffer = bench.with(&vec![number; totals.len()])?;
    let sizes = [1, totals.len(), 1];
    bench.holds(&bench.accelerator.scan(op, sizes, &buffer)?, &totals)?;
    let total = &totals[totals.len() - 1..];
    bench.holds(&bench.accelerator.fold(op, sizes, &buffer)?, total)
}

fn refusals<A: Arrange>(bench: Bench<'_, A>) -> Result<(), Found> {
    let accelerator = bench.accelerator;
    let (four, indices) = (bench.with(&[1_u8; 4])?, bench.with(&[1_i32, 0])?);
    let (left, right) = (4, 6);
    let lengths = Error::LengthMismatch { left, right };
    let taken = accelerator.take(&four, [1, 6, 1], &indices);
    refused(taken.map(drop), &lengths)?;
    let none = bench.with::<u8>(&[])?;
    refused_uncounted(accelerator.take(&none, UNCOUNTED, &indices))?;
    let (left, right) = (4, 5);
    let lengths = Error::LengthMismatch { left, right };
    let steps = StridedSlice::new(&[5], &[StridedRange::all(5)])?;
    refused(accelerator.step(&four, &steps).map(drop), &lengths)?;
    let element = ElementType::F32;
    let unsupported = Error::UnsupportedElement { element };
    let fractions = bench.with(&[0.5_f32])?;
    let taken = accelerator.take(&four, [1, 4, 1], &fractions);
    refused(taken.map(drop), &unsupported)?;
    let rows = accelerator.one_hot(&fractions, 0..2, element);
    refused(rows.map(drop), &unsupported)?;
    #[expect(clippy::reversed_empty_ranges, reason = "that is what is refused")]
    let rows = accelerator.one_hot(&indices, 2..1, element);
    let (start, end) = (2, 1);
    refused(rows.map(drop), &Error::ReversedRange { start, end })?;
    let rows = accelerator.one_hot(&indices, 0..usize::MAX, element);
    let (rows_of, columns) = (2, usize::MAX);
    let large = Error::ShapeTooLarge {
        rows: rows_of,
        columns,
    };
    refused(rows.map(drop), &large)?;
    for other in bench.others() {
        let far = other.with(&[0_i32])?;
        let (left, right) = (bench.device, other.device);
        let taken = accelerator.take(&four, [1, 4, 1], &far);
        refused(taken.map(drop), &Error::DeviceMismatch { left, right })?;
    }
    Ok(())
}

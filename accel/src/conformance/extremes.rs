//! Where the extremes along an axis are, against what is known of all elements of a line.

use std::cmp::Ordering;

use super::bench::Bench;
use super::values::Sample;
use super::violation::{Found, UNCOUNTED, Violation, refused, refused_uncounted};
use crate::{ElementType, Error, Fold, ReduceOp};

pub(super) fn indices<A: Fold, T: Sample>(bench: Bench<'_, A>) -> Result<(), Violation> {
    for op in ReduceOp::ALL {
        let case = format!("{op}, {}", bench.case::<T>(315));
        let found = match op {
            ReduceOp::Min if T::TYPE != ElementType::Bool => firsts::<A, T>(bench, op),
            ReduceOp::Max if T::TYPE != ElementType::Bool => firsts::<A, T>(bench, op),
            _ => no_order::<A, T>(bench, op),
        };
        found
            .map_err(|found| found.of("the first of the extremes along an axis is found", case))?;
    }
    Ok(())
}

/// In lines of few different values, so that each has several extremes.
fn firsts<A: Fold, T: Sample>(bench: Bench<'_, A>, op: ReduceOp) -> Result<(), Found> {
    for sizes in [[5, 9, 7], [1, 133, 1], [0, 5, 3]] {
        let [outer, len, inner] = sizes;
        let line_of = |at: usize| {
            let place = move |along: usize| (at / inner * len + along) * inner + at % inner;
            (0..len).map(place)
        };
        let few = |at: usize| T::sample((at * at % 61) as u64 % 31);
        let values: Vec<T> = (0..outer * len * inner).map(few).collect();
        let lines = (0..outer * inner).map(|at| line_of(at).map(|place| values[place]));
        let expected: Vec<i64> = lines
            .map(|line| first(op, &line.collect::<Vec<T>>()))
            .collect();
        let buffer = bench.with(&values)?;
        let found = bench.accelerator.arg_reduce(op, sizes, &buffer)?;
        bench.holds(&found, &expected)?;
        bench.holds(&buffer, &values)?;
    }
    let four = bench.with(&[T::ONE; 4])?;
    let (left, right) = (4, 6);
    let lengths = Error::LengthMismatch { left, right };
    let longer = bench.accelerator.arg_reduce(op, [2, 3, 1], &four);
    refused(longer.map(drop), &lengths)?;
    let none = bench.with::<T>(&[])?;
    let empty = bench.accelerator.arg_reduce(op, [2, 0, 3], &none);
    refused(empty.map(drop), &Error::NoSources { op })?;
    refused_uncounted(bench.accelerator.arg_reduce(op, UNCOUNTED, &none))
}

fn no_order<A: Fold, T: Sample>(bench: Bench<'_, A>, op: ReduceOp) -> Result<(), Found> {
    let one = bench.with(&[T::ONE])?;
    let found = bench.accelerator.arg_reduce(op, [1, 1, 1], &one);
    let element = T::TYPE;
    refused(found.map(drop), &Error::UnsupportedOp { op, element })
}

/// The first place of the extreme of the numbers of a line; 0 where that is NaN.
fn first<T: Sample>(op: ReduceOp, line: &[T]) -> i64 {
    let is_number = |value: &T| value.partial_cmp(value).is_some();
    let wanted = match op {
        ReduceOp::Min => Ordering::Less,
        _ => Ordering::Greater,
    };
    let numbers = line.iter().copied().filter(is_number);
    let extreme = numbers.reduce(|one, other| match other.partial_cmp(&one) {
        Some(order) if order == wanted => other,
        _ => one,
    });
    let is_it = |value: &T| !is_number(&line[0]) || Some(*value) == extreme;
    let mut places = (0..).zip(line).filter(|(_, value)| is_it(value));
    places.next().map_or(-1, |(place, _)| place)
}

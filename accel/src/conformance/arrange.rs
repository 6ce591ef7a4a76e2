//! Boxes and axes of values, and values made one along an axis, against loops over indices.

use super::bench::Bench;
use super::values::{Sample, reduction_along, same, samples, terms};
use super::violation::{Found, UNCOUNTED, Violation, refused, refused_uncounted};
use crate::{Arrange, Arrangement, Error, Fold, ReduceOp, Region};

pub(super) fn arrange<A: Arrange, T: Sample>(bench: Bench<'_, A>) -> Result<(), Violation> {
    let case = || bench.case::<T>(24);
    boxes::<A, T>(bench).map_err(|found| found.of("boxes are cut out and put in", case()))?;
    axes::<A, T>(bench).map_err(|found| found.of("axes go to their places", case()))?;
    long_axes::<A, T>(bench)
        .map_err(|found| found.of("long axes go to their places", bench.case::<T>(3960)))?;
    refusals::<A, T>(bench)
        .map_err(|found| found.of("arrangements refuse what does not fit", case()))
}

pub(super) fn fold<A: Fold, T: Sample>(bench: Bench<'_, A>) -> Result<(), Violation> {
    for op in ReduceOp::ALL {
        let case = format!("{op}, {}", bench.case::<T>(30));
        folds::<A, T>(bench, op)
            .map_err(|found| found.of("elements along an axis are made one", case))?;
    }
    Ok(())
}

fn boxes<A: Arrange, T: Sample>(bench: Bench<'_, A>) -> Result<(), Found> {
    let whole = [2, 3, 4];
    for part in [
        [0..2, 0..3, 0..4],
        [1..2, 0..3, 0..4],
        [0..2, 1..3, 2..3],
        [0..2, 1..1, 0..4],
    ] {
        let region = Region::new(&whole, &part)?;
        let mut values = samples::<T>(1, 24);
        let buffer = bench.with(&values)?;
        let cut = bench.accelerator.cut(&buffer, &region)?;
        let chosen: Vec<usize> = (0..24)
            .filter(|at| {
                let index = [at / 12, at / 4 % 3, at % 4];
                part.iter()
                    .zip(index)
                    .all(|(range, at)| range.contains(&at))
            })
            .collect();
        let expected: Vec<T> = chosen.iter().map(|at| values[*at]).collect();
        bench.holds(&cut, &expected)?;
        bench.holds(&buffer, &values)?;

        let others = samples::<T>(2, region.len());
        let (by, mut into) = (bench.with(&others)?, bench.with(&values)?);
        bench.accelerator.paste(&by, &mut into, &region)?;
        for (at, other) in chosen.into_iter().zip(&others) {
            values[at] = *other;
        }
        bench.holds(&into, &values)?;
        bench.holds(&by, &others)?;
    }
    Ok(())
}

fn axes<A: Arrange, T: Sample>(bench: Bench<'_, A>) -> Result<(), Found> {
    let values = samples::<T>(3, 6);
    let buffer = bench.with(&values)?;
    for (from, places, to) in [
        (&[2, 3][..], &[0, 1][..], &[2, 3][..]),
        (&[2, 3], &[1, 0], &[3, 2]),
        (&[2, 3], &[1, 2], &[4, 2, 3]),
        (&[2, 3], &[2, 0], &[3, 4, 2]),
        (&[1, 6, 1], &[2, 0, 1], &[6, 2, 3]),
    ] {
        let arrangement = Arrangement::new(from, places, to)?;
        let made = bench.accelerator.arrange(&buffer, &arrangement)?;
        let expected = (0..arrangement.len()).map(|at| values[source(&arrangement, at)]);
        bench.holds(&made, &expected.collect::<Vec<_>>())?;
    }
    bench.holds(&buffer, &values)?;
    let none = bench.with::<T>(&[])?;
    for long in [3, usize::MAX] {
        let nothing = Arrangement::new(&[0, long], &[0, 1], &[0, long])?;
        bench.holds::<T>(&bench.accelerator.arrange(&none, &nothing)?, &[])?;
    }
    Ok(())
}

/// Backends put elements that change places with their neighbours there in squares, the last of
/// which are not whole.
fn long_axes<A: Arrange, T: Sample>(bench: Bench<'_, A>) -> Result<(), Found> {
    for (from, places, to) in [
        (&[40, 33][..], &[1, 0][..], &[33, 40][..]),
        (&[36, 2, 55], &[2, 1, 0], &[55, 2, 36]),
        (&[3, 16, 70], &[0, 2, 1], &[3, 70, 16]),
        (&[33, 40], &[2, 0], &[40, 3, 33]),
        (&[65, 2, 17], &[2, 0, 1], &[2, 17, 65]),
    ] {
        let arrangement = Arrangement::new(from, places, to)?;
        let values = samples::<T>(4, arrangement.from_len());
        let made = bench
            .accelerator
            .arrange(&bench.with(&values)?, &arrangement)?;
        let expected = (0..arrangement.len()).map(|at| values[source(&arrangement, at)]);
        bench.holds(&made, &expected.collect::<Vec<_>>())?;
    }
    Ok(())
}

/// The element that comes to a place of an arrangement.
fn source(arrangement: &Arrangement, mut at: usize) -> usize {
    let mut index = vec![0; arrangement.to().len()];
    for (axis, size) in arrangement.to().iter().enumerate().rev() {
        index[axis] = at % size;
        at /= size;
    }
    let places = arrangement.from().iter().zip(arrangement.places());
    places.fold(0, |found, (size, place)| {
        found * size + if *size == 1 { 0 } else { index[*place] }
    })
}

fn refusals<A: Arrange, T: Sample>(bench: Bench<'_, A>) -> Result<(), Found> {
    let accelerator = bench.accelerator;
    let (three, mut four) = (
        bench.with(&samples::<T>(1, 3))?,
        bench.with(&samples::<T>(1, 4))?,
    );
    let (region, arrangement) = (
        Region::new(&[2, 2], &[0..1, 0..2])?,
        Arrangement::new(&[4], &[0], &[4])?,
    );
    let (left, right) = (3, 4);
    let lengths = Error::LengthMismatch { left, right };
    refused(accelerator.cut(&three, &region).map(drop), &lengths)?;
    refused(
        accelerator.arrange(&three, &arrangement).map(drop),
        &lengths,
    )?;
    let (left, right) = (3, 2);
    let lengths = Error::LengthMismatch { left, right };
    refused(accelerator.paste(&three, &mut four, &region), &lengths)
}

fn folds<A: Fold, T: Sample>(bench: Bench<'_, A>, op: ReduceOp) -> Result<(), Found> {
    let reduction = match reduction_along::<T>(op) {
        Ok(reduction) => reduction,
        Err(unsupported) => {
            let buffer = bench.with(&[T::default()])?;
            let folded = bench.accelerator.fold(op, [1, 1, 1], &buffer);
            return refused(folded.map(drop), &unsupported);
        }
    };
    for sizes in [[1, 1, 1], [2, 5, 3], [6, 5, 1], [1, 30, 1], [0, 5, 3]] {
        let [outer, len, inner] = sizes;
        let values = terms::<T>(op, outer * len * inner);
        let mut expected: Vec<T> = Vec::new();
        for at in 0..outer * inner {
            let term = |along: usize| values[(at / inner * len + along) * inner + at % inner];
            let mut total = [term(0)];
            for along in 1..len {
                reduction.reduce(&mut total, &[term(along)])?;
            }
            expected.extend(total);
        }
        let buffer = bench.with(&values)?;
        let folded = bench.accelerator.fold(op, sizes, &buffer)?;
        same(&bench.read::<T>(&folded)?, &expected)?;
        bench.holds(&buffer, &values)?;
    }
    let four = bench.with(&terms::<T>(op, 4))?;
    let folded = bench.accelerator.fold(op, [2, 3, 1], &four);
    let (left, right) = (4, 6);
    refused(folded.map(drop), &Error::LengthMismatch { left, right })?;
    let none = bench.with::<T>(&[])?;
    let folded = bench.accelerator.fold(op, [2, 0, 3], &none);
    refused(folded.map(drop), &Error::NoSources { op })?;
    refused_uncounted(bench.accelerator.fold(op, UNCOUNTED, &none))
}

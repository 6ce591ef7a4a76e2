//! Reductions, by every op, against those of host memory.

use super::bench::Bench;
use super::values::{Sample, samples};
use super::violation::{Found, Violation, refused};
use crate::{Accelerator, ReduceOp, reduce_slice};

pub(super) fn all<A: Accelerator, T: Sample>(
    bench: Bench<'_, A>,
    len: usize,
) -> Result<(), Violation> {
    for op in ReduceOp::ALL {
        one::<A, T>(bench, len, op).map_err(|found| {
            let case = format!("{op}, {}", bench.case::<T>(len));
            found.of("reductions have the bits of those of host memory", case)
        })?;
    }
    Ok(())
}

fn one<A: Accelerator, T: Sample>(
    bench: Bench<'_, A>,
    len: usize,
    op: ReduceOp,
) -> Result<(), Found> {
    let mut expected = samples::<T>(1, len);
    let added = samples::<T>(2, len);
    let (mut into, from) = (bench.with(&expected)?, bench.with(&added)?);
    let verdict = bench.accelerator.reduce(op, &mut into, &from);
    // A refusal is part of the definition too.
    match reduce_slice(op, &mut expected, &added) {
        Ok(()) => verdict?,
        Err(error) => refused(verdict, &error)?,
    }
    bench.holds(&into, &expected)?;
    bench.holds(&from, &added)
}

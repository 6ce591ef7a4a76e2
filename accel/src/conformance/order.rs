//! Calls take effect in the order in which they are made, and buffers may go before work on them
//! ends.

use super::bench::Bench;
use super::values::{Sample, samples};
use super::violation::{Found, Violation};
use crate::{Accelerator, ReduceOp};

pub(super) fn all<A: Accelerator, T: Sample>(bench: Bench<'_, A>) -> Result<(), Violation> {
    let case = || bench.case::<T>(LEN);
    one_device::<A, T>(bench)
        .map_err(|found| found.of("calls on one device take effect in order", case()))?;
    for other in bench.others().take(1) {
        two_devices::<A, T>(bench, other)
            .map_err(|found| found.of("copies between devices keep the order of both", case()))?;
    }
    dropped::<A, T>(bench).map_err(|found| {
        found.of(
            "buffers are dropped in any order, work under way or not",
            case(),
        )
    })
}

/// Each step needs the one before, and the next one destroys what it read.
fn one_device<A: Accelerator, T: Sample>(bench: Bench<'_, A>) -> Result<(), Found> {
    let (a, b) = (samples::<T>(1, LEN), samples::<T>(2, LEN));
    let accelerator = bench.accelerator;
    let (mut left, mut right) = (bench.with(&a)?, bench.empty::<T>(LEN)?);
    accelerator.copy(&left, 0..LEN, &mut right, 0)?;
    accelerator.upload(&b, &mut left, 0)?;
    accelerator.reduce(ReduceOp::Max, &mut right, &left)?;
    accelerator.fill(&mut left, 0..LEN, T::sample(3))?;
    accelerator.reduce(ReduceOp::Min, &mut right, &left)?;
    accelerator.fill(&mut left, 0..LEN, T::default())?;
    let mut expected = a;
    crate::reduce_slice(ReduceOp::Max, &mut expected, &b)?;
    crate::reduce_slice(ReduceOp::Min, &mut expected, &[T::sample(3); LEN])?;
    bench.holds(&right, &expected)?;
    accelerator.synchronize(bench.device)?;
    bench.holds(&left, &[T::default(); LEN])
}

/// There and back, each time overwriting what has just been copied away.
fn two_devices<A: Accelerator, T: Sample>(
    here: Bench<'_, A>,
    there: Bench<'_, A>,
) -> Result<(), Found> {
    let accelerator = here.accelerator;
    let values = samples::<T>(1, LEN);
    let (mut near, mut far) = (here.with(&values)?, there.empty::<T>(LEN)?);
    for _ in 0..3 {
        accelerator.copy(&near, 0..LEN, &mut far, 0)?;
        accelerator.fill(&mut near, 0..LEN, T::default())?;
        accelerator.copy(&far, 0..LEN, &mut near, 0)?;
        accelerator.fill(&mut far, 0..LEN, T::default())?;
    }
    here.holds(&near, &values)?;
    there.holds(&far, &[T::default(); LEN])
}

fn dropped<A: Accelerator, T: Sample>(bench: Bench<'_, A>) -> Result<(), Found> {
    let values = samples::<T>(1, LEN);
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        let mut into = bench.with(&values)?;
        let mut sources = Vec::new();
        for seed in 0..3 {
            sources.push(Some(bench.with(&samples::<T>(10 + seed, LEN))?));
        }
        let mut expected = values.clone();
        for source in order {
            let from = sources[source].take();
            if let Some(from) = &from {
                bench.accelerator.reduce(ReduceOp::Max, &mut into, from)?;
            }
            drop(from);
            // What was freed too early is likely to be given out again here, and overwritten.
            drop(bench.with(&[T::default(); LEN])?);
            let seed = 10 + source as u64;
            crate::reduce_slice(ReduceOp::Max, &mut expected, &samples::<T>(seed, LEN))?;
        }
        bench.holds(&into, &expected)?;
    }
    Ok(())
}

const LEN: usize = 1000;

//! Memory that is allocated, written, read, filled and copied.

use super::bench::Bench;
use super::values::{Sample, same, samples};
use super::violation::{Found, Violation, equal};
use crate::{Accelerator, DeviceBuffer};

pub(super) fn all<A: Accelerator, T: Sample>(
    bench: Bench<'_, A>,
    len: usize,
) -> Result<(), Violation> {
    let case = || bench.case::<T>(len);
    new_is_zero::<A, T>(bench, len).map_err(|found| found.of("new buffers are zero", case()))?;
    round_trip::<A, T>(bench, len)
        .map_err(|found| found.of("what is uploaded is downloaded", case()))?;
    parts::<A, T>(bench, len)
        .map_err(|found| found.of("parts are moved from and to where they should be", case()))?;
    fills::<A, T>(bench, len)
        .map_err(|found| found.of("a range is filled, and nothing else", case()))?;
    copies::<A, T>(bench, bench, len)
        .map_err(|found| found.of("a range is copied, and nothing else", case()))?;
    duplicates::<A, T>(bench, len)
        .map_err(|found| found.of("a duplicate changes by itself", case()))?;
    for other in bench.others() {
        copies::<A, T>(bench, other, len)
            .map_err(|found| found.of("ranges are copied between devices", case()))?;
    }
    Ok(())
}

fn new_is_zero<A: Accelerator, T: Sample>(bench: Bench<'_, A>, len: usize) -> Result<(), Found> {
    // Memory that was used before is the first to be given out again.
    drop(bench.with(&samples::<T>(1, len))?);
    bench.holds(&bench.empty::<T>(len)?, &vec![T::default(); len])
}

fn round_trip<A: Accelerator, T: Sample>(bench: Bench<'_, A>, len: usize) -> Result<(), Found> {
    let (first, second) = (samples::<T>(1, len), samples::<T>(2, len));
    let mut buffer = bench.with(&first)?;
    bench.holds(&buffer, &first)?;
    bench.accelerator.upload(&second, &mut buffer, 0)?;
    bench.holds(&buffer, &second)?;
    let mut made = bench.accelerator.allocate_from(bench.device, &first)?;
    bench.holds(&made, &first)?;
    // It is the caller's own, as any other.
    bench.accelerator.upload(&second, &mut made, 0)?;
    bench.holds(&made, &second)
}

fn parts<A: Accelerator, T: Sample>(bench: Bench<'_, A>, len: usize) -> Result<(), Found> {
    let mut expected = samples::<T>(1, len);
    let mut buffer = bench.with(&expected)?;
    for (start, end) in ranges(len) {
        let part = samples::<T>(2 + start as u64, end - start);
        bench.accelerator.upload(&part, &mut buffer, start)?;
        expected[start..end].copy_from_slice(&part);
        bench.holds(&buffer, &expected)?;
        let mut read = vec![T::default(); end - start];
        bench.accelerator.download(&buffer, start, &mut read)?;
        same(&read, &part)?;
    }
    Ok(())
}

fn fills<A: Accelerator, T: Sample>(bench: Bench<'_, A>, len: usize) -> Result<(), Found> {
    let mut expected = samples::<T>(1, len);
    let mut buffer = bench.with(&expected)?;
    for (number, (start, end)) in (0..).zip(ranges(len)) {
        let value = T::sample(1000 + number);
        bench.accelerator.fill(&mut buffer, start..end, value)?;
        expected[start..end].fill(value);
        bench.holds(&buffer, &expected)?;
    }
    Ok(())
}

fn copies<A: Accelerator, T: Sample>(
    from: Bench<'_, A>,
    to: Bench<'_, A>,
    len: usize,
) -> Result<(), Found> {
    let values = samples::<T>(1, len);
    let source = from.with(&values)?;
    let mut expected = samples::<T>(2, len);
    let mut target = to.with(&expected)?;
    for (start, end) in ranges(len) {
        // Neither where it came from, nor where the last one went.
        let at = (len - (end - start)) / 2;
        from.accelerator
            .copy(&source, start..end, &mut target, at)?;
        expected[at..at + (end - start)].copy_from_slice(&values[start..end]);
        to.holds(&target, &expected)?;
    }
    from.holds(&source, &values)
}

fn duplicates<A: Accelerator, T: Sample>(bench: Bench<'_, A>, len: usize) -> Result<(), Found> {
    let (first, second) = (samples::<T>(1, len), samples::<T>(2, len));
    let mut buffer = bench.with(&first)?;
    let duplicate = bench.accelerator.duplicate(&buffer)?;
    equal("its device", duplicate.device(), bench.device)?;
    bench.accelerator.upload(&second, &mut buffer, 0)?;
    bench.holds(&duplicate, &first)?;
    bench.holds(&buffer, &second)?;
    let mut duplicate = bench.accelerator.duplicate(&buffer)?;
    bench
        .accelerator
        .fill(&mut duplicate, 0..len, T::sample(1000))?;
    bench.holds(&duplicate, &vec![T::sample(1000); len])?;
    bench.holds(&buffer, &second)
}

/// Starts and ends of what is moved: nothing past the end, the last element, a middle part, all.
fn ranges(len: usize) -> [(usize, usize); 4] {
    [
        (len, len),
        (len.saturating_sub(1), len),
        (len / 3, len / 2),
        (0, len),
    ]
}

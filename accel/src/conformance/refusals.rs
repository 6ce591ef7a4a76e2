//! Every error that a caller can cause, and that nothing has happened then.

use super::bench::Bench;
use super::values::{Sample, samples};
use super::violation::{Found, Violation, equal, refused};
use crate::{Accelerator, DeviceId, Element, ElementType, Error, ReduceOp, by_type};

/// Claims about devices as such.
pub(super) fn devices<A: Accelerator>(accelerator: &A) -> Result<(), Violation> {
    let of = |claim| move |found: Found| found.of(claim, String::new());
    numbered(accelerator).map_err(of("devices are numbered from 0"))?;
    unknown(accelerator).map_err(of("unknown devices are refused"))?;
    impossible(accelerator).map_err(of("sizes beyond any memory are refused"))
}

/// Claims about buffers of one element type.
pub(super) fn all<A: Accelerator, T: Sample>(bench: Bench<'_, A>) -> Result<(), Violation> {
    let case = || bench.case::<T>(3);
    outside::<A, T>(bench)
        .map_err(|found| found.of("ranges beyond a buffer are refused", case()))?;
    reversed::<A, T>(bench)
        .map_err(|found| found.of("ranges that end before they start are refused", case()))?;
    other_types::<A, T>(bench)
        .map_err(|found| found.of("elements of another type are refused", case()))?;
    other_lengths::<A, T>(bench)
        .map_err(|found| found.of("reductions of unequal lengths are refused", case()))?;
    other_devices::<A, T>(bench)
        .map_err(|found| found.of("reductions across devices are refused", case()))
}

fn numbered<A: Accelerator>(accelerator: &A) -> Result<(), Found> {
    equal("having no device", accelerator.devices().is_empty(), false)?;
    for (index, device) in accelerator.devices().iter().enumerate() {
        equal("the number", device.id(), DeviceId::new(index))?;
        accelerator.synchronize(device.id())?;
        let memory = accelerator.memory(device.id())?;
        if let (Some(total), Some(free)) = (memory.total(), memory.free()) {
            equal("more memory being free than there is", free > total, false)?;
        }
    }
    Ok(())
}

fn unknown<A: Accelerator>(accelerator: &A) -> Result<(), Found> {
    let available = accelerator.devices().len();
    for index in [available, usize::MAX] {
        let device = DeviceId::new(index);
        let expected = Error::UnknownDevice { device, available };
        refused(accelerator.allocate(device, ElementType::F32, 1), &expected)?;
        refused(accelerator.synchronize(device), &expected)?;
        refused(accelerator.memory(device), &expected)?;
    }
    Ok(())
}

fn impossible<A: Accelerator>(accelerator: &A) -> Result<(), Found> {
    let device = DeviceId::new(0);
    for element in ElementType::ALL {
        for len in [usize::MAX, usize::MAX / 8, isize::MAX as usize] {
            match accelerator.allocate(device, element, len) {
                Err(Error::OutOfMemory {
                    device: named,
                    element: asked,
                    len: many,
                    ..
                }) => equal(
                    "what is named",
                    (named, asked, many),
                    (device, element, len),
                )?,
                Err(error) => return Err(error.into()),
                Ok(_) => return Err(Found::new(format!("{len} elements of {element} are given"))),
            }
        }
    }
    Ok(())
}

fn outside<A: Accelerator, T: Sample>(bench: Bench<'_, A>) -> Result<(), Found> {
    let (values, accelerator) = (samples::<T>(1, 3), bench.accelerator);
    let mut three = bench.with(&values)?;
    let source = bench.with(&samples::<T>(2, 3))?;
    let mut two = samples::<T>(3, 2);
    for start in [2, 3, 4, usize::MAX - 1, usize::MAX] {
        let past = |len| Error::OutOfRange {
            start,
            len,
            available: 3,
        };
        refused(accelerator.upload(&two, &mut three, start), &past(2))?;
        refused(accelerator.copy(&source, 0..2, &mut three, start), &past(2))?;
        refused(accelerator.download(&three, start, &mut two), &past(2))?;
    }
    for (start, end) in [(2, 4), (0, 4), (4, 4), (3, usize::MAX)] {
        let past = Error::OutOfRange {
            start,
            len: end - start,
            available: 3,
        };
        refused(accelerator.fill(&mut three, start..end, two[0]), &past)?;
        let mut target = bench.empty::<T>(3)?;
        refused(accelerator.copy(&source, start..end, &mut target, 0), &past)?;
        bench.holds(&target, &[T::default(); 3])?;
    }
    bench.holds(&three, &values)?;
    super::values::same(&two, &samples::<T>(3, 2))
}

#[expect(clippy::reversed_empty_ranges, reason = "these are what is refused")]
fn reversed<A: Accelerator, T: Sample>(bench: Bench<'_, A>) -> Result<(), Found> {
    let (values, accelerator) = (samples::<T>(1, 3), bench.accelerator);
    let mut three = bench.with(&values)?;
    let source = bench.with(&samples::<T>(2, 3))?;
    let backwards = Error::ReversedRange { start: 2, end: 1 };
    refused(accelerator.fill(&mut three, 2..1, values[0]), &backwards)?;
    refused(accelerator.copy(&source, 2..1, &mut three, 0), &backwards)?;
    bench.holds(&three, &values)
}

fn other_types<A: Accelerator, T: Sample>(bench: Bench<'_, A>) -> Result<(), Found> {
    let values = samples::<T>(1, 3);
    let mut three = bench.with(&values)?;
    for other in ElementType::ALL {
        if other != T::TYPE {
            by_type!(other, U, other_type::<A, T, U>(bench, &mut three))?;
        }
    }
    bench.holds(&three, &values)
}

/// Everything that can be tried with elements `U` on a buffer of elements `T`.
fn other_type<A: Accelerator, T: Element, U: Element>(
    bench: Bench<'_, A>,
    three: &mut A::Buffer,
) -> Result<(), Found> {
    let accelerator = bench.accelerator;
    let expected = Error::ElementMismatch {
        buffer: T::TYPE,
        other: U::TYPE,
    };
    let mut two = [U::default(); 2];
    refused(accelerator.upload(&two, three, 0), &expected)?;
    refused(accelerator.download(three, 0, &mut two), &expected)?;
    refused(accelerator.fill(three, 0..2, two[0]), &expected)?;
    let foreign = bench.empty::<U>(3)?;
    refused(accelerator.copy(&foreign, 0..3, three, 0), &expected)?;
    refused(
        accelerator.reduce(ReduceOp::Max, three, &foreign),
        &expected,
    )
}

fn other_lengths<A: Accelerator, T: Sample>(bench: Bench<'_, A>) -> Result<(), Found> {
    let values = samples::<T>(1, 3);
    let mut three = bench.with(&values)?;
    for right in [0, 2, 4] {
        let other = bench.with(&samples::<T>(2, right))?;
        let expected = Error::LengthMismatch { left: 3, right };
        let verdict = bench.accelerator.reduce(ReduceOp::Max, &mut three, &other);
        refused(verdict, &expected)?;
    }
    bench.holds(&three, &values)
}

fn other_devices<A: Accelerator, T: Sample>(bench: Bench<'_, A>) -> Result<(), Found> {
    let values = samples::<T>(1, 3);
    let mut here = bench.with(&values)?;
    for other in bench.others() {
        let there = other.with(&samples::<T>(2, 3))?;
        let expected = Error::DeviceMismatch {
            left: bench.device,
            right: other.device,
        };
        let verdict = bench.accelerator.reduce(ReduceOp::Max, &mut here, &there);
        refused(verdict, &expected)?;
    }
    bench.holds(&here, &values)
}

//! Pinned memory, of backends that have it: what goes where, in which order, and what is refused.

use std::ops::Range;

use super::bench::Bench;
use super::values::{Sample, same, samples};
use super::violation::{Found, Violation, equal, refused};
use crate::{Accelerator, DeviceId, Error, HostMemory, NotPinned, PinnedBuffer};

type Pinned<A> = Box<dyn PinnedBuffer<Buffer = <A as Accelerator>::Buffer>>;

/// Claims about devices as such.
pub(super) fn devices<A: Accelerator>(accelerator: &A) -> Result<(), Violation> {
    let of = |found: Found| found.of("memory that is not pinned comes back", String::new());
    unknown(accelerator).map_err(of)
}

/// Claims about one device; none where it does not pin memory.
pub(super) fn all<A: Accelerator>(bench: Bench<'_, A>) -> Result<(), Violation> {
    let case = format!("device {}", bench.device);
    let pinned = pin(bench).map_err(|found| found.of("memory that is not pinned comes back", case));
    match pinned? {
        Some(_) => {
            each_type::<A, u8>(bench)?;
            each_type::<A, half::f16>(bench)?;
            each_type::<A, f32>(bench)?;
            each_type::<A, u64>(bench)
        }
        None => Ok(()),
    }
}

fn each_type<A: Accelerator, T: Sample>(bench: Bench<'_, A>) -> Result<(), Violation> {
    let case = || bench.case::<T>(LEN);
    downloads::<A, T>(bench).map_err(|found| {
        found.of(
            "elements are fetched to the bytes that were asked for, and to no others",
            case(),
        )
    })?;
    uploads::<A, T>(bench).map_err(|found| {
        found.of(
            "bytes are sent to the elements that were asked for, and to no others",
            case(),
        )
    })?;
    order::<A, T>(bench)
        .map_err(|found| found.of("transfers of pinned memory take effect in order", case()))?;
    waits::<A, T>(bench).map_err(|found| {
        found.of(
            "transfers wait for what was asked before, and what is asked later for them",
            case(),
        )
    })?;
    drops::<A, T>(bench).map_err(|found| {
        found.of(
            "buffers and pinned memory are dropped while transfers are under way",
            case(),
        )
    })?;
    refusals::<A, T>(bench).map_err(|found| found.of("transfers refuse what is not there", case()))
}

fn unknown<A: Accelerator>(accelerator: &A) -> Result<(), Found> {
    let available = accelerator.devices().len();
    let device = DeviceId::new(available);
    match accelerator.pin(device, Box::new(pattern())) {
        Ok(_) => Err(Found::new(format!(
            "device {device} pins memory and does not exist"
        ))),
        Err(NotPinned { memory, reason }) => {
            let expected = Some(Error::UnknownDevice { device, available });
            equal("the reason", reason, expected)?;
            is_unchanged(memory)
        }
    }
}

/// Pinned memory that holds a pattern; none of a backend that has none.
fn pin<A: Accelerator>(bench: Bench<'_, A>) -> Result<Option<Pinned<A>>, Found> {
    match bench.accelerator.pin(bench.device, Box::new(pattern())) {
        Ok(mut pinned_buffer) => {
            same::<u8>(pinned_buffer.memory()?, &pattern())?;
            Ok(Some(pinned_buffer))
        }
        Err(NotPinned { memory, .. }) => is_unchanged(memory).map(|()| None),
    }
}

/// A pinned buffer of a device that has given one before.
fn again<A: Accelerator>(bench: Bench<'_, A>) -> Result<Pinned<A>, Found> {
    pin(bench)?.ok_or_else(|| Found::new("no memory is pinned the second time"))
}

fn downloads<A: Accelerator, T: Sample>(bench: Bench<'_, A>) -> Result<(), Found> {
    let (mut pinned_buffer, values) = (again(bench)?, samples::<T>(1, LEN));
    let buffer = bench.with(&values)?;
    pinned_buffer.catch_up()?;
    let mut expected = pattern();
    for (at, len, byte) in [
        (0, LEN, 0),
        (3, 10, 16),
        (LEN - 1, 1, BYTES - 64),
        (5, 0, 8),
    ] {
        let into = byte..byte + len * size_of::<T>();
        pinned_buffer.download(&buffer, at, into.clone())?;
        expected[into].copy_from_slice(bytemuck::cast_slice(&values[at..at + len]));
        same::<u8>(pinned_buffer.memory()?, &expected)?;
    }
    bench.holds(&buffer, &values)
}

fn uploads<A: Accelerator, T: Sample>(bench: Bench<'_, A>) -> Result<(), Found> {
    let (mut pinned_buffer, mut expected) = (again(bench)?, samples::<T>(1, LEN));
    let (mut buffer, sent) = (bench.with(&expected)?, samples::<T>(2, LEN));
    let mut memory = pattern();
    memory[..LEN * size_of::<T>()].copy_from_slice(bytemuck::cast_slice(&sent));
    pinned_buffer.memory()?.copy_from_slice(&memory);
    pinned_buffer.catch_up()?;
    for (from, len, at) in [(0, LEN, 0), (7, 10, 1), (LEN - 1, 1, LEN - 1), (5, 0, 8)] {
        let size = size_of::<T>();
        pinned_buffer.upload(from * size..(from + len) * size, &mut buffer, at)?;
        expected[at..at + len].copy_from_slice(&sent[from..from + len]);
        bench.holds(&buffer, &expected)?;
    }
    same::<u8>(pinned_buffer.memory()?, &memory)
}

/// Each transfer needs the one before, or overwrites what that has left.
fn order<A: Accelerator, T: Sample>(bench: Bench<'_, A>) -> Result<(), Found> {
    let mut pinned_buffer = again(bench)?;
    let all = 0..LEN * size_of::<T>();
    let (first, second) = (samples::<T>(1, LEN), samples::<T>(2, LEN));
    let (mut one, mut two) = (bench.with(&first)?, bench.with(&second)?);
    pinned_buffer.catch_up()?;
    pinned_buffer.download(&one, 0, all.clone())?;
    pinned_buffer.upload(all.clone(), &mut two, 0)?;
    bench.holds(&two, &first)?;
    let other = bench.with(&second)?;
    pinned_buffer.catch_up()?;
    pinned_buffer.download(&one, 0, all.clone())?;
    pinned_buffer.download(&other, 0, all.clone())?;
    pinned_buffer.upload(all.clone(), &mut one, 0)?;
    same::<u8>(&pinned_buffer.memory()?[all], bytemuck::cast_slice(&second))?;
    bench.holds(&one, &second)
}

fn waits<A: Accelerator, T: Sample>(bench: Bench<'_, A>) -> Result<(), Found> {
    let (mut pinned_buffer, accelerator) = (again(bench)?, bench.accelerator);
    let all = 0..LEN * size_of::<T>();
    let mut buffer = bench.with(&samples::<T>(1, LEN))?;
    let value = T::sample(77);
    accelerator.fill(&mut buffer, 0..LEN, value)?;
    pinned_buffer.catch_up()?;
    pinned_buffer.download(&buffer, 0, all.clone())?;
    // Must not reach what is fetched.
    accelerator.fill(&mut buffer, 0..LEN, T::default())?;
    same::<u8>(
        &pinned_buffer.memory()?[all.clone()],
        bytemuck::cast_slice(&[value; LEN]),
    )?;
    pinned_buffer.catch_up()?;
    pinned_buffer.upload(all.clone(), &mut buffer, 0)?;
    let mut copy = bench.empty::<T>(LEN)?;
    accelerator.copy(&buffer, 0..LEN, &mut copy, 0)?;
    bench.holds(&copy, &[value; LEN])?;
    let mut new = bench.empty::<T>(LEN)?;
    pinned_buffer.upload(all, &mut new, 0)?;
    // Zeros that the transfer did not wait for come now, after it.
    pinned_buffer.memory()?;
    bench.holds(&new, &[value; LEN])
}

fn drops<A: Accelerator, T: Sample>(bench: Bench<'_, A>) -> Result<(), Found> {
    let all = 0..LEN * size_of::<T>();
    let values = samples::<T>(1, LEN);
    let mut pinned_buffer = again(bench)?;
    let buffer = bench.with(&values)?;
    pinned_buffer.catch_up()?;
    pinned_buffer.download(&buffer, 0, all.clone())?;
    drop(buffer);
    // What was freed too early is likely to be given out again here, and overwritten.
    let mut other = bench.with(&[T::default(); LEN])?;
    same::<u8>(
        &pinned_buffer.memory()?[all.clone()],
        bytemuck::cast_slice(&values),
    )?;
    pinned_buffer.catch_up()?;
    pinned_buffer.upload(all, &mut other, 0)?;
    drop(pinned_buffer);
    bench.holds(&other, &values)
}

fn refusals<A: Accelerator, T: Sample>(bench: Bench<'_, A>) -> Result<(), Found> {
    let mut pinned_buffer = again(bench)?;
    let (values, size) = (samples::<T>(1, 4), size_of::<T>());
    let mut four = bench.with(&values)?;
    let mut refuses = |range: Range<usize>, at, expected: &Error| {
        refused(pinned_buffer.download(&four, at, range.clone()), expected)?;
        refused(pinned_buffer.upload(range, &mut four, at), expected)
    };
    let outside = |start, len, available| Error::OutOfRange {
        start,
        len,
        available,
    };
    refuses(
        BYTES - size..BYTES + size,
        0,
        &outside(BYTES - size, 2 * size, BYTES),
    )?;
    refuses(0..2 * size, 3, &outside(3, 2, 4))?;
    refuses(0..size, usize::MAX, &outside(usize::MAX, 1, 4))?;
    let (start, end) = (size, 0);
    refuses(size..0, 0, &Error::ReversedRange { start, end })?;
    if size > 1 {
        let (bytes, element) = (size + 1, T::TYPE);
        refuses(0..bytes, 0, &Error::PartOfElement { bytes, element })?;
    }
    for other in bench.others() {
        let mut far = other.with(&values)?;
        let expected = Error::DeviceMismatch {
            left: bench.device,
            right: other.device,
        };
        refused(pinned_buffer.download(&far, 0, 0..size), &expected)?;
        refused(pinned_buffer.upload(0..size, &mut far, 0), &expected)?;
        other.holds(&far, &values)?;
    }
    same::<u8>(pinned_buffer.memory()?, &pattern())?;
    bench.holds(&four, &values)
}

fn is_unchanged(mut memory: Box<dyn HostMemory>) -> Result<(), Found> {
    same::<u8>(memory.bytes(), &pattern())
}

/// The initial content of memory.
fn pattern() -> Vec<u8> {
    (0..BYTES).map(|at| u8::sample(at as u64)).collect()
}

const LEN: usize = 5000;
/// Pages of its own, whoever allocates it: some systems pin no page twice.
const BYTES: usize = 256 << 10;

//! A device whose memory is used up.

use super::bench::Bench;
use super::violation::{Found, Violation};
use crate::{Accelerator, ElementType, Error};

pub(super) fn device<A: Accelerator>(bench: Bench<'_, A>) -> Result<(), Violation> {
    let case = format!("device {}", bench.device);
    let of = |found: Found| found.of("a full device says so, and recovers", case);
    fill(bench).map_err(of)
}

/// Devices that are too large for it, or do not say how large they are, are left alone.
fn fill<A: Accelerator>(bench: Bench<'_, A>) -> Result<(), Found> {
    let memory = bench.accelerator.memory(bench.device)?;
    let (Some(total), Some(free)) = (memory.total(), memory.free()) else {
        return Ok(());
    };
    if total > LARGEST {
        return Ok(());
    }
    let mut held = Vec::new();
    let refused = loop {
        match bench.empty_bytes(PIECE) {
            Ok(buffer) => held.push(buffer),
            Err(error) => break error,
        }
        if held.len() as u64 * PIECE as u64 > free {
            return Err(Found::new(format!(
                "more than the {free} bytes are given that are free"
            )));
        }
    };
    let expected = (bench.device, ElementType::U8, PIECE);
    match refused {
        Error::OutOfMemory {
            device,
            element,
            len,
            free: Some(left),
            // What is given may be rounded up.
        } if (device, element, len) == expected && left < 2 * PIECE as u64 => {}
        other => return Err(Found::new(format!("{other:?}"))),
    }
    drop(held.pop());
    bench.empty_bytes(PIECE)?;
    Ok(())
}

impl<A: Accelerator> Bench<'_, A> {
    fn empty_bytes(self, len: usize) -> Result<A::Buffer, Error> {
        self.accelerator.allocate(self.device, ElementType::U8, len)
    }
}

const LARGEST: u64 = 64 << 20;
const PIECE: usize = 100_003;

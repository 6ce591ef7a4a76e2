//! Counts of buffers.

use super::violation::{Found, equal};
use crate::{ElementType, LiveBuffers};

pub(super) fn expect<A: LiveBuffers>(accelerator: &A, expected: usize) -> Result<(), Found> {
    equal("the count", accelerator.live_buffers(), expected)
}

/// Buffers of all devices, lengths and types, dropped from both ends and from the middle.
pub(super) fn counts<A: LiveBuffers>(accelerator: &A, before: usize) -> Result<(), Found> {
    let mut held = Vec::new();
    for device in accelerator.devices() {
        for (element, len) in ElementType::ALL
            .into_iter()
            .zip([0, 1, 100].into_iter().cycle())
        {
            held.push(accelerator.allocate(device.id(), element, len)?);
            expect(accelerator, before + held.len())?;
        }
    }
    let refused = accelerator.allocate(accelerator.devices()[0].id(), ElementType::F64, usize::MAX);
    equal("accepting usize::MAX elements", refused.is_ok(), false)?;
    while !held.is_empty() {
        let places = [0, held.len() - 1, held.len() / 2];
        drop(held.remove(places[held.len() % 3]));
        expect(accelerator, before + held.len())?;
    }
    Ok(())
}

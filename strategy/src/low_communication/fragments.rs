//! Which elements are exchanged together, and when.

use std::num::NonZeroUsize;
use std::ops::Range;

use super::LowCommunication;
use crate::LowCommunicationError;

/// Whole tensors, one after the other, in parts of about the same size.
pub(super) fn ranges(
    lengths: &[usize],
    parts: NonZeroUsize,
) -> Result<Vec<Range<usize>>, LowCommunicationError> {
    let parts = parts.get();
    if parts > lengths.len() {
        return Err(LowCommunicationError::TooManyFragments {
            fragments: parts,
            tensors: lengths.len(),
        });
    }
    let total = elements(lengths)?;
    let (mut ranges, mut tensor, mut end) = (Vec::with_capacity(parts), 0, 0);
    for part in 0..parts {
        let start = end;
        let goal = total / parts * (part + 1);
        let left = parts - part - 1;
        let first = tensor;
        while tensor < lengths.len() - left && (left == 0 || tensor == first || end < goal) {
            end += lengths[tensor];
            tensor += 1;
        }
        ranges.push(start..end);
    }
    Ok(ranges)
}

/// The elements of all tensors.
pub(super) fn elements(lengths: &[usize]) -> Result<usize, LowCommunicationError> {
    lengths
        .iter()
        .try_fold(0_usize, |sum, length| sum.checked_add(*length))
        .ok_or(LowCommunicationError::TooManyElements {
            tensors: lengths.len(),
        })
}

impl LowCommunication {
    /// The fragments whose exchange begins after this step, counted from 1.
    pub(super) fn due(&self, step: u64) -> impl Iterator<Item = usize> + use<> {
        let (steps, parts) = (u64::from(self.inner_steps.get()), self.fragments.get());
        let place = (step - 1) % steps + 1;
        (0..parts).filter(move |part| {
            // Spread over the round; the last at its end. No round is longer than 2^32 steps.
            let at = u128::from(steps) * (*part as u128 + 1) / parts as u128;
            at.max(1) == u128::from(place)
        })
    }

    /// Steps of the schedule from a fragment's last exchange, or the beginning, to this one: each
    /// is exchanged once in a round, at the same place.
    pub(super) fn steps_between(&self, step: u64) -> u64 {
        step.min(self.inner_steps.get().into())
    }
}

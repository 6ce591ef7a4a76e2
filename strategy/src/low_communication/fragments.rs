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

/// Which fragment is exchanged, and the step after which that begins.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Due {
    pub(super) fragment: usize,
    pub(super) step: u64,
}

impl LowCommunication {
    /// The fragments whose exchange begins after this step, counted from 1.
    pub(super) fn due(&self, step: u64) -> impl Iterator<Item = usize> + use<> {
        let settings = *self;
        let place = (step - 1) % u64::from(self.inner_steps.get()) + 1;
        (0..self.fragments.get()).filter(move |fragment| settings.place_of(*fragment) == place)
    }

    /// After how many steps of each round a fragment is exchanged: spread over the round, the last
    /// at its end.
    fn place_of(&self, fragment: usize) -> u64 {
        let steps = u128::from(self.inner_steps.get());
        let at = steps * (fragment as u128 + 1) / self.fragments.get() as u128;
        u64::try_from(at.max(1)).expect("no round is longer than 2^32 steps")
    }

    /// The exchange of this number, counted from 0: all fragments in turn.
    pub(super) fn exchange(&self, number: u64) -> Due {
        let steps = u64::from(self.inner_steps.get());
        let parts = self.fragments.get() as u64;
        let fragment = usize::try_from(number % parts).expect("less than a number of fragments");
        let before = (number / parts).saturating_mul(steps);
        Due {
            fragment,
            step: before.saturating_add(self.place_of(fragment)),
        }
    }

    /// Steps of the schedule from a fragment's last exchange, or the beginning, to this one: each
    /// is exchanged once in a round, at the same place.
    pub(super) fn steps_between(&self, step: u64) -> u64 {
        step.min(self.inner_steps.get().into())
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    #[test]
    fn exchanges_by_number_are_those_that_are_due_step_by_step() {
        for (steps, parts) in [(1, 1), (5, 1), (6, 3), (7, 3), (2, 5), (1, 4)] {
            let settings = LowCommunication::new(NonZeroU32::new(steps).unwrap())
                .with_fragments(NonZeroUsize::new(parts).unwrap());
            let by_step = (1..=40_u64).flat_map(|step| {
                let due = settings.due(step);
                due.map(move |fragment| Due { fragment, step })
            });
            for (number, expected) in (0..).zip(by_step) {
                assert_eq!(
                    settings.exchange(number),
                    expected,
                    "{steps} {parts} {number}"
                );
            }
        }
    }
}

//! Which elements are exchanged together, and when.

use std::num::NonZeroUsize;
use std::ops::Range;

use super::LowCommunication;
use crate::LowCommunicationError;
use crate::bucketing::even_part;

/// All elements in parts of about the same size, wherever tensors end: of parts that differ, the
/// largest would need a longer delay than the others, and all have one.
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
    Ok((0..parts)
        .map(|part| even_part(total, parts, part))
        .collect())
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
    fn parts_are_alike_and_leave_nothing_out() {
        for lengths in [&[5, 300, 1, 90][..], &[0, 0, 7], &[1, 1, 1, 1]] {
            for parts in 1..=lengths.len() {
                let ranges = ranges(lengths, NonZeroUsize::new(parts).unwrap()).unwrap();
                assert_eq!(ranges.len(), parts);
                let all: Vec<usize> = ranges.iter().cloned().flatten().collect();
                assert_eq!(all, (0..elements(lengths).unwrap()).collect::<Vec<_>>());
                let sizes = || ranges.iter().map(ExactSizeIterator::len);
                assert!(sizes().max().unwrap() - sizes().min().unwrap() <= 1);
            }
        }
    }

    /// Steps' time that is waited in ten rounds, where the whole model takes a `load` of a round on
    /// links that carry one fragment after the other.
    fn waited(settings: LowCommunication, lengths: &[usize], load: f64) -> f64 {
        let ranges = ranges(lengths, settings.fragments).unwrap();
        let (parts, delay) = (ranges.len() as u64, u64::from(settings.delay));
        let whole = f64::from(settings.inner_steps.get()) * load;
        let (mut waited, mut free, mut ends) = (0.0, 0.0_f64, Vec::new());
        for number in 0..10 * parts {
            let Due { fragment, step } = settings.exchange(number);
            // What is applied before this exchange begins.
            for (due, end) in ends.extract_if(.., |(due, _)| *due < step) {
                waited += f64::max(end - (due as f64 + waited), 0.0);
            }
            let share = ranges[fragment].len() as f64 / elements(lengths).unwrap() as f64;
            free = free.max(step as f64 + waited) + whole * share;
            ends.push((step + delay, free));
        }
        waited
    }

    #[test]
    fn nobody_waits_with_a_delay_up_to_the_next_fragment_on_links_that_carry_all() {
        let lengths = [300, 2, 900, 48];
        for parts in 1..=4_u32 {
            let settings = LowCommunication::new(NonZeroU32::new(32).unwrap())
                .with_fragments(NonZeroUsize::new(parts as usize).unwrap());
            let until_next = (32 / parts).min(31);
            assert_eq!(waited(settings.with_delay(until_next), &lengths, 0.9), 0.0);
            assert!(waited(settings.with_delay(until_next / 2), &lengths, 0.9) > 10.0);
            assert!(waited(settings.with_delay(until_next), &lengths, 1.2) > 10.0);
        }
    }

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

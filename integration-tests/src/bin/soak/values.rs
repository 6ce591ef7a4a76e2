//! What ranks reduce, and whether what comes out is right.

use bytemuck::cast_slice;

/// Values of one step: whatever the number of elements, they repeat after [`PERIOD`].
#[derive(Debug)]
pub(crate) struct Values(Vec<f32>);

/// No multiple of it is the length of a piece, as those are powers of two.
const PERIOD: usize = 1000;

impl Values {
    /// What this rank gives in a step: small whole numbers, whose sum is exact.
    pub(crate) fn given(rank: usize, step: u32) -> Self {
        let value = |at: usize| ((at + rank + step as usize) % PERIOD) as f32;
        Self((0..PERIOD).map(value).collect())
    }

    /// The sum of what so many ranks give in a step.
    pub(crate) fn summed(ranks: usize, step: u32) -> Self {
        let given: Vec<_> = (0..ranks).map(|rank| Self::given(rank, step)).collect();
        let sum = |at: usize| given.iter().map(|values| values.0[at]).sum();
        Self((0..PERIOD).map(sum).collect())
    }

    pub(crate) fn fill(&self, buffer: &mut [f32]) {
        for part in buffer.chunks_mut(PERIOD) {
            part.copy_from_slice(&self.0[..part.len()]);
        }
    }

    /// The first element that is another, in any bit.
    pub(crate) fn wrong(&self, buffer: &[f32]) -> Option<usize> {
        for (part, begin) in buffer.chunks(PERIOD).zip((0..).step_by(PERIOD)) {
            let right = &self.0[..part.len()];
            // As bytes, which takes no longer than to reduce them.
            if cast_slice::<f32, u8>(part) == cast_slice::<f32, u8>(right) {
                continue;
            }
            let differs = |at: &usize| part[*at].to_bits() != right[*at].to_bits();
            return (0..part.len()).find(differs).map(|at| begin + at);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_element_that_is_wrong_in_any_bit_is_found_wherever_it_is() {
        let sum = Values::summed(3, 7);
        let mut buffer = vec![0.0; 2 * PERIOD + 1];
        sum.fill(&mut buffer);
        assert_eq!(sum.wrong(&buffer), None);
        for at in [0, PERIOD - 1, PERIOD, 2 * PERIOD] {
            let right = buffer[at];
            buffer[at] = f32::from_bits(right.to_bits() ^ 1);
            assert_eq!(sum.wrong(&buffer), Some(at));
            buffer[at] = right;
        }
    }

    #[test]
    fn a_sum_is_that_of_what_all_give_and_no_two_steps_have_the_same() {
        let one_by_one = |at: usize| (0..4).map(|rank| ((at + rank + 9) % 1000) as f32).sum();
        let expected: Vec<f32> = (0..PERIOD).map(one_by_one).collect();
        assert_eq!(Values::summed(4, 9).wrong(&expected), None);
        for step in 10..1000 {
            assert!(Values::summed(4, step).wrong(&expected).is_some(), "{step}");
        }
    }
}

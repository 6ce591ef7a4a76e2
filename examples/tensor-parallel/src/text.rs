//! Shakespeare's eighteenth sonnet, printed in 1609 and in the public domain: which letter follows?

use ndarray::{Array1, Array2};

/// How many letters the network sees before the one it has to tell.
const CONTEXT: usize = 6;

const SONNET: &str = include_str!("sonnet.txt");

/// The letters of the text, and each place where one follows others.
pub(crate) struct Text {
    letters: Vec<char>,
    numbers: Vec<usize>,
}

impl Text {
    pub(crate) fn read() -> Self {
        let mut letters: Vec<char> = SONNET.chars().collect();
        letters.sort_unstable();
        letters.dedup();
        let number = |letter: char| letters.iter().position(|known| *known == letter);
        let numbers = SONNET.chars().filter_map(number).collect();
        Self { letters, numbers }
    }

    /// How many different letters there are.
    pub(crate) fn letters(&self) -> usize {
        self.letters.len()
    }

    /// How many numbers the network is given.
    pub(crate) fn inputs(&self) -> usize {
        CONTEXT * self.letters()
    }

    /// Some places of the text, another few in each step: the letters before, 1 for each that is
    /// there, and the number of the one that follows.
    pub(crate) fn batch(&self, step: usize, size: usize) -> (Array2<f32>, Array1<i64>) {
        let places = self.numbers.len() - CONTEXT;
        let start = |row: usize| (step * size + row) * STRIDE % places;
        let mut inputs = Array2::zeros((size, self.inputs()));
        for row in 0..size {
            for (place, letter) in self.numbers[start(row)..][..CONTEXT].iter().enumerate() {
                inputs[[row, place * self.letters() + letter]] = 1.0;
            }
        }
        let follows = |row| i64::try_from(self.numbers[start(row) + CONTEXT]).unwrap_or_default();
        (inputs, (0..size).map(follows).collect())
    }
}

/// Has no factor in common with the number of places, so that all of them have their turn.
const STRIDE: usize = 389;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_letters_and_what_follows_them() {
        let text = Text::read();
        let (inputs, targets) = text.batch(0, 4);
        assert!(inputs.outer_iter().all(|row| row.sum() == 6.0));
        // "Shall " is followed by "I".
        let letter = text.letters[usize::try_from(targets[0]).unwrap()];
        assert_eq!(letter, 'I');
    }
}

//! Ranks that lie at regular distances along several directions.

use smallvec::SmallVec;

/// One direction: `size` ranks that are `stride` apart.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Digit {
    pub(crate) size: usize,
    pub(crate) stride: usize,
}

/// Positions are numbers in the mixed base of the sizes, the first digit the highest; the rank at a
/// position is `first` plus each digit times its stride.
///
/// Digits belong to different dimensions of one row-major mesh, or to different parts of one, so
/// that all lower strides together do not reach the next: no rank has two positions, and sums stay
/// below the size of the mesh.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Strided {
    first: usize,
    digits: SmallVec<[Digit; 4]>,
}

impl Strided {
    pub(crate) fn new(first: usize, digits: impl IntoIterator<Item = Digit>) -> Self {
        Self {
            first,
            digits: digits.into_iter().collect(),
        }
    }

    /// How many ranks there are.
    pub(crate) fn len(&self) -> usize {
        self.digits.iter().map(|digit| digit.size).product()
    }

    /// The rank at a position that there is.
    pub(crate) fn at(&self, mut position: usize) -> usize {
        let mut rank = self.first;
        for digit in self.digits.iter().rev() {
            rank += position % digit.size * digit.stride;
            position /= digit.size;
        }
        rank
    }

    /// The position of a rank, if it has one.
    pub(crate) fn position(&self, rank: usize) -> Option<usize> {
        let mut rest = rank.checked_sub(self.first)?;
        let mut by_stride: SmallVec<[usize; 4]> = (0..self.digits.len()).collect();
        by_stride.sort_unstable_by_key(|&index| std::cmp::Reverse(self.digits[index].stride));
        let mut coords: SmallVec<[usize; 4]> = SmallVec::from_elem(0, self.digits.len());
        for index in by_stride {
            let Digit { size, stride } = self.digits[index];
            // A digit of one place is 0, and its stride says nothing.
            if size > 1 {
                coords[index] = rest / stride;
                rest %= stride;
            }
        }
        let mut position = 0;
        for (digit, coord) in self.digits.iter().zip(coords) {
            if coord >= digit.size {
                return None;
            }
            position = position * digit.size + coord;
        }
        (rest == 0).then_some(position)
    }
}

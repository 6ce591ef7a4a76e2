//! Pieces of the numbers of a unit: elements of one tensor, of one kind.

use std::ops::Range;

use crate::sharded::held::{Held, Kind, Updated, Whose};
use crate::sharded::partition::Partition;
use crate::sharded::tensors::Tensors;

#[derive(Clone, Debug, Eq, PartialEq)]
pub(in crate::sharded) struct Piece {
    pub(super) kind: Kind,
    pub(super) tensor: usize,
    pub(super) elements: Range<usize>,
}

/// The words that a piece takes.
pub(super) const WORDS: usize = 4;

impl Piece {
    pub(super) fn len(&self) -> usize {
        self.elements.len()
    }

    pub(super) fn words(&self) -> [u64; WORDS] {
        let kind = match self.kind {
            Kind::Parameters => 0,
            Kind::State(number) => number as u64 + 1,
        };
        let Range { start, end } = self.elements;
        [kind, self.tensor as u64, start as u64, end as u64]
    }

    /// A piece of a unit that is divided so; `None` for what no worker says.
    pub(super) fn read(words: &[u64; WORDS], partition: &Partition, states: usize) -> Option<Self> {
        let number = |word: u64| usize::try_from(word).ok();
        let [kind, tensor, start, end] = *words;
        let (kind, tensor) = (number(kind)?, number(tensor)?);
        let kind = match kind.checked_sub(1) {
            None => Kind::Parameters,
            Some(number) => (number < states).then_some(Kind::State(number))?,
        };
        let elements = number(start)?..number(end)?;
        let is_tensor = tensor < partition.count(kind.which());
        let is_part = is_tensor && elements.end <= partition.whole(tensor).len();
        (is_part && !elements.is_empty()).then_some(Self {
            kind,
            tensor,
            elements,
        })
    }

    /// What is in both, if there is anything.
    pub(super) fn common(&self, other: &Self) -> Option<Self> {
        let is_same = (self.kind, self.tensor) == (other.kind, other.tensor);
        is_same.then(|| self.within(&other.elements)).flatten()
    }

    /// What of it is among these elements, if there is anything.
    pub(super) fn within(&self, elements: &Range<usize>) -> Option<Self> {
        let start = self.elements.start.max(elements.start);
        let end = self.elements.end.min(elements.end);
        (start < end).then(|| Self {
            elements: start..end,
            ..self.clone()
        })
    }

    /// What is before and behind a part of it.
    pub(super) fn without(&self, part: &Self) -> impl Iterator<Item = Self> {
        let before = self.within(&(0..part.elements.start));
        let behind = self.within(&(part.elements.end..usize::MAX));
        before.into_iter().chain(behind)
    }

    /// The same in parts of at most so many elements.
    pub(super) fn cut(&self, most: usize) -> impl Iterator<Item = Self> {
        let starts = self.elements.clone().step_by(most);
        starts.filter_map(move |start| self.within(&(start..start.saturating_add(most))))
    }
}

/// The numbers of a unit that a worker has in one division of it.
pub(super) struct Store<'a> {
    pub(super) held: &'a mut Held,
    pub(super) partition: &'a Partition,
    /// Whose part its own is; `None` if that is all.
    pub(super) worker: Option<usize>,
}

impl Store<'_> {
    /// All that is there, or is to be there, where the optimizer has so many kinds of state.
    pub(super) fn pieces(&mut self, states: usize) -> Vec<(Whose, Piece)> {
        let mut pieces = Vec::new();
        let kinds = (0..states).map(Kind::State);
        for kind in kinds.chain([Kind::Parameters]) {
            for whose in Whose::ALL {
                let worker = self.worker_of(kind);
                // Who has all of it has no copies besides.
                if whose == Whose::Neighbours && worker.is_none() {
                    continue;
                }
                let Some(part) = self.held.part(whose, worker) else {
                    continue;
                };
                for tensor in 0..self.partition.count(kind.which()) {
                    let elements = self.partition.part(tensor, part.worker).elements;
                    if !elements.is_empty() {
                        let piece = Piece {
                            kind,
                            tensor,
                            elements,
                        };
                        pieces.push((whose, piece));
                    }
                }
            }
        }
        pieces
    }

    /// Lets `act` have a piece that is there.
    pub(super) fn with<R>(
        &mut self,
        whose: Whose,
        piece: &Piece,
        act: impl FnOnce(&mut [f32]) -> R,
    ) -> R {
        let worker = self.worker_of(piece.kind);
        let part = self.held.part(whose, worker);
        let mut part = part.expect("what a worker says it has, it has");
        let first = self
            .partition
            .part(piece.tensor, part.worker)
            .elements
            .start;
        let Range { start, end } = piece.elements;
        part.rows(self.partition, piece.kind, piece.tensor, |rows| {
            act(&mut rows[start - first..end - first])
        })
    }

    fn worker_of(&self, kind: Kind) -> Option<usize> {
        match (kind, &self.held.parameters, self.held.updated) {
            // Those of others came with the last step.
            (Kind::Parameters, Tensors::Whole(_) | Tensors::Lent(_), Updated::InPlace) => None,
            (Kind::Parameters, _, _) | (Kind::State(_), _, _) => self.worker,
        }
    }
}

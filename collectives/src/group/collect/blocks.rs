//! Who takes which block from whom.

use std::ops::Range;
use std::panic::Location;

use meshwork_accel::{Element, Reduction};
use smallvec::SmallVec;

use crate::group::Group;
use crate::group::engine::{Asked, Work};
use crate::memory::{Errand, Offer, Take, Then};
use crate::{Error, Rank};

pub(in crate::group) type Ranges = SmallVec<[Range<usize>; 8]>;
pub(super) type Takes = SmallVec<[Take; 8]>;

impl Group {
    pub(in crate::group) fn fold_blocks<T: Element>(
        &mut self,
        asked: Asked,
        caller: &'static Location<'static>,
        (input, output, blocks): (&[T], &mut [T], &[Range<usize>]),
        reduction: Reduction<T>,
    ) -> Result<(), Error> {
        let me = self.rank().index();
        length("reduce_scatter", "input", input.len(), end_of(blocks))?;
        length("reduce_scatter", "output", output.len(), blocks[me].len())?;
        let own = blocks[me].clone();
        let takes: Takes = self
            .other_places()
            .map(|from| take(from, me, own.start, 0..own.len()))
            .collect();
        let errand = Errand {
            offer: Offer::each(input, blocks),
            takes: &takes,
            output,
            then: Then::Fold(reduction),
        };
        self.perform(asked, caller, Work::Pull(errand))
    }

    pub(in crate::group) fn gather_blocks<T: Element>(
        &mut self,
        asked: Asked,
        caller: &'static Location<'static>,
        (input, output, blocks): (&[T], Option<&mut [T]>, &[Range<usize>]),
    ) -> Result<(), Error> {
        let me = self.rank().index();
        let operation = asked.kind.name();
        length(operation, "input", input.len(), blocks[me].len())?;
        let whole = 0..input.len();
        let mut offer = Offer::whole(input, std::slice::from_ref(&whole));
        offer.taker = asked.root.map(Rank::index);
        let Some(output) = output else {
            return self.copy(asked, caller, (offer, &[], &mut []));
        };
        length(operation, "output", output.len(), end_of(blocks))?;
        output[blocks[me].clone()].copy_from_slice(input);
        let takes: Takes = self
            .other_places()
            .map(|from| take(from, 0, 0, blocks[from].clone()))
            .collect();
        // The root of a gather is asked for nothing.
        let offer = if asked.root.is_some() {
            Offer::nothing(1)
        } else {
            offer
        };
        self.copy(asked, caller, (offer, &takes, output))
    }

    pub(super) fn scatter_blocks<T: Element>(
        &mut self,
        asked: Asked,
        caller: &'static Location<'static>,
        (input, output, blocks): (&[T], &mut [T], &[Range<usize>]),
        root: Rank,
    ) -> Result<(), Error> {
        let me = self.rank().index();
        length("scatter", "output", output.len(), blocks[me].len())?;
        if root == self.rank() {
            length("scatter", "input", input.len(), end_of(blocks))?;
            output.copy_from_slice(&input[blocks[me].clone()]);
            let offer = Offer::each(input, blocks);
            return self.copy(asked, caller, (offer, &[], &mut []));
        }
        let taken = take(root.index(), me, blocks[me].start, 0..output.len());
        let offer = Offer::nothing(self.world() as usize);
        self.copy(asked, caller, (offer, &[taken], output))
    }

    pub(super) fn exchange_blocks<T: Element>(
        &mut self,
        asked: Asked,
        caller: &'static Location<'static>,
        (offer, output, taken): (Offer<'_, T>, &mut [T], &[Range<usize>]),
    ) -> Result<(), Error> {
        let me = self.rank().index();
        let (input, offered) = (offer.input, offer.blocks);
        let (own, into) = (offered[me].clone(), taken[me].clone());
        if own.len() != into.len() {
            return Err(Error::Uneven {
                rank: self.rank(),
                peer: self.rank(),
                offered: own.len() as u64,
                expected: into.len() as u64,
            });
        }
        output[into].copy_from_slice(&input[own.clone()]);
        let takes: Takes = self
            .other_places()
            .map(|from| take(from, me, own.start, taken[from].clone()))
            .collect();
        self.copy(asked, caller, (offer, &takes, output))
    }

    pub(super) fn copy<T: Element>(
        &mut self,
        asked: Asked,
        caller: &'static Location<'static>,
        (offer, takes, output): (Offer<'_, T>, &[Take], &mut [T]),
    ) -> Result<(), Error> {
        let errand = Errand {
            offer,
            takes,
            output,
            then: Then::Copy,
        };
        self.perform(asked, caller, Work::Pull(errand))
    }

    /// The other ranks, beginning behind this one, so that not all turn to the same.
    pub(super) fn other_places(&self) -> impl Iterator<Item = usize> + use<> {
        let (me, world) = (self.rank().index(), self.world() as usize);
        (1..world).map(move |distance| (me + distance) % world)
    }

    /// A block of this length for each rank.
    pub(in crate::group) fn even(&self, len: usize) -> Ranges {
        let end = |place: usize| len.saturating_mul(place);
        (0..self.world() as usize)
            .map(|place| end(place)..end(place + 1))
            .collect()
    }

    /// A block of its own length for each rank.
    pub(super) fn uneven(
        &self,
        operation: &'static str,
        lengths: &[usize],
    ) -> Result<Ranges, Error> {
        let world = self.world() as usize;
        length(operation, "list of lengths", lengths.len(), world)?;
        let mut end = 0_usize;
        Ok(lengths
            .iter()
            .map(|len| {
                let start = end;
                end = end.saturating_add(*len);
                start..end
            })
            .collect())
    }
}

pub(super) fn take(from: usize, block: usize, start: usize, into: Range<usize>) -> Take {
    Take {
        from,
        block,
        start,
        into,
    }
}

pub(super) fn end_of(blocks: &[Range<usize>]) -> usize {
    blocks.last().map_or(0, |last| last.end)
}

pub(in crate::group) fn length(
    operation: &'static str,
    buffer: &'static str,
    found: usize,
    expected: usize,
) -> Result<(), Error> {
    if found == expected {
        return Ok(());
    }
    Err(Error::Length {
        operation,
        buffer,
        found,
        expected,
    })
}

//! Who takes which block from whom.

use std::ops::Range;
use std::panic::Location;

use meshwork_accel::{Element, Reduction};
use smallvec::SmallVec;

use crate::group::Group;
use crate::operation::{OnArrival, ReceiveBlock, SendBlocks, Transfer};
use crate::operation::{OperationSpec, Work};
use crate::{Error, Rank};

pub(in crate::group) type Ranges = SmallVec<[Range<usize>; 8]>;
pub(super) type ReceiveBlocks = SmallVec<[ReceiveBlock; 8]>;

impl Group {
    pub(in crate::group) fn fold_blocks<T: Element>(
        &mut self,
        spec: OperationSpec,
        caller: &'static Location<'static>,
        (input, output, blocks): (&[T], &mut [T], &[Range<usize>]),
        reduction: Reduction<T>,
    ) -> Result<(), Error> {
        let me = self.rank().index();
        length("reduce_scatter", "input", input.len(), end_of(blocks))?;
        length("reduce_scatter", "output", output.len(), blocks[me].len())?;
        let own = blocks[me].clone();
        let receives: ReceiveBlocks = self
            .other_places()
            .map(|from| take(from, me, own.start, 0..own.len()))
            .collect();
        let transfer = Transfer {
            outgoing_blocks: SendBlocks::each(input, blocks),
            receives: &receives,
            output,
            then: OnArrival::Fold(reduction),
        };
        self.perform(spec, caller, Work::Exchange(transfer))
    }

    pub(in crate::group) fn gather_blocks<T: Element>(
        &mut self,
        spec: OperationSpec,
        caller: &'static Location<'static>,
        (input, output, blocks): (&[T], Option<&mut [T]>, &[Range<usize>]),
    ) -> Result<(), Error> {
        let me = self.rank().index();
        let operation = spec.kind.name();
        length(operation, "input", input.len(), blocks[me].len())?;
        let whole = 0..input.len();
        let mut outgoing_blocks = SendBlocks::whole(input, std::slice::from_ref(&whole));
        outgoing_blocks.taker = spec.root.map(Rank::index);
        let Some(output) = output else {
            return self.copy(spec, caller, (outgoing_blocks, &[], &mut []));
        };
        length(operation, "output", output.len(), end_of(blocks))?;
        output[blocks[me].clone()].copy_from_slice(input);
        let receives: ReceiveBlocks = self
            .other_places()
            .map(|from| take(from, 0, 0, blocks[from].clone()))
            .collect();
        // The root of a gather is asked for nothing.
        let outgoing_blocks = if spec.root.is_some() {
            SendBlocks::nothing(1)
        } else {
            outgoing_blocks
        };
        self.copy(spec, caller, (outgoing_blocks, &receives, output))
    }

    pub(super) fn scatter_blocks<T: Element>(
        &mut self,
        spec: OperationSpec,
        caller: &'static Location<'static>,
        (input, output, blocks): (&[T], &mut [T], &[Range<usize>]),
        root: Rank,
    ) -> Result<(), Error> {
        let me = self.rank().index();
        length("scatter", "output", output.len(), blocks[me].len())?;
        if root == self.rank() {
            length("scatter", "input", input.len(), end_of(blocks))?;
            output.copy_from_slice(&input[blocks[me].clone()]);
            let outgoing_blocks = SendBlocks::each(input, blocks);
            return self.copy(spec, caller, (outgoing_blocks, &[], &mut []));
        }
        let taken = take(root.index(), me, blocks[me].start, 0..output.len());
        let outgoing_blocks = SendBlocks::nothing(self.world() as usize);
        self.copy(spec, caller, (outgoing_blocks, &[taken], output))
    }

    pub(super) fn exchange_blocks<T: Element>(
        &mut self,
        spec: OperationSpec,
        caller: &'static Location<'static>,
        (outgoing_blocks, output, taken): (SendBlocks<'_, T>, &mut [T], &[Range<usize>]),
    ) -> Result<(), Error> {
        let me = self.rank().index();
        let (input, offered) = (outgoing_blocks.input, outgoing_blocks.blocks);
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
        let receives: ReceiveBlocks = self
            .other_places()
            .map(|from| take(from, me, own.start, taken[from].clone()))
            .collect();
        self.copy(spec, caller, (outgoing_blocks, &receives, output))
    }

    pub(super) fn copy<T: Element>(
        &mut self,
        spec: OperationSpec,
        caller: &'static Location<'static>,
        (outgoing_blocks, receives, output): (SendBlocks<'_, T>, &[ReceiveBlock], &mut [T]),
    ) -> Result<(), Error> {
        let transfer = Transfer {
            outgoing_blocks,
            receives,
            output,
            then: OnArrival::Copy,
        };
        self.perform(spec, caller, Work::Exchange(transfer))
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

pub(super) fn take(from: usize, block: usize, start: usize, into: Range<usize>) -> ReceiveBlock {
    ReceiveBlock {
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

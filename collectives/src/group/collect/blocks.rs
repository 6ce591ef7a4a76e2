//! Who takes which block from whom.

use std::ops::Range;

use meshwork_accel::{Element, Reduction};
use smallvec::SmallVec;

use crate::group::Group;
use crate::operation::{OnArrival, OperationSpec, ReceiveBlock, SendBlocks, Transfer, Work};
use crate::{OperationError, Rank};

pub(in crate::group) type Ranges = SmallVec<[Range<usize>; 8]>;
pub(super) type ReceiveBlocks = SmallVec<[ReceiveBlock; 8]>;

impl Group {
    pub(in crate::group) fn fold_blocks<T: Element>(
        &mut self,
        spec: OperationSpec,
        input: &[T],
        output: &mut [T],
        blocks: &[Range<usize>],
    ) -> Result<(), OperationError> {
        let op = spec.op.expect("blocks are folded by an op");
        let me = self.rank().index();
        length("reduce_scatter", "input", input.len(), end_of(blocks))?;
        length("reduce_scatter", "output", output.len(), blocks[me].len())?;
        let own = blocks[me].clone();
        let receives: ReceiveBlocks = self
            .other_places()
            .map(|from| ReceiveBlock::new(from, me, own.start, 0..own.len()))
            .collect();
        let transfer = Transfer {
            outgoing_blocks: SendBlocks::each(input, blocks),
            receives: &receives,
            output,
            then: OnArrival::Fold(Reduction::new(op)?),
        };
        self.perform(spec, Work::Exchange(transfer))
    }

    pub(in crate::group) fn gather_blocks<T: Element>(
        &mut self,
        spec: OperationSpec,
        input: &[T],
        output: Option<&mut [T]>,
        blocks: &[Range<usize>],
    ) -> Result<(), OperationError> {
        let me = self.rank().index();
        let operation = spec.kind.name();
        length(operation, "input", input.len(), blocks[me].len())?;
        let whole = 0..input.len();
        let mut outgoing_blocks = SendBlocks::whole(input, std::slice::from_ref(&whole));
        outgoing_blocks.taker = spec.root.map(Rank::index);
        let Some(output) = output else {
            return self.copy(spec, outgoing_blocks, &[], &mut []);
        };
        length(operation, "output", output.len(), end_of(blocks))?;
        output[blocks[me].clone()].copy_from_slice(input);
        let receives: ReceiveBlocks = self
            .other_places()
            .map(|from| ReceiveBlock::new(from, 0, 0, blocks[from].clone()))
            .collect();
        // The root of a gather is asked for nothing.
        let outgoing_blocks = if spec.root.is_some() {
            SendBlocks::nothing(1)
        } else {
            outgoing_blocks
        };
        self.copy(spec, outgoing_blocks, &receives, output)
    }

    pub(super) fn scatter_blocks<T: Element>(
        &mut self,
        spec: OperationSpec,
        input: &[T],
        output: &mut [T],
        blocks: &[Range<usize>],
    ) -> Result<(), OperationError> {
        let root = spec.root.expect("a scatter has a root");
        let me = self.rank().index();
        length("scatter", "output", output.len(), blocks[me].len())?;
        if root == self.rank() {
            length("scatter", "input", input.len(), end_of(blocks))?;
            output.copy_from_slice(&input[blocks[me].clone()]);
            let outgoing_blocks = SendBlocks::each(input, blocks);
            return self.copy(spec, outgoing_blocks, &[], &mut []);
        }
        let taken = ReceiveBlock::new(root.index(), me, blocks[me].start, 0..output.len());
        let outgoing_blocks = SendBlocks::nothing(self.world() as usize);
        self.copy(spec, outgoing_blocks, &[taken], output)
    }

    pub(in crate::group) fn exchange_even_blocks<T: Element>(
        &mut self,
        spec: OperationSpec,
        input: &[T],
        output: &mut [T],
    ) -> Result<(), OperationError> {
        let (operation, found, world) = ("all_to_all", input.len(), self.world());
        let ranks = world as usize;
        if !found.is_multiple_of(ranks) {
            return Err(OperationError::NotDivisible {
                operation,
                found,
                world,
            });
        }
        length(operation, "output", output.len(), found)?;
        let blocks = self.even(found / ranks);
        self.exchange_blocks(spec, SendBlocks::each(input, &blocks), output, &blocks)
    }

    pub(super) fn exchange_blocks<T: Element>(
        &mut self,
        spec: OperationSpec,
        outgoing_blocks: SendBlocks<'_, T>,
        output: &mut [T],
        taken: &[Range<usize>],
    ) -> Result<(), OperationError> {
        let me = self.rank().index();
        let (input, offered) = (outgoing_blocks.input, outgoing_blocks.blocks);
        let (own, into) = (offered[me].clone(), taken[me].clone());
        if own.len() != into.len() {
            return Err(OperationError::Uneven {
                rank: self.rank(),
                peer: self.rank(),
                offered: own.len() as u64,
                expected: into.len() as u64,
            });
        }
        output[into].copy_from_slice(&input[own.clone()]);
        let receives: ReceiveBlocks = self
            .other_places()
            .map(|from| ReceiveBlock::new(from, me, own.start, taken[from].clone()))
            .collect();
        self.copy(spec, outgoing_blocks, &receives, output)
    }

    pub(super) fn copy<T: Element>(
        &mut self,
        spec: OperationSpec,
        outgoing_blocks: SendBlocks<'_, T>,
        receives: &[ReceiveBlock],
        output: &mut [T],
    ) -> Result<(), OperationError> {
        let transfer = Transfer {
            outgoing_blocks,
            receives,
            output,
            then: OnArrival::Copy,
        };
        self.perform(spec, Work::Exchange(transfer))
    }

    /// Refuses a rank that the group does not have.
    pub(in crate::group) fn check_rank(&self, rank: Rank) -> Result<(), OperationError> {
        let world = self.world();
        if rank.number() < world {
            return Ok(());
        }
        Err(OperationError::RankOutside { rank, world })
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

    /// The input up to where the last of these blocks ends, of which there is one for each rank.
    pub(super) fn up_to_last<'a, T>(
        &self,
        operation: &'static str,
        input: &'a [T],
        blocks: &[Range<usize>],
    ) -> Result<&'a [T], OperationError> {
        length(
            operation,
            "list of blocks",
            blocks.len(),
            self.world() as usize,
        )?;
        for block in blocks {
            length(
                operation,
                "block",
                block.len(),
                block.end.abs_diff(block.start),
            )?;
        }
        let end = end_of(blocks);
        let until = input.get(..end);
        until.ok_or(OperationError::Length {
            operation,
            buffer: "input",
            found: input.len(),
            expected: end,
        })
    }

    /// A block of its own length for each rank.
    pub(super) fn uneven(
        &self,
        operation: &'static str,
        lengths: &[usize],
    ) -> Result<Ranges, OperationError> {
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

pub(super) fn end_of(blocks: &[Range<usize>]) -> usize {
    blocks.iter().fold(0, |end, block| end.max(block.end))
}

pub(in crate::group) fn length(
    operation: &'static str,
    buffer: &'static str,
    found: usize,
    expected: usize,
) -> Result<(), OperationError> {
    if found == expected {
        return Ok(());
    }
    Err(OperationError::Length {
        operation,
        buffer,
        found,
        expected,
    })
}

//! The collective operations: their shapes, and who takes what from whom.

mod blocks;

use std::ops::Range;

use meshwork_accel::{Element, ReduceOp, Reduction};

use super::Group;
use crate::contract::Kind;
use crate::operation::{OperationSpec, ReceiveBlock, SendBlocks, Work};
use crate::{OperationError, Rank};
use blocks::{ReceiveBlocks, end_of};

pub(super) use blocks::length;

impl Group {
    /// Replaces `buffer`, on every rank, by the reduction of all ranks' buffers.
    ///
    /// All ranks end with the same bits.
    ///
    /// # Shapes
    /// `buffer` has the same length on every rank.
    ///
    /// # Errors
    /// [`OperationError::Unsupported`] for an op that `T` does not have, and nothing has happened;
    /// [`OperationError::Disagreement`], [`OperationError::RankLost`], [`OperationError::Aborted`],
    /// [`OperationError::TimedOut`]; `buffer` then holds unspecified values, and the group is over.
    #[track_caller]
    pub fn all_reduce<T: Element>(
        &mut self,
        buffer: &mut [T],
        op: ReduceOp,
    ) -> Result<(), OperationError> {
        let reduction = Reduction::new(op)?;
        self.reduce_on_all(buffer, op, reduction)
    }

    /// Replaces `output`, on every rank, by the reduction of all ranks' inputs.
    ///
    /// # Shapes
    /// `input` and `output` have one length, the same on every rank.
    ///
    /// # Errors
    /// [`OperationError::Length`], and those of [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn all_reduce_into<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        op: ReduceOp,
    ) -> Result<(), OperationError> {
        length("all_reduce", "output", output.len(), input.len())?;
        let reduction = Reduction::new(op)?;
        output.copy_from_slice(input);
        self.reduce_on_all(output, op, reduction)
    }

    #[track_caller]
    fn reduce_on_all<T: Element>(
        &mut self,
        buffer: &mut [T],
        op: ReduceOp,
        reduction: Reduction<T>,
    ) -> Result<(), OperationError> {
        let spec = OperationSpec::new(Kind::AllReduce, buffer.len()).with_op(op);
        let work = Work::Reduce {
            buffer,
            reduction,
            root: None,
        };
        self.perform(spec, work)
    }

    /// Replaces `root`'s buffer by the reduction of all ranks' buffers; the others keep theirs.
    ///
    /// # Shapes
    /// `buffer` has the same length on every rank.
    ///
    /// # Errors
    /// [`OperationError::RankOutside`] for a root that does not exist, and those of
    /// [`all_reduce`](Self::all_reduce); after an error the others' buffers hold unspecified
    /// values too.
    #[track_caller]
    pub fn reduce<T: Element>(
        &mut self,
        buffer: &mut [T],
        op: ReduceOp,
        root: Rank,
    ) -> Result<(), OperationError> {
        self.check_rank(root)?;
        let (reduction, to) = (Reduction::new(op)?, Some(root));
        let spec = OperationSpec::new(Kind::Reduce, buffer.len())
            .with_op(op)
            .with_root(root);
        let work = Work::Reduce {
            buffer,
            reduction,
            root: to,
        };
        self.perform(spec, work)
    }

    /// Replaces `buffer`, on every rank, by the buffer of `root`.
    ///
    /// # Shapes
    /// `buffer` has the same length on every rank.
    ///
    /// # Errors
    /// [`OperationError::RankOutside`] for a root that does not exist, and those of
    /// [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn broadcast<T: Element>(
        &mut self,
        buffer: &mut [T],
        root: Rank,
    ) -> Result<(), OperationError> {
        self.check_rank(root)?;
        let spec = OperationSpec::new(Kind::Broadcast, buffer.len()).with_root(root);
        self.perform(spec, Work::Broadcast { buffer, root })
    }

    /// Reduces all ranks' inputs and leaves each rank with its block of the result.
    ///
    /// # Shapes
    /// `output` has the same length on every rank, and `input` that length times the world: block
    /// `r` of it is for rank `r`.
    ///
    /// # Errors
    /// [`OperationError::Length`], and those of [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn reduce_scatter<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        op: ReduceOp,
    ) -> Result<(), OperationError> {
        let blocks = self.even(output.len());
        let spec = OperationSpec::new(Kind::ReduceScatter, input.len()).with_op(op);
        self.fold_blocks(spec, input, output, &blocks)
    }

    /// Like [`reduce_scatter`](Self::reduce_scatter), with a block length for each rank.
    ///
    /// # Shapes
    /// `lengths` is the same on every rank; `input` has their sum, and `output` this rank's.
    ///
    /// # Errors
    /// Those of [`reduce_scatter`](Self::reduce_scatter).
    #[track_caller]
    pub fn reduce_scatter_uneven<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        lengths: &[usize],
        op: ReduceOp,
    ) -> Result<(), OperationError> {
        let blocks = self.uneven("reduce_scatter", lengths)?;
        let spec = OperationSpec::new(Kind::ReduceScatter, input.len()).with_op(op);
        let spec = spec.with_lengths(lengths);
        self.fold_blocks(spec, input, output, &blocks)
    }

    /// Like [`reduce_scatter_uneven`](Self::reduce_scatter_uneven), with the place of each rank's
    /// block in the input, which may have other elements too: as where some rows of a matrix are
    /// reduced at a time, without a copy of them.
    ///
    /// # Shapes
    /// `blocks` is the same on every rank; each is within `input`, and this rank's as long as
    /// `output`.
    ///
    /// # Errors
    /// Those of [`reduce_scatter`](Self::reduce_scatter).
    #[track_caller]
    pub fn reduce_scatter_at<T: Element>(
        &mut self,
        input: &[T],
        blocks: &[Range<usize>],
        output: &mut [T],
        op: ReduceOp,
    ) -> Result<(), OperationError> {
        let input = self.up_to_last("reduce_scatter_at", input, blocks)?;
        let places: Vec<usize> = blocks.iter().flat_map(|at| [at.start, at.end]).collect();
        let spec = OperationSpec::new(Kind::ReduceScatter, input.len()).with_op(op);
        self.fold_blocks(spec.with_lengths(&places), input, output, blocks)
    }

    /// Gives every rank the inputs of all, one after the other in the order of the ranks.
    ///
    /// # Shapes
    /// `input` has the same length on every rank, and `output` that length times the world.
    ///
    /// # Errors
    /// [`OperationError::Length`], and those of [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn all_gather<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
    ) -> Result<(), OperationError> {
        let blocks = self.even(input.len());
        let spec = OperationSpec::new(Kind::AllGather, output.len());
        self.gather_blocks(spec, input, Some(output), &blocks)
    }

    /// Like [`all_gather`](Self::all_gather), with an input of another length on each rank.
    ///
    /// # Shapes
    /// `lengths` is the same on every rank; `input` has this rank's, and `output` their sum.
    ///
    /// # Errors
    /// Those of [`all_gather`](Self::all_gather).
    #[track_caller]
    pub fn all_gather_uneven<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        lengths: &[usize],
    ) -> Result<(), OperationError> {
        let blocks = self.uneven("all_gather", lengths)?;
        let spec = OperationSpec::new(Kind::AllGather, output.len()).with_lengths(lengths);
        self.gather_blocks(spec, input, Some(output), &blocks)
    }

    /// Gives `root` the inputs of all, one after the other in the order of the ranks.
    ///
    /// # Shapes
    /// `input` has the same length on every rank. `output` has that length times the world at the
    /// root; the others' is not touched and may be empty.
    ///
    /// # Errors
    /// [`OperationError::RankOutside`], [`OperationError::Length`], and those of
    /// [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn gather<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        root: Rank,
    ) -> Result<(), OperationError> {
        self.check_rank(root)?;
        let blocks = self.even(input.len());
        let spec = OperationSpec::new(Kind::Gather, input.len()).with_root(root);
        let output = (root == self.rank()).then_some(output);
        self.gather_blocks(spec, input, output, &blocks)
    }

    /// Like [`gather`](Self::gather), with an input of another length on each rank.
    ///
    /// # Shapes
    /// `lengths` is the same on every rank; `input` has this rank's, and the root's `output` their
    /// sum.
    ///
    /// # Errors
    /// Those of [`gather`](Self::gather).
    #[track_caller]
    pub fn gather_uneven<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        lengths: &[usize],
        root: Rank,
    ) -> Result<(), OperationError> {
        self.check_rank(root)?;
        let blocks = self.uneven("gather", lengths)?;
        let spec = OperationSpec::new(Kind::Gather, 0)
            .with_root(root)
            .with_lengths(lengths);
        let output = (root == self.rank()).then_some(output);
        self.gather_blocks(spec, input, output, &blocks)
    }

    /// Gives each rank its block of `root`'s input.
    ///
    /// # Shapes
    /// `output` has the same length on every rank. `input` has that length times the world at the
    /// root; the others' is not looked at and may be empty.
    ///
    /// # Errors
    /// [`OperationError::RankOutside`], [`OperationError::Length`], and those of
    /// [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn scatter<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        root: Rank,
    ) -> Result<(), OperationError> {
        self.check_rank(root)?;
        let blocks = self.even(output.len());
        let spec = OperationSpec::new(Kind::Scatter, output.len()).with_root(root);
        self.scatter_blocks(spec, input, output, &blocks)
    }

    /// Like [`scatter`](Self::scatter), with a block length for each rank.
    ///
    /// # Shapes
    /// `lengths` is the same on every rank; `output` has this rank's, and the root's `input` their
    /// sum.
    ///
    /// # Errors
    /// Those of [`scatter`](Self::scatter).
    #[track_caller]
    pub fn scatter_uneven<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        lengths: &[usize],
        root: Rank,
    ) -> Result<(), OperationError> {
        self.check_rank(root)?;
        let blocks = self.uneven("scatter", lengths)?;
        let spec = OperationSpec::new(Kind::Scatter, 0)
            .with_root(root)
            .with_lengths(lengths);
        self.scatter_blocks(spec, input, output, &blocks)
    }

    /// Gives every rank a block from every rank: block `r` of the input goes to rank `r`, and block
    /// `r` of the output comes from there.
    ///
    /// # Shapes
    /// `input` and `output` have one length, the same on every rank: the world times that of a
    /// block.
    ///
    /// # Errors
    /// [`OperationError::NotDivisible`], [`OperationError::Length`], and those of
    /// [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn all_to_all<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
    ) -> Result<(), OperationError> {
        let spec = OperationSpec::new(Kind::AllToAll, input.len());
        self.exchange_even_blocks(spec, input, output)
    }

    /// Like [`all_to_all`](Self::all_to_all), with a block length for each pair of ranks.
    ///
    /// # Shapes
    /// `input` has the sum of `sent`, the lengths of the blocks to each rank; `output` that of
    /// `received`, the lengths of those from each. What one rank sends the other must expect.
    ///
    /// # Errors
    /// [`OperationError::Uneven`] where two ranks' numbers differ, and those of
    /// [`all_to_all`](Self::all_to_all).
    #[track_caller]
    pub fn all_to_all_uneven<T: Element>(
        &mut self,
        input: &[T],
        sent: &[usize],
        output: &mut [T],
        received: &[usize],
    ) -> Result<(), OperationError> {
        let offered = self.uneven("all_to_all", sent)?;
        let taken = self.uneven("all_to_all", received)?;
        length("all_to_all", "input", input.len(), end_of(&offered))?;
        length("all_to_all", "output", output.len(), end_of(&taken))?;
        // Lengths differ from pair to pair; this only tells the operation from the even one.
        let spec = OperationSpec::new(Kind::AllToAll, 0).with_lengths(&[]);
        let mut outgoing_blocks = SendBlocks::each(input, &offered);
        outgoing_blocks.counts = Some(sent);
        self.exchange_blocks(spec, outgoing_blocks, output, &taken)
    }

    /// Gives each rank the input of another: that of rank `r` goes to rank `targets[r]`.
    ///
    /// # Shapes
    /// `input` and `output` have one length, the same on every rank. `targets` is the same on every
    /// rank and names each rank once.
    ///
    /// # Errors
    /// [`OperationError::Length`], [`OperationError::RankOutside`],
    /// [`OperationError::TargetRepeated`], and those of [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn permute<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        targets: &[Rank],
    ) -> Result<(), OperationError> {
        let world = self.world() as usize;
        length("permute", "targets", targets.len(), world)?;
        length("permute", "output", output.len(), input.len())?;
        let mut sources = vec![None; world];
        for (from, to) in targets.iter().enumerate() {
            self.check_rank(*to)?;
            if sources[to.index()].replace(from).is_some() {
                return Err(OperationError::TargetRepeated { target: *to });
            }
        }
        let numbers: Vec<usize> = targets.iter().map(|target| target.index()).collect();
        let spec = OperationSpec::new(Kind::Permute, input.len()).with_lengths(&numbers);
        let whole = 0..input.len();
        let from = sources[self.rank().index()].expect("as many targets as ranks, and none twice");
        let mut receives = ReceiveBlocks::new();
        if from == self.rank().index() {
            output.copy_from_slice(input);
        } else {
            receives.push(ReceiveBlock::new(from, 0, 0, whole.clone()));
        }
        let to = targets[self.rank().index()].index();
        let outgoing_blocks = SendBlocks::whole(input, std::slice::from_ref(&whole)).only_for(to);
        self.copy(spec, outgoing_blocks, &receives, output)
    }

    /// Sends `input` to rank `to`; returns when it has been received, or is on its way.
    ///
    /// Two ranks that send to each other before they receive are told of a
    /// [disagreement](OperationError::Disagreement), unless what they send is so short that it is
    /// taken ahead: use [`permute`](Self::permute).
    ///
    /// # Shapes
    /// `to` receives as many elements.
    ///
    /// # Errors
    /// [`OperationError::RankOutside`], [`OperationError::OwnRank`], and those of
    /// [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn send<T: Element>(&mut self, input: &[T], to: Rank) -> Result<(), OperationError> {
        self.other(to)?;
        self.settled().send(input, to)
    }

    /// Replaces `output` by what rank `from` sends.
    ///
    /// # Shapes
    /// `from` sends as many elements.
    ///
    /// # Errors
    /// Those of [`send`](Self::send).
    #[track_caller]
    pub fn receive<T: Element>(
        &mut self,
        output: &mut [T],
        from: Rank,
    ) -> Result<(), OperationError> {
        self.other(from)?;
        self.settled().receive(output, from)
    }

    fn other(&self, rank: Rank) -> Result<(), OperationError> {
        self.check_rank(rank)?;
        if rank == self.rank() {
            return Err(OperationError::OwnRank { rank });
        }
        Ok(())
    }

    /// Returns when every rank has called it.
    ///
    /// # Errors
    /// Those of [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn barrier(&mut self) -> Result<(), OperationError> {
        let spec = OperationSpec::new(Kind::Barrier, 0);
        self.perform::<u8>(spec, Work::Barrier)
    }
}

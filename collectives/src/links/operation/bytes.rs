//! Work as streams carry it: bytes, of which only reductions know what elements they are.
//!
//! It is compiled once, and not for each size of elements. Ranges are in bytes.

use std::ops::{Deref, DerefMut, Range};

use meshwork_accel::Element;

use super::combine::ReduceBytes;
use crate::Rank;
use crate::operation::{OnArrival, ReceiveBlock, SendBlocks, Transfer, Work};

/// The [`Work`] of an operation over links.
pub(crate) enum BytesWork<'a> {
    Barrier,
    Agree,
    Reduce {
        buffer: &'a mut [u8],
        root: Option<Rank>,
    },
    Exchange(BytesTransfer<'a>),
    Broadcast {
        buffer: &'a mut [u8],
        root: Rank,
    },
    Send {
        input: &'a [u8],
        to: Rank,
    },
    Receive {
        output: &'a mut [u8],
        from: Rank,
    },
}

/// The [`Transfer`] of an operation over links.
pub(crate) struct BytesTransfer<'a> {
    pub(super) outgoing_blocks: BytesBlocks<'a>,
    pub(super) receives: Vec<ReceiveBlock>,
    pub(super) output: &'a mut [u8],
    /// What all blocks that are taken become, unless each is copied to its place.
    pub(super) fold: Option<Box<dyn ReduceBytes>>,
}

/// What a rank hands over: its input, cut in blocks.
pub(super) struct BytesBlocks<'a> {
    pub(super) input: &'a [u8],
    pub(super) blocks: Vec<Range<usize>>,
    parts: usize,
    taker: Option<usize>,
}

impl<'a> BytesBlocks<'a> {
    /// What the rank at this place takes, if any.
    pub(super) fn block_for(&self, place: usize) -> Option<&'a [u8]> {
        let blocks = SendBlocks {
            input: self.input,
            blocks: &self.blocks,
            parts: self.parts,
            taker: self.taker,
            counts: None,
        };
        blocks.range_for(place).map(|block| &self.input[block])
    }
}

impl<'a, T: Element> From<Work<'a, T>> for BytesWork<'a> {
    fn from(work: Work<'a, T>) -> Self {
        match work {
            Work::Barrier => Self::Barrier,
            Work::Agree => Self::Agree,
            Work::Reduce { buffer, root, .. } => Self::Reduce {
                buffer: bytes_mut(buffer),
                root,
            },
            Work::Exchange(transfer) => Self::Exchange(transfer.into()),
            Work::Broadcast { buffer, root } => Self::Broadcast {
                buffer: bytes_mut(buffer),
                root,
            },
            Work::Send { input, to } => Self::Send {
                input: bytemuck::cast_slice(input),
                to,
            },
            Work::Receive { output, from } => Self::Receive {
                output: bytes_mut(output),
                from,
            },
        }
    }
}

impl<'a, T: Element> From<Transfer<'a, T>> for BytesTransfer<'a> {
    fn from(transfer: Transfer<'a, T>) -> Self {
        let in_bytes = |elements: &Range<usize>| {
            elements.start * size_of::<T>()..elements.end * size_of::<T>()
        };
        let SendBlocks {
            input,
            blocks,
            parts,
            taker,
            ..
        } = transfer.outgoing_blocks;
        let receives = transfer.receives.iter();
        let receives = receives.map(|take| ReceiveBlock {
            start: take.start * size_of::<T>(),
            into: in_bytes(&take.into),
            ..*take
        });
        Self {
            outgoing_blocks: BytesBlocks {
                input: bytemuck::cast_slice(input),
                blocks: blocks.iter().map(in_bytes).collect(),
                parts,
                taker,
            },
            receives: receives.collect(),
            output: bytes_mut(transfer.output),
            fold: match transfer.then {
                OnArrival::Copy => None,
                OnArrival::Fold(reduction) => Some(Box::new(reduction)),
            },
        }
    }
}

/// Truth values, of which not all bytes are some, are carried as numbers.
fn bytes_mut<T: Element>(values: &mut [T]) -> &mut [u8] {
    T::bytes_mut(values).expect("elements of which all bytes are values")
}

/// Bytes that lie as elements of any type may.
pub(super) struct AlignedBytes {
    words: Vec<u64>,
    len: usize,
}

impl AlignedBytes {
    pub(super) fn zeroed(len: usize) -> Self {
        let words = vec![0; len.div_ceil(size_of::<u64>())];
        Self { words, len }
    }

    pub(super) fn copied(bytes: &[u8]) -> Self {
        let mut copied = Self::zeroed(bytes.len());
        copied.copy_from_slice(bytes);
        copied
    }
}

impl Deref for AlignedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.len]
    }
}

impl DerefMut for AlignedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.len]
    }
}

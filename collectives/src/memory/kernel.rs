//! Reduces several buffers into several buffers in one pass over memory.

#![expect(
    unsafe_code,
    reason = "sources and destinations overlap, and other ranks own some of them"
)]

use meshwork_accel::{Element, ReduceOp};

use super::span::Span;

/// Elements are reduced in blocks of this many bytes, which stay in a core's first cache.
const BLOCK_BYTES: usize = 4096;

/// Memory for one block.
#[derive(Debug)]
pub(super) struct Block(Box<[u64]>);

impl Block {
    pub(super) fn new() -> Self {
        Self(vec![0; BLOCK_BYTES / size_of::<u64>()].into())
    }
}

/// Each destination becomes the reduction of all sources, taken in their order.
///
/// All spans have the same length. A destination may be one of the sources.
///
/// # Safety
/// All spans are mapped and aligned for `T`; during the call nobody writes to the sources, and
/// nobody else touches the destinations. Two spans are the same or do not overlap.
pub(super) unsafe fn blend<T: Element>(
    block: &mut Block,
    op: ReduceOp,
    sources: &[Span],
    destinations: &[Span],
) {
    let Some((first, rest)) = sources.split_first() else {
        return;
    };
    let bytes = first.bytes();
    let mut start = 0;
    while start < bytes {
        let range = start..(start + BLOCK_BYTES).min(bytes);
        let part = |span: &Span| span.part(range.clone()).expect("all spans are as long");
        let sum: &mut [T] = bytemuck::cast_slice_mut(&mut block.0);
        let sum = &mut sum[..range.len() / size_of::<T>()];
        // SAFETY: the caller's promise for sources; the block is this rank's own.
        sum.copy_from_slice(unsafe { part(first).read() });
        for source in rest {
            // SAFETY: as above.
            T::reduce(op, sum, unsafe { part(source).read() });
        }
        for destination in destinations {
            // SAFETY: the caller's promise for destinations; no source is read at the same time.
            unsafe { part(destination).write() }.copy_from_slice(sum);
        }
        start = range.end;
    }
}

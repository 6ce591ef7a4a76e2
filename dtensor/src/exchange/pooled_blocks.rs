//! The blocks of a tensor, whose memory is used again.

use crate::{Block, Context, Scalar};

/// Blocks of a context. When the last tensor that has one is gone, its memory is for the blocks of
/// others.
#[derive(Clone)]
pub(crate) struct PooledBlocks<T: Scalar> {
    context: Context,
    blocks: Vec<Block<T>>,
}

impl<T: Scalar> PooledBlocks<T> {
    pub(crate) fn new(context: Context, blocks: Vec<Block<T>>) -> Self {
        Self { context, blocks }
    }

    pub(crate) fn blocks(&self) -> &[Block<T>] {
        &self.blocks
    }

    /// Makes the elements of each block row-major and without gaps.
    pub(super) fn put_in_order(&mut self) {
        for block in &mut self.blocks {
            if block.as_slice().is_none() {
                *block = block.as_standard_layout().into_owned().into_shared();
            }
        }
    }
}

impl<T: Scalar> Drop for PooledBlocks<T> {
    fn drop(&mut self) {
        for block in self.blocks.drain(..) {
            // A block that somebody else has as well is theirs.
            if let Ok(block) = block.try_into_owned_nocopy() {
                self.context
                    .buffer_pool()
                    .keep(block.into_raw_vec_and_offset().0);
            }
        }
    }
}

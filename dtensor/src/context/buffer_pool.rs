//! Memory of large blocks that are gone, kept for those that come next.
//!
//! The C library gives such memory back to the system and takes it anew, page by page: as much work
//! as a copy. Programs move tensors of the same sizes again and again.

use std::any::Any;

use crate::Scalar;

/// Memory that belongs to no block. A relayout gives back what it has no use for before it takes
/// more, so that free buffers add nothing to what its blocks take.
#[derive(Default)]
pub(crate) struct BufferPool {
    kept: Vec<FreeBuffer>,
    /// The most bytes that the new blocks of one exchange have taken so far.
    most: usize,
}

struct FreeBuffer {
    /// A `Vec` of elements.
    memory: Box<dyn Any + Send>,
    bytes: usize,
}

impl BufferPool {
    /// Memory for blocks of this many elements, of unspecified value; none where there is nothing
    /// to keep it from. What is left over is given back, unless all blocks are small.
    pub(crate) fn take<T: Scalar>(&mut self, lens: &[usize]) -> Vec<Option<Vec<T>>> {
        let large = lens.iter().map(|len| len.saturating_mul(size_of::<T>()));
        let large: usize = large.filter(|bytes| *bytes >= LARGE).sum();
        if large == 0 {
            return lens.iter().map(|_| None).collect();
        }
        self.most = self.most.max(large);
        let taken = lens.iter().map(|len| self.take_one(*len)).collect();
        self.kept.clear();
        taken
    }

    fn take_one<T: Scalar>(&mut self, len: usize) -> Option<Vec<T>> {
        let fits = |spare: &FreeBuffer| {
            let memory = spare.memory.downcast_ref::<Vec<T>>();
            memory.is_some_and(|memory| memory.len() == len)
        };
        let place = self.kept.iter().position(fits)?;
        let memory = self.kept.swap_remove(place).memory.downcast();
        memory.ok().map(|memory| *memory)
    }

    /// Keeps the memory of a block that is gone, if it is large and all free buffers together take
    /// no more than the blocks of one relayout.
    pub(crate) fn keep<T: Scalar>(&mut self, memory: Vec<T>) {
        let bytes = memory.capacity() * size_of::<T>();
        if bytes >= LARGE && self.bytes() + bytes <= self.most {
            let memory = Box::new(memory);
            self.kept.push(FreeBuffer { memory, bytes });
        }
    }

    /// The size of all buffers, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.kept.iter().map(|spare| spare.bytes).sum()
    }
}

/// Bytes of a block from which on the C library asks the system for its memory.
const LARGE: usize = 128 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = LARGE / 4;

    #[test]
    fn what_fits_is_used_again_and_the_rest_is_given_back() {
        let mut buffer_pool = BufferPool::default();
        let none = buffer_pool.take::<f32>(&[LEN, LEN, 2 * LEN]);
        assert!(none.iter().all(Option::is_none));
        let memory = vec![1.0_f32; LEN];
        let place = memory.as_ptr();
        buffer_pool.keep(memory);
        buffer_pool.keep(vec![2_i32; LEN]);
        buffer_pool.keep(vec![3.0_f32; 2 * LEN]);
        assert_eq!(buffer_pool.bytes(), 4 * LARGE);
        let taken = buffer_pool.take::<f32>(&[LEN, 8, LEN]);
        assert_eq!(taken[0].as_ref().map(|memory| memory.as_ptr()), Some(place));
        assert_eq!((&taken[1], &taken[2]), (&None, &None));
        assert_eq!(buffer_pool.bytes(), 0);
    }

    #[test]
    fn free_buffers_take_no_more_than_the_blocks_of_one_exchange() {
        let mut buffer_pool = BufferPool::default();
        buffer_pool.keep(vec![0_u8; LARGE]);
        assert_eq!(buffer_pool.bytes(), 0, "nothing was taken yet");
        buffer_pool.take::<u8>(&[LARGE, LARGE, LARGE - 1]);
        for _ in 0..3 {
            buffer_pool.keep(vec![0_u8; LARGE]);
        }
        assert_eq!(buffer_pool.bytes(), 2 * LARGE);
    }

    #[test]
    fn small_blocks_leave_the_pool_alone() {
        let mut buffer_pool = BufferPool::default();
        buffer_pool.take::<u8>(&[LARGE]);
        buffer_pool.keep(vec![0_u8; LARGE - 1]);
        assert_eq!(buffer_pool.bytes(), 0);
        buffer_pool.keep(vec![0_u8; LARGE]);
        assert_eq!(buffer_pool.take::<u8>(&[LARGE - 1]), [None]);
        assert_eq!(buffer_pool.bytes(), LARGE);
    }
}

//! Fetches the cache lines that the next short operation writes to, while this one goes on.
//!
//! The others have read what this rank handed over two operations ago, so its next stores would
//! wait until each line is this core's own again. Asked for early, the lines come while those of
//! the others are read.

#![expect(
    unsafe_code,
    reason = "the instruction that fetches a line for writing is no function of Rust's library"
)]

use super::communicator::ShmCommunicator;
use super::flag::Atomic;

/// Bytes beyond which lines that are asked for at once hold up those that are read now.
const LIMIT: usize = 4 << 10;
const LINE: usize = 64;

impl<A: Atomic> ShmCommunicator<A> {
    /// To be called once all others have met for this operation, and so have read what was handed
    /// over in the last one: the next is likely to hand over as many bytes.
    #[inline]
    pub(super) fn prefetch_next_small(&self, bytes: usize) {
        let small = self.control_blocks[self.me].small(self.sequence.wrapping_add(1));
        if bytes > LIMIT.min(small.bytes()) {
            return;
        }
        let start = small.address();
        for line in (start..start + bytes).step_by(LINE) {
            prefetch_for_writing(line);
        }
    }
}

/// Nothing where the instruction is not known.
#[inline(always)]
fn prefetch_for_writing(address: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, which neither reads nor writes, whatever the address.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) address, options(nomem, nostack, preserves_flags),);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

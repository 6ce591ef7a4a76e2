//! The ranks of one host: threads of a process, or processes that map each other's memory.
//!
//! ```text
//!   rank 0            rank 1            rank 2        a control block each, seen by all
//!   [post|flags|slots] [post|flags|slots] [post|flags|slots]
//! ```
//!
//! For each operation every rank posts what it calls and where its bytes are, and reads the posts
//! of all others: a disagreement is seen by everybody at once, before a byte is touched. Then the
//! bytes go one of four ways: a small message has been copied next to the post; buffers that all
//! can reach are worked on in place; long ones of other processes are fetched by the kernel, where
//! it is allowed to; others go through slots.

mod access;
#[cfg(any(test, feature = "testing"))]
mod adversary;
mod communicator;
mod control_block;
mod descriptor;
mod fetch;
mod flag;
mod gather;
mod kernel;
mod mapping;
mod peer_channel;
mod prefetch;
mod reduce;
mod registry;
mod span;
mod streaming_copy;
mod transfer;
mod wait;

use control_block::{Head, PeerChannel};
use flag::Atomic;
use wait::Waiter;

use crate::failure::Failure;

#[cfg(any(test, feature = "testing"))]
pub(crate) use adversary::meddle;
pub(crate) use communicator::ShmCommunicator;
pub(crate) use control_block::{ControlBlock, Nonce, Shape};
#[cfg(any(test, feature = "testing"))]
pub(crate) use descriptor::decode_contract_words;
pub(crate) use mapping::{Mapping, Population, SegmentName};
pub(crate) use registry::{Registered, Registry};
#[cfg(test)]
pub(crate) use tests::layout::shared_layout;
pub(crate) use wait::WaitObserver;

impl<A: Atomic> ShmCommunicator<A> {
    /// The number of the slot that takes a piece of the current operation.
    fn tick(&self, piece: usize) -> u32 {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "ticks wrap, on all ranks alike"
        )]
        self.ticks.wrapping_add(piece as u32)
    }

    fn own(&self) -> &Head<A> {
        self.control_blocks[self.me].head()
    }

    fn own_peer_channel(&self, other: usize) -> &PeerChannel<A> {
        self.control_blocks[self.me].peer_channel(other)
    }

    /// Waits until nobody needs what this rank has put into the slot of this tick before.
    fn await_free_slot(&self, waiter: &Waiter<'_>, tick: u32) -> Result<(), Failure> {
        #[expect(clippy::cast_possible_truncation, reason = "a few slots")]
        let depth = self.shape.depth() as u32;
        for other in self.others() {
            let consumed = &self.control_blocks[other].head().consumed.0;
            self.wait(
                waiter,
                consumed,
                tick.wrapping_add(1).wrapping_sub(depth),
                other,
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

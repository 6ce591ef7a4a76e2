//! The ranks of one host: threads of a process, or processes that map each other's memory.
//!
//! ```text
//!   rank 0            rank 1            rank 2        a board each, seen by all
//!   [post|flags|slots] [post|flags|slots] [post|flags|slots]
//! ```
//!
//! For each operation every rank posts what it calls and where its bytes are, and reads the posts of
//! all others: a disagreement is seen by everybody at once, before a byte is touched. Then
//! the bytes go one of four ways: a small message has been copied next to the post; buffers that
//! all can reach are worked on in place; long ones of other processes are fetched by the kernel,
//! where it is allowed to; others go through slots.

mod board;
mod domain;
mod far;
mod fetch;
mod flag;
mod kernel;
mod mail;
mod mapping;
#[cfg(any(test, feature = "testing"))]
mod meddler;
mod post;
mod pull;
mod reach;
mod reduce;
mod registry;
mod span;
mod wait;

use board::{Desk, Head};
use domain::Domain as Ranks;
use flag::Atomic;
use wait::Patience;

pub(crate) use board::{Board, Nonce, Shape};
pub(crate) use domain::{Domain, Halt, Task};
pub(crate) use mapping::{Mapping, SegmentName};
#[cfg(any(test, feature = "testing"))]
pub(crate) use meddler::meddle;
#[cfg(any(test, feature = "testing"))]
pub(crate) use post::decode_terms;
pub(crate) use pull::{Errand, Offer, Take, Then};
pub(crate) use reduce::Receiver;
pub(crate) use registry::{Registered, Registry};
pub(crate) use wait::Watch;

impl<A: Atomic> Ranks<A> {
    /// The number of the slot that takes a piece of the current operation.
    fn tick(&self, piece: usize) -> u32 {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "ticks wrap, on all ranks alike"
        )]
        self.ticks.wrapping_add(piece as u32)
    }

    fn own(&self) -> &Head<A> {
        self.boards[self.me].head()
    }

    fn own_desk(&self, other: usize) -> &Desk<A> {
        self.boards[self.me].desk(other)
    }

    /// Waits until nobody needs what this rank has put into the slot of this tick before.
    fn await_free_slot(&self, patience: &Patience<'_>, tick: u32) -> Result<(), Halt> {
        #[expect(clippy::cast_possible_truncation, reason = "a few slots")]
        let depth = self.shape.depth() as u32;
        for other in self.others() {
            let consumed = &self.boards[other].head().consumed.0;
            self.wait(
                patience,
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

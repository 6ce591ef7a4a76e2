//! How many ranks come together.
//!
//! ```text
//!   up to 16   each looks at all others
//!   more       1 -> 0   3 -> 2 -> 0   7 -> 6 -> 4 -> 0   each waits for those below it in a tree,
//!                                                        then all for the top
//! ```
//!
//! Who looks at each of many others may have to sleep for each of them, which with more ranks than
//! cores is a quarter of their number squared wake-ups; in the tree it is two a rank at most, but
//! for those with several others right below them.

use super::communicator::ShmCommunicator;
use super::flag::{Atomic, Flag};
use super::wait::Waiter;
use crate::failure::Failure;
use crate::{Rank, overlay};

/// Where in an operation all ranks wait for all.
#[derive(Clone, Copy, Debug)]
enum Point {
    /// All have said what they do.
    Meeting,
    /// All have finished with the memory of others.
    End,
}

/// A point of the operation, or direct operation, with this number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gathering {
    point: Point,
    number: u32,
}

impl Gathering {
    pub(super) fn meeting(number: u32) -> Self {
        let point = Point::Meeting;
        Self { point, number }
    }

    pub(super) fn end(number: u32) -> Self {
        let point = Point::End;
        Self { point, number }
    }
}

impl<A: Atomic> ShmCommunicator<A> {
    /// Waits until all ranks have come to a point of an operation, along a tree where they are
    /// many: who looks at each of many others may have to sleep for each of them.
    #[inline]
    pub(super) fn gather(&self, waiter: &Waiter<'_>, at: Gathering) -> Result<(), Failure> {
        match self.shape.gathers() {
            true => self.gather_along_tree(waiter, at),
            false => Ok(()),
        }
    }

    fn gather_along_tree(&self, waiter: &Waiter<'_>, at: Gathering) -> Result<(), Failure> {
        for child in overlay::children(Rank::at(self.me), self.world()) {
            self.wait_through(waiter, at, child.index())?;
        }
        self.gathered(at, self.me).set(at.number);
        self.wait_through(waiter, at, 0)
    }

    /// Waits until a rank and all below it have come.
    fn wait_through(
        &self,
        waiter: &Waiter<'_>,
        at: Gathering,
        through: usize,
    ) -> Result<(), Failure> {
        let flag = self.gathered(at, through);
        if waiter.spin(flag, at.number) {
            return Ok(());
        }
        self.wake_sleepers();
        let missing = || self.others().find(|place| !self.has_come(at, *place));
        waiter
            .wait_longer(flag, at.number, self.closed(through), || {
                missing().unwrap_or(through)
            })
            .map_err(|error| error.of(through))
    }

    pub(super) fn gathered(&self, at: Gathering, place: usize) -> &Flag<A> {
        &self.control_blocks[place].head().gathered[at.point as usize].0
    }

    fn has_come(&self, at: Gathering, place: usize) -> bool {
        match at.point {
            Point::Meeting => self.post(place).flag.reached(at.number),
            Point::End => {
                let done = &self.control_blocks[place].head().done.0;
                done.reached(at.number)
            }
        }
    }

    fn world(&self) -> u32 {
        u32::try_from(self.len()).expect("as many ranks as a group may have")
    }
}

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
//!
//! Looks at memory of others that lie in no cache grow with the square too. So each compares those
//! right below it with itself, and the top tells all whether the whole tree has found itself the
//! same. Only where it has not, each looks at all others, and finds out who does what.

use super::communicator::ShmCommunicator;
use super::descriptor::ContractWords;
use super::flag::{Atomic, Flag};
use super::wait::Waiter;
use crate::failure::Failure;
use crate::{Rank, overlay};

/// The rank at the top of the tree.
pub(super) const TOP: usize = 0;

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
    /// Waits, along the tree, until all ranks have come to the meeting of the operation. Whether
    /// all do the same, and have handed over all that there is to read; the top, where that is so,
    /// does `at_top` first.
    pub(super) fn meet_along_tree(
        &self,
        waiter: &Waiter<'_>,
        contract_words: &ContractWords,
        at_top: impl FnOnce(),
    ) -> Result<bool, Failure> {
        let at = Gathering::meeting(self.sequence);
        let mut agreed = self.post(self.me).is_near();
        for child in self.children() {
            self.wait_through(waiter, at, child)?;
            let same = cfg!(meshwork_bare) || self.post(child).has(contract_words);
            agreed &= same && self.have_agreed(child);
        }
        if agreed && self.me == TOP {
            at_top();
        }
        // Never far behind, whatever the operations before were.
        let told = self.sequence.wrapping_sub(u32::from(!agreed));
        self.own().agreed.0.show(told);
        self.come_to(waiter, at)?;
        Ok(self.have_agreed(TOP) && self.post(self.me).is_near())
    }

    /// Waits, along the tree, until all ranks have come to the end of a direct operation.
    pub(super) fn part_along_tree(&self, waiter: &Waiter<'_>, number: u32) -> Result<(), Failure> {
        let at = Gathering::end(number);
        for child in self.children() {
            self.wait_through(waiter, at, child)?;
        }
        self.come_to(waiter, at)
    }

    fn come_to(&self, waiter: &Waiter<'_>, at: Gathering) -> Result<(), Failure> {
        self.gathered(at, self.me).set(at.number);
        self.wait_through(waiter, at, TOP)
    }

    fn children(&self) -> impl Iterator<Item = usize> + use<A> {
        overlay::children(Rank::at(self.me), self.world()).map(Rank::index)
    }

    fn have_agreed(&self, through: usize) -> bool {
        self.control_blocks[through].head().agreed.0.number() == self.sequence
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

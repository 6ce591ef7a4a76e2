//! Trees: after each round so many times as many ranks have something to pass on.
//!
//! In a binomial tree twice as many, in a k-nomial tree of a larger radix more: fewer rounds, and
//! more ranks at the ends of the tree, which have one message to send and one to wait for. Whoever
//! is above them finds several when it wakes.

use std::ops::Range;

use super::Place;
use crate::Round;

/// How many times as many ranks a k-nomial tree reaches after each round. A power of two:
/// contributions that meet in the order of their ranks are combined as in a binomial tree, and to
/// the same bits, but for floats of 16 bits, which are rounded once a level.
pub const KNOMIAL_RADIX: usize = 8;

/// One rank and all others below it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Tree {
    pub(crate) root: usize,
    /// Bits of a rank's number that a level has: the radix is a power of two.
    digit: u32,
}

impl Tree {
    pub(crate) fn binomial(root: usize) -> Self {
        Self { root, digit: 1 }
    }

    pub(crate) fn knomial(root: usize) -> Self {
        let digit = KNOMIAL_RADIX.ilog2();
        Self { root, digit }
    }

    /// Levels over `world` ranks.
    pub(crate) fn depth(self, world: usize) -> usize {
        let bits = world.next_power_of_two().trailing_zeros();
        bits.div_ceil(self.digit) as usize
    }

    /// How far apart the ranks of a level are, from the lowest on.
    fn stride(self, level: usize) -> usize {
        1 << (self.digit as usize * level)
    }

    fn radix(self) -> usize {
        1 << self.digit
    }
}

/// The root's blocks to everybody, along a tree turned so that the root is at its top; longest
/// edges first.
pub(crate) fn broadcast(place: &Place<'_>, tree: Tree, index: usize) -> Round {
    let level = Level::of(place, tree, index);
    let mut round = Round::default();
    for child in level.children() {
        round.send(place.rank, level.rank(child), 0..place.blocks);
    }
    if let Some(parent) = level.parent() {
        round.receive(place.rank, level.rank(parent), 0..place.blocks);
    }
    round
}

/// To each rank its own block, along a tree: an edge carries all that is below it.
pub(crate) fn scatter(place: &Place<'_>, tree: Tree, index: usize) -> Round {
    let level = Level::of(place, tree, index);
    let mut round = Round::default();
    for child in level.children() {
        for blocks in level.below(child) {
            round.send(place.rank, level.rank(child), blocks);
        }
    }
    if let Some(parent) = level.parent() {
        for blocks in level.below(level.me) {
            round.receive(place.rank, level.rank(parent), blocks);
        }
    }
    round
}

/// The edges of a round, in places that are counted from the root: from each multiple of the
/// radix times the stride to those that are one stride, two strides and so on behind it.
struct Level {
    world: usize,
    tree: Tree,
    me: usize,
    stride: usize,
}

impl Level {
    fn of(place: &Place<'_>, tree: Tree, index: usize) -> Self {
        let world = place.world;
        Self {
            world,
            tree,
            me: (place.rank + world - tree.root) % world,
            stride: tree.stride(tree.depth(world) - 1 - index),
        }
    }

    fn children(&self) -> impl Iterator<Item = usize> + use<> {
        let (me, stride, world) = (self.me, self.stride, self.world);
        let radix = self.tree.radix();
        let is_above = me.is_multiple_of(radix * stride);
        let count = if is_above { radix } else { 1 };
        let children = (1..count).map(move |child| me + child * stride);
        children.take_while(move |child| *child < world)
    }

    fn parent(&self) -> Option<usize> {
        let above = self.me % (self.tree.radix() * self.stride);
        (above != 0 && above.is_multiple_of(self.stride)).then(|| self.me - above)
    }

    fn rank(&self, place: usize) -> usize {
        (place + self.tree.root) % self.world
    }

    /// The blocks of a place and of those below it: the last ranks' and the first ranks' are not
    /// neighbours.
    fn below(&self, place: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let (world, root) = (self.world, self.tree.root);
        let (start, end) = (place + root, (place + self.stride).min(world) + root);
        let before_wrap = start.min(world)..end.min(world);
        let after_wrap = start.max(world) - world..end.max(world) - world;
        [before_wrap, after_wrap]
            .into_iter()
            .filter(|blocks| !blocks.is_empty())
    }
}

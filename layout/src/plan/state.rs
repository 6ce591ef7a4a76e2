//! A layout in terms of sub-axes: which cut which tensor dimension, which are partial.

use std::hash::Hash;

use smallvec::SmallVec;

/// The number of a sub-axis in its frame.
pub(super) type SubAxisId = u8;

/// The sub-axes that cut one tensor dimension, major to minor.
pub(super) type Cuts = SmallVec<[SubAxisId; 8]>;

/// A set of sub-axes, one bit each.
pub(super) type SubAxisSet = u64;

/// The placement of a tensor, in terms of a frame's sub-axes. Those that neither cut nor are
/// partial are idle.
///
/// Flat, because the search compares and hashes many: the sub-axes of each tensor dimension, each
/// list closed by [`END`].
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct State {
    marks: SmallVec<[SubAxisId; 16]>,
    partial: SubAxisSet,
    /// The partial sub-axes await the reduction of the target and not that of the source, where the
    /// two differ.
    renewed: bool,
}

impl State {
    pub(super) fn new<'a>(
        dims: impl IntoIterator<Item = &'a [SubAxisId]>,
        partial: SubAxisSet,
    ) -> Self {
        let mut marks = SmallVec::new();
        for cuts in dims {
            marks.extend_from_slice(cuts);
            marks.push(END);
        }
        Self {
            marks,
            partial,
            renewed: false,
        }
    }

    /// The same state; any partial sub-axes of it await the reduction of the target.
    pub(super) fn renewed(self) -> Self {
        let renewed = self.partial != 0;
        Self { renewed, ..self }
    }

    pub(super) fn is_renewed(&self) -> bool {
        self.renewed
    }

    /// The sub-axes that cut each tensor dimension, major to minor.
    pub(super) fn dims(&self) -> impl Iterator<Item = &[SubAxisId]> {
        let closed = self.marks.split_inclusive(|&mark| mark == END);
        closed.map(|list| &list[..list.len() - 1])
    }

    pub(super) fn partial(&self) -> SubAxisSet {
        self.partial
    }

    /// The sub-axes that cut a tensor dimension.
    pub(super) fn cutting(&self) -> SubAxisSet {
        let sub_axes = self.marks.iter().filter(|&&mark| mark != END);
        sub_axes.fold(0, |set, &sub_axis| set | bit(sub_axis))
    }

    /// Whether every rank holds the whole tensor, of final values.
    pub(super) fn is_replicated(&self) -> bool {
        self.partial == 0 && self.marks.iter().all(|&mark| mark == END)
    }
}

/// The set of one sub-axis.
pub(super) fn bit(sub_axis: SubAxisId) -> SubAxisSet {
    1 << sub_axis
}

/// The set of these sub-axes.
pub(super) fn set(sub_axes: &[SubAxisId]) -> SubAxisSet {
    sub_axes
        .iter()
        .fold(0, |set, &sub_axis| set | bit(sub_axis))
}

/// The sub-axes of a set, ascending.
pub(super) fn members(set: SubAxisSet) -> impl Iterator<Item = SubAxisId> {
    let mut rest = set;
    std::iter::from_fn(move || {
        // 64 where none is left, which is no sub-axis.
        let sub_axis = rest.trailing_zeros().to_le_bytes()[0];
        rest &= rest.checked_sub(1)?;
        Some(sub_axis)
    })
}

/// Closes the list of a tensor dimension; no sub-axis has this number, as a mesh has 63 at most.
const END: SubAxisId = SubAxisId::MAX;

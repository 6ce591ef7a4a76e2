//! A layout in terms of atoms: which cut which tensor dimension, which are partial.

use std::hash::Hash;

use smallvec::SmallVec;

/// The number of an atom in its frame.
pub(super) type AtomId = u8;

/// The atoms that cut one tensor dimension, major to minor.
pub(super) type Cuts = SmallVec<[AtomId; 8]>;

/// A set of atoms, one bit each.
pub(super) type AtomSet = u64;

/// How a tensor lies, in terms of a frame's atoms. Those that neither cut nor are partial are idle.
///
/// Flat, because the search compares and hashes many: the atoms of each tensor dimension, each list
/// closed by [`END`].
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct State {
    marks: SmallVec<[AtomId; 16]>,
    partial: AtomSet,
    /// The partial atoms await the reduction of the target and not that of the source, where the
    /// two differ.
    renewed: bool,
}

impl State {
    pub(super) fn new<'a>(dims: impl IntoIterator<Item = &'a [AtomId]>, partial: AtomSet) -> Self {
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

    /// The same state; any partial atoms of it await the reduction of the target.
    pub(super) fn renewed(self) -> Self {
        let renewed = self.partial != 0;
        Self { renewed, ..self }
    }

    pub(super) fn is_renewed(&self) -> bool {
        self.renewed
    }

    /// The atoms that cut each tensor dimension, major to minor.
    pub(super) fn dims(&self) -> impl Iterator<Item = &[AtomId]> {
        let closed = self.marks.split_inclusive(|&mark| mark == END);
        closed.map(|list| &list[..list.len() - 1])
    }

    pub(super) fn partial(&self) -> AtomSet {
        self.partial
    }

    /// The atoms that cut a tensor dimension.
    pub(super) fn cutting(&self) -> AtomSet {
        let atoms = self.marks.iter().filter(|&&mark| mark != END);
        atoms.fold(0, |set, &atom| set | bit(atom))
    }

    /// Whether every rank holds the whole tensor, of final values.
    pub(super) fn is_replicated(&self) -> bool {
        self.partial == 0 && self.marks.iter().all(|&mark| mark == END)
    }
}

/// The set of one atom.
pub(super) fn bit(atom: AtomId) -> AtomSet {
    1 << atom
}

/// The atoms of a set, ascending.
pub(super) fn members(set: AtomSet) -> impl Iterator<Item = AtomId> {
    let mut rest = set;
    std::iter::from_fn(move || {
        // 64 where none is left, which is no atom.
        let atom = rest.trailing_zeros().to_le_bytes()[0];
        rest &= rest.checked_sub(1)?;
        Some(atom)
    })
}

/// Closes the list of a tensor dimension; no atom has this number, as a mesh has 63 at most.
const END: AtomId = AtomId::MAX;

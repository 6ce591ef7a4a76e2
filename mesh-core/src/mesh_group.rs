use std::iter::FusedIterator;
use std::ops::Range;

use smallvec::SmallVec;

use crate::MeshRank;
use crate::strided::{Digit, Strided};

/// The ranks that differ along some dimensions only, in the order of their coordinates there.
///
/// Made by [`Mesh::group_of`](crate::Mesh::group_of) and its relatives; it takes a few numbers,
/// however many ranks it stands for.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[doc(alias = "replica_groups")]
pub struct MeshGroup(Strided);

impl MeshGroup {
    /// `first` has the coordinate 0 along every one of `digits`.
    pub(crate) fn new(first: usize, digits: impl IntoIterator<Item = Digit>) -> Self {
        Self(Strided::new(first, digits))
    }

    /// How many ranks there are; never 0.
    #[must_use]
    #[expect(
        clippy::len_without_is_empty,
        reason = "a mesh dimension has size 1 at least"
    )]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The ranks, by their coordinates along the group's dimensions, the last dimension fastest;
    /// ascending where the dimensions stand in the order of the mesh.
    pub fn ranks(&self) -> impl ExactSizeIterator<Item = MeshRank> + use<> {
        let strided = self.0.clone();
        (0..strided.len()).map(move |position| MeshRank::new(strided.at(position)))
    }

    /// The rank at this place of the group; inverse of [`position`](Self::position).
    #[must_use]
    pub fn rank_at(&self, position: usize) -> Option<MeshRank> {
        (position < self.len()).then(|| MeshRank::new(self.0.at(position)))
    }

    /// The place of this rank in the group, which for one dimension is its coordinate; inverse of
    /// [`rank_at`](Self::rank_at).
    #[must_use]
    pub fn position(&self, rank: MeshRank) -> Option<usize> {
        self.0.position(rank.index())
    }
}

/// All groups of a mesh along some dimensions, by their first rank, ascending.
///
/// Made by [`Mesh::groups`](crate::Mesh::groups) and
/// [`Mesh::groups_along`](crate::Mesh::groups_along).
#[derive(Clone, Debug)]
pub struct DeviceGroups {
    firsts: Strided,
    digits: SmallVec<[Digit; 4]>,
    left: Range<usize>,
}

impl DeviceGroups {
    /// Groups along `digits`, one from each of `firsts`.
    pub(crate) fn new(firsts: Strided, digits: SmallVec<[Digit; 4]>) -> Self {
        Self {
            left: 0..firsts.len(),
            firsts,
            digits,
        }
    }
}

impl Iterator for DeviceGroups {
    type Item = MeshGroup;

    fn next(&mut self) -> Option<MeshGroup> {
        let first = self.firsts.at(self.left.next()?);
        Some(MeshGroup::new(first, self.digits.iter().copied()))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.left.size_hint()
    }
}

impl ExactSizeIterator for DeviceGroups {}

impl FusedIterator for DeviceGroups {}

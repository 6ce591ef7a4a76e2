use crate::MeshRank;
use crate::strided::{Digit, Strided};

/// The ranks that differ along some dimensions only, in the order of their coordinates there.
///
/// Made by [`Mesh::group_of`](crate::Mesh::group_of) and
/// [`Mesh::group_along`](crate::Mesh::group_along); it takes a few numbers, however many ranks it
/// stands for.
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

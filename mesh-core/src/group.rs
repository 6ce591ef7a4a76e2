use crate::Rank;

/// The ranks that differ in one coordinate only, in the order of that coordinate.
///
/// Made by [`Mesh::group_of`](crate::Mesh::group_of) and [`Mesh::groups`](crate::Mesh::groups); it
/// takes three numbers, however many ranks it stands for.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Group {
    first: Rank,
    stride: usize,
    len: usize,
}

impl Group {
    /// `first + (len - 1) * stride` is a rank of the mesh, which keeps the sums below from
    /// overflowing; `stride` and `len` are at least 1.
    pub(crate) fn new(first: Rank, stride: usize, len: usize) -> Self {
        Self { first, stride, len }
    }

    /// How many ranks there are; never 0.
    #[must_use]
    #[expect(
        clippy::len_without_is_empty,
        reason = "a mesh dimension has size 1 at least"
    )]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The ranks, ascending: the i-th one has coordinate i.
    pub fn ranks(&self) -> impl ExactSizeIterator<Item = Rank> + use<> {
        let Self { first, stride, len } = *self;
        (0..len).map(move |coord| Rank::new(first.index() + coord * stride))
    }

    /// The rank at this place of the group; inverse of [`position`](Self::position).
    #[must_use]
    pub fn rank_at(&self, position: usize) -> Option<Rank> {
        (position < self.len).then(|| Rank::new(self.first.index() + position * self.stride))
    }

    /// The place of this rank in the group, which is its coordinate; inverse of
    /// [`rank_at`](Self::rank_at).
    #[must_use]
    pub fn position(&self, rank: Rank) -> Option<usize> {
        let distance = rank.index().checked_sub(self.first.index())?;
        let position = distance / self.stride;
        (distance % self.stride == 0 && position < self.len).then_some(position)
    }
}

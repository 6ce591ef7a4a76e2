use std::fmt::{self, Display};

/// The most ranks a mesh may have: sizes travel as signed integers.
pub const MAX_MESH_SIZE: usize = isize::MAX.unsigned_abs();

/// A device's place in its mesh: `0..size`, counted row-major, the last dimension fastest.
///
/// ```
/// use meshwork_core::MeshRank;
///
/// assert_eq!(MeshRank::new(6).index(), 6);
/// assert_eq!(MeshRank::new(6).to_string(), "rank 6");
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct MeshRank(usize);

impl MeshRank {
    /// The rank with this number; whether a mesh has it is for the mesh to say.
    #[must_use]
    pub const fn new(index: usize) -> Self {
        Self(index)
    }

    /// The number, as an index into a list in rank order.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0
    }
}

impl Display for MeshRank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}", self.0)
    }
}

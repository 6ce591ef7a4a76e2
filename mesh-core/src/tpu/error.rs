use super::{TpuAxis, TpuCore};

/// Why the cores of a TPU slice make no mesh.
///
/// The caller is at fault in every case, and nothing is changed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TpuError {
    /// The mesh itself is refused.
    #[error(transparent)]
    Mesh(#[from] crate::Error),
    /// There is no slice of these sizes.
    #[error(
        "no TPU slice has the sizes {sizes:?}: give chips along x, y and z, and 1 or 2 cores per chip"
    )]
    Topology {
        /// Chips along x, y and z, and cores per chip.
        sizes: [usize; 4],
    },
    /// A direction has another name.
    #[error("{name:?} is no direction in a TPU slice: use x, y, z or core")]
    Axis {
        /// The name.
        name: String,
    },
    /// A direction is missing, and another given twice.
    #[error("the directions {axes:?} leave one out: give each of x, y, z and core once")]
    Axes {
        /// The directions, fastest first.
        axes: [TpuAxis; 4],
    },
    /// A ring is to hold more dimensions than the mesh has.
    #[error(
        "a ring over {found} mesh dimensions is too many for a mesh of {dims}: give {dims} at most"
    )]
    RingDims {
        /// How many dimensions the ring is to hold.
        found: usize,
        /// How many the mesh has.
        dims: usize,
    },
    /// Hosts, tiles and the slice do not fit into each other.
    #[error(
        "tiles of {bounds:?} are not made of hosts of {host:?}, or do not fill a slice of {sizes:?}: use divisors"
    )]
    RingBounds {
        /// The size of a tile.
        bounds: [usize; 4],
        /// The size of what is not divided in it.
        host: [usize; 4],
        /// The size of the slice.
        sizes: [usize; 4],
    },
    /// A ring would have to divide a host.
    #[error(
        "rings of {ring} cores divide hosts of {host}: make rings longer, or allow hosts to be split"
    )]
    RingTooSmall {
        /// How many cores a ring has.
        ring: usize,
        /// How many cores a host has.
        host: usize,
    },
    /// The mesh has another size than the slice.
    #[error("a mesh of {ranks} ranks does not fit a TPU slice of {cores} cores: make them equal")]
    CoreCount {
        /// How many ranks the mesh has.
        ranks: usize,
        /// How many cores the slice has.
        cores: usize,
    },
    /// A local core is not one of the slice.
    #[error("{core} is not in the TPU slice: give cores of the slice")]
    ForeignCore {
        /// The core.
        core: TpuCore,
    },
}

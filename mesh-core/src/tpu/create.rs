//! `create_tpu_mesh`: assigns the cores of a TPU slice to the ranks of a mesh so that groups along
//! chosen dimensions are rings of neighbouring chips.

use std::collections::HashMap;

use super::ring::rings_within;
use super::{RingPlane, TpuAxis, TpuCore, TpuError, TpuTopology, rings_across};
use crate::{DeviceIds, DeviceSpec, Devices, Mesh, MeshBuilder};

/// Which dimensions of a mesh make up a ring.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum RingDims {
    /// This many of the first.
    Leading(usize),
    /// This many of the last.
    Trailing(usize),
}

/// Whether the cores of one host may be on several rings.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum TpuHosts {
    /// They may be.
    MaySplit,
    /// They are all on one.
    Whole,
}

/// How rings follow each other.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum RingAcross {
    /// In the order in which cores are counted.
    Straight,
    /// On a ring of rings.
    Ring(RingPlane),
}

/// Options that assign the ranks of a mesh to the cores of a TPU slice.
///
/// By default a ring holds all dimensions but the first; cores are counted core, x, y, z with the
/// cores of a chip fastest, over the whole slice at once; hosts may be split; rings follow each
/// other straight.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[must_use]
pub struct TpuRings {
    dims: Option<RingDims>,
    axes: [TpuAxis; 4],
    bounds: Option<[usize; 4]>,
    hosts: TpuHosts,
    across: RingAcross,
}

impl TpuRings {
    /// The defaults above.
    pub const fn new() -> Self {
        Self {
            dims: None,
            axes: [TpuAxis::Core, TpuAxis::X, TpuAxis::Y, TpuAxis::Z],
            bounds: None,
            hosts: TpuHosts::MaySplit,
            across: RingAcross::Straight,
        }
    }

    /// The dimensions of the mesh that make up a ring.
    #[doc(alias = "ring_dims")]
    pub const fn dims(mut self, dims: RingDims) -> Self {
        self.dims = Some(dims);
        self
    }

    /// The directions in which cores are counted, the fastest first.
    #[doc(alias = "ring_axes")]
    pub const fn axes(mut self, axes: [TpuAxis; 4]) -> Self {
        self.axes = axes;
        self
    }

    /// The tiles `[x, y, z, core]` of which each is counted to its end before the next.
    #[doc(alias = "ring_bounds")]
    pub const fn bounds(mut self, bounds: [usize; 4]) -> Self {
        self.bounds = Some(bounds);
        self
    }

    /// Whether the cores of one host may be on several rings.
    #[doc(alias = "can_split_host_across_rings")]
    pub const fn hosts(mut self, hosts: TpuHosts) -> Self {
        self.hosts = hosts;
        self
    }

    /// How rings follow each other.
    #[doc(alias = "build_ring_across_rings")]
    #[doc(alias = "rotate_ring_across_rings")]
    pub const fn across(mut self, across: RingAcross) -> Self {
        self.across = across;
        self
    }

    /// The cores as they are counted, before they are put on rings of `ring_size`.
    ///
    /// # Errors
    /// [`TpuError::Axes`], [`TpuError::RingBounds`], and [`TpuError::RingTooSmall`] when hosts stay
    /// whole and a ring is smaller than one.
    pub fn enumerate(
        &self,
        topology: &TpuTopology,
        ring_size: usize,
    ) -> Result<Vec<TpuCore>, TpuError> {
        let axes = self.axes;
        if (1..4).any(|index| axes[..index].contains(&axes[index])) {
            return Err(TpuError::Axes { axes });
        }
        let host = match self.hosts {
            TpuHosts::MaySplit => [1; 4],
            TpuHosts::Whole => topology.host(),
        };
        let cores = host.iter().product();
        if ring_size < cores {
            return Err(TpuError::RingTooSmall {
                ring: ring_size,
                host: cores,
            });
        }
        topology.enumerate(axes, self.bounds.unwrap_or_else(|| topology.sizes()), host)
    }

    /// The cores in the order of the ranks of a mesh of this shape.
    ///
    /// # Errors
    /// [`TpuError::CoreCount`], [`TpuError::RingDims`], and those of
    /// [`enumerate`](Self::enumerate).
    pub fn order(&self, topology: &TpuTopology, shape: &[usize]) -> Result<Vec<TpuCore>, TpuError> {
        let ranks = shape.iter().copied().fold(1, usize::saturating_mul);
        let ring_size = self.ring_size(shape)?;
        if ranks != topology.cores() {
            let cores = topology.cores();
            return Err(TpuError::CoreCount { ranks, cores });
        }
        let cores = self.enumerate(topology, ring_size)?;
        Ok(match self.across {
            RingAcross::Straight => rings_within(&cores, ring_size),
            RingAcross::Ring(plane) => rings_across(&cores, ring_size, plane),
        })
    }

    fn ring_size(&self, shape: &[usize]) -> Result<usize, TpuError> {
        let dims = shape.len();
        let (found, ring) = match self.dims {
            None => (0, shape.get(1..)),
            Some(RingDims::Leading(count)) => (count, shape.get(..count)),
            Some(RingDims::Trailing(count)) => (
                count,
                dims.checked_sub(count).and_then(|start| shape.get(start..)),
            ),
        };
        match ring {
            Some(ring) => Ok(ring.iter().copied().fold(1, usize::saturating_mul)),
            None if self.dims.is_none() => Ok(1),
            None => Err(TpuError::RingDims { found, dims }),
        }
    }
}

impl Default for TpuRings {
    fn default() -> Self {
        Self::new()
    }
}

/// A mesh over a TPU slice, and the core that each rank stands for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TpuMesh {
    mesh: Mesh,
    cores: Vec<TpuCore>,
}

impl TpuMesh {
    /// The mesh.
    #[must_use]
    pub fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// The cores, in rank order.
    #[must_use]
    pub fn cores(&self) -> &[TpuCore] {
        &self.cores
    }
}

/// The mesh of all cores of a TPU slice, seen from the process on `host` whose cores are `local`.
///
/// `mesh` brings dimensions and name; ranks, ids and devices are decided here. Local devices are
/// numbered as `local` has them, so their ids need not ascend.
///
/// ```
/// use meshwork_core::tpu::{TpuCore, TpuRings, TpuTopology, create_tpu_mesh};
/// use meshwork_core::{DeviceSpec, Mesh};
///
/// let slice = TpuTopology::new([2, 2, 1, 1])?;
/// let host = DeviceSpec::parse("/job:localhost/replica:0/task:0")?;
/// let local = [[0, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], [1, 1, 0, 0]].map(TpuCore::new);
/// let mesh = Mesh::builder([("batch", 1), ("model", 4)]);
/// let made = create_tpu_mesh(mesh, &slice, &TpuRings::new(), &host, &local)?;
/// // On the ring, the last chip comes third.
/// assert!(made.mesh().local_device_ids().iter().eq([0, 1, 3, 2]));
/// # Ok::<(), meshwork_core::tpu::TpuError>(())
/// ```
///
/// # Errors
/// Those of [`TpuRings::order`], [`TpuError::ForeignCore`], and those of
/// [`MeshBuilder::build`].
pub fn create_tpu_mesh(
    mesh: MeshBuilder,
    slice: &TpuTopology,
    rings: &TpuRings,
    host: &DeviceSpec,
    local: &[TpuCore],
) -> Result<TpuMesh, TpuError> {
    let cores = rings.order(slice, &mesh.shape())?;
    let ranks: HashMap<TpuCore, i64> = cores.iter().copied().zip(0..).collect();
    let rank = |&core: &TpuCore| {
        ranks
            .get(&core)
            .copied()
            .ok_or(TpuError::ForeignCore { core })
    };
    let ids = local.iter().map(rank).collect::<Result<Vec<i64>, _>>()?;
    let first = host.clone().with_device("TPU", Some(0))?;
    let devices = Devices::counted(&first.to_string(), local.len())?;
    let mesh = mesh.local(DeviceIds::new(ids)?, devices).build()?;
    Ok(TpuMesh { mesh, cores })
}

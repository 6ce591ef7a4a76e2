use std::num::NonZeroU32;

use meshwork_collectives::Rank;

/// Why workers cannot keep the parts of a model in groups, or parts of its parameters, or train it
/// with such a [`Sharding`](crate::sharded::Sharding).
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ShardGroupError {
    /// Workers are left over.
    #[error(
        "{workers} workers cannot keep models in groups of {size}: choose a number that divides {workers}"
    )]
    NotDivided {
        /// Workers of a group.
        size: NonZeroU32,
        /// Workers that are there.
        workers: u32,
    },
    /// Hosts have different numbers of workers.
    #[error(
        "the host of {rank} has {others} workers and that of rank 0 has {workers}, so models cannot be kept host by host: start as many on each, or choose a number of workers"
    )]
    HostsDiffer {
        /// Workers on the first host.
        workers: usize,
        /// The first rank of a host that has another number.
        rank: Rank,
        /// Its workers.
        others: usize,
    },
    /// A mesh is one of another number of workers.
    #[error(
        "a mesh of {size} cannot be one of {workers} workers: give a mesh of {workers}, or start {size}"
    )]
    MeshDiffers {
        /// Places in the mesh.
        size: usize,
        /// Workers that are there.
        workers: u32,
    },
    /// Workers that compute one replica together were to be split once more.
    #[error(
        "the workers are split already: split all of them once, along the dimension for tensor parallelism"
    )]
    SplitTwice,
    /// A parameter cannot be cut so.
    #[error(
        "unit {unit} has no parameter {parameter} with an axis {axis} to cut: axes are counted from 0"
    )]
    NotCut {
        /// The unit.
        unit: String,
        /// The name that was given.
        parameter: String,
        /// The axis that was given.
        axis: usize,
    },
    /// Gradients cannot have such a norm.
    #[error("gradients cannot be limited to a norm of {norm}: give with_max_norm a number above 0")]
    MaxNorm {
        /// The norm that was given.
        norm: f32,
    },
}

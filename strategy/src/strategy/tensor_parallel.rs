//! Workers of which several compute one replica: those along a dimension of a mesh, for tensor
//! parallelism.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use meshwork_collectives::{Element, Group, Rank};
use meshwork_core::Mesh;

use super::MultiWorkerMirroredStrategy;
use super::devices::mesh_of;
use crate::Error;
use crate::error::ShardGroupError;

/// The workers that compute a replica with this one.
#[derive(Clone, Debug)]
pub(crate) struct TensorDimension {
    /// This worker's place among them.
    pub(crate) place: usize,
    pub(crate) workers: usize,
    /// The rank of the first among all, and the distance from one to the next.
    first: usize,
    stride: usize,
    group: Arc<Mutex<Group>>,
}

impl TensorDimension {
    /// The words of each of them, in their order.
    #[track_caller]
    pub(crate) fn all_gather<T: Element>(&self, own: &[T]) -> Result<Vec<T>, Error> {
        let mut all = own.repeat(self.workers);
        self.group().all_gather(own, &mut all)?;
        Ok(all)
    }

    pub(crate) fn group(&self) -> MutexGuard<'_, Group> {
        // A group that was used when something panicked is over, and says so.
        self.group.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The rank among all of the worker in this place.
    pub(crate) fn rank_of(&self, place: usize) -> Rank {
        let rank = self.first + place * self.stride;
        Rank::new(u32::try_from(rank).expect("ranks are numbered by u32"))
    }
}

/// What a strategy keeps whose workers were split.
#[derive(Debug)]
pub(super) struct Split {
    /// All workers.
    pub(super) joined: Group,
    dimension: TensorDimension,
}

impl MultiWorkerMirroredStrategy {
    /// Lets the workers along a dimension of a mesh compute one replica together, each with a part
    /// of its tensors. What this strategy distributes, reduces and shards goes from then on among
    /// workers with the same place along it, in the order of their ranks; the group that is
    /// returned is of those along it, for sums of activations, or for a context of `dtensor`. The
    /// mesh is one of all workers, as `dtensor` has them.
    ///
    /// Sharded models cut parameters over it ([`UnitSpec::with_cut`]). A worker that is lost ends
    /// the training on all.
    ///
    /// ```
    /// use meshwork_collectives::{Group, ReduceOp};
    /// use meshwork_core::Mesh;
    /// use meshwork_strategy::{Error, MultiWorkerMirroredStrategy};
    ///
    /// let mesh = Mesh::new([("shard", 2), ("tensor", 2)])?;
    /// std::thread::scope(|threads| {
    ///     for group in Group::local(4)? {
    ///         let mesh = &mesh;
    ///         threads.spawn(move || {
    ///             let rank = group.rank().number();
    ///             let strategy = MultiWorkerMirroredStrategy::from_group(group)?;
    ///             let (strategy, mut tensor) = strategy.split_along(mesh, "tensor")?;
    ///             assert_eq!(strategy.rank().number(), rank / 2);
    ///             assert_eq!(strategy.num_replicas_in_sync(), 2);
    ///             let mut sum = [rank];
    ///             tensor.all_reduce(&mut sum, ReduceOp::Sum)?;
    ///             assert_eq!(sum, [if rank < 2 { 0 + 1 } else { 2 + 3 }]);
    ///             strategy.leave()
    ///         });
    ///     }
    ///     Ok::<(), Error>(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Mesh`] where the mesh has no such dimension; [`Error::ShardGroup`] where it is not
    /// one of as many workers as there are, or they were split before; [`Error::SeveralReplicas`]
    /// where a worker has more than one; [`Error::Group`].
    ///
    /// [`UnitSpec::with_cut`]: crate::sharded::UnitSpec::with_cut
    #[track_caller]
    #[doc(alias("device_mesh", "tensor parallelism", "parallelize_module"))]
    pub fn split_along(mut self, mesh: &Mesh, dimension: &str) -> Result<(Self, Group), Error> {
        let dimension = self.check_mesh(mesh, dimension);
        let dimension = self.abort_on_error(dimension)?;
        let (stride, workers) = (mesh.strides()[dimension], mesh.dims()[dimension].size());
        let rank = self.group.rank().index();
        let place = rank / stride % workers;
        let first = rank - place * stride;
        let replicas = self.part_of(place)?;
        let along = self.part_of(first)?;
        let group = Arc::new(Mutex::new(self.part_of(first)?));
        let joined = mem::replace(&mut self.group, replicas);
        self.mesh = mesh_of(self.group.world(), 1)?;
        self.group.set_communication(self.options.implementation());
        self.elastic = None;
        self.split = Some(Split {
            joined,
            dimension: TensorDimension {
                place,
                workers,
                first,
                stride,
                group,
            },
        });
        Ok((self, along))
    }

    /// The number of the dimension, if the workers are those of the mesh.
    fn check_mesh(&self, mesh: &Mesh, dimension: &str) -> Result<usize, Error> {
        let (size, workers) = (mesh.size(), self.group.world());
        if self.split.is_some() {
            return Err(ShardGroupError::SplitTwice.into());
        }
        if self.local_replicas > 1 {
            let replicas = self.local_replicas;
            return Err(Error::SeveralReplicas { replicas });
        }
        if size != workers as usize {
            return Err(ShardGroupError::MeshDiffers { size, workers }.into());
        }
        Ok(mesh.dim_index(dimension)?)
    }

    fn part_of(&mut self, color: usize) -> Result<Group, Error> {
        let color = u32::try_from(color).expect("there are fewer than ranks");
        let part = self.group.split(Some(color), 0)?;
        Ok(part.expect("every rank has given a colour"))
    }

    /// Whether several workers compute one replica.
    pub(crate) fn is_split(&self) -> bool {
        self.split.is_some()
    }

    /// The dimension along which workers compute one replica, if they do.
    pub(crate) fn tensor_dimension(&self) -> Option<TensorDimension> {
        Some(self.split.as_ref()?.dimension.clone())
    }
}

//! What a mesh says about ids and devices.

use super::Mesh;
use crate::{DeviceIds, DeviceSpec, Devices, Error, MeshRank};

impl Mesh {
    /// The device ids, in rank order.
    #[must_use]
    pub fn global_device_ids(&self) -> &DeviceIds {
        &self.0.ids
    }

    /// The smallest device id.
    #[must_use]
    pub fn min_global_device_id(&self) -> i64 {
        self.0
            .ids
            .min()
            .expect("a mesh has one rank at least, and an id for each")
    }

    /// The device id of a rank; inverse of [`rank_of_device_id`](Self::rank_of_device_id).
    ///
    /// # Errors
    /// [`Error::RankOutside`].
    pub fn device_id(&self, rank: MeshRank) -> Result<i64, Error> {
        let size = self.size();
        let id = self.0.ids.get(rank.index());
        id.ok_or(Error::RankOutside { rank, size })
    }

    /// The rank that has this device id; inverse of [`device_id`](Self::device_id).
    #[must_use]
    pub fn rank_of_device_id(&self, id: i64) -> Option<MeshRank> {
        self.0.ids.position(id).map(MeshRank::new)
    }

    /// The ids of this process's devices.
    #[must_use]
    pub fn local_device_ids(&self) -> &DeviceIds {
        &self.0.local_ids
    }

    /// This process's devices, in the order of [`local_device_ids`](Self::local_device_ids).
    #[must_use]
    pub fn local_devices(&self) -> &Devices {
        &self.0.local_devices
    }

    /// How many devices this process has.
    #[must_use]
    pub fn num_local_devices(&self) -> usize {
        self.0.local_devices.len()
    }

    /// The devices of all ranks, in rank order; empty if they are not known.
    #[must_use]
    pub fn global_devices(&self) -> &Devices {
        &self.0.global_devices
    }

    /// The ranks of this process, in the order of [`local_device_ids`](Self::local_device_ids).
    ///
    /// Their [`named_coords`](Self::named_coords) are what TensorFlow calls
    /// `local_device_locations`; there it fails for ids that do not start at 0.
    #[doc(alias = "local_device_locations")]
    pub fn local_ranks(&self) -> impl Iterator<Item = MeshRank> + '_ {
        let ids = self.0.local_ids.iter();
        ids.filter_map(|id| self.rank_of_device_id(id))
    }

    /// The device of a rank, if the mesh knows it: the global one, or else the local one.
    ///
    /// # Errors
    /// [`Error::RankOutside`].
    pub fn device(&self, rank: MeshRank) -> Result<Option<DeviceSpec>, Error> {
        let id = self.device_id(rank)?;
        let local = || self.0.local_devices.get(self.0.local_ids.position(id)?);
        Ok(self.0.global_devices.get(rank.index()).or_else(local))
    }

    /// The type of all devices, such as `GPU`, if the mesh has any.
    #[must_use]
    pub fn device_type(&self) -> Option<&str> {
        let global = self.0.global_devices.device_type();
        global.or_else(|| self.0.local_devices.device_type())
    }

    /// Whether no rank belongs to this process.
    #[must_use]
    pub fn is_remote(&self) -> bool {
        self.0.local_ids.is_empty()
    }

    /// Whether the XLA compiler partitions the programs of this mesh.
    #[must_use]
    pub fn use_xla_spmd(&self) -> bool {
        self.0.xla_spmd
    }
}

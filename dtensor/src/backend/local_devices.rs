use std::sync::Arc;

use meshwork_accel::DeviceId;

use super::{Backend, DeviceBlock};

/// The blocks of all of this client's places, each on its device.
pub(crate) type DeviceBlocks = Vec<Arc<DeviceBlock>>;

/// The devices of all of this client's places on a mesh.
pub(crate) struct LocalDevices {
    pub(crate) backend: Backend,
    pub(crate) devices: Vec<DeviceId>,
}

impl LocalDevices {
    /// Whether blocks are of its backend. One mesh has one device for each place.
    pub(crate) fn has(&self, blocks: &DeviceBlocks) -> bool {
        blocks.iter().all(|block| block.is_of(&self.backend))
    }
}

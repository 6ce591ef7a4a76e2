use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use meshwork_accel::{DeviceBuffer, DeviceId, ElementType};

use crate::Buffer;
use crate::stablehlo::Vector;

/// Elements on one device of a [`PjrtAccelerator`](super::PjrtAccelerator); freed when dropped.
#[derive(Debug)]
pub struct PjrtBuffer {
    device: DeviceId,
    vector: Vector,
    /// Nothing where there are no elements, which not every plugin takes.
    memory: Option<Arc<Buffer>>,
    live: Arc<AtomicUsize>,
}

impl PjrtBuffer {
    pub(super) fn new(device: DeviceId, vector: Vector, live: &Arc<AtomicUsize>) -> Self {
        live.fetch_add(1, Ordering::Relaxed);
        Self {
            device,
            vector,
            memory: None,
            live: Arc::clone(live),
        }
    }

    pub(super) fn vector(&self) -> Vector {
        self.vector
    }

    pub(super) fn memory(&self) -> Option<&Arc<Buffer>> {
        self.memory.as_ref()
    }

    pub(super) fn set(&mut self, memory: Arc<Buffer>) {
        self.memory = Some(memory);
    }

    /// The places of arguments whose memory a program must leave: this one's, as the first, while
    /// another buffer shares it.
    pub(super) fn kept(&self) -> &'static [usize] {
        match &self.memory {
            Some(memory) if Arc::strong_count(memory) > 1 => &[0],
            _ => &[],
        }
    }
}

impl DeviceBuffer for PjrtBuffer {
    fn device(&self) -> DeviceId {
        self.device
    }

    fn element_type(&self) -> ElementType {
        self.vector.element
    }

    fn len(&self) -> usize {
        self.vector.len
    }
}

impl Drop for PjrtBuffer {
    fn drop(&mut self) {
        self.live.fetch_sub(1, Ordering::Relaxed);
    }
}

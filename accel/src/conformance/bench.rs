//! One device, and how to put values on it and take them off.

use super::values::same;
use super::violation::{Found, equal};
use crate::{Accelerator, DeviceBuffer, DeviceId, Element};

#[derive(Debug)]
pub(super) struct Bench<'a, A> {
    pub(super) accelerator: &'a A,
    pub(super) device: DeviceId,
}

impl<A> Clone for Bench<'_, A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A> Copy for Bench<'_, A> {}

impl<'a, A: Accelerator> Bench<'a, A> {
    pub(super) fn new(accelerator: &'a A, device: DeviceId) -> Self {
        Self {
            accelerator,
            device,
        }
    }

    /// The other devices of the same backend.
    pub(super) fn others(self) -> impl Iterator<Item = Self> {
        let ids = self.accelerator.devices().iter().map(|device| device.id());
        ids.filter(move |id| *id != self.device)
            .map(move |id| Self::new(self.accelerator, id))
    }

    /// A new buffer, of which all that can be asked is as it should be.
    pub(super) fn empty<T: Element>(self, len: usize) -> Result<A::Buffer, Found> {
        let buffer = self.accelerator.allocate(self.device, T::TYPE, len)?;
        equal("its device", buffer.device(), self.device)?;
        equal("its element type", buffer.element_type(), T::TYPE)?;
        equal("its length", buffer.len(), len)?;
        equal("its emptiness", buffer.is_empty(), len == 0)?;
        Ok(buffer)
    }

    pub(super) fn with<T: Element>(self, values: &[T]) -> Result<A::Buffer, Found> {
        let mut buffer = self.empty::<T>(values.len())?;
        self.accelerator.upload(values, &mut buffer, 0)?;
        Ok(buffer)
    }

    pub(super) fn read<T: Element>(self, buffer: &A::Buffer) -> Result<Vec<T>, Found> {
        let mut values = vec![T::default(); buffer.len()];
        self.accelerator.download(buffer, 0, &mut values)?;
        Ok(values)
    }

    pub(super) fn holds<T: Element>(self, buffer: &A::Buffer, expected: &[T]) -> Result<(), Found> {
        same(&self.read::<T>(buffer)?, expected)
    }

    /// A description of the current case, for messages.
    pub(super) fn case<T: Element>(self, len: usize) -> String {
        format!("device {}, {len} elements of {}", self.device, T::TYPE)
    }
}

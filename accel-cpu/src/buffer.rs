use std::ops::Range;

use meshwork_accel::{DeviceBuffer, DeviceId, Element, ElementType, Error, MemoryReservation};

/// Host memory that belongs to one logical CPU device.
#[derive(Debug)]
pub struct CpuBuffer {
    device: DeviceId,
    element: ElementType,
    len: usize,
    /// Whole words, so that every element type is aligned.
    memory: Vec<u64>,
    _reservation: MemoryReservation,
}

impl CpuBuffer {
    /// Elements in `memory`, which holds all of them, as values of their type.
    pub(crate) fn new(
        device: DeviceId,
        element: ElementType,
        len: usize,
        memory: Vec<u64>,
        reservation: MemoryReservation,
    ) -> Self {
        Self {
            device,
            element,
            len,
            memory,
            _reservation: reservation,
        }
    }

    pub(crate) fn bytes(&self, start: usize, len: usize) -> Result<&[u8], Error> {
        let span = self.span(start, len)?;
        Ok(&bytemuck::cast_slice::<u64, u8>(&self.memory)[span])
    }

    pub(crate) fn bytes_mut(&mut self, start: usize, len: usize) -> Result<&mut [u8], Error> {
        let span = self.span(start, len)?;
        Ok(&mut bytemuck::cast_slice_mut::<u64, u8>(&mut self.memory)[span])
    }

    /// Elements are only ever written as what they are, so the check of their bytes cannot fail.
    pub(crate) fn part<T: Element>(&self, start: usize, len: usize) -> Result<&[T], Error> {
        self.check_element(T::TYPE)?;
        Ok(bytemuck::checked::cast_slice(self.bytes(start, len)?))
    }

    pub(crate) fn part_mut<T: Element>(
        &mut self,
        start: usize,
        len: usize,
    ) -> Result<&mut [T], Error> {
        self.check_element(T::TYPE)?;
        Ok(bytemuck::checked::cast_slice_mut(
            self.bytes_mut(start, len)?,
        ))
    }

    pub(crate) fn all<T: Element>(&self) -> Result<&[T], Error> {
        self.part(0, self.len)
    }

    pub(crate) fn all_mut<T: Element>(&mut self) -> Result<&mut [T], Error> {
        self.part_mut(0, self.len)
    }

    /// Byte range of `len` elements from `start`; cannot overflow, as the whole was checked.
    fn span(&self, start: usize, len: usize) -> Result<Range<usize>, Error> {
        self.check_part(start, len)?;
        let size = self.element.size();
        Ok(start * size..(start + len) * size)
    }
}

impl DeviceBuffer for CpuBuffer {
    fn device(&self) -> DeviceId {
        self.device
    }

    fn element_type(&self) -> ElementType {
        self.element
    }

    fn len(&self) -> usize {
        self.len
    }
}

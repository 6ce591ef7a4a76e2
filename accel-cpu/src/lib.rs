//! The CPU as an accelerator: host memory behind [`Accelerator`].
//!
//! This crate does not know other backends and any network. One process can have several logical
//! CPU devices, so that programs for many devices run and are tested on one machine:
//!
//! ```text
//!   process ── CpuAccelerator ─┬─ device 0   (same memory, same cores)
//!                              └─ device 1
//! ```
//!
//! ```
//! use meshwork_accel::{Accelerator, DeviceId, ElementType, ReduceOp};
//! use meshwork_accel_cpu::CpuAccelerator;
//!
//! let cpu = CpuAccelerator::new();
//! let mut total = cpu.allocate(DeviceId::new(0), ElementType::F32, 2)?;
//! let mut part = cpu.allocate(DeviceId::new(0), ElementType::F32, 2)?;
//! cpu.upload(&[1.5_f32, 2.0], &mut part, 0)?;
//! cpu.reduce(ReduceOp::Sum, &mut total, &part)?;
//! let mut host = [0.0_f32; 2];
//! cpu.download(&total, 0, &mut host)?;
//! assert_eq!(host, [1.5, 2.0]);
//! # Ok::<(), meshwork_accel::Error>(())
//! ```
//!
//! Map of the crate: this file is all of it.
#![forbid(unsafe_code)]

use std::num::NonZeroUsize;
use std::ops::Range;

use meshwork_accel::{
    Accelerator, Device, DeviceBuffer, DeviceId, Element, ElementType, Error, ReduceOp, bf16, f16,
    reduce_slice,
};

/// The CPU backend; see the crate's documentation for an example.
#[derive(Debug)]
pub struct CpuAccelerator {
    devices: Vec<Device>,
}

impl CpuAccelerator {
    /// One device: the whole CPU.
    #[must_use]
    pub fn new() -> Self {
        Self::with_logical_devices(NonZeroUsize::MIN)
    }

    /// `count` logical devices, which share the cores and the memory.
    #[must_use]
    pub fn with_logical_devices(count: NonZeroUsize) -> Self {
        Self {
            devices: (0..count.get())
                .map(|index| Device::new(DeviceId::new(index), "CPU"))
                .collect(),
        }
    }

    fn known(&self, device: DeviceId) -> Result<(), Error> {
        if device.index() < self.devices.len() {
            return Ok(());
        }
        Err(Error::UnknownDevice {
            device,
            available: self.devices.len(),
        })
    }
}

impl Default for CpuAccelerator {
    fn default() -> Self {
        Self::new()
    }
}

impl Accelerator for CpuAccelerator {
    type Buffer = CpuBuffer;

    fn devices(&self) -> &[Device] {
        &self.devices
    }

    fn allocate(
        &self,
        device: DeviceId,
        element: ElementType,
        len: usize,
    ) -> Result<CpuBuffer, Error> {
        self.known(device)?;
        let refused = || Error::OutOfMemory {
            device,
            element,
            len,
        };
        let words = len
            .checked_mul(element.size())
            .ok_or_else(refused)?
            .div_ceil(size_of::<u64>());
        let mut memory = Vec::new();
        memory.try_reserve_exact(words).map_err(|_| refused())?;
        memory.resize(words, 0);
        Ok(CpuBuffer {
            device,
            element,
            len,
            memory,
        })
    }

    fn upload<T: Element>(&self, from: &[T], to: &mut CpuBuffer, at: usize) -> Result<(), Error> {
        to.part_mut(at, from.len())?.copy_from_slice(from);
        Ok(())
    }

    fn download<T: Element>(&self, from: &CpuBuffer, at: usize, to: &mut [T]) -> Result<(), Error> {
        to.copy_from_slice(from.part(at, to.len())?);
        Ok(())
    }

    fn copy(
        &self,
        from: &CpuBuffer,
        range: Range<usize>,
        to: &mut CpuBuffer,
        at: usize,
    ) -> Result<(), Error> {
        to.holds(from.element)?;
        let source = from.bytes(range.start, range.len())?;
        let target = to.bytes_mut(at, range.len())?;
        target.copy_from_slice(source);
        Ok(())
    }

    fn fill<T: Element>(
        &self,
        buffer: &mut CpuBuffer,
        range: Range<usize>,
        value: T,
    ) -> Result<(), Error> {
        buffer.part_mut(range.start, range.len())?.fill(value);
        Ok(())
    }

    fn reduce(&self, op: ReduceOp, into: &mut CpuBuffer, from: &CpuBuffer) -> Result<(), Error> {
        if into.device != from.device {
            return Err(Error::DeviceMismatch {
                left: into.device,
                right: from.device,
            });
        }
        match into.element {
            ElementType::Bool => reduce::<bool>(op, into, from),
            ElementType::I8 => reduce::<i8>(op, into, from),
            ElementType::I16 => reduce::<i16>(op, into, from),
            ElementType::I32 => reduce::<i32>(op, into, from),
            ElementType::I64 => reduce::<i64>(op, into, from),
            ElementType::U8 => reduce::<u8>(op, into, from),
            ElementType::U16 => reduce::<u16>(op, into, from),
            ElementType::U32 => reduce::<u32>(op, into, from),
            ElementType::U64 => reduce::<u64>(op, into, from),
            ElementType::F16 => reduce::<f16>(op, into, from),
            ElementType::Bf16 => reduce::<bf16>(op, into, from),
            ElementType::F32 => reduce::<f32>(op, into, from),
            ElementType::F64 => reduce::<f64>(op, into, from),
            element => Err(Error::UnsupportedElement { element }),
        }
    }

    fn synchronize(&self, device: DeviceId) -> Result<(), Error> {
        self.known(device)
    }
}

fn reduce<T: Element>(op: ReduceOp, into: &mut CpuBuffer, from: &CpuBuffer) -> Result<(), Error> {
    into.holds(from.element)?;
    let (left, right) = (into.len, from.len);
    reduce_slice(op, into.part_mut::<T>(0, left)?, from.part::<T>(0, right)?)
}

/// Host memory that belongs to one logical CPU device.
#[derive(Debug)]
pub struct CpuBuffer {
    device: DeviceId,
    element: ElementType,
    len: usize,
    /// Whole words, so that every element type is aligned.
    memory: Vec<u64>,
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

impl CpuBuffer {
    fn holds(&self, other: ElementType) -> Result<(), Error> {
        if self.element == other {
            return Ok(());
        }
        Err(Error::ElementMismatch {
            buffer: self.element,
            other,
        })
    }

    /// Byte range of `len` elements from `start`; cannot overflow, as `allocate` checked the whole.
    fn span(&self, start: usize, len: usize) -> Result<Range<usize>, Error> {
        match start.checked_add(len) {
            Some(end) if end <= self.len => {
                Ok(start * self.element.size()..end * self.element.size())
            }
            _ => Err(Error::OutOfRange {
                start,
                len,
                available: self.len,
            }),
        }
    }

    fn bytes(&self, start: usize, len: usize) -> Result<&[u8], Error> {
        let span = self.span(start, len)?;
        Ok(&bytemuck::cast_slice::<u64, u8>(&self.memory)[span])
    }

    fn bytes_mut(&mut self, start: usize, len: usize) -> Result<&mut [u8], Error> {
        let span = self.span(start, len)?;
        Ok(&mut bytemuck::cast_slice_mut::<u64, u8>(&mut self.memory)[span])
    }

    /// Elements are only ever written as what they are, so the check of their bytes cannot fail.
    fn part<T: Element>(&self, start: usize, len: usize) -> Result<&[T], Error> {
        self.holds(T::TYPE)?;
        Ok(bytemuck::checked::cast_slice(self.bytes(start, len)?))
    }

    fn part_mut<T: Element>(&mut self, start: usize, len: usize) -> Result<&mut [T], Error> {
        self.holds(T::TYPE)?;
        Ok(bytemuck::checked::cast_slice_mut(
            self.bytes_mut(start, len)?,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_device_conforms() {
        meshwork_accel::conformance::check(&CpuAccelerator::new());
    }

    #[test]
    fn three_logical_devices_conform() {
        let three = NonZeroUsize::new(3).unwrap();
        meshwork_accel::conformance::check(&CpuAccelerator::with_logical_devices(three));
    }

    #[test]
    fn devices_cannot_be_mixed_in_one_reduction() {
        let cpu = CpuAccelerator::with_logical_devices(NonZeroUsize::new(2).unwrap());
        let mut left = cpu.allocate(DeviceId::new(0), ElementType::F32, 1).unwrap();
        let right = cpu.allocate(DeviceId::new(1), ElementType::F32, 1).unwrap();
        let mixed = Error::DeviceMismatch {
            left: DeviceId::new(0),
            right: DeviceId::new(1),
        };
        assert_eq!(cpu.reduce(ReduceOp::Sum, &mut left, &right), Err(mixed));
    }
}

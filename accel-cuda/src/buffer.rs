//! `CudaBuffer`: device memory with its element type, counted against its device's memory limit. An
//! empty buffer has no memory, as the driver does not allocate 0 bytes. Copies are made by
//! `accelerator`; page-locked host memory is in `pinned_buffer`.

use std::sync::Arc;

use meshwork_accel::{DeviceBuffer, DeviceId, ElementType, Error, MemoryReservation};

use crate::device::LogicalDevice;
use crate::sys::external::ExternalMemory;
use crate::sys::memory::{Memory, Part};

/// Memory of a GPU that belongs to one logical device; given back when dropped, after all work on
/// it. That of another library is [borrowed](crate::CudaAccelerator::borrow).
#[derive(Debug)]
pub struct CudaBuffer {
    element: ElementType,
    len: usize,
    /// `None` for nothing: the driver does not allocate that. Shared with a communicator that may
    /// still work on it.
    memory: Option<Arc<Memory>>,
    logical: Arc<LogicalDevice>,
    /// Counts the buffers of the device, from 1.
    number: u64,
    /// `None` for what is borrowed.
    _reservation: Option<MemoryReservation>,
}

impl DeviceBuffer for CudaBuffer {
    fn device(&self) -> DeviceId {
        self.logical.id
    }

    fn element_type(&self) -> ElementType {
        self.element
    }

    fn len(&self) -> usize {
        self.len
    }
}

impl CudaBuffer {
    /// Allocates `len` elements, all zero.
    pub(crate) fn allocate(
        logical: &Arc<LogicalDevice>,
        element: ElementType,
        len: usize,
    ) -> Result<Self, Error> {
        let buffer = Self::unwritten(logical, element, len)?;
        if let Some(memory) = buffer.memory() {
            let zeroed = memory.whole().zero();
            zeroed.map_err(|failure| failure.on(logical.id))?;
        }
        Ok(buffer.written())
    }

    /// Allocates `len` elements, uninitialized until all of them are [written](Self::written).
    pub(crate) fn unwritten(
        logical: &Arc<LogicalDevice>,
        element: ElementType,
        len: usize,
    ) -> Result<Self, Error> {
        let refused = || logical.out_of_memory(element, len);
        let bytes = len.checked_mul(element.size()).ok_or_else(refused)?;
        let reservation = logical
            .memory_budget
            .reserve(bytes as u64)
            .ok_or_else(refused)?;
        let memory = match bytes {
            0 => None,
            _ => {
                let memory = Memory::allocate(logical.stream.clone(), bytes);
                let memory = memory.map_err(|failure| failure.on(logical.id))?;
                Some(Arc::new(memory.ok_or_else(refused)?))
            }
        };
        Ok(Self {
            element,
            len,
            memory,
            logical: logical.clone(),
            number: logical.next_buffer(),
            _reservation: Some(reservation),
        })
    }

    /// The buffer, when all that writes its first elements is in the stream: who has caught up with
    /// its number from now on has caught up with them.
    pub(crate) fn written(mut self) -> Self {
        self.number = self.logical.next_buffer();
        self
    }

    /// The memory of another library, which is not counted against the limit.
    pub(crate) fn borrowed(
        logical: &Arc<LogicalDevice>,
        external: ExternalMemory,
    ) -> Result<Self, crate::Error> {
        let (element, len) = (external.element, external.len);
        let refused = || logical.out_of_memory(element, len);
        let bytes = len.checked_mul(element.size()).ok_or_else(refused)?;
        let memory = match bytes {
            0 => None,
            _ => {
                external.check(logical.stream.gpu(), bytes as u64)?;
                let memory = Memory::borrow(logical.stream.clone(), external, bytes)?;
                Some(Arc::new(memory))
            }
        };
        Ok(Self {
            element,
            len,
            memory,
            logical: logical.clone(),
            number: logical.next_buffer(),
            _reservation: None,
        })
    }

    /// The device that it belongs to.
    pub(crate) fn logical(&self) -> &Arc<LogicalDevice> {
        &self.logical
    }

    /// Which of the device's buffers it is, in the order in which they were made.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Its memory, `None` if it holds nothing.
    pub(crate) fn memory(&self) -> Option<&Memory> {
        self.memory.as_deref()
    }

    /// The same, for who may need it longer than the buffer is there.
    pub(crate) fn shared_memory(&self) -> Option<Arc<Memory>> {
        self.memory.clone()
    }

    /// All bytes, `None` if there are none.
    pub(crate) fn whole(&self) -> Option<Part<'_>> {
        self.memory().map(Memory::whole)
    }

    /// The bytes that its address is a multiple of, see [`Memory::alignment`].
    pub(crate) fn alignment(&self) -> usize {
        self.memory().map_or(1, Memory::alignment)
    }

    /// Refuses another buffer that is on another device, or has elements of another type.
    pub(crate) fn check_alike(&self, other: &Self) -> Result<(), Error> {
        self.check_beside(other)?;
        self.check_element(other.element_type())
    }

    /// Refuses another buffer that is on another device.
    pub(crate) fn check_beside(&self, other: &Self) -> Result<(), Error> {
        let (left, right) = (self.device(), other.device());
        let gpu = self.logical.stream.gpu();
        // Numbers may agree where backends do not.
        if left != right || !gpu.is(other.logical.stream.gpu()) {
            return Err(Error::DeviceMismatch { left, right });
        }
        Ok(())
    }

    /// The given number of bytes from byte `start` on, `None` if they are out of range.
    pub(crate) fn bytes(&self, start: usize, bytes: usize) -> Option<Part<'_>> {
        self.memory()?.part(start, bytes)
    }

    /// The bytes of `len` elements from `start` on, `None` if that is empty or out of range.
    pub(crate) fn part(&self, start: usize, len: usize) -> Option<Part<'_>> {
        let memory = self.memory().filter(|_| len > 0)?;
        let size = self.element.size();
        let part = memory.part(start * size, len * size);
        Some(part.expect("a part that the caller has checked"))
    }
}

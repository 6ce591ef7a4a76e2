use std::sync::Arc;

use meshwork_accel::{Booking, DeviceBuffer, DeviceId, ElementType, Error};

use crate::device::Logical;
use crate::sys::memory::{Memory, Part};

/// Memory of a GPU that belongs to one logical device; given back when dropped, after all work on it.
#[derive(Debug)]
pub struct CudaBuffer {
    element: ElementType,
    len: usize,
    /// `None` for nothing: the driver does not allocate that.
    memory: Option<Memory>,
    logical: Arc<Logical>,
    _booking: Booking,
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
    /// So many elements, all zero.
    pub(crate) fn allocate(
        logical: &Arc<Logical>,
        element: ElementType,
        len: usize,
    ) -> Result<Self, Error> {
        let refused = || logical.out_of_memory(element, len);
        let bytes = len.checked_mul(element.size()).ok_or_else(refused)?;
        let booking = logical.account.book(bytes as u64).ok_or_else(refused)?;
        let failed = |failure: crate::error::Failure| failure.on(logical.id);
        let memory = match bytes {
            0 => None,
            _ => {
                let memory = Memory::allocate(logical.stream.clone(), bytes).map_err(failed)?;
                let memory = memory.ok_or_else(refused)?;
                memory.whole().zero().map_err(failed)?;
                Some(memory)
            }
        };
        Ok(Self {
            element,
            len,
            memory,
            logical: logical.clone(),
            _booking: booking,
        })
    }

    /// The device that it belongs to.
    pub(crate) fn logical(&self) -> &Arc<Logical> {
        &self.logical
    }

    /// Its memory, `None` if it holds nothing.
    pub(crate) fn memory(&self) -> Option<&Memory> {
        self.memory.as_ref()
    }

    /// The bytes of `len` elements from `start` on, `None` if there are none, or none there.
    pub(crate) fn part(&self, start: usize, len: usize) -> Option<Part<'_>> {
        let size = self.element.size();
        let (start, bytes) = (start.checked_mul(size)?, len.checked_mul(size)?);
        let part = self.memory.as_ref()?.part(start, bytes)?;
        Some(part).filter(|_| bytes > 0)
    }
}

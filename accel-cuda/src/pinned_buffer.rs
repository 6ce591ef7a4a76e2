//! Pinned memory of the program, with a stream for what comes from the GPU and one for what goes to
//! it.

use std::ops::Range;
use std::sync::Arc;

use meshwork_accel::{DeviceBuffer, Error, HostMemory, NotPinned, PinnedBuffer, extent};

use crate::buffer::CudaBuffer;
use crate::device::{LogicalDevice, TransferStreams};
use crate::error::Failure;
use crate::sys::pinned::Pinned;

/// Pinned memory of one device.
pub(crate) struct CudaPinnedBuffer {
    pinned: Pinned,
    transfer_streams: TransferStreams,
    logical: Arc<LogicalDevice>,
}

impl CudaPinnedBuffer {
    /// Pins memory, or gives it back.
    pub(crate) fn new(
        logical: &Arc<LogicalDevice>,
        memory: Box<dyn HostMemory>,
    ) -> Result<Self, NotPinned> {
        let reason = |failure: Failure| Some(failure.on(logical.id));
        let transfer_streams = match logical.transfer_streams() {
            Ok(transfer_streams) => transfer_streams,
            Err(failure) => {
                let reason = reason(failure);
                return Err(NotPinned { memory, reason });
            }
        };
        match Pinned::new(logical.stream.gpu(), memory) {
            Ok(pinned) => Ok(Self {
                pinned,
                transfer_streams,
                logical: logical.clone(),
            }),
            Err((memory, failure)) => {
                let reason = reason(failure);
                Err(NotPinned { memory, reason })
            }
        }
    }

    /// How many elements of `buffer` the bytes `range` of the memory are, if both have them.
    fn check(&self, buffer: &CudaBuffer, at: usize, range: &Range<usize>) -> Result<usize, Error> {
        if !Arc::ptr_eq(&self.logical, buffer.logical()) {
            let (left, right) = (self.logical.id, buffer.device());
            return Err(Error::DeviceMismatch { left, right });
        }
        let (bytes, element) = (extent(range, self.pinned.len())?, buffer.element_type());
        if !bytes.is_multiple_of(element.size()) {
            return Err(Error::PartOfElement { bytes, element });
        }
        let elements = bytes / element.size();
        buffer.check_part(at, elements)?;
        Ok(elements)
    }

    /// Waits for the making of a buffer that is newer than the last that was caught up with: the
    /// device may still be about to fill it, or to use its memory for what was there before.
    fn catch_up_with(&mut self, buffer: &CudaBuffer) -> Result<(), Error> {
        match buffer.number() > self.transfer_streams.caught_up() {
            true => self.catch_up(),
            false => Ok(()),
        }
    }
}

impl PinnedBuffer for CudaPinnedBuffer {
    type Buffer = CudaBuffer;

    fn catch_up(&mut self) -> Result<(), Error> {
        let newest = self.logical.newest_buffer();
        let caught_up = self
            .transfer_streams
            .catch_up_with(&self.logical.stream, newest);
        caught_up.map_err(|failure| failure.on(self.logical.id))
    }

    fn download(&mut self, from: &CudaBuffer, at: usize, into: Range<usize>) -> Result<(), Error> {
        let len = self.check(from, at, &into)?;
        let Some(part) = from.part(at, len) else {
            return Ok(());
        };
        self.catch_up_with(from)?;
        let begun = self.pinned.fetch(part, into, &self.transfer_streams.down);
        begun.map_err(|failure| failure.on(self.logical.id))
    }

    fn upload(&mut self, from: Range<usize>, to: &mut CudaBuffer, at: usize) -> Result<(), Error> {
        let len = self.check(to, at, &from)?;
        let Some(part) = to.part(at, len) else {
            return Ok(());
        };
        self.catch_up_with(to)?;
        let begun = self.pinned.send(from, part, &self.transfer_streams.up);
        begun.map_err(|failure| failure.on(self.logical.id))
    }

    fn memory(&mut self) -> Result<&mut [u8], Error> {
        let id = self.logical.id;
        self.pinned.bytes().map_err(|failure| failure.on(id))
    }
}

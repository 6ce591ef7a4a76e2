//! Pinned memory of the program, with a stream for what comes from the GPU and one for what goes to it.

use std::ops::Range;
use std::sync::Arc;

use meshwork_accel::{DeviceBuffer, Dock, Error, HostMemory, Undocked, extent};

use crate::buffer::CudaBuffer;
use crate::device::Logical;
use crate::error::Failure;
use crate::sys::pinned::Pinned;
use crate::sys::stream::Stream;

/// Streams beside that of a device, on which transfers go both ways at once.
#[derive(Clone, Debug)]
pub(crate) struct Lanes {
    down: Arc<Stream>,
    up: Arc<Stream>,
}

impl Lanes {
    /// New ones on the GPU of this stream.
    pub(crate) fn beside(stream: &Stream) -> Result<Self, Failure> {
        let down = Stream::new(stream.gpu().clone())?;
        let up = Stream::new(stream.gpu().clone())?;
        Ok(Self { down, up })
    }
}

/// Pinned memory of one device.
pub(crate) struct CudaDock {
    pinned: Pinned,
    lanes: Lanes,
    logical: Arc<Logical>,
}

impl CudaDock {
    /// Pins memory, or gives it back.
    pub(crate) fn new(
        logical: &Arc<Logical>,
        memory: Box<dyn HostMemory>,
    ) -> Result<Self, Undocked> {
        let reason = |failure: Failure| Some(failure.on(logical.id));
        let lanes = match logical.lanes() {
            Ok(lanes) => lanes,
            Err(failure) => {
                let reason = reason(failure);
                return Err(Undocked { memory, reason });
            }
        };
        match Pinned::new(logical.stream.gpu(), memory) {
            Ok(pinned) => Ok(Self {
                pinned,
                lanes,
                logical: logical.clone(),
            }),
            Err((memory, failure)) => {
                let reason = reason(failure);
                Err(Undocked { memory, reason })
            }
        }
    }

    /// How many elements of `buffer` the bytes `range` of the memory are, if both have them.
    fn check(&self, buffer: &CudaBuffer, at: usize, range: &Range<usize>) -> Result<usize, Error> {
        if !Arc::ptr_eq(&self.logical, buffer.logical()) {
            let (left, right) = (self.logical.id, buffer.device());
            return Err(Error::DeviceMismatch { left, right });
        }
        let len = extent(range, self.pinned.len())?;
        let elements = len / buffer.element_type().size();
        buffer.check_part(at, elements)?;
        Ok(elements)
    }
}

impl Dock for CudaDock {
    type Buffer = CudaBuffer;

    fn catch_up(&mut self) -> Result<(), Error> {
        let Self { lanes, logical, .. } = self;
        let both = lanes.down.follow(&logical.stream);
        let both = both.and_then(|()| lanes.up.follow(&logical.stream));
        both.map_err(|failure| failure.on(logical.id))
    }

    fn download(&mut self, from: &CudaBuffer, at: usize, into: Range<usize>) -> Result<(), Error> {
        let len = self.check(from, at, &into)?;
        let Some(part) = from.part(at, len) else {
            return Ok(());
        };
        let begun = self.pinned.fetch(part, into, &self.lanes.down);
        begun.map_err(|failure| failure.on(self.logical.id))
    }

    fn upload(&mut self, from: Range<usize>, to: &mut CudaBuffer, at: usize) -> Result<(), Error> {
        let len = self.check(to, at, &from)?;
        let Some(part) = to.part(at, len) else {
            return Ok(());
        };
        let begun = self.pinned.send(from, part, &self.lanes.up);
        begun.map_err(|failure| failure.on(self.logical.id))
    }

    fn memory(&mut self) -> Result<&mut [u8], Error> {
        let id = self.logical.id;
        self.pinned.bytes().map_err(|failure| failure.on(id))
    }
}

//! Memory of the program that is pinned, which a GPU reads and writes by itself.
#![expect(
    unsafe_code,
    reason = "functions of other languages are called here, with memory that they read and write"
)]

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use meshwork_accel::HostMemory;

use super::driver::sys;
use super::foreign::call;
use super::gpu::Gpu;
use super::memory::Part;
use super::stream::{Event, Stream};
use crate::error::Failure;

/// Pinned memory, with transfers that may be on their way.
pub(crate) struct Pinned {
    gpu: Arc<Gpu>,
    /// `None` only while this is dropped.
    memory: Option<Box<dyn HostMemory>>,
    start: NonNull<u8>,
    bytes: usize,
    /// When the GPU has done with it.
    done: Event,
}

// SAFETY: the memory belongs to this alone, and is not bound to a thread.
unsafe impl Send for Pinned {}

impl Pinned {
    /// Pins memory, or gives it back with the reason.
    pub(crate) fn new(
        gpu: &Arc<Gpu>,
        mut memory: Box<dyn HostMemory>,
    ) -> Result<Self, (Box<dyn HostMemory>, Failure)> {
        let bytes = memory.bytes();
        let (start, bytes) = (NonNull::from(&mut *bytes).cast(), bytes.len());
        match Event::new(gpu.clone()).and_then(|done| register(gpu, start, bytes).map(|()| done)) {
            Ok(done) => Ok(Self {
                gpu: gpu.clone(),
                memory: Some(memory),
                start,
                bytes,
                done,
            }),
            Err(failure) => Err((memory, failure)),
        }
    }

    /// How many bytes there are.
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    /// The memory, when the GPU has done with it.
    pub(crate) fn bytes(&mut self) -> Result<&mut [u8], Failure> {
        self.done.wait()?;
        Ok(self
            .memory
            .as_mut()
            .map_or(&mut [], |memory| memory.bytes()))
    }

    /// Begins to fill `into` from the beginning of `from`, on a stream of the same GPU.
    pub(crate) fn fetch(
        &mut self,
        from: Part<'_>,
        into: Range<usize>,
        lane: &Stream,
    ) -> Result<(), Failure> {
        let (at, bytes) = self.place(into, from)?;
        lane.wait_until(&self.done)?;
        let here = lane.gpu().enter()?;
        // SAFETY: so many bytes are in both. The pinned ones are given out, unpinned and freed only
        // when the event is over, those of `from` only after their stream, which waits for it, too.
        let queued = unsafe {
            call!(
                self.gpu.driver,
                cuMemcpyDtoHAsync_v2(at.cast(), from.address(), bytes, lane.handle.0)
            )
        };
        drop(here);
        queued?;
        self.mark(lane, from)
    }

    /// Begins to copy `from` to the beginning of `to`, on a stream of the same GPU.
    pub(crate) fn send(
        &mut self,
        from: Range<usize>,
        to: Part<'_>,
        lane: &Stream,
    ) -> Result<(), Failure> {
        let (at, bytes) = self.place(from, to)?;
        lane.wait_until(&self.done)?;
        let here = lane.gpu().enter()?;
        // SAFETY: as for the other direction.
        let queued = unsafe {
            call!(
                self.gpu.driver,
                cuMemcpyHtoDAsync_v2(to.address(), at.cast(), bytes, lane.handle.0)
            )
        };
        drop(here);
        queued?;
        self.mark(lane, to)
    }

    /// Where bytes of the memory are, and how many fit in `other`.
    fn place(&self, range: Range<usize>, other: Part<'_>) -> Result<(*mut u8, usize), Failure> {
        let bytes = range.end.saturating_sub(range.start).min(other.bytes());
        if range.end > self.bytes {
            return Err(Failure {
                function: "part of pinned memory",
                code: 0,
                status: format!("bytes {range:?} are not inside {}", self.bytes),
            });
        }
        // Not a reference: the GPU may be at work on other parts.
        Ok((self.start.as_ptr().wrapping_add(range.start), bytes))
    }

    /// Remembers until when the GPU needs the memory and the part of a buffer. What cannot be
    /// remembered is waited for.
    fn mark(&self, lane: &Stream, part: Part<'_>) -> Result<(), Failure> {
        let marked = self.done.record(lane);
        let marked = marked.and_then(|()| part.stream().wait_until(&self.done));
        marked.or_else(|failure| {
            lane.synchronize()?;
            Err(failure)
        })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // One more try: a second failure means that the GPU is gone, or that it still writes.
        if self.done.wait().is_err() && self.done.wait().is_err() {
            std::mem::forget(self.memory.take());
            return;
        }
        let Ok(_here) = self.gpu.enter() else { return };
        // SAFETY: it was pinned once, is there until the fields are dropped, and the GPU has done
        // with it.
        let _ = unsafe {
            call!(
                self.gpu.driver,
                cuMemHostUnregister(self.start.as_ptr().cast())
            )
        };
    }
}

fn register(gpu: &Gpu, start: NonNull<u8>, bytes: usize) -> Result<(), Failure> {
    let _here = gpu.enter()?;
    let at = start.as_ptr().cast();
    // SAFETY: so many bytes are there, until they are unregistered.
    unsafe {
        call!(
            gpu.driver,
            cuMemHostRegister_v2(at, bytes, sys::CU_MEMHOSTREGISTER_PORTABLE)
        )
    }
}

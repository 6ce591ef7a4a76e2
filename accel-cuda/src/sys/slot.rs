//! Pinned host memory, through which bytes go between a program's memory and a GPU.
#![expect(
    unsafe_code,
    reason = "functions of other languages are called here, and memory of theirs is read and written"
)]

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::driver::sys;
use super::foreign::call;
use super::gpu::Gpu;
use super::memory::Part;
use super::stream::{Event, Stream};
use crate::error::Failure;

/// A piece of pinned memory with a transfer that may still be on its way.
#[derive(Debug)]
pub(crate) struct Slot {
    gpu: Arc<Gpu>,
    memory: NonNull<u8>,
    bytes: usize,
    /// When the GPU has done with it.
    done: Event,
}

// SAFETY: the memory belongs to the slot alone, and is not bound to a thread.
unsafe impl Send for Slot {}

impl Slot {
    /// A slot of this many bytes, at least one.
    pub(crate) fn new(gpu: Arc<Gpu>, bytes: usize) -> Result<Self, Failure> {
        let done = Event::new(gpu.clone())?;
        let here = gpu.enter()?;
        let mut memory: *mut c_void = ptr::null_mut();
        // SAFETY: `memory` is writable, and a context is current.
        unsafe {
            call!(
                gpu.driver,
                cuMemHostAlloc(&raw mut memory, bytes, sys::CU_MEMHOSTALLOC_PORTABLE)
            )
        }?;
        drop(here);
        let memory = NonNull::new(memory.cast()).ok_or_else(|| Failure {
            function: "cuMemHostAlloc",
            code: 0,
            status: "gave no memory".to_owned(),
        })?;
        Ok(Self {
            gpu,
            memory,
            bytes,
            done,
        })
    }

    /// Sends `bytes`, or as many of them as fit in the slot and in `to`. They may be changed when
    /// this returns; `to` has them when its stream gets so far.
    pub(crate) fn send(&mut self, bytes: &[u8], to: Part<'_>) -> Result<(), Failure> {
        self.done.wait()?;
        let len = bytes.len().min(self.bytes).min(to.bytes());
        // SAFETY: so many bytes are in both, which are apart, and the GPU has done with the slot.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.memory.as_ptr(), len) };
        let stream = to.stream().clone();
        let sent = self.copy_to(to, len, &stream);
        self.mark(&stream, sent)
    }

    /// Asks for the bytes of `from`, or as many as fit, which [`take`](Self::take) gives out.
    pub(crate) fn request(&mut self, from: Part<'_>) -> Result<(), Failure> {
        self.done.wait()?;
        let stream = from.stream().clone();
        let requested = self.copy_of(from, &stream);
        self.mark(&stream, requested)
    }

    /// Waits for the bytes that were requested, and gives out the first of them.
    pub(crate) fn take(&mut self, into: &mut [u8]) -> Result<(), Failure> {
        self.done.wait()?;
        let len = into.len().min(self.bytes);
        // SAFETY: so many bytes are in both, which are apart, and the GPU has done with the slot.
        // What it has not written is zero or older, but never uninitialised, as pages of the system
        // are not.
        unsafe { ptr::copy_nonoverlapping(self.memory.as_ptr(), into.as_mut_ptr(), len) };
        Ok(())
    }

    fn copy_to(&self, to: Part<'_>, bytes: usize, stream: &Stream) -> Result<(), Failure> {
        let _here = self.gpu.enter()?;
        let (address, memory) = (to.address(), self.memory.as_ptr().cast());
        // SAFETY: so many bytes are in both. The slot waits for the event before it is used again
        // or freed, the memory of `to` for its stream.
        unsafe {
            call!(
                self.gpu.driver,
                cuMemcpyHtoDAsync_v2(address, memory, bytes, stream.handle.0)
            )
        }
    }

    fn copy_of(&self, from: Part<'_>, stream: &Stream) -> Result<(), Failure> {
        let _here = self.gpu.enter()?;
        let bytes = from.bytes().min(self.bytes);
        let (address, memory) = (from.address(), self.memory.as_ptr().cast());
        // SAFETY: as for the other direction.
        unsafe {
            call!(
                self.gpu.driver,
                cuMemcpyDtoHAsync_v2(memory, address, bytes, stream.handle.0)
            )
        }
    }

    /// Remembers that the slot is in use until `stream` gets here. If that cannot be remembered,
    /// the stream is waited for.
    fn mark(&self, stream: &Stream, queued: Result<(), Failure>) -> Result<(), Failure> {
        queued?;
        self.done.record(stream).or_else(|failure| {
            stream.synchronize()?;
            Err(failure)
        })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let _ = self.done.wait();
        let Ok(_here) = self.gpu.enter() else { return };
        // SAFETY: it came from `cuMemHostAlloc` and is freed once; the GPU has done with it.
        let _ = unsafe { call!(self.gpu.driver, cuMemFreeHost(self.memory.as_ptr().cast())) };
    }
}

//! Streams, whose work is done in order, and events, by which one waits for another.
#![expect(unsafe_code, reason = "functions of other languages are called here")]

use std::sync::Arc;

use super::driver::{
    EVENT_DISABLE_TIMING, EventHandle, NOT_READY, STREAM_NON_BLOCKING, StreamHandle,
};
use super::gpu::Gpu;
use crate::error::Failure;

/// A queue of work on a GPU.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(super) gpu: Arc<Gpu>,
    pub(super) handle: StreamHandle,
}

impl Stream {
    /// A new queue.
    pub(crate) fn new(gpu: Arc<Gpu>) -> Result<Arc<Self>, Failure> {
        let here = gpu.enter()?;
        let mut handle = StreamHandle::NULL;
        // SAFETY: `handle` is writable, and the GPU is current.
        let code = unsafe { (gpu.driver.stream_create)(&raw mut handle, STREAM_NON_BLOCKING) };
        gpu.driver.check("cuStreamCreate", code)?;
        drop(here);
        Ok(Arc::new(Self { gpu, handle }))
    }

    /// The GPU it works on.
    pub(crate) fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// Waits until all that was asked for so far is done.
    pub(crate) fn synchronize(&self) -> Result<(), Failure> {
        let _here = self.gpu.enter()?;
        // SAFETY: the stream lives as long as `self`.
        let code = unsafe { (self.gpu.driver.stream_synchronize)(self.handle) };
        self.gpu.driver.check("cuStreamSynchronize", code)
    }

    /// Whether all that was asked for so far is done.
    pub(crate) fn is_done(&self) -> Result<bool, Failure> {
        let _here = self.gpu.enter()?;
        // SAFETY: the stream lives as long as `self`.
        let code = unsafe { (self.gpu.driver.stream_query)(self.handle) };
        if code == NOT_READY {
            return Ok(false);
        }
        self.gpu.driver.check("cuStreamQuery", code)?;
        Ok(true)
    }

    /// Makes all that is asked for from now on wait until `earlier` has done what it was asked so
    /// far. Even if that fails, what was asked of `earlier` is done when this returns, so that
    /// nobody frees what it works on.
    pub(crate) fn follow(&self, earlier: &Self) -> Result<(), Failure> {
        if self.handle == earlier.handle {
            return Ok(());
        }
        self.wait_for(earlier).or_else(|failure| {
            earlier.synchronize()?;
            Err(failure)
        })
    }

    fn wait_for(&self, earlier: &Self) -> Result<(), Failure> {
        let mark = Event::new(earlier.gpu.clone())?;
        mark.record(earlier)?;
        self.wait_until(&mark)
    }

    /// Makes all that is asked for from now on wait until a moment is over.
    pub(super) fn wait_until(&self, mark: &Event) -> Result<(), Failure> {
        let _here = self.gpu.enter()?;
        // SAFETY: stream and event live; the driver keeps of the event what it needs after this.
        let code = unsafe { (self.gpu.driver.stream_wait_event)(self.handle, mark.handle, 0) };
        self.gpu.driver.check("cuStreamWaitEvent", code)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let Ok(_here) = self.gpu.enter() else { return };
        // SAFETY: the stream was made by `new`, and ends here. The driver finishes its work first.
        unsafe { (self.gpu.driver.stream_destroy)(self.handle) };
    }
}

/// A moment in the work of a stream.
#[derive(Debug)]
pub(super) struct Event {
    gpu: Arc<Gpu>,
    handle: EventHandle,
}

impl Event {
    /// A moment that is over.
    pub(super) fn new(gpu: Arc<Gpu>) -> Result<Self, Failure> {
        let here = gpu.enter()?;
        let mut handle = EventHandle::NULL;
        // SAFETY: `handle` is writable, and the GPU is current.
        let code = unsafe { (gpu.driver.event_create)(&raw mut handle, EVENT_DISABLE_TIMING) };
        gpu.driver.check("cuEventCreate", code)?;
        drop(here);
        Ok(Self { gpu, handle })
    }

    /// Becomes the moment when `stream`, which is of the same GPU, has done all it was asked so
    /// far.
    pub(super) fn record(&self, stream: &Stream) -> Result<(), Failure> {
        let _here = self.gpu.enter()?;
        // SAFETY: both live, and are of one context.
        let code = unsafe { (self.gpu.driver.event_record)(self.handle, stream.handle) };
        self.gpu.driver.check("cuEventRecord", code)
    }

    /// Waits until it is over; at once if it was never recorded.
    pub(super) fn wait(&self) -> Result<(), Failure> {
        let _here = self.gpu.enter()?;
        // SAFETY: the event lives as long as `self`.
        let code = unsafe { (self.gpu.driver.event_synchronize)(self.handle) };
        self.gpu.driver.check("cuEventSynchronize", code)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let Ok(_here) = self.gpu.enter() else { return };
        // SAFETY: the event was made by `new`, and ends here; what waits for it goes on waiting.
        unsafe { (self.gpu.driver.event_destroy)(self.handle) };
    }
}

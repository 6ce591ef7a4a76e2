//! Streams, whose work is done in order, and events, by which one waits for another.
#![expect(unsafe_code, reason = "functions of other languages are called here")]

use std::ffi::c_uint;
use std::sync::Arc;

use super::driver::{CUresult, EventHandle, StreamHandle, sys};
use super::foreign::{call, code_of};
use super::gpu::Gpu;
use crate::error::Failure;

/// A queue of work on a GPU.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(super) gpu: Arc<Gpu>,
    pub(super) handle: StreamHandle,
    maker: Maker,
}

/// Who made a stream, and ends it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Maker {
    ThisCrate,
    Another,
}

impl Stream {
    /// A new queue.
    pub(crate) fn new(gpu: Arc<Gpu>) -> Result<Arc<Self>, Failure> {
        let here = gpu.enter()?;
        let mut handle = StreamHandle::NULL;
        // SAFETY: `handle` is writable, and the GPU is current.
        unsafe {
            call!(
                gpu.driver,
                cuStreamCreate(
                    &raw mut handle.0,
                    sys::CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint
                )
            )
        }?;
        drop(here);
        let maker = Maker::ThisCrate;
        Ok(Arc::new(Self { gpu, handle, maker }))
    }

    /// The queue of another library, which exists as long as this does.
    pub(super) fn of_another(gpu: Arc<Gpu>, handle: StreamHandle) -> Arc<Self> {
        let maker = Maker::Another;
        Arc::new(Self { gpu, handle, maker })
    }

    /// The GPU it works on.
    pub(crate) fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// Whether its handle means another queue on each thread, that of the calling one.
    pub(super) fn is_per_thread(&self) -> bool {
        self.handle.0.addr() == PER_THREAD
    }

    /// Waits until all that was asked for so far is done.
    pub(crate) fn synchronize(&self) -> Result<(), Failure> {
        let _here = self.gpu.enter()?;
        // SAFETY: the stream lives as long as `self`.
        unsafe { call!(self.gpu.driver, cuStreamSynchronize(self.handle.0)) }
    }

    /// Whether all that was asked for so far is done.
    pub(crate) fn is_done(&self) -> Result<bool, Failure> {
        let _here = self.gpu.enter()?;
        // SAFETY: the stream lives as long as `self`.
        let returned = unsafe { code_of!(self.gpu.driver, cuStreamQuery(self.handle.0)) };
        if returned.is(CUresult::CUDA_ERROR_NOT_READY) {
            return Ok(false);
        }
        self.gpu.driver.check(returned)?;
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
        unsafe {
            call!(
                self.gpu.driver,
                cuStreamWaitEvent(self.handle.0, mark.handle.0, 0)
            )
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.maker == Maker::Another {
            return;
        }
        let Ok(_here) = self.gpu.enter() else { return };
        // SAFETY: the stream was made by `new`, and ends here. The driver finishes its work first.
        let _ = unsafe { call!(self.gpu.driver, cuStreamDestroy_v2(self.handle.0)) };
    }
}

/// `CU_STREAM_PER_THREAD`.
const PER_THREAD: usize = 2;

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
        unsafe {
            call!(
                gpu.driver,
                cuEventCreate(
                    &raw mut handle.0,
                    sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as c_uint
                )
            )
        }?;
        drop(here);
        Ok(Self { gpu, handle })
    }

    /// Becomes the moment when `stream`, which is of the same GPU, has done all it was asked so
    /// far.
    pub(super) fn record(&self, stream: &Stream) -> Result<(), Failure> {
        let _here = self.gpu.enter()?;
        // SAFETY: both live, and are of one context.
        unsafe {
            call!(
                self.gpu.driver,
                cuEventRecord(self.handle.0, stream.handle.0)
            )
        }
    }

    /// Waits until it is over; at once if it was never recorded.
    pub(super) fn wait(&self) -> Result<(), Failure> {
        let _here = self.gpu.enter()?;
        // SAFETY: the event lives as long as `self`.
        unsafe { call!(self.gpu.driver, cuEventSynchronize(self.handle.0)) }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let Ok(_here) = self.gpu.enter() else { return };
        // SAFETY: the event was made by `new`, and ends here; what waits for it goes on waiting.
        let _ = unsafe { call!(self.gpu.driver, cuEventDestroy_v2(self.handle.0)) };
    }
}

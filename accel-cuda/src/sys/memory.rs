//! Memory of a GPU, and what is done to parts of it.
#![expect(unsafe_code, reason = "functions of other languages are called here")]

use std::ffi::c_void;
use std::sync::Arc;

use super::driver::{Address, CUresult, sys};
use super::external::{ExternalMemory, Lender};
use super::foreign::{call, code_of};
use super::stream::Stream;
use crate::error::Failure;

/// Memory that is worked on by one stream, and freed, or given back to who lent it, when that is
/// done with it.
#[derive(Debug)]
pub(crate) struct Memory {
    stream: Arc<Stream>,
    address: Address,
    bytes: usize,
    lender: Option<Lender>,
}

impl Memory {
    /// This many bytes, at least one; `None` where there is no room for them.
    pub(crate) fn allocate(stream: Arc<Stream>, bytes: usize) -> Result<Option<Self>, Failure> {
        let mut address = address_of(&stream, bytes)?;
        if address.is_none() && stream.gpu.has_pool() {
            // What other streams have been asked to free may be enough.
            stream.gpu.synchronize()?;
            address = address_of(&stream, bytes)?;
        }
        Ok(address.map(|address| Self {
            stream,
            address,
            bytes,
            lender: None,
        }))
    }

    /// This many bytes of another library, which has as many there, when its work so far is done.
    pub(crate) fn borrow(
        stream: Arc<Stream>,
        external: ExternalMemory,
        bytes: usize,
    ) -> Result<Self, Failure> {
        let address = external.address;
        let lender = Some(external.lend_to(&stream)?);
        Ok(Self {
            stream,
            address,
            bytes,
            lender,
        })
    }

    /// The part of `bytes` bytes from `start` on, `None` where it is not inside.
    pub(crate) fn part(&self, start: usize, bytes: usize) -> Option<Part<'_>> {
        let end = start.checked_add(bytes)?;
        (end <= self.bytes).then_some(Part {
            memory: self,
            start,
            bytes,
        })
    }

    /// All of it.
    pub(crate) fn whole(&self) -> Part<'_> {
        Part {
            memory: self,
            start: 0,
            bytes: self.bytes,
        }
    }

    /// Whether dropping it waits for the work on it, instead of being put behind that.
    pub(crate) fn drops_by_waiting(&self) -> bool {
        self.lender.is_none() && !self.stream.gpu.has_pool()
    }

    /// The largest power of two, up to 256, that its address is a multiple of: what is lent may
    /// begin in the middle of what was allocated.
    pub(crate) fn alignment(&self) -> usize {
        1 << self.address.trailing_zeros().min(8)
    }
}

impl Drop for Memory {
    /// In the order of the stream, which all other work on it follows and goes before; a failure
    /// could not be reported any more. What was lent goes back.
    fn drop(&mut self) {
        if let Some(lender) = &self.lender {
            return lender.give_back(&self.stream);
        }
        let (gpu, address, stream) = (&self.stream.gpu, self.address, self.stream.handle.0);
        let Ok(_here) = gpu.enter() else { return };
        if gpu.has_pool() {
            // SAFETY: it came from `cuMemAllocAsync` and is freed once, after the work on it.
            let _ = unsafe { call!(gpu.driver, cuMemFreeAsync(address, stream)) };
            return;
        }
        let _ = self.stream.synchronize();
        // SAFETY: it came from `cuMemAlloc` and is freed once; no work on it is left.
        let _ = unsafe { call!(gpu.driver, cuMemFree_v2(address)) };
    }
}

/// Where so many new bytes are, for work of `stream`; `None` where there is no room for them.
fn address_of(stream: &Stream, bytes: usize) -> Result<Option<Address>, Failure> {
    let gpu = &stream.gpu;
    let _here = gpu.enter()?;
    let mut address = 0;
    let at = &raw mut address;
    let returned = match gpu.has_pool() {
        // SAFETY: `address` is writable, a context is current, and the stream is of it.
        true => unsafe { code_of!(gpu.driver, cuMemAllocAsync(at, bytes, stream.handle.0)) },
        // SAFETY: as above.
        false => unsafe { code_of!(gpu.driver, cuMemAlloc_v2(at, bytes)) },
    };
    if returned.is(CUresult::CUDA_ERROR_OUT_OF_MEMORY) {
        return Ok(None);
    }
    gpu.driver.check(returned)?;
    Ok(Some(address))
}

/// Bytes of a [`Memory`], all of them inside it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'a> {
    memory: &'a Memory,
    start: usize,
    bytes: usize,
}

/// The matrices of a product: the factors, and where it goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operands<'a> {
    pub(crate) left: Part<'a>,
    pub(crate) right: Part<'a>,
    pub(crate) into: Part<'a>,
}

impl Part<'_> {
    /// How many bytes it has.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The stream of its memory.
    pub(crate) fn stream(&self) -> &Arc<Stream> {
        &self.memory.stream
    }

    /// Where it begins. Cannot overflow, as memory of this many bytes is there.
    pub(super) fn address(&self) -> Address {
        self.memory.address + self.start as Address
    }

    /// The same for libraries that take addresses of a device as pointers, which nobody follows
    /// here.
    pub(super) fn pointer(&self) -> *mut c_void {
        self.address() as *mut c_void
    }

    /// Makes all bytes 0.
    pub(crate) fn zero(&self) -> Result<(), Failure> {
        let stream = self.stream();
        let _here = stream.gpu.enter()?;
        // SAFETY: so many bytes are there, and are freed only after the stream's work.
        unsafe {
            call!(
                stream.gpu.driver,
                cuMemsetD8Async(self.address(), 0, self.bytes, stream.handle.0)
            )
        }
    }

    /// Becomes a copy of the beginning of `from`, or as much of it as that has. Work on the memory
    /// of `from` that was asked for before is waited for, and later work on it waits for this.
    pub(crate) fn copy_from(&self, from: Part<'_>) -> Result<(), Failure> {
        let (here, there) = (self.stream(), from.stream());
        here.follow(there)?;
        let copied = self.copy_ordered(from);
        // Even after a failure: what was queued may still read.
        there.follow(here)?;
        copied
    }

    fn copy_ordered(&self, from: Part<'_>) -> Result<(), Failure> {
        let bytes = self.bytes.min(from.bytes);
        let (stream, source) = (self.stream(), &from.stream().gpu);
        let (gpu, to, at) = (&stream.gpu, self.address(), from.address());
        let _here = gpu.enter()?;
        if gpu.is(source) {
            // SAFETY: both parts have so many bytes in this context, and are freed only after the
            // work of both streams, which the caller has put in order.
            return unsafe {
                call!(
                    gpu.driver,
                    cuMemcpyDtoDAsync_v2(to, at, bytes, stream.handle.0)
                )
            };
        }
        // SAFETY: as above, each part in the context that is given for it.
        unsafe {
            call!(
                gpu.driver,
                cuMemcpyPeerAsync(
                    to,
                    gpu.context.0,
                    at,
                    source.context.0,
                    bytes,
                    stream.handle.0,
                )
            )
        }
    }
}

/// Lets the stream of `into` do work that reads `from`, after and before the work of their own
/// streams.
pub(super) fn in_order<T>(
    into: Part<'_>,
    from: &[Part<'_>],
    work: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let here = into.stream();
    for part in from {
        here.follow(part.stream())?;
    }
    let done = work();
    // Even after a failure: what was launched may still read.
    for part in from {
        part.stream().follow(here)?;
    }
    done
}

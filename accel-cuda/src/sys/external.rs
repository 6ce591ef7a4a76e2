//! Memory of a GPU that another library has allocated, and works on by a stream of its own.
#![expect(
    unsafe_code,
    reason = "functions of other languages are called here, and an owner promises what none tells"
)]

use std::ffi::{c_int, c_void};
use std::fmt::{self, Debug};
use std::sync::Arc;

use meshwork_accel::ElementType;

use super::driver::{Address, CUresult, ContextHandle, StreamHandle, sys};
use super::foreign::{Handle, call, code_of};
use super::gpu::Gpu;
use super::stream::Stream;
use crate::error::{Error, Failure};

use sys::CUpointer_attribute as Attribute;

/// Memory of a GPU that another library has allocated, such as that of a tensor of candle or burn,
/// to be lent to [`CudaAccelerator::borrow`](crate::CudaAccelerator::borrow).
///
/// ```no_run
/// use meshwork_accel::{DeviceId, ElementType};
/// use meshwork_accel_cuda::{CudaAccelerator, CudaBuffer, Error, ExternalMemory};
/// use std::{ffi::c_void, sync::Arc};
///
/// /// The memory of a tensor of `len` floats, which ends with it.
/// fn lend<T: Send + Sync + 'static>(
///     cuda: &CudaAccelerator,
///     tensor: &Arc<T>,
///     (address, len, stream): (u64, usize, *mut c_void),
/// ) -> Result<CudaBuffer, Error> {
///     // SAFETY: the tensor has so many floats there, works on them by that stream only, and does
///     // not while the buffer lives.
///     let memory = unsafe { ExternalMemory::from_raw(address, ElementType::F32, len, stream) };
///     cuda.borrow(DeviceId::new(0), memory.owned_by(tensor.clone()))
/// }
/// ```
pub struct ExternalMemory {
    pub(crate) address: Address,
    pub(crate) element: ElementType,
    pub(crate) len: usize,
    stream: StreamHandle,
    owner: Option<Box<dyn Send + Sync>>,
}

impl ExternalMemory {
    /// `len` elements that begin at `address`, a `CUdeviceptr`, and are worked on by `stream`, a
    /// `CUstream`; null for the default one.
    ///
    /// # Safety
    /// The memory was allocated in the GPU's primary context, or from a pool; only of the stream
    /// that is looked at. Until the buffer that borrows this is dropped, and each
    /// [communicator](crate::Communicator) that has failed at work on it, the memory stays
    /// allocated and the stream exists; [`owned_by`](Self::owned_by) can see to both. Meanwhile
    /// nobody else uses the memory: work that was queued on `stream` before is done first, and work
    /// that is queued on it after the buffer was dropped waits for what the buffer was used for.
    /// Memory that is freed is freed in the order of that stream, or when that has been waited for.
    ///
    /// `CU_STREAM_PER_THREAD` means another stream on each thread. Of these the one of the thread
    /// that borrows the memory has all work that is to be done first, and whoever drops the buffer
    /// waits until what that was used for is done.
    pub unsafe fn from_raw(
        address: u64,
        element: ElementType,
        len: usize,
        stream: *mut c_void,
    ) -> Self {
        Self {
            address,
            element,
            len,
            stream: Handle(stream.cast()),
            owner: None,
        }
    }

    /// With something that is kept until the memory has been given back, and keeps it allocated.
    #[must_use]
    pub fn owned_by(mut self, owner: impl Send + Sync + 'static) -> Self {
        self.owner = Some(Box::new(owner));
        self
    }

    /// Refuses what is no memory of this GPU, or less of it than `bytes`, an address that no
    /// element may have, and a stream of another.
    pub(crate) fn check(&self, gpu: &Gpu, bytes: u64) -> Result<(), Error> {
        let (address, ordinal) = (self.address, gpu.card().ordinal());
        let element = self.element;
        if !address.is_multiple_of(element.size() as u64) {
            return Err(Error::Misaligned { address, element });
        }
        let unknown = Error::NotOnGpu { address, ordinal };
        let device_memory = sys::CUmemorytype::CU_MEMORYTYPE_DEVICE as u32;
        let kind: Option<u32> = self.attribute(gpu, Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE)?;
        if kind != Some(device_memory) {
            return Err(unknown);
        }
        let found = Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
        let found: Option<c_int> = self.attribute(gpu, found)?;
        let found = found.and_then(|found| usize::try_from(found).ok());
        let Some(found) = found else {
            return Err(unknown);
        };
        if found != ordinal || !self.stream_is_of(gpu)? {
            return Err(Error::OnOtherGpu {
                address,
                found,
                ordinal,
            });
        }
        let start = self.attribute(gpu, Attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR)?;
        let size = self.attribute(gpu, Attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE)?;
        let end = start
            .zip(size)
            .and_then(|(start, size): (u64, usize)| start.checked_add(size as u64));
        let left = end.ok_or(unknown)?.saturating_sub(address);
        match bytes <= left {
            true => Ok(()),
            false => Err(Error::BeyondAllocation {
                address,
                bytes,
                left,
            }),
        }
    }

    /// What the driver says of the address; `None` where it does not know it.
    fn attribute<T: Number>(&self, gpu: &Gpu, which: Attribute) -> Result<Option<T>, Failure> {
        let _here = gpu.enter()?;
        let mut value = T::default();
        let at = (&raw mut value).cast();
        // SAFETY: `value` is writable, and a number of the size that this attribute has.
        let returned =
            unsafe { code_of!(gpu.driver, cuPointerGetAttribute(at, which, self.address)) };
        if returned.is(CUresult::CUDA_ERROR_INVALID_VALUE) {
            return Ok(None);
        }
        gpu.driver.check(returned)?;
        Ok(Some(value))
    }

    fn stream_is_of(&self, gpu: &Gpu) -> Result<bool, Failure> {
        let _here = gpu.enter()?;
        let mut context = ContextHandle::NULL;
        // SAFETY: `context` is writable, and who lent the memory says that the stream exists.
        unsafe {
            call!(
                gpu.driver,
                cuStreamGetCtx(self.stream.0, &raw mut context.0)
            )
        }?;
        Ok(context == gpu.context)
    }

    /// Who is to have it back, when all of its own work so far is done for `borrower`.
    pub(crate) fn lend_to(self, borrower: &Stream) -> Result<Lender, Failure> {
        let stream = Stream::of_another(borrower.gpu().clone(), self.stream);
        borrower.follow(&stream)?;
        Ok(Lender {
            stream,
            _owner: self.owner,
        })
    }
}

impl Debug for ExternalMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExternalMemory")
            .field("address", &self.address)
            .field("element", &self.element)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

/// Who has lent memory.
pub(crate) struct Lender {
    stream: Arc<Stream>,
    _owner: Option<Box<dyn Send + Sync>>,
}

impl Lender {
    /// Lets later work of the lender wait for the work of `borrower`; a failure could not be
    /// reported any more, and was tried again by waiting.
    pub(crate) fn give_back(&self, borrower: &Stream) {
        let _ = match self.stream.is_per_thread() {
            // On this thread it need not be the stream by which the lender goes on.
            true => borrower.synchronize(),
            false => self.stream.follow(borrower),
        };
    }
}

impl Debug for Lender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lender").finish_non_exhaustive()
    }
}

/// What attributes of addresses are, each of its own size.
trait Number: Default {}

impl Number for u32 {}
impl Number for c_int {}
impl Number for u64 {}
impl Number for usize {}

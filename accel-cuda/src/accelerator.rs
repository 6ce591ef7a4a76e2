//! `CudaAccelerator`, the `Accelerator` trait on CUDA streams, and lazy loading of NCCL and cuBLAS.
//! Tensor ops are in `compute` and `arrange`, collectives within one process in `collectives`,
//! those between processes in `nccl`; only `sys` calls the driver.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use bytemuck::checked;
use meshwork_accel::{
    Accelerator, Device, DeviceBuffer, DeviceId, Element, ElementType, Error, HostMemory,
    LiveBuffers, Memory, NotPinned, PinnedBuffer, ReduceOp,
};

use crate::buffer::CudaBuffer;
use crate::choose::bits_of;
use crate::config::CudaConfig;
use crate::device::LogicalDevice;
use crate::error::Failure;
use crate::kernels::{Kernel, Width};
use crate::pinned_buffer::CudaPinnedBuffer;
use crate::sys::blas::Blas;
use crate::{ExternalMemory, Libraries, Library, Nccl};

/// The CUDA backend; see the crate's documentation for an example.
///
/// Each device has a stream: what is asked of one device is done in order, and what crosses two
/// waits for both. Uploads go through pinned memory and return before the GPU has them; downloads
/// wait.
#[derive(Debug)]
pub struct CudaAccelerator {
    devices: Vec<Device>,
    logical: Vec<Arc<LogicalDevice>>,
    libraries: Libraries,
    /// Loaded when they are first asked for.
    nccl: OnceLock<Result<Nccl, crate::Error>>,
    blas: OnceLock<Result<Arc<Blas>, crate::Error>>,
}

impl CudaAccelerator {
    /// All GPUs that this process sees, one device each, by libraries where they are usually found.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn new() -> Result<Self, crate::Error> {
        Self::open(&CudaConfig::from_env())
    }

    /// The devices that `config` describes.
    ///
    /// # Errors
    /// A library or a function that is missing ([`Error::NotLoadable`](crate::Error::NotLoadable),
    /// [`Error::NoFunction`](crate::Error::NoFunction)), no GPU
    /// ([`Error::NoDevices`](crate::Error::NoDevices)), what `config` asks for and is not there,
    /// and failures of the driver and the compiler.
    pub fn open(config: &CudaConfig) -> Result<Self, crate::Error> {
        let (devices, logical) = config.devices()?.into_iter().unzip();
        Ok(Self {
            devices,
            logical,
            libraries: config.libraries().clone(),
            nccl: OnceLock::new(),
            blas: OnceLock::new(),
        })
    }

    /// Memory of another library as a buffer of `device`, without a copy: work on it waits for what
    /// the other library has queued so far, and what that queues after the buffer was dropped waits
    /// for the work on it. Where the library works by the stream of each thread, this is to be
    /// called on the thread that has queued the work. The memory is neither counted against the
    /// device's limit nor among [live buffers](LiveBuffers).
    ///
    /// # Errors
    /// What is no memory of the device's GPU, or belongs to another
    /// ([`Error::NotOnGpu`](crate::Error::NotOnGpu),
    /// [`Error::OnOtherGpu`](crate::Error::OnOtherGpu)), less than so many elements
    /// ([`Error::BeyondAllocation`](crate::Error::BeyondAllocation)), an address between elements
    /// ([`Error::Misaligned`](crate::Error::Misaligned)), and failures of the driver.
    pub fn borrow(
        &self,
        device: DeviceId,
        memory: ExternalMemory,
    ) -> Result<CudaBuffer, crate::Error> {
        CudaBuffer::borrowed(self.logical(device)?, memory)
    }

    /// NCCL, from where the other libraries come from.
    pub(crate) fn nccl(&self) -> Result<&Nccl, crate::Error> {
        let opened = self.nccl.get_or_init(|| Nccl::open(&self.libraries));
        opened.as_ref().map_err(Clone::clone)
    }

    /// The library that multiplies matrices, with its version. Where it cannot be loaded, a kernel
    /// of this crate does, unless [`Libraries`] or `MESHWORK_CUBLAS` name its file: then products
    /// are refused with this error.
    ///
    /// # Errors
    /// [`Error::NotLoadable`](crate::Error::NotLoadable),
    /// [`Error::NoFunction`](crate::Error::NoFunction), [`Error::Call`](crate::Error::Call).
    pub fn matmul_library(&self) -> Result<String, crate::Error> {
        self.blas().map(|blas| format!("cuBLAS {}", blas.version()))
    }

    /// cuBLAS, `None` where the crate's own kernel has to do.
    pub(crate) fn multiplies_by(&self) -> Result<Option<&Arc<Blas>>, crate::Error> {
        match self.blas() {
            Ok(blas) => Ok(Some(blas)),
            Err(error) if self.libraries.names(Library::Cublas) => Err(error),
            Err(_) => Ok(None),
        }
    }

    fn blas(&self) -> Result<&Arc<Blas>, crate::Error> {
        let opened = self.blas.get_or_init(|| Blas::open(&self.libraries));
        opened.as_ref().map_err(Clone::clone)
    }

    pub(crate) fn logical(&self, device: DeviceId) -> Result<&Arc<LogicalDevice>, Error> {
        let available = self.logical.len();
        let found = self.logical.get(device.index());
        found.ok_or(Error::UnknownDevice { device, available })
    }
}

impl Accelerator for CudaAccelerator {
    type Buffer = CudaBuffer;

    fn devices(&self) -> &[Device] {
        &self.devices
    }

    fn memory(&self, device: DeviceId) -> Result<Memory, Error> {
        let logical = self.logical(device)?;
        let free = logical.free().map_err(|failure| failure.on(device))?;
        let total = logical
            .memory_budget
            .limit()
            .map_or(Memory::UNKNOWN, Memory::of);
        Ok(total.with_free(free))
    }

    fn allocate(
        &self,
        device: DeviceId,
        element: ElementType,
        len: usize,
    ) -> Result<CudaBuffer, Error> {
        CudaBuffer::allocate(self.logical(device)?, element, len)
    }

    fn upload<T: Element>(&self, from: &[T], to: &mut CudaBuffer, at: usize) -> Result<(), Error> {
        to.check_element(T::TYPE)?;
        to.check_part(at, from.len())?;
        let (Some(memory), false) = (to.memory(), from.is_empty()) else {
            return Ok(());
        };
        let sent = to
            .logical()
            .upload(bytemuck::cast_slice(from), memory, at * size_of::<T>());
        sent.map_err(|failure| failure.on(to.device()))
    }

    fn download<T: Element>(
        &self,
        from: &CudaBuffer,
        at: usize,
        to: &mut [T],
    ) -> Result<(), Error> {
        from.check_element(T::TYPE)?;
        from.check_part(at, to.len())?;
        let (Some(memory), false) = (from.memory(), to.is_empty()) else {
            return Ok(());
        };
        let (logical, at) = (from.logical(), at * size_of::<T>());
        let taken = match T::bytes_mut(to) {
            Some(bytes) => logical.download(memory, at, bytes),
            None => {
                let mut bytes = vec![0; size_of_val(to)];
                let taken = logical.download(memory, at, &mut bytes);
                taken.and_then(|()| believe(&bytes, to))
            }
        };
        taken.map_err(|failure| failure.on(from.device()))
    }

    fn copy(
        &self,
        from: &CudaBuffer,
        range: Range<usize>,
        to: &mut CudaBuffer,
        at: usize,
    ) -> Result<(), Error> {
        to.check_element(from.element_type())?;
        let len = from.check_range(&range)?;
        to.check_part(at, len)?;
        let (Some(source), Some(target)) = (from.part(range.start, len), to.part(at, len)) else {
            return Ok(());
        };
        let copied = target.copy_from(source);
        copied.map_err(|failure| failure.on(to.device()))
    }

    fn fill<T: Element>(
        &self,
        buffer: &mut CudaBuffer,
        range: Range<usize>,
        value: T,
    ) -> Result<(), Error> {
        buffer.check_element(T::TYPE)?;
        let len = buffer.check_range(&range)?;
        let Some(part) = buffer.part(range.start, len) else {
            return Ok(());
        };
        let kernel = Kernel::Fill(Width::of(T::TYPE));
        let filled = buffer.logical().module.fill(kernel, part, bits_of(value));
        filled.map_err(|failure| failure.on(buffer.device()))
    }

    /// Without the zeros that a new buffer begins with.
    fn duplicate(&self, from: &CudaBuffer) -> Result<CudaBuffer, Error> {
        let made = CudaBuffer::unwritten(from.logical(), from.element_type(), from.len())?;
        if let (Some(source), Some(target)) = (from.whole(), made.whole()) {
            let copied = target.copy_from(source);
            copied.map_err(|failure| failure.on(from.device()))?;
        }
        Ok(made.written())
    }

    fn reduce(&self, op: ReduceOp, into: &mut CudaBuffer, from: &CudaBuffer) -> Result<(), Error> {
        into.check_alike(from)?;
        let element = into.element_type();
        let kernel = Kernel::reduce(op, element).ok_or(Error::UnsupportedOp { op, element })?;
        into.check_len(from.len())?;
        let (Some(to), Some(at)) = (into.whole(), from.whole()) else {
            return Ok(());
        };
        let reduced = into.logical().module.reduce(kernel, to, at);
        reduced.map_err(|failure| failure.on(into.device()))
    }

    fn pin(
        &self,
        device: DeviceId,
        memory: Box<dyn HostMemory>,
    ) -> Result<Box<dyn PinnedBuffer<Buffer = CudaBuffer>>, NotPinned> {
        match self.logical(device) {
            Ok(logical) => Ok(Box::new(CudaPinnedBuffer::new(logical, memory)?)),
            Err(error) => {
                let reason = Some(error);
                Err(NotPinned { memory, reason })
            }
        }
    }

    fn synchronize(&self, device: DeviceId) -> Result<(), Error> {
        let done = self.logical(device)?.stream.synchronize();
        done.map_err(|failure| failure.on(device))
    }
}

impl LiveBuffers for CudaAccelerator {
    fn live_buffers(&self) -> usize {
        self.logical
            .iter()
            .map(|logical| logical.memory_budget.buffers())
            .sum()
    }
}

/// Elements of which not all bytes are values, out of bytes that only ever were such elements.
fn believe<T: Element>(bytes: &[u8], values: &mut [T]) -> Result<(), Failure> {
    for (value, bytes) in values.iter_mut().zip(bytes.chunks_exact(size_of::<T>())) {
        *value = checked::try_pod_read_unaligned(bytes).map_err(|_| Failure {
            function: "cuMemcpyDtoHAsync",
            code: 0,
            status: format!("the memory holds {bytes:?}, which is no {}", T::TYPE),
        })?;
    }
    Ok(())
}

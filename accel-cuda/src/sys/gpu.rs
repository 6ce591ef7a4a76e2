//! GPUs: what the driver says of one, and the context in which it works.
#![expect(unsafe_code, reason = "functions of other languages are called here")]

use std::ffi::{CStr, c_char, c_int};
use std::marker::PhantomData;
use std::sync::Arc;

use super::driver::{ContextHandle, Driver, sys};
use super::foreign::call;
use super::pool::Pool;
use crate::error::Failure;
use crate::target::Capability;

use sys::CUdevice_attribute as Attribute;

/// A GPU that the driver shows, of which nothing is used yet.
#[derive(Debug)]
pub(crate) struct VisibleGpu {
    driver: Arc<Driver>,
    device: sys::CUdevice,
    ordinal: usize,
}

impl VisibleGpu {
    /// The GPU with this number.
    pub(crate) fn find(driver: Arc<Driver>, ordinal: usize) -> Result<Self, Failure> {
        let mut device = 0;
        let number = c_int::try_from(ordinal).unwrap_or(c_int::MAX);
        // SAFETY: `device` is writable; a number that does not exist is refused.
        unsafe { call!(driver, cuDeviceGet(&raw mut device, number)) }?;
        Ok(Self {
            driver,
            device,
            ordinal,
        })
    }

    /// Its number.
    pub(crate) fn ordinal(&self) -> usize {
        self.ordinal
    }

    /// The product name of the GPU.
    pub(crate) fn name(&self) -> Result<String, Failure> {
        let mut text = [0; 256];
        // SAFETY: `text` has as many bytes as are said, and the driver ends what it writes with 0.
        unsafe {
            call!(
                self.driver,
                cuDeviceGetName(text.as_mut_ptr(), 256, self.device)
            )
        }?;
        Ok(text_of(&text))
    }

    /// Its address on the bus, as `0000:17:00.0`.
    pub(crate) fn pci_address(&self) -> Result<String, Failure> {
        let mut text = [0; 64];
        // SAFETY: `text` has as many bytes as are said, and the driver ends what it writes with 0.
        unsafe {
            call!(
                self.driver,
                cuDeviceGetPCIBusId(text.as_mut_ptr(), 64, self.device)
            )
        }?;
        Ok(text_of(&text))
    }

    /// All of its memory, in bytes.
    pub(crate) fn total_memory(&self) -> Result<u64, Failure> {
        let mut bytes = 0;
        // SAFETY: `bytes` is writable.
        unsafe {
            call!(
                self.driver,
                cuDeviceTotalMem_v2(&raw mut bytes, self.device)
            )
        }?;
        Ok(bytes as u64)
    }

    /// Which code it runs.
    pub(crate) fn capability(&self) -> Result<Capability, Failure> {
        let major = self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        Ok(Capability::new(major, minor))
    }

    /// How many multiprocessors it has.
    pub(crate) fn multiprocessors(&self) -> Result<u32, Failure> {
        self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
    }

    fn attribute(&self, which: Attribute) -> Result<u32, Failure> {
        let mut value = 0;
        // SAFETY: `value` is writable.
        unsafe {
            call!(
                self.driver,
                cuDeviceGetAttribute(&raw mut value, which, self.device)
            )
        }?;
        Ok(u32::try_from(value).expect("no attribute that is asked for is negative"))
    }
}

/// A GPU, with the context held that all who use it in this process share.
#[derive(Debug)]
pub(crate) struct Gpu {
    card: VisibleGpu,
    pub(super) driver: Arc<Driver>,
    pub(super) context: ContextHandle,
    /// Where its memory comes from; `None` if the driver has no pools of it.
    pool: Option<Pool>,
}

impl Gpu {
    /// Makes a GPU ready to work.
    pub(crate) fn open(card: VisibleGpu) -> Result<Arc<Self>, Failure> {
        let driver = card.driver.clone();
        let pool = match card.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)? {
            0 => None,
            _ => Some(Pool::keeping(driver.clone(), card.device)?),
        };
        let mut context = ContextHandle::NULL;
        // SAFETY: `context` is writable, and the device came from `cuDeviceGet`.
        unsafe {
            call!(
                driver,
                cuDevicePrimaryCtxRetain(&raw mut context.0, card.device)
            )
        }?;
        Ok(Arc::new(Self {
            card,
            driver,
            context,
            pool,
        }))
    }

    /// The driver's description of the GPU.
    pub(crate) fn card(&self) -> &VisibleGpu {
        &self.card
    }

    /// Whether addresses of both mean the same memory.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.context == other.context
    }

    /// The free memory at this moment, in bytes.
    pub(crate) fn free_memory(&self) -> Result<u64, Failure> {
        let _here = self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: both are writable, and a context is current.
        unsafe { call!(self.driver, cuMemGetInfo_v2(&raw mut free, &raw mut total)) }?;
        let unused = self.pool.as_ref().map_or(Ok(0), Pool::unused)?;
        Ok(free as u64 + unused)
    }

    /// Whether memory is allocated and freed in the order of a stream, without waiting for it.
    pub(super) fn has_pool(&self) -> bool {
        self.pool.is_some()
    }

    /// Waits until everything that this process asked of the GPU is done.
    pub(super) fn synchronize(&self) -> Result<(), Failure> {
        let _here = self.enter()?;
        // SAFETY: a context is current.
        unsafe { call!(self.driver, cuCtxSynchronize()) }
    }

    /// Makes it the one that this thread works on, until what is returned is dropped.
    pub(super) fn enter(&self) -> Result<Entered<'_>, Failure> {
        // SAFETY: the context is held by `self`, which outlives what is returned.
        unsafe { call!(self.driver, cuCtxPushCurrent_v2(self.context.0)) }?;
        Ok(Entered {
            gpu: self,
            thread: PhantomData,
        })
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // SAFETY: it was retained once when this was made. Nobody is left to hear of a failure.
        let _ = unsafe { call!(self.driver, cuDevicePrimaryCtxRelease_v2(self.card.device)) };
    }
}

/// A GPU is current on this thread; what was before comes back on drop.
#[must_use = "it is current only as long as this lives"]
pub(super) struct Entered<'a> {
    gpu: &'a Gpu,
    /// A current context belongs to one thread, so this is not `Send`.
    thread: PhantomData<*const ()>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let mut context = ContextHandle::NULL;
        // SAFETY: `context` is writable; this thread pushed one when this was made.
        let _ = unsafe { call!(self.gpu.driver, cuCtxPopCurrent_v2(&raw mut context.0)) };
    }
}

fn text_of(bytes: &[c_char]) -> String {
    let bytes: &[u8] = bytemuck::cast_slice(bytes);
    let text = CStr::from_bytes_until_nul(bytes).unwrap_or_default();
    text.to_string_lossy().trim().to_owned()
}

//! GPUs: what the driver says of one, and the context in which it works.
#![expect(unsafe_code, reason = "functions of other languages are called here")]

use std::ffi::{CStr, c_char, c_int};
use std::marker::PhantomData;
use std::sync::Arc;

use super::driver::{
    CAPABILITY_MAJOR, CAPABILITY_MINOR, ContextHandle, DeviceHandle, Driver, MULTIPROCESSOR_COUNT,
};
use crate::error::Failure;
use crate::target::Capability;

/// A GPU that the driver shows, of which nothing is used yet.
#[derive(Debug)]
pub(crate) struct VisibleGpu {
    driver: Arc<Driver>,
    device: DeviceHandle,
}

impl VisibleGpu {
    /// The GPU with this number.
    pub(crate) fn find(driver: Arc<Driver>, ordinal: usize) -> Result<Self, Failure> {
        let mut device = 0;
        let number = c_int::try_from(ordinal).unwrap_or(c_int::MAX);
        // SAFETY: `device` is writable; a number that does not exist is refused.
        let code = unsafe { (driver.device_get)(&raw mut device, number) };
        driver.check("cuDeviceGet", code)?;
        Ok(Self { driver, device })
    }

    /// The product name of the GPU.
    pub(crate) fn name(&self) -> Result<String, Failure> {
        let mut text = [0; 256];
        // SAFETY: `text` has as many bytes as are said, and the driver ends what it writes with 0.
        let code = unsafe { (self.driver.device_get_name)(text.as_mut_ptr(), 256, self.device) };
        self.driver.check("cuDeviceGetName", code)?;
        Ok(text_of(&text))
    }

    /// Its address on the bus, as `0000:17:00.0`.
    pub(crate) fn pci_address(&self) -> Result<String, Failure> {
        let mut text = [0; 64];
        // SAFETY: `text` has as many bytes as are said, and the driver ends what it writes with 0.
        let code =
            unsafe { (self.driver.device_get_pci_bus_id)(text.as_mut_ptr(), 64, self.device) };
        self.driver.check("cuDeviceGetPCIBusId", code)?;
        Ok(text_of(&text))
    }

    /// All of its memory, in bytes.
    pub(crate) fn total_memory(&self) -> Result<u64, Failure> {
        let mut bytes = 0;
        // SAFETY: `bytes` is writable.
        let code = unsafe { (self.driver.device_total_mem)(&raw mut bytes, self.device) };
        self.driver.check("cuDeviceTotalMem", code)?;
        Ok(bytes as u64)
    }

    /// Which code it runs.
    pub(crate) fn capability(&self) -> Result<Capability, Failure> {
        let major = self.attribute(CAPABILITY_MAJOR)?;
        Ok(Capability::new(major, self.attribute(CAPABILITY_MINOR)?))
    }

    /// How many multiprocessors it has.
    pub(crate) fn multiprocessors(&self) -> Result<u32, Failure> {
        self.attribute(MULTIPROCESSOR_COUNT)
    }

    fn attribute(&self, which: c_int) -> Result<u32, Failure> {
        let mut value = 0;
        // SAFETY: `value` is writable.
        let code =
            unsafe { (self.driver.device_get_attribute)(&raw mut value, which, self.device) };
        self.driver.check("cuDeviceGetAttribute", code)?;
        Ok(u32::try_from(value).expect("no attribute that is asked for is negative"))
    }
}

/// A GPU, with the context held that all who use it in this process share.
#[derive(Debug)]
pub(crate) struct Gpu {
    card: VisibleGpu,
    pub(super) driver: Arc<Driver>,
    pub(super) context: ContextHandle,
}

impl Gpu {
    /// Makes a GPU ready to work.
    pub(crate) fn open(card: VisibleGpu) -> Result<Arc<Self>, Failure> {
        let driver = card.driver.clone();
        let mut context = ContextHandle::NULL;
        // SAFETY: `context` is writable, and the device came from `cuDeviceGet`.
        let code = unsafe { (driver.primary_ctx_retain)(&raw mut context, card.device) };
        driver.check("cuDevicePrimaryCtxRetain", code)?;
        Ok(Arc::new(Self {
            card,
            driver,
            context,
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
        let code = unsafe { (self.driver.mem_get_info)(&raw mut free, &raw mut total) };
        self.driver.check("cuMemGetInfo", code)?;
        Ok(free as u64)
    }

    /// Makes it the one that this thread works on, until what is returned is dropped.
    pub(super) fn enter(&self) -> Result<Entered<'_>, Failure> {
        // SAFETY: the context is held by `self`, which outlives what is returned.
        let code = unsafe { (self.driver.ctx_push_current)(self.context) };
        self.driver.check("cuCtxPushCurrent", code)?;
        Ok(Entered {
            gpu: self,
            thread: PhantomData,
        })
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // SAFETY: it was retained once when this was made. Nobody is left to hear of a failure.
        unsafe { (self.driver.primary_ctx_release)(self.card.device) };
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
        unsafe { (self.gpu.driver.ctx_pop_current)(&raw mut context) };
    }
}

fn text_of(bytes: &[c_char]) -> String {
    let bytes: &[u8] = bytemuck::cast_slice(bytes);
    let text = CStr::from_bytes_until_nul(bytes).unwrap_or_default();
    text.to_string_lossy().trim().to_owned()
}

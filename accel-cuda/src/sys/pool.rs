//! The driver's pool of a GPU's memory, in which what is freed waits for the next that asks:
//! neither allocating nor freeing then waits for the GPU.
#![expect(unsafe_code, reason = "functions of other languages are called here")]

use std::sync::Arc;

use super::driver::{Driver, PoolHandle, sys};
use super::foreign::call;
use crate::error::Failure;

use sys::CUmemPool_attribute as Attribute;

/// The pool that all who allocate in the order of a stream share in this process. Memory that
/// nobody uses goes back to the system when this is dropped.
#[derive(Debug)]
pub(super) struct Pool {
    driver: Arc<Driver>,
    handle: PoolHandle,
}

impl Pool {
    /// The pool of a device that has one, which keeps from now on what is freed.
    pub(super) fn keeping(driver: Arc<Driver>, device: sys::CUdevice) -> Result<Self, Failure> {
        let mut handle = PoolHandle::NULL;
        // SAFETY: `handle` is writable, and the device came from `cuDeviceGet`.
        unsafe { call!(driver, cuDeviceGetDefaultMemPool(&raw mut handle.0, device)) }?;
        let mut threshold = u64::MAX;
        let (which, value) = (
            Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
            (&raw mut threshold).cast(),
        );
        // SAFETY: the value of this attribute is a `cuuint64_t`, which is read before this returns.
        unsafe { call!(driver, cuMemPoolSetAttribute(handle.0, which, value)) }?;
        Ok(Self { driver, handle })
    }

    /// Bytes that it has of the GPU and that nobody uses.
    pub(super) fn unused(&self) -> Result<u64, Failure> {
        let reserved = self.bytes(Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)?;
        let used = self.bytes(Attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?;
        // Others may have freed between the two questions.
        Ok(reserved.saturating_sub(used))
    }

    fn bytes(&self, which: Attribute) -> Result<u64, Failure> {
        let mut bytes = 0_u64;
        let value = (&raw mut bytes).cast();
        // SAFETY: the values of these attributes are `cuuint64_t`, and `bytes` is writable.
        unsafe {
            call!(
                self.driver,
                cuMemPoolGetAttribute(self.handle.0, which, value)
            )
        }?;
        Ok(bytes)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: the pool is the device's, and lives as long as the driver. Nobody is left to hear
        // of a failure.
        let _ = unsafe { call!(self.driver, cuMemPoolTrimTo(self.handle.0, 0)) };
    }
}

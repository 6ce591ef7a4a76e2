//! The driver's pool of a GPU's memory, in which what is freed waits for the next that asks:
//! neither allocating nor freeing then waits for the GPU.
#![expect(unsafe_code, reason = "functions of other languages are called here")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::driver::{Driver, PoolHandle, sys};
use super::foreign::call;
use crate::error::Failure;

use sys::CUmemPool_attribute as Attribute;

/// The pool that all who allocate in the order of a stream share in this process. When the last
/// owner of one drops it, memory that nobody uses goes back to the system, and it keeps again as
/// much as before.
#[derive(Debug)]
pub(super) struct Pool {
    driver: Arc<Driver>,
    handle: PoolHandle,
}

/// How often a pool is open, and how much it kept of what is freed before that.
struct Opened {
    times: usize,
    kept: u64,
}

/// By the addresses that pools have in this process.
static OPENED: Mutex<BTreeMap<usize, Opened>> = Mutex::new(BTreeMap::new());

impl Pool {
    /// The pool of a device that has one, which keeps from now on what is freed.
    pub(super) fn keeping(driver: Arc<Driver>, device: sys::CUdevice) -> Result<Self, Failure> {
        let mut handle = PoolHandle::NULL;
        // SAFETY: `handle` is writable, and the device came from `cuDeviceGet`.
        unsafe { call!(driver, cuDeviceGetDefaultMemPool(&raw mut handle.0, device)) }?;
        let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(opened) = opened.get_mut(&handle.0.addr()) {
            opened.times += 1;
            return Ok(Self { driver, handle });
        }
        let kept = bytes_of(
            &driver,
            handle,
            Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
        )?;
        keep(&driver, handle, ALL)?;
        opened.insert(handle.0.addr(), Opened { times: 1, kept });
        drop(opened);
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
        bytes_of(&self.driver, self.handle, which)
    }

    /// Lets it keep what it kept before it was first opened, unless others have changed that.
    fn close(&self) -> Result<(), Failure> {
        let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        let at = self.handle.0.addr();
        let last = match opened.remove(&at) {
            Some(Opened { times, kept }) if times > 1 => {
                let times = times - 1;
                opened.insert(at, Opened { times, kept });
                None
            }
            last => last,
        };
        let threshold = Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        match last {
            Some(last) if self.bytes(threshold)? == ALL => {
                keep(&self.driver, self.handle, last.kept)
            }
            Some(_) | None => Ok(()),
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // Nobody is left to hear of a failure.
        let _ = self.close();
        // SAFETY: the pool is the device's, and lives as long as the driver.
        let _ = unsafe { call!(self.driver, cuMemPoolTrimTo(self.handle.0, 0)) };
    }
}

/// An attribute of a pool.
fn bytes_of(driver: &Driver, pool: PoolHandle, which: Attribute) -> Result<u64, Failure> {
    let mut bytes = 0_u64;
    let value = (&raw mut bytes).cast();
    // SAFETY: the values of the attributes that are asked for are `cuuint64_t`, and `bytes` is
    // writable.
    unsafe { call!(driver, cuMemPoolGetAttribute(pool.0, which, value)) }?;
    Ok(bytes)
}

/// Lets a pool keep so many bytes of what is freed.
fn keep(driver: &Driver, pool: PoolHandle, mut bytes: u64) -> Result<(), Failure> {
    let (which, value) = (
        Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
        (&raw mut bytes).cast(),
    );
    // SAFETY: the value of this attribute is a `cuuint64_t`, which is read before this returns.
    unsafe { call!(driver, cuMemPoolSetAttribute(pool.0, which, value)) }
}

/// All that is freed.
const ALL: u64 = u64::MAX;

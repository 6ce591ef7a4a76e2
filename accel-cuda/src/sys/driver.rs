//! The driver API: its functions and handles, what its codes mean, and its version.
#![expect(unsafe_code, reason = "functions of other languages are called here")]

use std::ffi::{c_char, c_int, c_uint};
use std::ptr;
use std::sync::Arc;

pub(super) use cudarc::driver::sys::{self, CUdeviceptr as Address, CUresult};

use super::foreign::{Handle, Returned, call, code_of, table, text_at};
use crate::error::Failure;
use crate::{Error, Libraries, Library};

pub(super) type ContextHandle = Handle<sys::CUctx_st>;
pub(super) type StreamHandle = Handle<sys::CUstream_st>;
pub(super) type EventHandle = Handle<sys::CUevent_st>;
pub(super) type ModuleHandle = Handle<sys::CUmod_st>;
pub(super) type FunctionHandle = Handle<sys::CUfunc_st>;
pub(super) type PoolHandle = Handle<sys::CUmemPoolHandle_st>;

table! {
    /// The functions of the driver that this crate calls.
    Driver of Library::Driver {
        cuInit(_);
        cuDriverGetVersion(_);
        cuDeviceGetCount(_);
        cuDeviceGet(_, _);
        cuDeviceGetName(_, _, _);
        cuDeviceGetPCIBusId(_, _, _);
        cuDeviceGetAttribute(_, _, _);
        cuDeviceTotalMem_v2(_, _);
        cuDevicePrimaryCtxRetain(_, _);
        cuDevicePrimaryCtxRelease_v2(_);
        cuCtxPushCurrent_v2(_);
        cuCtxPopCurrent_v2(_);
        cuCtxSynchronize();
        cuMemGetInfo_v2(_, _);
        cuMemAlloc_v2(_, _);
        cuMemFree_v2(_);
        cuDeviceGetDefaultMemPool(_, _);
        cuMemPoolGetAttribute(_, _, _);
        cuMemPoolSetAttribute(_, _, _);
        cuMemPoolTrimTo(_, _);
        cuMemAllocAsync(_, _, _);
        cuMemFreeAsync(_, _);
        cuPointerGetAttribute(_, _, _);
        cuMemHostAlloc(_, _, _);
        cuMemFreeHost(_);
        cuMemHostRegister_v2(_, _, _);
        cuMemHostUnregister(_);
        cuMemsetD8Async(_, _, _, _);
        cuMemcpyHtoDAsync_v2(_, _, _, _);
        cuMemcpyDtoHAsync_v2(_, _, _, _);
        cuMemcpyDtoDAsync_v2(_, _, _, _);
        cuMemcpyPeerAsync(_, _, _, _, _, _);
        cuStreamCreate(_, _);
        cuStreamDestroy_v2(_);
        cuStreamSynchronize(_);
        cuStreamQuery(_);
        cuStreamWaitEvent(_, _, _);
        cuStreamGetCtx(_, _);
        cuEventCreate(_, _);
        cuEventRecord(_, _);
        cuEventSynchronize(_);
        cuEventDestroy_v2(_);
        cuModuleLoadData(_, _);
        cuModuleUnload(_);
        cuModuleGetFunction(_, _, _);
        cuLaunchKernel(_, _, _, _, _, _, _, _, _, _, _);
    } lacking {
        /// Asked about codes that no enum has.
        cuGetErrorName(c_uint, *mut *const c_char) -> c_uint;
        /// As above.
        cuGetErrorString(c_uint, *mut *const c_char) -> c_uint;
    }
}

impl Driver {
    /// Loads the driver and lets it begin.
    ///
    /// # Errors
    /// [`Error::NotLoadable`], [`Error::NoFunction`], [`Error::TooOld`], [`Error::NoDevices`], and
    /// [`Error::Call`] where the driver refuses to begin.
    pub(crate) fn open(libraries: &Libraries) -> Result<Arc<Self>, Error> {
        let driver = Self::lookup(libraries)?;
        // SAFETY: the flags must be 0.
        let returned = unsafe { code_of!(driver, cuInit(0)) };
        if returned.is(CUresult::CUDA_ERROR_NO_DEVICE) {
            return Err(Error::NoDevices);
        }
        driver.check(returned)?;
        let version = driver.version()?;
        if version < OLDEST {
            return Err(Error::TooOld {
                library: Library::Driver,
                found: version_text(version),
                needed: version_text(OLDEST),
            });
        }
        Ok(Arc::new(driver))
    }

    /// The newest CUDA that the driver can run, as 13000 for 13.0.
    pub(crate) fn version(&self) -> Result<c_int, Failure> {
        let mut version = 0;
        // SAFETY: `version` is writable.
        unsafe { call!(self, cuDriverGetVersion(&raw mut version)) }?;
        Ok(version)
    }

    /// The same as text, such as `13.0`; empty where it is unknown.
    pub(crate) fn version_text(&self) -> String {
        self.version().map_or_else(|_| String::new(), version_text)
    }

    /// How many GPUs there are.
    pub(crate) fn device_count(&self) -> Result<usize, Failure> {
        let mut count = 0;
        // SAFETY: `count` is writable.
        unsafe { call!(self, cuDeviceGetCount(&raw mut count)) }?;
        Ok(usize::try_from(count).expect("a count is not negative"))
    }

    /// An error, unless a function has returned that it did what it should.
    pub(super) fn check(&self, returned: Returned) -> Result<(), Failure> {
        if returned.is(CUresult::CUDA_SUCCESS) {
            return Ok(());
        }
        let code = returned.code;
        let status = format!("{}: {}", self.name_of(code), self.text_of(code));
        Err(returned.failure(status))
    }

    fn name_of(&self, code: c_uint) -> String {
        let mut text = ptr::null();
        // SAFETY: `text` is writable; of a code that it does not know, the driver makes it null.
        unsafe { (self.cuGetErrorName)(code, &raw mut text) };
        // SAFETY: what the driver gave lives as long as the driver.
        unsafe { text_at(text) }
    }

    fn text_of(&self, code: c_uint) -> String {
        let mut text = ptr::null();
        // SAFETY: as for the name.
        unsafe { (self.cuGetErrorString)(code, &raw mut text) };
        // SAFETY: what the driver gave lives as long as the driver.
        unsafe { text_at(text) }
    }
}

/// `13000` as `13.0`.
fn version_text(version: c_int) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// CUDA 12.0: older drivers know none of the architectures that its compiler still makes code for.
const OLDEST: c_int = 12_000;

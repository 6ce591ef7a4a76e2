//! The driver API: its functions, handles and numbers, as `cuda.h` of CUDA 13.0 has them.
#![expect(unsafe_code, reason = "functions of other languages are called here")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::Arc;

use super::shared_library::table;
use crate::error::Failure;
use crate::{Error, Libraries, Library};

/// `CUresult`. A number and no enum: a newer driver may return codes that are not known here.
pub(super) type Code = c_uint;
/// `CUdevice`.
pub(super) type DeviceHandle = c_int;
/// `CUdeviceptr`: an address of a device, never one of this process.
pub(super) type Address = u64;

/// Declares handles: pointers to what only the library knows, held as the numbers that they are.
macro_rules! handles {
    ($($(#[$doc:meta])* $handle:ident),+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        #[repr(transparent)]
        pub(super) struct $handle(usize);

        impl $handle {
            pub(super) const NULL: Self = Self(0);
        }
    )+};
}

handles!(
    /// `CUcontext`.
    ContextHandle,
    /// `CUstream`.
    StreamHandle,
    /// `CUevent`.
    EventHandle,
    /// `CUmodule`.
    ModuleHandle,
    /// `CUfunction`.
    FunctionHandle
);

table! {
    /// The functions of the driver that this crate calls.
    Driver of Library::Driver;
    init: cuInit(c_uint) -> Code;
    driver_get_version: cuDriverGetVersion(*mut c_int) -> Code;
    get_error_name: cuGetErrorName(Code, *mut *const c_char) -> Code;
    get_error_string: cuGetErrorString(Code, *mut *const c_char) -> Code;
    device_get_count: cuDeviceGetCount(*mut c_int) -> Code;
    device_get: cuDeviceGet(*mut DeviceHandle, c_int) -> Code;
    device_get_name: cuDeviceGetName(*mut c_char, c_int, DeviceHandle) -> Code;
    device_get_pci_bus_id: cuDeviceGetPCIBusId(*mut c_char, c_int, DeviceHandle) -> Code;
    device_get_attribute: cuDeviceGetAttribute(*mut c_int, c_int, DeviceHandle) -> Code;
    device_total_mem: cuDeviceTotalMem_v2(*mut usize, DeviceHandle) -> Code;
    primary_ctx_retain: cuDevicePrimaryCtxRetain(*mut ContextHandle, DeviceHandle) -> Code;
    primary_ctx_release: cuDevicePrimaryCtxRelease_v2(DeviceHandle) -> Code;
    ctx_push_current: cuCtxPushCurrent_v2(ContextHandle) -> Code;
    ctx_pop_current: cuCtxPopCurrent_v2(*mut ContextHandle) -> Code;
    mem_get_info: cuMemGetInfo_v2(*mut usize, *mut usize) -> Code;
    mem_alloc: cuMemAlloc_v2(*mut Address, usize) -> Code;
    mem_free: cuMemFree_v2(Address) -> Code;
    mem_host_alloc: cuMemHostAlloc(*mut *mut c_void, usize, c_uint) -> Code;
    mem_free_host: cuMemFreeHost(*mut c_void) -> Code;
    mem_host_register: cuMemHostRegister_v2(*mut c_void, usize, c_uint) -> Code;
    mem_host_unregister: cuMemHostUnregister(*mut c_void) -> Code;
    memset_d8_async: cuMemsetD8Async(Address, u8, usize, StreamHandle) -> Code;
    memcpy_htod_async: cuMemcpyHtoDAsync_v2(Address, *const c_void, usize, StreamHandle) -> Code;
    memcpy_dtoh_async: cuMemcpyDtoHAsync_v2(*mut c_void, Address, usize, StreamHandle) -> Code;
    memcpy_dtod_async: cuMemcpyDtoDAsync_v2(Address, Address, usize, StreamHandle) -> Code;
    memcpy_peer_async: cuMemcpyPeerAsync(Address, ContextHandle, Address, ContextHandle, usize, StreamHandle) -> Code;
    stream_create: cuStreamCreate(*mut StreamHandle, c_uint) -> Code;
    stream_destroy: cuStreamDestroy_v2(StreamHandle) -> Code;
    stream_synchronize: cuStreamSynchronize(StreamHandle) -> Code;
    stream_query: cuStreamQuery(StreamHandle) -> Code;
    stream_wait_event: cuStreamWaitEvent(StreamHandle, EventHandle, c_uint) -> Code;
    event_create: cuEventCreate(*mut EventHandle, c_uint) -> Code;
    event_record: cuEventRecord(EventHandle, StreamHandle) -> Code;
    event_synchronize: cuEventSynchronize(EventHandle) -> Code;
    event_destroy: cuEventDestroy_v2(EventHandle) -> Code;
    module_load_data: cuModuleLoadData(*mut ModuleHandle, *const c_void) -> Code;
    module_unload: cuModuleUnload(ModuleHandle) -> Code;
    module_get_function: cuModuleGetFunction(*mut FunctionHandle, ModuleHandle, *const c_char) -> Code;
    launch_kernel: cuLaunchKernel(
        FunctionHandle,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        StreamHandle,
        *mut *mut c_void,
        *mut *mut c_void
    ) -> Code;
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
        let code = unsafe { (driver.init)(0) };
        if code == NO_DEVICE {
            return Err(Error::NoDevices);
        }
        driver.check("cuInit", code)?;
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
        let code = unsafe { (self.driver_get_version)(&raw mut version) };
        self.check("cuDriverGetVersion", code)?;
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
        let code = unsafe { (self.device_get_count)(&raw mut count) };
        self.check("cuDeviceGetCount", code)?;
        Ok(usize::try_from(count).expect("a count is not negative"))
    }

    /// An error, unless `code` says that `function` did what it should.
    pub(super) fn check(&self, function: &'static str, code: Code) -> Result<(), Failure> {
        if code == SUCCESS {
            return Ok(());
        }
        Err(Failure {
            function,
            code: code.into(),
            status: format!("{}: {}", self.name_of(code), self.text_of(code)),
        })
    }

    fn name_of(&self, code: Code) -> String {
        let mut text = ptr::null();
        // SAFETY: `text` is writable; of a code that it does not know, the driver makes it null.
        unsafe { (self.get_error_name)(code, &raw mut text) };
        // SAFETY: what the driver gave lives as long as the driver.
        unsafe { text_at(text) }
    }

    fn text_of(&self, code: Code) -> String {
        let mut text = ptr::null();
        // SAFETY: as for the name.
        unsafe { (self.get_error_string)(code, &raw mut text) };
        // SAFETY: what the driver gave lives as long as the driver.
        unsafe { text_at(text) }
    }
}

/// The text at an address that a library gave, which may be none.
///
/// # Safety
/// `text` is null, or a string that ends in 0 and lives until this returns.
pub(super) unsafe fn text_at(text: *const c_char) -> String {
    if text.is_null() {
        return "unknown".to_owned();
    }
    // SAFETY: the caller says so.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}

/// `13000` as `13.0`.
fn version_text(version: c_int) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// CUDA 12.0: older drivers know none of the architectures that its compiler still makes code for.
const OLDEST: c_int = 12_000;

pub(super) const SUCCESS: Code = 0;
pub(super) const OUT_OF_MEMORY: Code = 2;
pub(super) const NO_DEVICE: Code = 100;
pub(super) const NOT_READY: Code = 600;
/// `CU_STREAM_NON_BLOCKING`: work is not ordered with the default stream, which others use.
pub(super) const STREAM_NON_BLOCKING: c_uint = 1;
/// `CU_EVENT_DISABLE_TIMING`: events that only order are faster.
pub(super) const EVENT_DISABLE_TIMING: c_uint = 2;
/// `CU_MEMHOSTALLOC_PORTABLE`: pinned for all contexts, as copies between GPUs may use it.
pub(super) const HOST_ALLOC_PORTABLE: c_uint = 1;
/// `CU_MEMHOSTREGISTER_PORTABLE`: pinned for all contexts, like memory that the driver has
/// allocated.
pub(super) const HOST_REGISTER_PORTABLE: c_uint = 1;
/// `CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT`.
pub(super) const MULTIPROCESSOR_COUNT: c_int = 16;
/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR`.
pub(super) const CAPABILITY_MAJOR: c_int = 75;
/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR`.
pub(super) const CAPABILITY_MINOR: c_int = 76;

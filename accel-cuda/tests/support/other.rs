//! Another library in the process, which has memory on a GPU of the fake driver and works on it by
//! a stream of its own.
#![expect(
    unsafe_code,
    reason = "functions of the fake driver are called as another library calls them"
)]

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use meshwork_accel::ElementType;
use meshwork_accel_cuda::ExternalMemory;

use crate::fake::Fake;

/// Calls a function of the fake driver, which must succeed.
macro_rules! call {
    ($fake:expr, $name:literal, $($argument:expr => $kind:ty),*) => {{
        type Function = unsafe extern "C" fn($($kind),*) -> c_int;
        // SAFETY: the type is that of the source.
        let function = unsafe { $fake.driver.get::<Function>($name) }.expect("the source has it");
        // SAFETY: addresses are those of this library, and of the size that is said.
        assert_eq!(unsafe { function($($argument),*) }, 0, $name);
    }};
}

/// The library, with a piece of memory.
#[derive(Debug)]
pub(crate) struct Other<'a> {
    fake: &'a Fake,
    device: c_int,
    context: *mut c_void,
    /// Null for the default one.
    stream: *mut c_void,
    address: u64,
    bytes: usize,
}

impl<'a> Other<'a> {
    /// Memory on a GPU that is worked on by its default stream.
    #[allow(dead_code, reason = "each test file takes what it needs")]
    pub(crate) fn by_default(fake: &'a Fake, gpu: c_int, bytes: usize) -> Self {
        let mut other = Self {
            fake,
            device: 0,
            context: ptr::null_mut(),
            stream: ptr::null_mut(),
            address: 0,
            bytes,
        };
        call!(fake, "cuDeviceGet", &raw mut other.device => *mut c_int, gpu => c_int);
        call!(fake, "cuDevicePrimaryCtxRetain", &raw mut other.context => *mut *mut c_void, other.device => c_int);
        let at = &raw mut other.address;
        let allocate = || call!(fake, "cuMemAlloc_v2", at => *mut u64, bytes => usize);
        other.here(allocate);
        other
    }

    /// The same by a stream of its own.
    pub(crate) fn by_stream(fake: &'a Fake, gpu: c_int, bytes: usize) -> Self {
        let mut other = Self::by_default(fake, gpu, bytes);
        let stream = &raw mut other.stream;
        other.here(|| call!(fake, "cuStreamCreate", stream => *mut *mut c_void, 1 => c_uint));
        other
    }

    /// The same by the stream of each thread that calls.
    #[allow(dead_code, reason = "each test file takes what it needs")]
    pub(crate) fn by_thread(fake: &'a Fake, gpu: c_int, bytes: usize) -> Self {
        let mut other = Self::by_default(fake, gpu, bytes);
        other.stream = PER_THREAD;
        other
    }

    /// Queues that all bytes become `value`.
    pub(crate) fn set(&self, value: u8) {
        self.here(|| {
            call!(self.fake, "cuMemsetD8Async", self.address => u64, value => u8, self.bytes => usize, self.stream => *mut c_void);
        });
    }

    /// Queues that the bytes from `at` on become those of `from`, when the work on that is done.
    #[allow(dead_code, reason = "each test file takes what it needs")]
    pub(crate) fn copy_from(&self, from: &Self, at: usize) {
        from.here(|| call!(self.fake, "cuStreamSynchronize", from.stream => *mut c_void));
        let (to, source) = (self.address + at as u64, from.address);
        self.here(|| {
            call!(self.fake, "cuMemcpyDtoDAsync_v2", to => u64, source => u64, from.bytes => usize, self.stream => *mut c_void);
        });
    }

    /// Queues that the bytes become these, of which there are as many.
    #[allow(dead_code, reason = "each test file takes what it needs")]
    pub(crate) fn write(&self, bytes: &[u8]) {
        assert_eq!(bytes.len(), self.bytes);
        let mut at: *mut c_void = ptr::null_mut();
        let place = &raw mut at;
        self.here(|| call!(self.fake, "cuMemHostAlloc", place => *mut *mut c_void, self.bytes => usize, 1 => c_uint));
        // SAFETY: so many bytes are in both.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), at.cast(), self.bytes) };
        self.here(|| {
            call!(self.fake, "cuMemcpyHtoDAsync_v2", self.address => u64, at.cast_const() => *const c_void, self.bytes => usize, self.stream => *mut c_void);
            call!(self.fake, "cuStreamSynchronize", self.stream => *mut c_void);
            call!(self.fake, "cuMemFreeHost", at => *mut c_void);
        });
    }

    /// How many bytes it has.
    #[allow(dead_code, reason = "each test file takes what it needs")]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The bytes, when all that was queued is done.
    pub(crate) fn read(&self) -> Vec<u8> {
        let mut at: *mut c_void = ptr::null_mut();
        let place = &raw mut at;
        self.here(|| call!(self.fake, "cuMemHostAlloc", place => *mut *mut c_void, self.bytes => usize, 1 => c_uint));
        self.here(|| {
            call!(self.fake, "cuMemcpyDtoHAsync_v2", at => *mut c_void, self.address => u64, self.bytes => usize, self.stream => *mut c_void);
            call!(self.fake, "cuStreamSynchronize", self.stream => *mut c_void);
        });
        let mut bytes = vec![0; self.bytes];
        // SAFETY: so many bytes are in both, and nothing is queued that works on them.
        unsafe { ptr::copy_nonoverlapping(at.cast(), bytes.as_mut_ptr(), self.bytes) };
        self.here(|| call!(self.fake, "cuMemFreeHost", at => *mut c_void));
        bytes
    }

    /// Its memory as so many elements, which need not be there.
    pub(crate) fn lend(&self, element: ElementType, len: usize) -> ExternalMemory {
        self.lend_by(self.stream, element, len)
    }

    /// The same, said to be worked on by the stream of `another`.
    #[allow(dead_code, reason = "each test file takes what it needs")]
    pub(crate) fn lend_as(
        &self,
        another: &Self,
        element: ElementType,
        len: usize,
    ) -> ExternalMemory {
        self.lend_by(another.stream, element, len)
    }

    /// Its memory from byte `at` on.
    #[allow(dead_code, reason = "each test file takes what it needs")]
    pub(crate) fn lend_from(&self, at: usize, element: ElementType, len: usize) -> ExternalMemory {
        let address = self.address + at as u64;
        // SAFETY: as for all of it.
        unsafe { ExternalMemory::from_raw(address, element, len, self.stream) }
    }

    fn lend_by(&self, stream: *mut c_void, element: ElementType, len: usize) -> ExternalMemory {
        // SAFETY: it works on the memory by this stream, and tests drop what borrows it first.
        unsafe { ExternalMemory::from_raw(self.address, element, len, stream) }
    }

    /// Calls with its context current.
    fn here(&self, calls: impl FnOnce()) {
        call!(self.fake, "cuCtxPushCurrent_v2", self.context => *mut c_void);
        calls();
        let mut context: *mut c_void = ptr::null_mut();
        call!(self.fake, "cuCtxPopCurrent_v2", &raw mut context => *mut *mut c_void);
    }
}

/// `CU_STREAM_PER_THREAD`.
const PER_THREAD: *mut c_void = ptr::without_provenance_mut(2);

// SAFETY: functions of the driver may be called by any thread, with addresses that are the same
// for all.
unsafe impl Send for Other<'_> {}

// SAFETY: as above; nothing in it changes.
unsafe impl Sync for Other<'_> {}

impl Drop for Other<'_> {
    fn drop(&mut self) {
        self.here(|| {
            call!(self.fake, "cuStreamSynchronize", self.stream => *mut c_void);
            call!(self.fake, "cuMemFree_v2", self.address => u64);
            if !self.stream.is_null() && self.stream != PER_THREAD {
                call!(self.fake, "cuStreamDestroy_v2", self.stream => *mut c_void);
            }
        });
        call!(self.fake, "cuDevicePrimaryCtxRelease_v2", self.device => c_int);
    }
}

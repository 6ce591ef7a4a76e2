//! Libraries without a GPU: what `tests/c` makes of the driver and the compiler, each test its own.
#![expect(
    unsafe_code,
    reason = "the fake libraries are asked what they have counted"
)]

use std::ffi::{CString, c_char, c_int, c_long, c_void};
use std::fs;
use std::path::{Path, PathBuf};

use meshwork_accel_cuda::{CudaAccelerator, CudaConfig, KernelCache, Libraries, Library};

use super::cc;

/// A folder with libraries that no other test has loaded, and so with counters of its own.
#[derive(Debug)]
pub(crate) struct Fake {
    folder: tempfile::TempDir,
    /// Loaded as long as its counters are asked for.
    pub(crate) driver: libloading::Library,
}

/// What the fake driver counts.
#[allow(dead_code, reason = "each test file takes what it needs")]
#[derive(Clone, Copy, Debug)]
pub(crate) enum Count {
    Memories,
    Pinned,
    Streams,
    Events,
    Modules,
    Contexts,
    Pushed,
    Mistakes,
    Registered,
    /// Copies to a device, and to the host.
    ToDevice,
    ToHost,
    /// Pools that keep what is freed.
    Keeping,
}

#[allow(dead_code, reason = "each test file takes what it needs")]
impl Fake {
    /// Two GPUs of 64 MiB with the newest driver.
    pub(crate) fn new() -> Self {
        Self::with(&[])
    }

    /// With these preprocessor variables in the source of the compiler.
    pub(crate) fn with(defines: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder for libraries");
        for (name, defines) in [("cuda", &[][..]), ("nvrtc", defines), ("nccl", &[])] {
            let file = folder.path().join(format!("lib{name}.so"));
            let made = cc::compiled(&format!("fake_{name}.c"), "lib.so", defines);
            fs::copy(made, file).expect("the folder is writable");
        }
        let driver = load(&folder.path().join("libcuda.so"));
        Self { folder, driver }
    }

    /// With collectives between the threads of this process.
    pub(crate) fn with_collectives() -> Self {
        type Drain = unsafe extern "C" fn(*mut c_void) -> c_int;
        type Streams = unsafe extern "C" fn(Drain);
        let fake = Self::new();
        let nccl = load(&fake.file("nccl"));
        // SAFETY: the type is that of the source.
        let drain = unsafe { fake.driver.get::<Drain>("fake_drain") }.expect("the source has it");
        // SAFETY: the type is that of the source.
        let streams = unsafe { nccl.get::<Streams>("fake_streams") }.expect("the source has it");
        // SAFETY: the function stays loaded, by the line below.
        unsafe { streams(*drain) };
        std::mem::forget((load(&fake.file("cuda")), nccl));
        fake
    }

    /// With products of matrices by columns, as cuBLAS has them; with these preprocessor variables.
    pub(crate) fn with_cublas_and(defines: &[&str]) -> Self {
        type Drain = unsafe extern "C" fn(*mut c_void) -> c_int;
        type Streams = unsafe extern "C" fn(Drain);
        let fake = Self::with(&[]);
        let made = cc::compiled("fake_cublas.c", "lib.so", defines);
        fs::copy(made, fake.file("cublas")).expect("the folder is writable");
        let cublas = load(&fake.file("cublas"));
        // SAFETY: the type is that of the source.
        let drain = unsafe { fake.driver.get::<Drain>("fake_drain") }.expect("the source has it");
        // SAFETY: the type is that of the source.
        let streams = unsafe { cublas.get::<Streams>("fake_streams") }.expect("the source has it");
        // SAFETY: the function stays loaded, by the line below.
        unsafe { streams(*drain) };
        std::mem::forget((load(&fake.file("cuda")), cublas));
        fake
    }

    /// How many handles are alive, and how many products were made by columns.
    pub(crate) fn products(&self) -> (i64, i64) {
        (self.count_of("cublas", 0), self.count_of("cublas", 1))
    }

    /// Where these libraries are, and no others.
    pub(crate) fn libraries(&self) -> Libraries {
        let libraries = Libraries::from_env();
        let libraries = match self.file("cublas") {
            file if file.exists() => libraries.with_file(Library::Cublas, file),
            _ => libraries.without(Library::Cublas),
        };
        libraries
            .with_file(Library::Driver, self.file("cuda"))
            .with_file(Library::Nvrtc, self.file("nvrtc"))
            .with_file(Library::Nccl, self.file("nccl"))
    }

    /// All GPUs, one device each, without a cache.
    pub(crate) fn config(&self) -> CudaConfig {
        CudaConfig::new(self.libraries(), KernelCache::none())
    }

    pub(crate) fn open(&self) -> CudaAccelerator {
        CudaAccelerator::open(&self.config()).expect("a fake driver begins")
    }

    /// How much of something is alive.
    pub(crate) fn count(&self, what: Count) -> i64 {
        // SAFETY: the type is that of the source.
        let count = unsafe {
            self.driver
                .get::<unsafe extern "C" fn(c_int) -> c_long>("fake_count")
        };
        let count = count.expect("the source has it");
        // SAFETY: the function takes any number of a kind.
        unsafe { count(what as c_int) }
    }

    /// How many communicators are alive, and how many were aborted.
    pub(crate) fn communicators(&self) -> (i64, i64) {
        (self.count_of("nccl", 0), self.count_of("nccl", 1))
    }

    /// How many collectives were carried out from device to device.
    pub(crate) fn performed(&self) -> i64 {
        self.count_of("nccl", 2)
    }

    fn count_of(&self, library: &str, kind: c_int) -> i64 {
        let library = load(&self.file(library));
        // SAFETY: the type is that of the source.
        let count = unsafe { library.get::<unsafe extern "C" fn(c_int) -> c_long>("fake_count") };
        let count = count.expect("the source has it");
        // SAFETY: the function takes any number of a kind.
        unsafe { count(kind) }
    }

    /// Refuses the next call of a rank of any communicator, also to join it.
    pub(crate) fn refuse(&self, rank: c_int, code: c_int) {
        type Refuse = unsafe extern "C" fn(c_int, c_int);
        let library = load(&self.file("nccl"));
        // SAFETY: the type is that of the source.
        let refuse = unsafe { library.get::<Refuse>("fake_refuse") }.expect("the source has it");
        // SAFETY: the function takes any numbers.
        unsafe { refuse(rank, code) };
    }

    /// With another number in a library that stays loaded and nobody has called yet.
    pub(crate) fn set(self, library: &str, number: &str, value: c_int) -> Self {
        let library = load(&self.file(library));
        // SAFETY: the type is that of the source.
        let number = unsafe { library.get::<*mut c_int>(number.as_bytes()) };
        let number = number.expect("the source has it");
        // SAFETY: the library is loaded, and no thread reads it yet.
        unsafe { **number = value };
        self
    }

    /// Lets a call of a function fail, after so many that do not.
    pub(crate) fn fail(&self, function: &str, after: i32, code: i32) {
        type Fail = unsafe extern "C" fn(*const c_char, c_int, c_int);
        let name = CString::new(function).expect("no name has a 0");
        // SAFETY: the type is that of the source.
        let fail = unsafe { self.driver.get::<Fail>("fake_fail") }.expect("the source has it");
        // SAFETY: the name ends in 0 and is copied.
        unsafe { fail(name.as_ptr(), after, code) };
    }

    /// Lets calls of a function wait at their beginning until another is named.
    pub(crate) fn hold(&self, function: &str) {
        type Hold = unsafe extern "C" fn(*const c_char);
        let name = CString::new(function).expect("no name has a 0");
        // SAFETY: the type is that of the source.
        let hold = unsafe { self.driver.get::<Hold>("fake_hold") }.expect("the source has it");
        // SAFETY: the name ends in 0 and is copied.
        unsafe { hold(name.as_ptr()) };
    }

    /// Whether a call waits so, as it does soon.
    pub(crate) fn is_held(&self) -> bool {
        type IsHeld = unsafe extern "C" fn() -> c_int;
        // SAFETY: the type is that of the source.
        let held = unsafe { self.driver.get::<IsHeld>("fake_is_held") };
        let held = held.expect("the source has it");
        // SAFETY: the function takes nothing.
        unsafe { held() != 0 }
    }

    /// Nothing is alive, and nothing was done that a driver would not forgive.
    #[track_caller]
    pub(crate) fn is_clean(&self) {
        for what in [
            Count::Memories,
            Count::Pinned,
            Count::Streams,
            Count::Events,
            Count::Modules,
            Count::Contexts,
            Count::Pushed,
            Count::Mistakes,
            Count::Registered,
        ] {
            assert_eq!(self.count(what), 0, "{what:?}");
        }
    }

    /// Where its files are, and others may be put.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The file of a fake library.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("lib{name}.so"))
    }
}

/// One library; it is the same as long as anybody has it loaded.
fn load(file: &Path) -> libloading::Library {
    // SAFETY: loading it runs nothing of its own.
    unsafe { libloading::Library::new(file) }.expect("it was just compiled")
}

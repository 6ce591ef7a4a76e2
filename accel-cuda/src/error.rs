//! Errors of loading and calling CUDA libraries. `upward` turns them into `meshwork_accel::Error`,
//! which is all that users of the `Accelerator` trait see.

mod upward;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use meshwork_accel as accel;

use crate::Library;

/// Errors of loading and using CUDA. Nothing is left allocated or running after an error.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No file of a library could be loaded: it is not installed, or not in a searched place.
    #[error(
        "{library} cannot be loaded (the loader says: {said}; tried {}): {}",
        tried.join(", "),
        library.remedy()
    )]
    NotLoadable {
        /// The library.
        library: Library,
        /// The names (looked up by the loader) and paths that were tried, in this order.
        tried: Vec<String>,
        /// The system loader's message about the first file that exists, or else about the first
        /// name.
        said: String,
    },
    /// A library was loaded and lacks a function: it is too old, or another library of that name.
    #[error("{library} in {file} has no function {function}: {}", library.remedy())]
    NoFunction {
        /// The library.
        library: Library,
        /// The name or path that was loaded.
        file: String,
        /// The function that is missing.
        function: &'static str,
    },
    /// A library was loaded that is older than what this crate can use.
    #[error("{library} is version {found}, and {needed} is the oldest that will do: {}", library.remedy())]
    TooOld {
        /// The library.
        library: Library,
        /// Its version.
        found: String,
        /// The oldest that is good enough.
        needed: String,
    },
    /// The driver works, and no GPU is visible to this process.
    #[error(
        "the CUDA driver sees no GPU: check nvidia-smi, CUDA_VISIBLE_DEVICES, and that a container is given its GPUs"
    )]
    NoDevices,
    /// The caller named a GPU that the driver does not show.
    #[error("GPU {ordinal} does not exist: the driver shows {available}, numbered from 0")]
    UnknownGpu {
        /// The GPU asked for.
        ordinal: usize,
        /// How many there are.
        available: usize,
    },
    /// More devices were asked for than one collective can combine.
    #[error("{asked} devices in one process are too many: {most} are the most")]
    TooManyDevices {
        /// Devices asked for.
        asked: usize,
        /// The most there can be.
        most: usize,
    },
    /// The limits of a GPU's logical devices add up to more than it has.
    #[error(
        "{devices} logical devices of {limit} bytes do not fit in the {total} bytes of GPU {ordinal}: lower the limit"
    )]
    LimitTooLarge {
        /// The GPU.
        ordinal: usize,
        /// Logical devices on it.
        devices: usize,
        /// Bytes that each was to have.
        limit: u64,
        /// Bytes that the GPU has.
        total: u64,
    },
    /// Memory that was to be borrowed is none of a GPU, or has been freed.
    #[error(
        "address {address:#x} is no memory of a GPU: lend what was allocated on GPU {ordinal}, and still is"
    )]
    NotOnGpu {
        /// The address.
        address: u64,
        /// The GPU that was to use it.
        ordinal: usize,
    },
    /// Memory that was to be borrowed, or the stream that works on it, belongs to another GPU, or
    /// to a context that is not the GPU's primary one.
    #[error(
        "the memory at {address:#x} is of GPU {found}, and is to be used by GPU {ordinal}: lend it to the device of its own GPU, with a stream of that GPU's primary context"
    )]
    OnOtherGpu {
        /// The address.
        address: u64,
        /// The GPU that has it.
        found: usize,
        /// The GPU that was to use it.
        ordinal: usize,
    },
    /// Memory that was to be borrowed ends before its elements do.
    #[error(
        "{bytes} bytes at {address:#x} are not there: what was allocated has {left} from there on"
    )]
    BeyondAllocation {
        /// The address.
        address: u64,
        /// Bytes of all elements.
        bytes: u64,
        /// Bytes that there are.
        left: u64,
    },
    /// Memory that was to be borrowed begins where no element of its type may: GPUs read and write
    /// elements at multiples of their size only.
    #[error(
        "address {address:#x} is no multiple of the {} bytes of {element} elements: lend memory that begins at an element",
        element.size()
    )]
    Misaligned {
        /// The address.
        address: u64,
        /// The type of the elements.
        element: accel::ElementType,
    },
    /// A function of a library failed.
    #[error("{function} failed with code {code} ({status})")]
    Call {
        /// The function.
        function: &'static str,
        /// The code that it returned.
        code: i64,
        /// The library's description of the code.
        status: String,
    },
    /// The kernels did not compile: NVRTC does not know the architecture, or is broken.
    #[error("NVRTC cannot compile the kernels for {architecture}: {log}")]
    Compile {
        /// The architecture, such as `sm_90`.
        architecture: String,
        /// The log of NVRTC.
        log: String,
    },
    /// The driver does not take what a compiler made that is newer than it.
    #[error(
        "the driver is for CUDA {driver} and does not take kernels of NVRTC {compiler} (code {code}, {status}): `pip install {}`, name that libnvrtc.so in MESHWORK_NVRTC, or install a newer driver",
        package_of(driver)
    )]
    CompilerTooNew {
        /// The compiler's version.
        compiler: String,
        /// The newest CUDA that the driver runs.
        driver: String,
        /// The code that the driver returned.
        code: i64,
        /// The library's description of the code.
        status: String,
    },
    /// A compiled kernel could not be kept on disk.
    #[error("the kernel cache cannot write {} ({kind}): choose another folder by MESHWORK_CUDA_CACHE", path.display())]
    Cache {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        kind: io::ErrorKind,
    },
    /// Another user could have put code into the kernel cache.
    #[error("the kernel cache does not use {}, which user {owner} owns with mode {mode:o}: make it yours, and let nobody else write to it", path.display())]
    CacheExposed {
        /// The folder.
        path: PathBuf,
        /// The user id of its owner.
        owner: u32,
        /// Its permission bits.
        mode: u32,
    },
    /// A rank, or the number of ranks, is not one of a communicator.
    #[error("rank {rank} does not exist in a communicator of {world} ranks")]
    RankOutside {
        /// The rank.
        rank: usize,
        /// How many ranks there are.
        world: usize,
    },
    /// NCCL did not get ready in time: another rank is missing, or the network is.
    #[error("{operation} was not done after {} ms: see why another rank did not take part", waited.as_millis())]
    Deadline {
        /// The operation that was waited for.
        operation: &'static str,
        /// How long.
        waited: Duration,
    },
    /// A communicator was used after a failure or a missed deadline.
    #[error("this communicator has failed before: join a new one")]
    Broken,
    /// An argument was refused, or the device failed.
    #[error(transparent)]
    Device(#[from] accel::Error),
}

/// The package with the compiler of a version of CUDA: those of 12 have its number in their name.
fn package_of(version: &str) -> String {
    let suffix = match version.split_once('.') {
        Some(("12", _)) => "-cu12",
        _ => "",
    };
    format!("'nvidia-cuda-nvrtc{suffix}=={version}.*'")
}

/// A function of a library that failed, before it is known on which device.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Failure {
    pub(crate) function: &'static str,
    pub(crate) code: i64,
    pub(crate) status: String,
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        Self::Call {
            function: failure.function,
            code: failure.code,
            status: failure.status,
        }
    }
}

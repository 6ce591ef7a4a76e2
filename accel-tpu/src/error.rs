//! Errors of loading a PJRT plugin, calling it, and naming TPU topologies. They become
//! `meshwork_accel::Error` in `accelerator::failure`; status codes of plugins are in `status`.

use std::path::PathBuf;
use std::time::Duration;

use meshwork_accel::ElementType;
use meshwork_core::tpu::TpuError;

use crate::Status;

/// Why a plugin, or what was asked of it, did not work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No plugin was found where they are looked for. Nothing was loaded.
    #[error(
        "no PJRT plugin for {platform} was found: set {variable} to its path, or install {package} with pip"
    )]
    NoPlugin {
        /// The platform that it was to drive, such as `TPU`.
        platform: &'static str,
        /// The variable that names such a plugin.
        variable: &'static str,
        /// The Python package that brings one.
        package: &'static str,
        /// The files that were looked for, in order.
        looked_at: Vec<PathBuf>,
    },
    /// The library cannot be loaded: the file is missing, or what it needs is.
    #[error("the plugin {} cannot be loaded", path.display())]
    Load {
        /// The library.
        path: PathBuf,
        /// The error of the system's loader.
        source: libloading::Error,
    },
    /// The library has no PJRT interface. It stays loaded.
    #[error("{} is no PJRT plugin: it has no usable GetPjrtApi", path.display())]
    NoApi {
        /// The library.
        path: PathBuf,
    },
    /// The plugin speaks another major version of PJRT. It stays loaded.
    #[error(
        "the plugin {} speaks version {major} of PJRT, not {expected}: use another release",
        path.display()
    )]
    ApiVersion {
        /// The library.
        path: PathBuf,
        /// The major version of the plugin.
        major: i32,
        /// The major version that this crate speaks.
        expected: i32,
    },
    /// libtpu would wait for minutes, or refuse to share the machine, unless a variable is set
    /// before it is loaded. Nothing was loaded.
    #[error(
        "libtpu needs {variable}={value} in the environment on a machine without a TPU: set it before the process starts"
    )]
    Environment {
        /// The variable.
        variable: &'static str,
        /// The value that it needs.
        value: &'static str,
    },
    /// The plugin is older than a function that was needed. Nothing was called.
    #[error(
        "{function} is not in the plugin, which speaks PJRT {major}.{minor}: use a newer release"
    )]
    NotSupported {
        /// The function.
        function: &'static str,
        /// The major version of the plugin.
        major: i32,
        /// The minor version of the plugin.
        minor: i32,
    },
    /// The plugin refused a call, or the work that it had begun failed.
    #[error("{function} failed with {status}: {message}")]
    Plugin {
        /// The function that failed.
        function: &'static str,
        /// The kind of failure.
        status: Status,
        /// The plugin's message.
        message: String,
    },
    /// The plugin succeeded, and yet gave nothing.
    #[error("{function} gave no {what}: the plugin is broken, use another release")]
    Nothing {
        /// The function.
        function: &'static str,
        /// The missing result.
        what: &'static str,
    },
    /// The plugin took longer than the deadline; it continues, and nothing that was waited for is
    /// lost.
    #[error("the plugin was not done after {} s: wait longer, or look at the device", waited.as_secs_f64())]
    Deadline {
        /// How long it was waited for.
        waited: Duration,
    },
    /// A name holds a zero byte, which C takes for its end.
    #[error("{name:?} has a zero byte in it: remove it")]
    ZeroByte {
        /// The name.
        name: String,
    },
    /// The client has fewer devices.
    #[error("device {device} does not exist: this client has {available} devices, numbered from 0")]
    UnknownDevice {
        /// The device asked for.
        device: usize,
        /// How many devices there are.
        available: usize,
    },
    /// A shape and the elements for it do not agree.
    #[error("a shape of {shape} elements met {elements} elements: make them equal")]
    Shape {
        /// Elements that the shape has.
        shape: usize,
        /// Elements given or wanted.
        elements: usize,
    },
    /// A shape has more elements, or a longer dimension, than the interface can say.
    #[error("the shape {dims:?} is too large: use one of less than 2^63 bytes")]
    TooLarge {
        /// The sizes of the dimensions.
        dims: Vec<usize>,
    },
    /// Elements of one type were read from, or written as, another.
    #[error("a buffer of {buffer} elements met {other} elements: use the same type on both sides")]
    ElementMismatch {
        /// Element type of the buffer.
        buffer: ElementType,
        /// Element type it met.
        other: ElementType,
    },
    /// The plugin's buffer holds what this crate has no element type for.
    #[error("buffers of PJRT's type {code} are not supported: convert them in the program")]
    UnsupportedElement {
        /// PJRT's number of the type.
        code: u32,
    },
    /// A program was given arguments for more or fewer devices than it runs on.
    #[error(
        "a program for {expected} devices was given arguments for {found}: give one list for each"
    )]
    DeviceCount {
        /// The devices of the program.
        expected: usize,
        /// The lists of arguments.
        found: usize,
    },
    /// The devices of one program were given lists of different lengths.
    #[error(
        "device {device} was given {found} arguments, and the first {expected}: make them equal"
    )]
    ArgumentCount {
        /// The place of the device in the program.
        device: usize,
        /// Arguments of the first device.
        expected: usize,
        /// Arguments of this one.
        found: usize,
    },
    /// A buffer was used with another client than the one that made it.
    #[error("argument {argument} is a buffer of another client: upload it with this one")]
    ForeignBuffer {
        /// The place of the buffer among the arguments of its device.
        argument: usize,
    },
    /// The plugin's form of the optimized program cannot be read.
    #[error("the optimized program in the form {format:?} cannot be read")]
    Program {
        /// The plugin's name of the form.
        format: String,
        /// Where it does not hold, if the form is known at all.
        source: Option<prost::DecodeError>,
    },
    /// The name of a slice of TPUs is not written as they are.
    #[error(
        "{name:?} is no TPU topology: write a generation, a colon, and its chips along each side, such as v5e:2x4 or v4:2x2x1"
    )]
    TopologyName {
        /// The name.
        name: String,
    },
    /// There is no such generation of TPUs.
    #[error(
        "{generation:?} is no TPU generation: use one of {}",
        crate::generation::generations()
    )]
    Generation {
        /// The generation asked for.
        generation: String,
    },
    /// A generation is not built in that size.
    #[error(
        "TPU {generation} has no slice {size}: give {sides} sides, the first two even or 1, of at most {most} chips in all"
    )]
    TopologySize {
        /// The generation.
        generation: &'static str,
        /// The size asked for.
        size: String,
        /// How many sides its slices have.
        sides: usize,
        /// The chips of the largest slice of this generation.
        most: usize,
    },
    /// A device does not say where in its slice it is.
    #[error("device {device} has no {attribute} attribute: it is no core of a TPU slice")]
    NoCoordinates {
        /// The plugin's number of the device.
        device: i32,
        /// The missing attribute.
        attribute: &'static str,
    },
    /// The devices make no slice, or the slice no mesh.
    #[error(transparent)]
    Slice(#[from] TpuError),
}

//! `Error`, shared by all backends. Arguments are checked before any work begins, so only failures
//! of a device, an abandoned wait and a lost peer leave buffers half written.

mod absence;

use crate::{DeviceId, ElementType, ReduceOp};

pub use absence::Absence;

/// Errors of backends. No variant but [`DeviceFailed`](Self::DeviceFailed),
/// [`GivenUp`](Self::GivenUp) and [`PeerLost`](Self::PeerLost) leaves a buffer half written:
/// arguments are checked first.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller named a device that this backend does not have.
    #[error(
        "device {device} does not exist: this backend has {available} devices, numbered from 0"
    )]
    UnknownDevice {
        /// The device asked for.
        device: DeviceId,
        /// How many devices there are.
        available: usize,
    },
    /// Two buffers of one call live on different devices; `copy` is the only call that may cross.
    #[error(
        "buffers on device {left} and device {right} cannot be reduced together: copy one over first"
    )]
    DeviceMismatch {
        /// Device of the destination.
        left: DeviceId,
        /// Device of the source.
        right: DeviceId,
    },
    /// The elements of a slice or buffer are of another type than the buffer they meet.
    #[error("a buffer of {buffer} elements met {other} elements: use the same type on both sides")]
    ElementMismatch {
        /// Element type of the buffer.
        buffer: ElementType,
        /// Element type it met.
        other: ElementType,
    },
    /// The backend cannot work on this element type.
    #[error("{element} elements are not supported by this backend: convert them to another type")]
    UnsupportedElement {
        /// The type it cannot work on.
        element: ElementType,
    },
    /// The backend does not have an operation that not every backend has.
    #[error("{operation} is not supported by this backend: let the host do it")]
    Unsupported {
        /// The unsupported operation.
        operation: &'static str,
    },
    /// A device has left bytes where only truth values may be.
    #[error(
        "a buffer of {element} elements holds bytes that are none: it was written to past the program"
    )]
    SpoiltElement {
        /// The type of the buffer.
        element: ElementType,
    },
    /// The op means nothing for this element type.
    #[error(
        "{op} of {element} elements is not defined: and, or and xor need integers or bool, sum, product and mean need numbers"
    )]
    UnsupportedOp {
        /// The op.
        op: ReduceOp,
        /// The type that does not have it.
        element: ElementType,
    },
    /// There are no sources to reduce; not every op has a neutral element.
    #[error("{op} of 0 sources is not defined: give at least 1")]
    NoSources {
        /// The op.
        op: ReduceOp,
    },
    /// Two slices or buffers that must be equally long are not.
    #[error("{left} elements cannot be reduced with {right} elements: lengths must be equal")]
    LengthMismatch {
        /// Elements on the destination side.
        left: usize,
        /// Elements on the source side.
        right: usize,
    },
    /// A range reaches past the end of a buffer.
    #[error(
        "elements {start}..{start}+{len} reach past the end of a buffer of {available} elements"
    )]
    OutOfRange {
        /// First element of the range.
        start: usize,
        /// Elements in the range.
        len: usize,
        /// Elements in the buffer.
        available: usize,
    },
    /// The end of a range is before its start.
    #[error("elements {start}..{end} are no range: the end comes first")]
    ReversedRange {
        /// First element of the range.
        start: usize,
        /// The element after its last.
        end: usize,
    },
    /// A range of bytes ends in the middle of an element.
    #[error(
        "{bytes} bytes are no whole number of {element} elements of {} bytes each: give a range of whole ones",
        element.size()
    )]
    PartOfElement {
        /// Bytes in the range.
        bytes: usize,
        /// The type of the elements.
        element: ElementType,
    },
    /// More bytes were asked for than the address space can hold, or than the device has free.
    #[error(
        "{len} elements of {element} ({} bytes) do not fit in the memory of device {device}{}: ask for less, or drop other buffers first",
        bytes(*len, *element),
        of_free(*free)
    )]
    OutOfMemory {
        /// The device asked.
        device: DeviceId,
        /// Element type asked for.
        element: ElementType,
        /// Elements asked for.
        len: usize,
        /// Bytes that were free, where the backend knows.
        free: Option<u64>,
    },
    /// A compiled program needs more of a device's memory than is free; it was not begun.
    #[error(
        "a program needs {bytes} bytes of device {device} besides what it is given, of which {free} bytes are free: use smaller batches or more devices, or drop other buffers first"
    )]
    NoRoomToRun {
        /// The device.
        device: DeviceId,
        /// Bytes for results and what is in between, as the compiler reckons.
        bytes: u64,
        /// Bytes that were free.
        free: u64,
    },
    /// Two buffers of a collective live on one device.
    #[error("device {device} has two buffers in one collective: give each device one")]
    DeviceRepeated {
        /// The device.
        device: DeviceId,
    },
    /// A collective was given more buffers on one side than on the other.
    #[error("{inputs} inputs and {outputs} outputs cannot be paired: give each device one of both")]
    CountMismatch {
        /// Buffers to read.
        inputs: usize,
        /// Buffers to write.
        outputs: usize,
    },
    /// A broadcast was to come from a buffer that was not given.
    #[error("buffer {root} cannot be the root of {buffers} buffers, numbered from 0")]
    RootOutside {
        /// The root asked for.
        root: usize,
        /// Buffers given.
        buffers: usize,
    },
    /// A matrix would have more elements than can be counted.
    #[error(
        "a matrix of {rows} by {columns} elements has more than {}: it fits nowhere",
        usize::MAX
    )]
    ShapeTooLarge {
        /// Its rows.
        rows: usize,
        /// Its columns.
        columns: usize,
    },
    /// The number of ranges or places differs from the number of axes.
    #[error("{found} axes were described of {expected}: give something for each")]
    AxisCount {
        /// How many were described.
        found: usize,
        /// How many there are.
        expected: usize,
    },
    /// An axis was to be moved to a position that does not exist or is taken.
    #[error("an axis cannot be axis {axis} of {axes}: give each a place of its own, from 0")]
    AxisOutside {
        /// The place.
        axis: usize,
        /// How many there are.
        axes: usize,
    },
    /// A strided range leaves its axis.
    #[error(
        "{count} indices from {first} on in steps of {step} are not all among the {available} of an axis"
    )]
    StepsOutside {
        /// The first index.
        first: usize,
        /// The step.
        step: isize,
        /// How many.
        count: usize,
        /// How many the axis has.
        available: usize,
    },
    /// More axes than the backend has programs for.
    #[error("{axes} axes are more than the {most} that this backend arranges: join some")]
    TooManyAxes {
        /// How many.
        axes: usize,
        /// How many there may be.
        most: usize,
    },
    /// A window of a convolution or of a pooling is larger than what it moves over.
    #[error(
        "a window reaches over {window} indices of an axis that has {size} with its padding: take a smaller one, or pad"
    )]
    WindowTooLarge {
        /// From its first index to behind its last.
        window: usize,
        /// The size of the axis with its padding.
        size: usize,
    },
    /// Channels or outputs of a convolution are no multiple of its groups.
    #[error(
        "{channels} channels cannot be parted into {groups} groups of one size: give a number that divides them"
    )]
    UnequalGroups {
        /// How many there are.
        channels: usize,
        /// How many groups.
        groups: usize,
    },
    /// The backend is not there at all: its library or its devices are missing.
    #[error("{backend} is not available: {library} {absence}; {remedy}")]
    Unavailable {
        /// The backend, such as `CUDA`.
        backend: &'static str,
        /// The missing or unusable library, by name or path.
        library: String,
        /// Why the library cannot be used.
        absence: Absence,
        /// The remedy.
        remedy: &'static str,
    },
    /// A rank that a communicator does not have.
    #[error("rank {rank} does not exist in a communicator of {world} ranks, numbered from 0")]
    RankOutside {
        /// The rank.
        rank: usize,
        /// How many ranks there are.
        world: usize,
    },
    /// The caller did not want to wait any longer for devices of other processes.
    #[error("{operation} was given up before the devices of all ranks had done their part")]
    GivenUp {
        /// The operation that was waited for.
        operation: &'static str,
    },
    /// The device of another process cannot be reached any more: most often that process has ended.
    #[error("{operation} lost another rank's device with code {code} ({status})")]
    PeerLost {
        /// The function of the library that noticed it.
        operation: &'static str,
        /// The code that it returned.
        code: i64,
        /// The library's description of the code.
        status: String,
    },
    /// A communicator was used after a failure.
    #[error("this communicator has failed before: join a new one")]
    CommunicatorBroken,
    /// The device, or the library that drives it, failed; the buffers of the call hold unspecified
    /// values.
    #[error("{operation} failed on device {device} with code {code} ({status})")]
    DeviceFailed {
        /// The device that was worked on.
        device: DeviceId,
        /// The function of its library that failed.
        operation: &'static str,
        /// The code that it returned.
        code: i64,
        /// The library's description of the code.
        status: String,
    },
}

/// Bytes of `len` elements; no product of a length and a size is too large.
fn bytes(len: usize, element: ElementType) -> u128 {
    len as u128 * element.size() as u128
}

fn of_free(free: Option<u64>) -> String {
    free.map_or_else(String::new, |free| {
        format!(", of which {free} bytes are free")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_out_of_memory_says_what_was_asked_and_what_is_free() {
        let refused = |free| Error::OutOfMemory {
            device: DeviceId::new(1),
            element: ElementType::F64,
            len: usize::MAX,
            free,
        };
        assert_eq!(
            refused(Some(4096)).to_string(),
            "18446744073709551615 elements of f64 (147573952589676412920 bytes) do not fit in the memory of device 1, of which 4096 bytes are free: ask for less, or drop other buffers first"
        );
        assert!(refused(None).to_string().contains("device 1: ask for less"));
    }

    #[test]
    fn a_backend_that_is_not_there_names_library_reason_and_remedy() {
        let absent = Error::Unavailable {
            backend: "CUDA",
            library: "libcuda.so.1".to_owned(),
            absence: Absence::NotFound,
            remedy: "install the driver",
        };
        assert_eq!(
            absent.to_string(),
            "CUDA is not available: libcuda.so.1 cannot be loaded; install the driver"
        );
    }
}

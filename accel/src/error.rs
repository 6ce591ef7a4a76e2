use crate::{DeviceId, ElementType, ReduceOp};

/// What a backend refuses. No variant leaves a buffer half written: arguments are checked first.
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
    /// Nothing was given to reduce; not every op has a value that stands for nothing.
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
    /// More bytes were asked for than the address space or the device can hold.
    #[error("{len} elements of {element} do not fit in the memory of device {device}")]
    OutOfMemory {
        /// The device asked.
        device: DeviceId,
        /// Element type asked for.
        element: ElementType,
        /// Elements asked for.
        len: usize,
    },
}

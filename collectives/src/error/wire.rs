//! Bytes of a peer that are no message of this protocol.

use meshwork_accel::ElementType;

/// Why bytes of a peer are no frame and no message. The peer is at fault, or is no peer.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The bytes do not begin like this protocol.
    #[error("the bytes {found:02x?} are not the beginning of a Meshwork frame")]
    Magic {
        /// What stands there.
        found: [u8; 4],
    },
    /// The peer speaks another version.
    #[error(
        "protocol version {found} is not version {expected}: build all processes from one release"
    )]
    Version {
        /// The peer's version.
        found: u8,
        /// This process's.
        expected: u8,
    },
    /// A field holds a code that means nothing.
    #[error("{field} has no meaning for code {found}")]
    Code {
        /// The field.
        field: &'static str,
        /// Its value.
        found: u32,
    },
    /// A length is beyond what this protocol ever sends.
    #[error("a length of {found} bytes is beyond the limit of {limit}")]
    Length {
        /// The length that was announced.
        found: u64,
        /// The limit.
        limit: u64,
    },
    /// Bytes of a chunk are no value of its element type.
    #[error("a byte of a chunk of {element} elements is none")]
    Value {
        /// The element type.
        element: ElementType,
    },
    /// The body of a message is not a value of its type.
    #[error("the body of message type {kind} is malformed")]
    Body {
        /// The message's type code.
        kind: u8,
    },
}

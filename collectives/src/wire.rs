//! What stands on the wire: frames on data streams, messages on control streams.
//!
//! Both begin with a magic number, a version, a type and a length, all little-endian and checked
//! before anything behind them is read. A frame's 48 bytes are laid out by hand, because they
//! stand before every chunk; a message's body is rkyv, always validated, never trusted: rkyv
//! proves that the bytes are a value of the type, the caller checks that the value makes sense.

mod agreement_message;
mod call;
mod frame;
mod message;

use meshwork_accel::ElementType;

pub(crate) use agreement_message::{
    AgreementMessage, Ballot, Decision, MemberProcess, MemberState,
};
pub(crate) use call::{WaitReport, WireCall, WireMessageCounts};
pub(crate) use frame::{FRAME_BYTES, Frame, FrameType};
pub(crate) use message::{
    Abort, Hello, JoinRequest, Lane, MESSAGE_HEAD_BYTES, Message, MessageHead, Spoken, truncate,
};

/// "MSHW": no other protocol begins like this.
const MAGIC: [u8; 4] = *b"MSHW";

/// Raised when a change would make two versions misunderstand each other.
pub(crate) const VERSION: u8 = 3;

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
        "protocol version {found} is not version {VERSION}: build all processes from one release"
    )]
    Version {
        /// The peer's version.
        found: u8,
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

fn begins_well(head: &[u8]) -> Result<(), WireError> {
    let found = [head[0], head[1], head[2], head[3]];
    if found != MAGIC {
        return Err(WireError::Magic { found });
    }
    if head[4] != VERSION {
        return Err(WireError::Version { found: head[4] });
    }
    Ok(())
}

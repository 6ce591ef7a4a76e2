//! What stands on the wire: frames on data streams, messages on control streams.
//!
//! Both begin with a magic number, a version, a type and a length, all little-endian and checked
//! before anything behind them is read. A frame's head is laid out by hand, because it
//! stands before every chunk; a message's body is rkyv, always validated, never trusted: rkyv
//! proves that the bytes are a value of the type, the caller checks that the value makes sense.

mod absence;
mod agreement_message;
mod call;
mod closing;
mod codes;
mod frame;
mod message;
mod newcomer;
mod records;
mod registration;
mod routed;

pub use crate::error::WireError;
pub(crate) use absence::{Absence, Stranger};
pub(crate) use agreement_message::{
    AgreementMessage, Ballot, Decision, MemberProcess, MemberState, Promises,
};
pub(crate) use call::{WaitProbe, WaitReport, WireCall, WireMessageCounts};
pub(crate) use closing::{CloseRequest, ClosingMessage};
pub(crate) use frame::{FRAME_BYTES, Frame, FrameType};
pub(crate) use message::{
    ABSENT_LIMIT, Abort, Hello, JoinRequest, Lane, MESSAGE_HEAD_BYTES, Message, MessageHead, Ping,
    Spoken, truncate,
};
pub(crate) use newcomer::{
    Directory, NEWCOMERS, Newcomer, NewcomerOffer, decode_newcomers, encode_newcomers,
};
pub(crate) use records::{Cores, MemberRecord, RecordBatch};
pub(crate) use registration::{AddressBatch, Registration};
pub(crate) use routed::Routed;

/// "MSHW": no other protocol begins like this.
const MAGIC: [u8; 4] = *b"MSHW";

/// Raised when a change would make two versions misunderstand each other. A test notices changes of
/// messages, of shared memory and of what `auto` takes.
pub(crate) const VERSION: u8 = 12;

fn begins_well(head: &[u8]) -> Result<(), WireError> {
    let found = [head[0], head[1], head[2], head[3]];
    if found != MAGIC {
        return Err(WireError::Magic { found });
    }
    if head[4] != VERSION {
        return Err(WireError::Version {
            found: head[4],
            expected: VERSION,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests;

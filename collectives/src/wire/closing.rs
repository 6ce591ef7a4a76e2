//! How two ranks agree to close their connection while neither needs it.

use rkyv::{Archive, Deserialize, Serialize};

/// What one end says to the other. Only the higher rank asks, and only the lower decides, so two
/// that want it at once close once.
#[derive(Archive, Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub(crate) enum ClosingMessage {
    /// Lower to higher: this end does not need the connection.
    Unneeded,
    /// Higher to lower: this end does not need it either, and uses it no more until the answer.
    Request(CloseRequest),
    /// The answer to the request of this number: it stays.
    Keep(u64),
    /// The other answer, and the last that is said on the connection.
    Close(u64),
}

/// What a lower rank decides by.
#[derive(Archive, Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub(crate) struct CloseRequest {
    /// From 1. A request that may be lost is made again with its number, and decided once.
    pub(crate) number: u64,
    /// Bytes of operations that the higher rank has sent over the connection.
    pub(crate) sent: u64,
    /// And those that it has received, which its operations have all read.
    pub(crate) received: u64,
}

//! What processes say that know one address of their job only, before they are a group.

use rkyv::{Archive, Deserialize, Serialize};

/// A process to the one of rank 0: this is where I am going to listen.
#[derive(Archive, Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Registration {
    pub(crate) rank: u32,
    pub(crate) world: u32,
    pub(crate) port: u16,
}

/// The answer, once all are known, in several messages: the addresses of ranks from `first` on.
#[derive(Archive, Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct AddressBatch {
    pub(crate) first: u32,
    pub(crate) addresses: Vec<String>,
}

impl AddressBatch {
    /// Addresses that one message has at most: with names of 255 bytes they fit.
    pub(crate) const MOST: usize = 64;
}

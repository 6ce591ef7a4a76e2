//! Messages between ranks that are not connected, from neighbour to neighbour.

use rkyv::{Archive, Deserialize, Serialize};

use super::message::ROUTED;
use super::{Message, MessageHead, WireError};
use crate::Rank;

/// A message that goes from neighbour to neighbour.
#[derive(Archive, Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Routed {
    pub(crate) from: u32,
    pub(crate) to: u32,
    /// Head and body.
    pub(crate) message: Vec<u8>,
}

impl Routed {
    pub(crate) fn new(from: Rank, to: Rank, message: &Message) -> Self {
        Self {
            from: from.number(),
            to: to.number(),
            message: message.encode(),
        }
    }

    /// What it carries.
    ///
    /// # Errors
    /// [`WireError`] for bytes that are no message, and for one that carries another.
    pub(crate) fn message(&self) -> Result<Message, WireError> {
        let (head, body) = self
            .message
            .split_first_chunk()
            .ok_or(WireError::Body { kind: ROUTED })?;
        let head = MessageHead::decode(head)?;
        match head.kind() {
            ROUTED => Err(WireError::Body { kind: ROUTED }),
            _ => Message::decode(head, body),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_routed_message_carries_no_routed_one() {
        let ranks = [1, 2].map(Rank::new);
        let inner = Message::Routed(Routed::new(ranks[0], ranks[1], &Message::Heartbeat));
        let outer = Routed::new(ranks[0], ranks[1], &inner);
        assert_eq!(outer.message(), Err(WireError::Body { kind: ROUTED }));
        let outer = Routed::new(ranks[0], ranks[1], &Message::OpenStreams(3));
        assert_eq!(outer.message(), Ok(Message::OpenStreams(3)));
    }
}

//! Calls that one rank tells another of, beside the operation that they began.

use std::time::Duration;

use rkyv::{Archive, Deserialize, Serialize};

use super::{FRAME_BYTES, Frame, FrameType, WireError};
use crate::Rank;
use crate::contract::{Call, SITE_LIMIT, told_site};

/// A call: the head of its frame, and the caller's line.
#[derive(Archive, Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct WireCall {
    rank: u32,
    frame: [u8; FRAME_BYTES],
    site: String,
}

/// What a rank waits for in an operation that takes long.
#[derive(Archive, Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct WaitReport {
    /// Its call.
    pub(crate) call: WireCall,
    /// The rank that it waits for.
    pub(crate) awaited: u32,
    /// Tells this operation from others of the same rank.
    pub(crate) serial: u64,
    /// Whether it is the receiving side of a message.
    pub(crate) receives: bool,
    /// The groups that the waiting thread was the last to use, and the number of the last operation
    /// that it has finished there.
    pub(crate) held_groups: Vec<(u64, u64)>,
    /// The messages to and from others in these groups; `None` where there are too many.
    pub(crate) message_counts: Option<Vec<WireMessageCounts>>,
}

/// A question that goes from rank to rank along their waits, whether they lead back to the first.
#[derive(Archive, Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct WaitProbe {
    /// The rank that asks.
    pub(crate) initiator: u32,
    /// Tells the operation in which it waits from others of its own.
    pub(crate) serial: u64,
    /// When it asked, by a clock of its own.
    pub(crate) sent: Duration,
    /// How many waits it has come from.
    pub(crate) hops: u32,
    /// Tells these waits from others.
    pub(crate) digest: u64,
    /// Two calls among them that differ.
    pub(crate) differing: Option<[WireCall; 2]>,
    /// What the sender itself waits for.
    pub(crate) last: WaitReport,
}

/// How many messages were sent to another rank and received from it, in one group.
#[derive(Archive, Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct WireMessageCounts {
    pub(crate) group: u64,
    pub(crate) with: u32,
    pub(crate) sent: u64,
    pub(crate) received: u64,
}

impl WaitReport {
    /// Groups that are told of at most.
    pub(crate) const HELD_GROUPS: usize = 128;
    /// Ranks and groups whose messages are told of at most.
    pub(crate) const MESSAGE_COUNTS: usize = 256;
}

impl WireCall {
    pub(crate) fn new(rank: Rank, call: &Call) -> Self {
        let frame = Frame {
            frame_type: FrameType::Call,
            contract: *call.contract(),
            length: call.site().len() as u64,
        };
        Self {
            rank: rank.number(),
            frame: frame.encode(),
            site: call.site().to_owned(),
        }
    }

    /// Whose call it is, and the call; inverse of [`WireCall::new`].
    ///
    /// # Errors
    /// Those of [`Frame::decode`]; [`WireError::Length`] for a line that is too long.
    pub(crate) fn call(&self) -> Result<(Rank, Call), WireError> {
        let frame = Frame::decode(&self.frame)?;
        if self.site.len() > SITE_LIMIT {
            return Err(WireError::Length {
                found: self.site.len() as u64,
                limit: SITE_LIMIT as u64,
            });
        }
        let site = told_site(self.site.as_bytes());
        Ok((Rank::new(self.rank), Call::new(frame.contract, site)))
    }

    /// One that takes as many bytes as any can.
    #[cfg(test)]
    pub(super) fn longest(rank: u32) -> Self {
        use crate::contract::{Contract, Kind};
        let contract = Contract {
            epoch: 7,
            group: u64::MAX,
            sequence: u64::MAX,
            kind: Kind::Reduce,
            algorithm: Some(crate::Algorithm::Ring),
            element: crate::ElementType::F32,
            count: u64::MAX,
            op: Some(crate::ReduceOp::Sum),
            root: Some(Rank::new(5)),
        };
        Self::new(
            Rank::new(rank),
            &Call::new(contract, "s".repeat(SITE_LIMIT)),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_told_call_is_the_call() {
        let told = WireCall::longest(3);
        let (rank, call) = told.call().unwrap();
        assert_eq!(WireCall::new(rank, &call), told);
        assert_eq!(rank, Rank::new(3));
    }

    #[test]
    fn a_frame_that_is_none_and_a_line_that_is_too_long_are_refused() {
        let told = WireCall::longest(3);
        for at in 0..10 {
            let mut broken = told.clone();
            broken.frame[at] = 0xEE;
            assert!(broken.call().is_err(), "byte {at}");
        }
        let endless = WireCall {
            site: "s".repeat(SITE_LIMIT + 1),
            ..told
        };
        let expected = WireError::Length {
            found: 257,
            limit: 256,
        };
        assert_eq!(endless.call().unwrap_err(), expected);
    }
}

//! What stands first on a stream or connection that carries the bytes of operations: a word that
//! says what it is for, and of which attempt, group and lane.

use crate::Rank;

/// The first data stream of a dialler's attempt, so that the acceptor sees the stream at once.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct DataHead {
    pub(super) attempt: u32,
}

/// A stream of a group that was split from the one that was joined.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct SplitHead {
    pub(super) group: u64,
}

/// A connection over TCP: a lane of a group, whose number is 0 for the one that was joined.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct BulkHead {
    pub(super) rank: Rank,
    pub(super) group: u64,
    pub(super) lane: u8,
}

impl DataHead {
    pub(super) const BYTES: usize = 8;
    const WORD: [u8; 4] = *b"DATA";

    pub(super) fn encode(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&Self::WORD);
        bytes[4..].copy_from_slice(&self.attempt.to_le_bytes());
        bytes
    }

    /// Inverse of [`encode`](Self::encode); `None` for what is for something else.
    pub(super) fn decode(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let [word @ .., a, b, c, d] = *bytes;
        (word == Self::WORD).then_some(Self {
            attempt: u32::from_le_bytes([a, b, c, d]),
        })
    }
}

impl SplitHead {
    pub(super) const BYTES: usize = 12;
    const WORD: [u8; 4] = *b"SPLT";

    pub(super) fn encode(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&Self::WORD);
        bytes[4..].copy_from_slice(&self.group.to_le_bytes());
        bytes
    }

    /// Inverse of [`encode`](Self::encode); `None` for what is for something else.
    pub(super) fn decode(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let (word, group) = bytes.split_first_chunk::<4>()?;
        let group = u64::from_le_bytes(*group.first_chunk()?);
        (*word == Self::WORD).then_some(Self { group })
    }
}

impl BulkHead {
    pub(super) const BYTES: usize = 17;
    const WORD: [u8; 4] = *b"BULK";

    pub(super) fn encode(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&Self::WORD);
        bytes[4..8].copy_from_slice(&self.rank.number().to_le_bytes());
        bytes[8..16].copy_from_slice(&self.group.to_le_bytes());
        bytes[16] = self.lane;
        bytes
    }

    /// Inverse of [`encode`](Self::encode); `None` for what is for something else.
    pub(super) fn decode(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let (word, rest) = bytes.split_first_chunk::<4>()?;
        let (rank, rest) = rest.split_first_chunk::<4>()?;
        let (group, lane) = rest.split_first_chunk::<8>()?;
        (*word == Self::WORD).then_some(Self {
            rank: Rank::new(u32::from_le_bytes(*rank)),
            group: u64::from_le_bytes(*group),
            lane: *lane.first()?,
        })
    }
}

/// Bytes that need not be a head, as fuzz targets have them: what is read is written so again, and
/// is one thing only.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn decode_any(bytes: &[u8]) {
    let mut read = 0;
    if let Some(bytes) = bytes.first_chunk()
        && let Some(head) = DataHead::decode(bytes)
    {
        assert_eq!(head.encode(), *bytes);
        read += 1;
    }
    if let Some(bytes) = bytes.first_chunk()
        && let Some(head) = SplitHead::decode(bytes)
    {
        assert_eq!(head.encode(), *bytes);
        read += 1;
    }
    if let Some(bytes) = bytes.first_chunk()
        && let Some(head) = BulkHead::decode(bytes)
    {
        assert_eq!(head.encode(), *bytes);
        read += 1;
    }
    assert!(read <= 1, "{bytes:02x?} is {read} heads");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read_as_they_were_written_and_others_are_refused() {
        let head = BulkHead {
            rank: Rank::new(3),
            group: u64::MAX - 1,
            lane: 7,
        };
        let bytes = head.encode();
        assert_eq!(BulkHead::decode(&bytes), Some(head));
        let mut other = bytes;
        other[0] ^= 1;
        assert_eq!(BulkHead::decode(&other), None);
        let head = DataHead { attempt: 9 };
        assert_eq!(DataHead::decode(&head.encode()), Some(head));
        let head = SplitHead { group: 1 << 63 };
        assert_eq!(SplitHead::decode(&head.encode()), Some(head));
    }
}

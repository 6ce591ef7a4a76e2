//! The head of a frame on a data stream: contract, kind and length, with their bytes.

use super::{MAGIC, VERSION, WireError, begins_well};
use crate::contract::{Contract, SITE_LIMIT};

/// Bytes before each chunk.
pub(crate) const FRAME_BYTES: usize = 56;

/// The head of a frame: what the bytes behind it are, and of which operation.
///
/// ```text
/// 0     4       5    6    7         8       9  10       12    16   24    32     40    48    56
/// magic version type kind algorithm element op reserved root  seq  count length group epoch
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Frame {
    pub(crate) frame_type: FrameType,
    pub(crate) contract: Contract,
    /// Bytes that follow.
    pub(crate) length: u64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(crate) enum FrameType {
    /// The sender's call: its contract, and its call site as the body.
    Call = 1,
    /// One chunk.
    Chunk = 2,
}

impl Frame {
    pub(crate) fn encode(&self) -> [u8; FRAME_BYTES] {
        let Contract {
            epoch,
            group,
            sequence,
            count,
            ..
        } = self.contract;
        let codes = self.contract.codes().to_le_bytes();
        let mut bytes = [0; FRAME_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[5] = self.frame_type as u8;
        bytes[6..10].copy_from_slice(&codes[..4]);
        bytes[12..16].copy_from_slice(&codes[4..]);
        bytes[16..24].copy_from_slice(&sequence.to_le_bytes());
        bytes[24..32].copy_from_slice(&count.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.length.to_le_bytes());
        bytes[40..48].copy_from_slice(&group.to_le_bytes());
        bytes[48..56].copy_from_slice(&epoch.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; FRAME_BYTES]) -> Result<Self, WireError> {
        begins_well(bytes)?;
        let frame_type = match bytes[5] {
            1 => FrameType::Call,
            2 => FrameType::Chunk,
            code => {
                return Err(WireError::Code {
                    field: "frame type",
                    found: code.into(),
                });
            }
        };
        let codes = u64::from(short(bytes, 12)) << 32 | u64::from(short(bytes, 6));
        let [epoch, group, sequence, count] = [48, 40, 16, 24].map(|at| long(bytes, at));
        let contract = Contract::of_codes(codes, epoch, group, sequence, count)?;
        let length = long(bytes, 32);
        if frame_type == FrameType::Call && length > SITE_LIMIT as u64 {
            return Err(WireError::Length {
                found: length,
                limit: SITE_LIMIT as u64,
            });
        }
        Ok(Self {
            frame_type,
            contract,
            length,
        })
    }
}

fn short(bytes: &[u8; FRAME_BYTES], at: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(field)
}

fn long(bytes: &[u8; FRAME_BYTES], at: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(field)
}

#[cfg(test)]
mod tests {
    use meshwork_accel::{ElementType, ReduceOp};
    use proptest::prelude::*;

    use super::*;
    use crate::Rank;
    use crate::contract::Kind;
    use crate::schedule::Algorithm;
    use crate::wire::codes::NO_ROOT;

    fn any_frame() -> impl Strategy<Value = Frame> {
        let kinds = prop::sample::select(Kind::ALL.to_vec());
        let algorithms = prop::option::of(prop::sample::select(Algorithm::ALL.to_vec()));
        let elements = prop::sample::select(ElementType::ALL.to_vec());
        let ops = prop::option::of(prop::sample::select(ReduceOp::ALL.to_vec()));
        let roots = prop::option::of((0..NO_ROOT).prop_map(Rank::new));
        let numbers = (any::<u64>(), any::<u64>(), any::<u64>());
        let groups = (any::<u64>(), any::<u64>());
        (kinds, algorithms, elements, ops, roots, numbers, groups).prop_map(
            |(kind, algorithm, element, op, root, (sequence, count, length), (epoch, group))| {
                Frame {
                    frame_type: FrameType::Chunk,
                    contract: Contract {
                        epoch,
                        group,
                        sequence,
                        kind,
                        algorithm,
                        element,
                        count,
                        op,
                        root,
                    },
                    length,
                }
            },
        )
    }

    proptest! {
        #[test]
        fn encode_and_decode_are_inverse(frame in any_frame()) {
            prop_assert_eq!(Frame::decode(&frame.encode()), Ok(frame));
        }

        #[test]
        fn no_bytes_make_the_decoder_panic(bytes in any::<[u8; FRAME_BYTES]>(), start in any::<bool>()) {
            let mut bytes = bytes;
            if start {
                bytes[..4].copy_from_slice(&MAGIC);
                bytes[4] = VERSION;
            }
            let _ = Frame::decode(&bytes);
        }
    }

    #[test]
    fn every_field_is_checked() {
        let frame = Frame {
            frame_type: FrameType::Call,
            contract: Contract {
                epoch: 0,
                group: 0,
                sequence: 1,
                kind: Kind::Barrier,
                algorithm: Some(Algorithm::Tree),
                element: ElementType::U8,
                count: 0,
                op: None,
                root: None,
            },
            length: 3,
        };
        for at in [0, 1, 2, 3, 4, 5, 6, 7, 8, 9] {
            let mut bytes = frame.encode();
            bytes[at] = 0xEE;
            assert!(Frame::decode(&bytes).is_err(), "byte {at}");
        }
        let endless = Frame {
            length: 257,
            ..frame
        };
        assert_eq!(
            Frame::decode(&endless.encode()),
            Err(WireError::Length {
                found: 257,
                limit: 256
            })
        );
    }
}

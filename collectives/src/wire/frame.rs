//! The head of a frame on a data stream: contract, kind and length, with their bytes.

use meshwork_accel::{ElementType, ReduceOp};

use super::{MAGIC, VERSION, WireError, begins_well};
use crate::Rank;
use crate::contract::{Contract, Kind, SITE_LIMIT};
use crate::schedule::Algorithm;

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

/// "No root": the world is always smaller.
const NO_ROOT: u32 = u32::MAX;

impl Frame {
    pub(crate) fn encode(&self) -> [u8; FRAME_BYTES] {
        let Contract {
            epoch,
            group,
            sequence,
            kind,
            algorithm,
            element,
            count,
            op,
            root,
        } = self.contract;
        let mut bytes = [0; FRAME_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[5] = self.frame_type as u8;
        bytes[6] = kind as u8;
        bytes[7] = algorithm.map_or(0, Algorithm::code);
        bytes[8] = element.code();
        bytes[9] = op.map_or(0, ReduceOp::code);
        bytes[12..16].copy_from_slice(&root.map_or(NO_ROOT, Rank::number).to_le_bytes());
        bytes[16..24].copy_from_slice(&sequence.to_le_bytes());
        bytes[24..32].copy_from_slice(&count.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.length.to_le_bytes());
        bytes[40..48].copy_from_slice(&group.to_le_bytes());
        bytes[48..56].copy_from_slice(&epoch.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; FRAME_BYTES]) -> Result<Self, WireError> {
        begins_well(bytes)?;
        let code = |field, at: usize| WireError::Code {
            field,
            found: u32::from(bytes[at]),
        };
        let frame_type = match bytes[5] {
            1 => FrameType::Call,
            2 => FrameType::Chunk,
            _ => return Err(code("frame type", 5)),
        };
        let op = match bytes[9] {
            0 => None,
            found => Some(ReduceOp::from_code(found).ok_or_else(|| code("reduce op", 9))?),
        };
        let algorithm = match bytes[7] {
            0 => None,
            found => Some(Algorithm::from_code(found).ok_or_else(|| code("algorithm", 7))?),
        };
        let root = short(bytes, 12);
        let contract = Contract {
            epoch: long(bytes, 48),
            group: long(bytes, 40),
            kind: Kind::from_code(bytes[6]).ok_or_else(|| code("operation", 6))?,
            algorithm,
            element: ElementType::from_code(bytes[8]).ok_or_else(|| code("element type", 8))?,
            op,
            root: (root != NO_ROOT).then(|| Rank::new(root)),
            sequence: long(bytes, 16),
            count: long(bytes, 24),
        };
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
    use proptest::prelude::*;

    use super::*;

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

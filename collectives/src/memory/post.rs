//! What a rank tells the others of its host before an operation, in words that fit a cache line or
//! two: the contract, and where its bytes are.

use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};

use meshwork_accel::{ElementType, ReduceOp};
use smallvec::SmallVec;

use super::board::{POST_WORDS, Post, SITE_WORDS};
use crate::Rank;
use crate::contract::{Contract, Kind, SITE_LIMIT};
use crate::schedule::Algorithm;
use crate::wire::WireError;

/// A rank's call, and where its bytes are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Notice {
    pub(super) terms: Terms,
    pub(super) place: Place,
    /// Slots that its bytes take, where they go through slots.
    pub(super) pieces: u64,
}

/// The part of a notice that must be the same on all ranks, as words.
pub(super) type Terms = [u64; TERMS];

/// Where the bytes are that a rank contributes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Place {
    /// It contributes none that others take.
    Nothing,
    /// In the small place of its board.
    Small,
    /// Nowhere that others reach: they go through the slots.
    Private,
    /// At an address that the threads of one process share.
    Address(u64),
    /// At an address in the memory of its process, from where the kernel copies it.
    Foreign(u64),
    /// In a segment of registered memory.
    Segment {
        index: u32,
        generation: u32,
        offset: u64,
    },
}

const TERMS: usize = 7;
/// "No root": the world is always smaller.
const NO_ROOT: u64 = u64::MAX;

/// The words of a contract. `digest` stands for what has no room: the lengths of uneven blocks.
pub(super) fn terms(contract: &Contract, digest: u64) -> Terms {
    let codes = [
        contract.kind as u8,
        contract.algorithm.map_or(0, Algorithm::code),
        contract.element.code(),
        contract.op.map_or(0, ReduceOp::code),
    ];
    [
        contract.sequence,
        u64::from(u32::from_le_bytes(codes)),
        contract.count,
        contract.root.map_or(NO_ROOT, |root| root.number().into()),
        contract.group,
        contract.epoch,
        digest,
    ]
}

/// Inverse of [`terms`], without the digest.
///
/// # Errors
/// [`WireError::Code`] for a number that stands for nothing.
pub(super) fn contract(terms: &Terms) -> Result<Contract, WireError> {
    let [sequence, codes, count, root, group, epoch, _] = *terms;
    let codes = codes.to_le_bytes();
    let unknown = |field, at: usize| WireError::Code {
        field,
        found: codes[at].into(),
    };
    let op = match codes[3] {
        0 => None,
        code => Some(ReduceOp::from_code(code).ok_or_else(|| unknown("reduce op", 3))?),
    };
    let algorithm = match codes[1] {
        0 => None,
        code => Some(Algorithm::from_code(code).ok_or_else(|| unknown("algorithm", 1))?),
    };
    Ok(Contract {
        epoch,
        group,
        sequence,
        kind: Kind::from_code(codes[0]).ok_or_else(|| unknown("operation", 0))?,
        algorithm,
        element: ElementType::from_code(codes[2]).ok_or_else(|| unknown("element type", 2))?,
        count,
        op,
        root: u32::try_from(root).ok().map(Rank::new),
    })
}

/// Reads words that need not be a post's, as fuzz targets have them.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn decode_terms(words: &[u64]) {
    let Some(read) = words.first_chunk::<TERMS>() else {
        return;
    };
    if let Ok(read_contract) = contract(read) {
        let digest = read[TERMS - 1];
        assert_eq!(contract(&terms(&read_contract, digest)), Ok(read_contract));
    }
}

impl Notice {
    /// Writes the notice and then its number, which makes it visible.
    pub(super) fn write(&self, post: &Post, sequence: u32) {
        let (kind, detail, offset) = match self.place {
            Place::Nothing => (0, 0, 0),
            Place::Small => (1, 0, 0),
            Place::Private => (2, 0, 0),
            Place::Address(address) => (4, 0, address),
            Place::Foreign(address) => (5, 0, address),
            Place::Segment {
                index,
                generation,
                offset,
            } => (3, u64::from(index) << 32 | u64::from(generation), offset),
        };
        let mut words = [0; POST_WORDS];
        words[..TERMS].copy_from_slice(&self.terms);
        words[TERMS..TERMS + 4].copy_from_slice(&[kind, detail, offset, self.pieces]);
        for (place, word) in post.words.iter().zip(words) {
            place.store(word, Ordering::Relaxed);
        }
        post.flag.set(sequence);
    }

    /// Reads a notice whose number has been reached.
    pub(super) fn read(post: &Post) -> Self {
        let word = |index: usize| post.words[index].load(Ordering::Relaxed);
        let place = match word(TERMS) {
            0 => Place::Nothing,
            1 => Place::Small,
            4 => Place::Address(word(TERMS + 2)),
            5 => Place::Foreign(word(TERMS + 2)),
            3 => {
                let detail = word(TERMS + 1);
                Place::Segment {
                    index: high(detail),
                    generation: low(detail),
                    offset: word(TERMS + 2),
                }
            }
            _ => Place::Private,
        };
        Self {
            terms: std::array::from_fn(word),
            place,
            pieces: word(TERMS + 3),
        }
    }
}

fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the lower half is asked for"
)]
fn low(word: u64) -> u32 {
    word as u32
}

/// Leaves the `file:line` of a call where others can read it, as [`site`](crate::contract::site) has
/// it; without taking memory, as a program may call from several places in turn.
pub(super) fn write_site(words: &[AtomicU64; SITE_WORDS], caller: &Location<'_>) {
    let mut text: SmallVec<[u8; 2 * SITE_LIMIT]> = SmallVec::from_slice(caller.file().as_bytes());
    text.push(b':');
    let line = text.len();
    let mut left = caller.line();
    while left > 0 || text.len() == line {
        // A digit.
        text.push(b'0' + (left % 10) as u8);
        left /= 10;
    }
    text[line..].reverse();
    let is_inside_a_character = |byte: &u8| byte & 0b1100_0000 == 0b1000_0000;
    let mut start = text.len().saturating_sub(SITE_LIMIT);
    while text.get(start).is_some_and(is_inside_a_character) {
        start += 1;
    }
    let bytes = &text[start..];
    words[0].store(bytes.len() as u64, Ordering::Relaxed);
    for (word, chunk) in words[1..].iter().zip(bytes.chunks(8)) {
        let mut eight = [0; 8];
        eight[..chunk.len()].copy_from_slice(chunk);
        word.store(u64::from_le_bytes(eight), Ordering::Relaxed);
    }
}

/// Inverse of [`write_site`]; what is no text becomes replacement characters.
pub(super) fn read_site(words: &[AtomicU64; SITE_WORDS]) -> String {
    let length = usize::try_from(words[0].load(Ordering::Relaxed)).unwrap_or(usize::MAX);
    let bytes: Vec<u8> = words[1..]
        .iter()
        .flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes())
        .take(length.min(SITE_LIMIT))
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::site;

    #[test]
    fn a_call_site_is_read_as_contracts_have_it() {
        let words = [const { AtomicU64::new(u64::MAX) }; SITE_WORDS];
        let here = Location::caller();
        write_site(&words, here);
        assert_eq!(read_site(&words), site(here));
    }
}

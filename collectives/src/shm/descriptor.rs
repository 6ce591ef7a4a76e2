//! What a rank tells the others of its host before an operation, in words that fit a cache line or
//! two: the contract, and where its bytes are.
//!
//! ```text
//!  | flag | sequence | codes, root | count | group | epoch | digest | place |  offset | pieces |
//!    ╰──────────────── one cache line: all there is of a small message ────╯
//! ```

use std::ops::BitOr;
use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;

use super::control_block::{DescriptorCell, SITE_WORDS};
use crate::contract::{Contract, SITE_LIMIT, told_site};
use crate::wire::WireError;

/// Where a rank's bytes are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct BufferDescriptor {
    pub(super) place: BufferLocation,
    /// Slots that its bytes take, where they go through slots.
    pub(super) pieces: u64,
}

/// The part of a post that must be the same on all ranks, as words.
pub(super) type ContractWords = [u64; CONTRACT_WORDS];

/// Where the bytes are that a rank contributes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum BufferLocation {
    /// It contributes none that others take.
    Nothing,
    /// In the small place of its control block.
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

const CONTRACT_WORDS: usize = 6;
/// Where it is said where the bytes are; of a small message also how many pieces it takes.
const PLACE: usize = CONTRACT_WORDS;
const OFFSET: usize = CONTRACT_WORDS + 1;
const PIECES: usize = CONTRACT_WORDS + 2;
/// What the lowest bits of the word at [`PLACE`] say.
const NOTHING: u64 = 0;
const SMALL: u64 = 1;
const PRIVATE: u64 = 2;
const SEGMENT: u64 = 3;
const ADDRESS: u64 = 4;
const FOREIGN: u64 = 5;
const KIND_BITS: u32 = 8;
const KIND: u64 = 0xff;

/// The words of a contract. `digest` stands for what has no room: the lengths of uneven blocks.
#[inline]
pub(super) fn contract_words(contract: &Contract, digest: u64) -> ContractWords {
    [
        contract.sequence,
        contract.codes(),
        contract.count,
        contract.group,
        contract.epoch,
        digest,
    ]
}

/// Inverse of [`contract_words`], without the digest.
///
/// # Errors
/// [`WireError::Code`] for a number that stands for nothing.
pub(super) fn contract(contract_words: &ContractWords) -> Result<Contract, WireError> {
    let [sequence, codes, count, group, epoch, _] = *contract_words;
    Contract::of_codes(codes, epoch, group, sequence, count)
}

/// Reads words that need not be a post's, as fuzz targets have them.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn decode_contract_words(words: &[u64]) {
    let Some(read) = words.first_chunk::<CONTRACT_WORDS>() else {
        return;
    };
    if let Ok(read_contract) = contract(read) {
        let digest = read[CONTRACT_WORDS - 1];
        assert_eq!(
            contract(&contract_words(&read_contract, digest)),
            Ok(read_contract)
        );
    }
}

impl BufferDescriptor {
    /// Writes the terms and the notice; the number that makes them visible is the caller's to set.
    #[inline]
    pub(super) fn write<A>(&self, contract_words: &ContractWords, post: &DescriptorCell<A>) {
        let (kind, detail, offset) = match self.place {
            BufferLocation::Nothing => (NOTHING, self.pieces, 0),
            BufferLocation::Small => (SMALL, self.pieces, 0),
            BufferLocation::Private => (PRIVATE, 0, 0),
            BufferLocation::Address(address) => (ADDRESS, 0, address),
            BufferLocation::Foreign(address) => (FOREIGN, 0, address),
            BufferLocation::Segment {
                index,
                generation,
                offset,
            } => {
                let detail = u64::from(index) << 32 | u64::from(generation);
                (SEGMENT, detail, offset)
            }
        };
        let store = |index: usize, word| post.words[index].store(word, Ordering::Relaxed);
        for (index, word) in contract_words.iter().enumerate() {
            store(index, *word);
        }
        store(PLACE, detail << KIND_BITS | kind);
        if !matches!(kind, NOTHING | SMALL) {
            store(OFFSET, offset);
            store(PIECES, self.pieces);
        }
    }
}

/// What a post says whose number has been reached.
impl<A> DescriptorCell<A> {
    fn word(&self, index: usize) -> u64 {
        self.words[index].load(Ordering::Relaxed)
    }

    pub(super) fn contract_words(&self) -> ContractWords {
        std::array::from_fn(|index| self.word(index))
    }

    /// Whether these are its terms, compared word by word, as they have just been written.
    #[inline]
    pub(super) fn has(&self, contract_words: &ContractWords) -> bool {
        let differ = |(index, word): (usize, &u64)| self.word(index) ^ *word;
        contract_words
            .iter()
            .enumerate()
            .map(differ)
            .fold(0, BitOr::bitor)
            == 0
    }

    /// Whether the line of the flag says all there is to say, so that no other is written and read.
    #[inline]
    pub(super) fn is_near(&self) -> bool {
        matches!(self.word(PLACE) & KIND, NOTHING | SMALL)
    }

    /// # Errors
    /// When the rank says a kind of place that there is none of.
    pub(super) fn buffer_descriptor(&self) -> Result<BufferDescriptor, WireError> {
        let (kind, detail) = (self.word(PLACE) & KIND, self.word(PLACE) >> KIND_BITS);
        let place = match kind {
            NOTHING => BufferLocation::Nothing,
            SMALL => BufferLocation::Small,
            SEGMENT => BufferLocation::Segment {
                index: high(detail),
                generation: low(detail),
                offset: self.word(OFFSET),
            },
            ADDRESS => BufferLocation::Address(self.word(OFFSET)),
            FOREIGN => BufferLocation::Foreign(self.word(OFFSET)),
            PRIVATE => BufferLocation::Private,
            unknown => {
                return Err(WireError::Code {
                    field: "place of bytes",
                    found: low(unknown),
                });
            }
        };
        let pieces = match self.is_near() {
            true => detail,
            false => self.word(PIECES),
        };
        Ok(BufferDescriptor { place, pieces })
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

/// Leaves the `file:line` of a call where others can read it, as [`site`](crate::contract::site)
/// has it; without taking memory, as a program may call from several places in turn.
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

/// Inverse of [`write_site`]; what is no line of text becomes one.
pub(super) fn read_site(words: &[AtomicU64; SITE_WORDS]) -> String {
    let length = words[0].load(Ordering::Relaxed).min(SITE_LIMIT as u64);
    let bytes: Vec<u8> = words[1..]
        .iter()
        .flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes())
        .take(usize::try_from(length).expect("at most SITE_LIMIT"))
        .collect();
    told_site(&bytes)
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

    #[test]
    fn a_call_site_that_is_no_line_of_text_is_read_as_one() {
        let words = [const { AtomicU64::new(0) }; SITE_WORDS];
        words[0].store(u64::MAX, Ordering::Relaxed);
        words[1].store(u64::from_le_bytes(*b"a\n\x1b[1m\xffb"), Ordering::Relaxed);
        let read = read_site(&words);
        assert!(read.starts_with("a  [1m\u{fffd}b"), "{read:?}");
        assert!(!read.contains(char::is_control), "{read:?}");
    }

    #[test]
    fn a_place_of_no_kind_is_refused() {
        let post = DescriptorCell::<std::sync::atomic::AtomicU32> {
            flag: Default::default(),
            words: [const { AtomicU64::new(0) }; _],
        };
        assert_eq!(
            post.buffer_descriptor().unwrap().place,
            BufferLocation::Nothing
        );
        post.words[PLACE].store(FOREIGN + 1, Ordering::Relaxed);
        let refused = post.buffer_descriptor().unwrap_err();
        assert_eq!(
            refused.to_string(),
            "place of bytes has no meaning for code 6"
        );
    }
}

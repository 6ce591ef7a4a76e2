//! What a state consists of: its outline, its bytes, and a hash of each chunk of them; and whose
//! state is passed on where not all have the same.

use std::ops::Range;

use meshwork_collectives::Rank;
use twox_hash::XxHash3_64;

use super::parts::Parts;

/// A state as its givers state it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Manifest {
    /// What its arrays are, in a form of whoever has them.
    outline: Vec<u8>,
    /// Bytes of all arrays.
    total: usize,
    /// Bytes of each chunk but the last.
    chunk: usize,
    hashes: Vec<u64>,
}

/// What a rank offers; takers offer nothing.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Offer {
    /// Of the whole manifest.
    hash: u64,
    outline: u64,
    total: u64,
    chunk: u64,
}

/// Who gives, and who takes: the same on all ranks.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Gift {
    pub(crate) givers: Vec<Rank>,
    pub(crate) takers: Vec<Rank>,
}

/// The words that an offer takes.
pub(super) const WORDS: usize = 4;
const HASH: usize = size_of::<u64>();

impl Manifest {
    /// Of a state with this outline, in chunks of so many bytes.
    pub(crate) fn of(outline: Vec<u8>, parts: &Parts<'_>, chunk: usize) -> Self {
        let mut manifest = Self {
            outline,
            total: parts.len(),
            chunk,
            hashes: Vec::new(),
        };
        let mut bytes = Vec::new();
        for index in 0..manifest.total.div_ceil(chunk) {
            let place = manifest.place(index..index + 1);
            bytes.resize(place.len(), 0);
            parts.read(place.start, &mut bytes);
            manifest.hashes.push(XxHash3_64::oneshot(&bytes));
        }
        manifest
    }

    pub(super) fn offer(&self) -> Offer {
        let mut hash = XxHash3_64::oneshot(&self.outline);
        for hashes in [&[self.total as u64, self.chunk as u64][..], &self.hashes] {
            hash = XxHash3_64::oneshot_with_seed(hash, bytemuck::cast_slice(hashes));
        }
        Offer {
            hash,
            outline: self.outline.len() as u64,
            total: self.total as u64,
            chunk: self.chunk as u64,
        }
    }

    /// The outline, and behind it the hashes.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let hashes = self.hashes.iter().flat_map(|hash| hash.to_le_bytes());
        self.outline.iter().copied().chain(hashes).collect()
    }

    /// The manifest that was offered; `None` if these are the bytes of another.
    pub(super) fn from_bytes(offer: Offer, bytes: &[u8]) -> Option<Self> {
        let outline = usize::try_from(offer.outline).ok()?;
        let (outline, hashes) = bytes.split_at_checked(outline)?;
        let (hashes, rest) = hashes.as_chunks::<HASH>();
        let manifest = Self {
            outline: outline.to_vec(),
            total: usize::try_from(offer.total).ok()?,
            chunk: usize::try_from(offer.chunk).ok()?,
            hashes: hashes
                .iter()
                .map(|hash| u64::from_le_bytes(*hash))
                .collect(),
        };
        let is_whole = rest.is_empty() && offer.chunks()? == manifest.hashes.len();
        (is_whole && manifest.offer() == offer).then_some(manifest)
    }

    pub(crate) fn outline(&self) -> &[u8] {
        &self.outline
    }

    pub(crate) fn total(&self) -> usize {
        self.total
    }

    /// How many chunks there are.
    pub(crate) fn chunks(&self) -> usize {
        self.hashes.len()
    }

    /// The bytes of these chunks, which are some of them.
    pub(super) fn place(&self, chunks: Range<usize>) -> Range<usize> {
        chunks.start * self.chunk..self.total.min(chunks.end.saturating_mul(self.chunk))
    }

    pub(super) fn is_chunk(&self, chunk: usize, bytes: &[u8]) -> bool {
        self.hashes[chunk] == XxHash3_64::oneshot(bytes)
    }
}

impl Offer {
    pub(super) fn words(self) -> [u64; WORDS] {
        [self.hash, self.outline, self.total, self.chunk]
    }

    /// Those of all ranks, in their order.
    pub(super) fn read_all(words: &[u64]) -> Vec<Self> {
        let (each, _) = words.as_chunks::<WORDS>();
        let read = |&[hash, outline, total, chunk]: &[u64; WORDS]| Self {
            hash,
            outline,
            total,
            chunk,
        };
        each.iter().map(read).collect()
    }

    /// Bytes of the manifest; `None` if no memory holds as many.
    pub(super) fn bytes(self) -> Option<usize> {
        let outline = usize::try_from(self.outline).ok()?;
        self.chunks()?.checked_mul(HASH)?.checked_add(outline)
    }

    fn chunks(self) -> Option<usize> {
        let chunks = match self.chunk {
            0 => return None,
            chunk => self.total.div_ceil(chunk),
        };
        usize::try_from(chunks).ok()
    }
}

impl Gift {
    /// What of it is left where not all givers offer the same: the state of most, and of those the
    /// first. All others take it over; they are returned besides.
    pub(super) fn agreed(&self, offers: &[Offer]) -> (Self, Vec<Rank>) {
        let of = |rank: &Rank| offers[rank.index()];
        let agreeing = |offer| self.givers.iter().filter(move |rank| of(rank) == offer);
        let mut most = (0, Offer::default());
        for offer in self.givers.iter().map(of) {
            let count = agreeing(offer).count();
            if count > most.0 {
                most = (count, offer);
            }
        }
        let agrees = |rank: &Rank| of(rank) == most.1;
        let (givers, differing): (Vec<_>, Vec<_>) =
            self.givers.iter().partition(|rank| agrees(rank));
        let mut takers = [self.takers.as_slice(), &differing].concat();
        takers.sort_unstable();
        (Self { givers, takers }, differing)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ranks(numbers: impl IntoIterator<Item = usize>) -> Vec<Rank> {
        let rank = |number| Rank::new(u32::try_from(number).unwrap());
        numbers.into_iter().map(rank).collect()
    }

    proptest! {
        #[test]
        fn a_manifest_comes_back_from_its_bytes_and_no_other_is_taken_for_it(
            outline in prop::collection::vec(any::<u8>(), 0..9),
            mut state in prop::collection::vec(any::<u8>(), 0..40),
            chunk in 1_usize..9, place in any::<prop::sample::Index>(), bit in 0_u32..8,
        ) {
            let chunks: Vec<Vec<u8>> = state.chunks(chunk).map(<[u8]>::to_vec).collect();
            let manifest = Manifest::of(outline, &Parts::one(&mut state), chunk);
            prop_assert_eq!(manifest.chunks(), chunks.len());
            prop_assert_eq!(manifest.total(), state.len());
            for (index, bytes) in chunks.iter().enumerate() {
                prop_assert_eq!(&state[manifest.place(index..index + 1)], &bytes[..]);
                prop_assert!(manifest.is_chunk(index, bytes));
                let mut wrong = bytes.clone();
                let at = place.index(wrong.len());
                wrong[at] ^= 1 << bit;
                prop_assert!(!manifest.is_chunk(index, &wrong));
            }
            let (offer, bytes) = (manifest.offer(), manifest.to_bytes());
            prop_assert_eq!(offer.bytes(), Some(bytes.len()));
            prop_assert_eq!(Offer::read_all(&offer.words()), [offer]);
            prop_assert_eq!(Manifest::from_bytes(offer, &bytes), Some(manifest));
            if !bytes.is_empty() {
                prop_assert_eq!(Manifest::from_bytes(offer, &bytes[1..]), None);
                let mut wrong = bytes.clone();
                let at = place.index(wrong.len());
                wrong[at] ^= 1 << bit;
                prop_assert_eq!(Manifest::from_bytes(offer, &wrong), None);
            }
            for word in 0..WORDS {
                let mut words = offer.words();
                words[word] ^= 1 << bit;
                prop_assert_eq!(Manifest::from_bytes(Offer::read_all(&words)[0], &bytes), None);
            }
        }
    }

    #[test]
    fn offers_that_no_memory_holds_have_no_bytes() {
        let offer = |outline, total, chunk| Offer {
            hash: 1,
            outline,
            total,
            chunk,
        };
        assert_eq!(offer(0, 8, 0).bytes(), None);
        assert_eq!(offer(0, u64::MAX, 1).bytes(), None);
        assert_eq!(offer(u64::MAX, 8, 1).bytes(), None);
        assert_eq!(offer(3, 9, 8).bytes(), Some(3 + 16));
    }

    /// All ways in which up to four of five ranks give one of three states.
    #[test]
    fn the_state_of_most_is_given_and_of_two_equally_many_the_first() {
        for giving in 1..16_usize {
            let givers: Vec<usize> = (0..4).filter(|rank| giving >> rank & 1 == 1).collect();
            for states in 0..3_usize.pow(4) {
                let state = |rank: usize| states / [1, 3, 9, 27][rank] % 3;
                let offer = |rank: usize| match givers.contains(&rank) {
                    true => Offer {
                        hash: state(rank) as u64 + 1,
                        ..Offer::default()
                    },
                    false => Offer::default(),
                };
                let offers: Vec<Offer> = (0..5).map(offer).collect();
                let count =
                    |kind: usize| givers.iter().filter(|rank| state(**rank) == kind).count();
                let most = (0..3).map(count).max().unwrap();
                // The first giver whose state has as many.
                let first = givers
                    .iter()
                    .find(|rank| count(state(**rank)) == most)
                    .unwrap();
                let agrees = |rank: &usize| givers.contains(rank) && state(*rank) == state(*first);
                let gift = Gift {
                    givers: ranks(givers.clone()),
                    takers: ranks((0..5).filter(|rank| !givers.contains(rank))),
                };
                let (agreed, differing) = gift.agreed(&offers);
                assert_eq!(agreed.givers, ranks((0..5).filter(agrees)));
                assert_eq!(agreed.takers, ranks((0..5).filter(|rank| !agrees(rank))));
                let others = givers.iter().copied().filter(|rank| !agrees(rank));
                assert_eq!(differing, ranks(others));
            }
        }
    }
}

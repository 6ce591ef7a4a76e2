//! Which giver sends which chunk to whom, and in which order: the same on all ranks, from what each
//! taker holds. A loss or a wrong chunk ends a membership; the next plan begins with what is held.

use std::ops::Range;

use meshwork_collectives::Rank;

/// The chunks of a state that a worker holds.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ChunkSet {
    /// A bit for each chunk.
    words: Vec<u64>,
    chunks: usize,
}

/// Chunks on their way, one after the other.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Delivery {
    pub(super) chunks: Range<usize>,
    pub(super) giver: Rank,
    pub(super) to: Recipient,
}

/// For whom a chunk is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Recipient {
    Taker(Rank),
    /// The whole group: where there are more takers than givers, these would send too much.
    All,
}

/// A taker, and what it holds.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Taker {
    pub(super) rank: Rank,
    pub(super) held: ChunkSet,
}

const BITS: usize = u64::BITS as usize;

impl ChunkSet {
    /// None of so many.
    pub(crate) fn none(chunks: usize) -> Self {
        Self {
            words: vec![0; chunks.div_ceil(BITS)],
            chunks,
        }
    }

    pub(super) fn words(&self) -> &[u64] {
        &self.words
    }

    /// The words that a set of so many chunks takes.
    pub(super) fn words_of(chunks: usize) -> usize {
        chunks.div_ceil(BITS)
    }

    /// As another rank says; bits behind the last chunk mean nothing.
    pub(super) fn from_words(words: &[u64], chunks: usize) -> Self {
        Self {
            words: words.to_vec(),
            chunks,
        }
    }

    pub(super) fn insert(&mut self, chunk: usize) {
        self.words[chunk / BITS] |= 1 << (chunk % BITS);
    }

    /// Leaves what is in `other`, too, of as many chunks.
    fn retain(&mut self, other: &Self) {
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word &= other;
        }
    }

    pub(super) fn contains(&self, chunk: usize) -> bool {
        self.words[chunk / BITS] >> (chunk % BITS) & 1 == 1
    }

    /// Those that are missing, in their order.
    pub(super) fn missing(&self) -> impl Iterator<Item = usize> {
        // Words that are full are passed over as a whole.
        let some = self
            .words
            .iter()
            .enumerate()
            .filter(|(_, word)| **word != u64::MAX);
        some.flat_map(|(at, _)| at * BITS..self.chunks.min((at + 1) * BITS))
            .filter(|chunk| !self.contains(*chunk))
    }
}

/// The next deliveries: about `most` chunks for each taker, as many from each giver; none if
/// nothing is missing. Each rank takes part in them in their order.
pub(super) fn next_pass(givers: &[Rank], takers: &[Taker], most: usize) -> Vec<Delivery> {
    let rounds = (most / givers.len()).max(1) * givers.len();
    if takers.len() > givers.len() {
        return broadcasts(givers, takers, rounds);
    }
    let mut missing: Vec<_> = takers.iter().map(|taker| taker.held.missing()).collect();
    let mut deliveries = Vec::new();
    for round in 0..rounds {
        for (place, taker) in takers.iter().enumerate() {
            // No giver has two takers in a round, so that none waits for one that waits for it.
            if let Some(chunk) = missing[place].next() {
                deliveries.push(Delivery {
                    chunks: chunk..chunk + 1,
                    giver: givers[(round + place) % givers.len()],
                    to: Recipient::Taker(taker.rank),
                });
            }
        }
    }
    deliveries
}

/// The next chunks that any taker misses: an equal part from each giver, in few broadcasts.
fn broadcasts(givers: &[Rank], takers: &[Taker], most: usize) -> Vec<Delivery> {
    let mut all_held = takers[0].held.clone();
    for taker in takers {
        all_held.retain(&taker.held);
    }
    let missing: Vec<usize> = all_held.missing().take(most).collect();
    let mut deliveries = Vec::new();
    for (part, giver) in missing.chunks(most / givers.len()).zip(givers) {
        for run in part.chunk_by(|one, next| one + 1 == *next) {
            deliveries.push(Delivery {
                chunks: run[0]..run[0] + run.len(),
                giver: *giver,
                to: Recipient::All,
            });
        }
    }
    deliveries
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet, VecDeque};

    use proptest::prelude::*;

    use super::*;

    fn ranks(numbers: impl IntoIterator<Item = u32>) -> Vec<Rank> {
        numbers.into_iter().map(Rank::new).collect()
    }

    fn set(chunks: usize, held: &BTreeSet<usize>) -> ChunkSet {
        let mut set = ChunkSet::none(chunks);
        held.iter().for_each(|chunk| set.insert(*chunk));
        set
    }

    /// What each rank does, in its order: with whom, and whether it gives.
    type Story = BTreeMap<Rank, VecDeque<(usize, Rank, bool)>>;

    /// Carries a pass out among ranks of which each waits for the other end of what it does next.
    #[track_caller]
    fn meets(pass: &[Delivery]) {
        let mut all = Story::new();
        for Delivery { chunks, giver, to } in pass {
            let Recipient::Taker(taker) = *to else { return };
            let chunk = &chunks.start;
            assert_eq!(chunks.len(), 1);
            all.entry(*giver)
                .or_default()
                .push_back((*chunk, taker, true));
            all.entry(taker)
                .or_default()
                .push_back((*chunk, *giver, false));
        }
        while all.values().any(|story| !story.is_empty()) {
            let ready = all.iter().find_map(|(own, story)| {
                let (chunk, other, gives) = *story.front()?;
                let back = *all[&other].front()?;
                (back == (chunk, *own, !gives)).then_some((*own, other))
            });
            let (one, other) = ready.expect("no two wait for each other");
            for rank in [one, other] {
                all.get_mut(&rank).unwrap().pop_front();
            }
        }
    }

    /// Passes one after the other, against sets; returns how many there were.
    #[track_caller]
    fn delivers(givers: u32, mut held: Vec<BTreeSet<usize>>, chunks: usize, most: usize) -> usize {
        let first = ranks(0..givers);
        let numbers: Vec<Rank> = (givers..).map(Rank::new).take(held.len()).collect();
        let mut passes = 0;
        loop {
            let takers: Vec<Taker> = (numbers.iter().zip(&held))
                .map(|(rank, held)| Taker {
                    rank: *rank,
                    held: set(chunks, held),
                })
                .collect();
            let pass = next_pass(&first, &takers, most);
            if pass.is_empty() {
                break;
            }
            meets(&pass);
            // Broadcasts have equal parts but in the last pass.
            let difference = match takers.len() > first.len() {
                true => (most / first.len()).max(1),
                false => 1,
            };
            let mut given: BTreeMap<(Rank, Rank), usize> = BTreeMap::new();
            for delivery in pass {
                let (giver, to) = (delivery.giver, delivery.to);
                for chunk in delivery.chunks {
                    assert!(first.contains(&giver) && chunk < chunks);
                    let mut is_new = false;
                    for (rank, held) in numbers.iter().zip(&mut held) {
                        if to == Recipient::All || to == Recipient::Taker(*rank) {
                            is_new |= held.insert(chunk);
                            *given.entry((giver, *rank)).or_default() += 1;
                        }
                    }
                    assert!(is_new, "chunk {chunk} is sent to nobody who misses it");
                }
            }
            for taker in &numbers {
                let counts: Vec<usize> = first
                    .iter()
                    .map(|giver| given.get(&(*giver, *taker)).copied().unwrap_or_default())
                    .collect();
                let (least, largest) = (counts.iter().min(), counts.iter().max());
                assert!(
                    largest.unwrap() - least.unwrap() <= difference,
                    "{counts:?}"
                );
                assert!(counts.iter().sum::<usize>() <= most.max(givers as usize));
            }
            passes += 1;
        }
        assert!(held.iter().all(|held| held.len() == chunks));
        passes
    }

    /// Every world of up to three givers and three takers, whatever each taker holds of three
    /// chunks.
    #[test]
    fn every_chunk_comes_once_to_whom_it_is_missing_and_no_two_wait_for_each_other() {
        const CHUNKS: usize = 3;
        for (givers, takers) in (1..4).flat_map(|givers| (1..4).map(move |takers| (givers, takers)))
        {
            for holdings in 0..1_usize << (takers * CHUNKS) {
                let holds = |taker: usize, chunk| holdings >> (taker * CHUNKS + chunk) & 1 == 1;
                let held: Vec<BTreeSet<usize>> = (0..takers)
                    .map(|taker| (0..CHUNKS).filter(|chunk| holds(taker, *chunk)).collect())
                    .collect();
                for most in 1..4 {
                    delivers(givers, held.clone(), CHUNKS, most);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn a_long_state_comes_in_as_many_passes_as_it_takes(
            givers in 1_u32..6, takers in 1_usize..4, chunks in 0_usize..200, most in 1_usize..20,
        ) {
            let passes = delivers(givers, vec![BTreeSet::new(); takers], chunks, most);
            let each = (most / givers as usize).max(1) * givers as usize;
            prop_assert_eq!(passes, chunks.div_ceil(each));
        }

        #[test]
        fn a_set_of_chunks_is_a_set(chunks in 1_usize..200, inserted in prop::collection::vec(any::<prop::sample::Index>(), 0..50)) {
            let held: BTreeSet<usize> = inserted.iter().map(|at| at.index(chunks)).collect();
            let chunk_set = set(chunks, &held);
            let missing: Vec<usize> = (0..chunks).filter(|chunk| !held.contains(chunk)).collect();
            prop_assert_eq!(chunk_set.missing().collect::<Vec<_>>(), missing);
            prop_assert!((0..chunks).all(|chunk| chunk_set.contains(chunk) == held.contains(&chunk)));
            prop_assert_eq!(chunk_set.words().len(), ChunkSet::words_of(chunks));
            prop_assert_eq!(ChunkSet::from_words(chunk_set.words(), chunks), chunk_set);
        }
    }
}

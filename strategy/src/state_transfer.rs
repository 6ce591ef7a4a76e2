//! The state of a training on its way to those who have it not: in chunks, each with a hash, from
//! all workers that have it at once. A worker that is lost on the way takes nothing with it: who is
//! left goes on with the chunks that are missing.
//!
//! What a state consists of is in `manifest`, who sends what in `plan`, both pure; here is what is
//! exchanged.

mod manifest;
mod parts;
mod plan;

use std::ops::Range;

use meshwork_collectives::{Group, Rank};

use crate::{Error, StateError};
use manifest::Offer;
use plan::{Delivery, Recipient, Taker};

pub(crate) use manifest::{Gift, Manifest};
pub use parts::LentArrays;
pub(crate) use parts::Parts;
pub(crate) use plan::ChunkSet;

/// Bytes of a chunk. Half of what is on its way on one stream, so that a giver sends the next one
/// while a taker hears another giver.
pub(crate) const CHUNK: usize = 1 << 20;
/// Chunks for each taker from one look at what was wrong to the next: at 20 Mbit/s, as long as
/// others wait, 7 s.
const PASS: usize = 16;

/// What all ranks have agreed on before chunks are sent.
#[derive(Debug)]
pub(crate) struct Terms {
    pub(crate) manifest: Manifest,
    pub(crate) gift: Gift,
    /// Givers whose state is another than that of most; they are takers now.
    pub(crate) differing: Vec<Rank>,
    /// The givers' word for the state.
    offer: Offer,
}

/// A state of which not all chunks may be there yet.
#[derive(Debug)]
pub(crate) struct Partial<S> {
    offer: Offer,
    held: ChunkSet,
    pub(crate) state: S,
}

impl<S> Partial<S> {
    pub(crate) fn new(terms: &Terms, state: S) -> Self {
        Self {
            offer: terms.offer,
            held: ChunkSet::none(terms.manifest.chunks()),
            state,
        }
    }

    /// Whether it has chunks of the state that is given.
    pub(crate) fn is_of(&self, terms: &Terms) -> bool {
        self.offer == terms.offer
    }
}

impl Terms {
    pub(crate) fn takes(&self, rank: Rank) -> bool {
        self.gift.takers.contains(&rank)
    }
}

/// Agrees on a state, of which each giver has a manifest.
///
/// # Errors
/// [`StateError::Manifest`] on the giver that has sent another one than it offered,
/// [`Error::Group`].
pub(crate) fn agree(
    group: &mut Group,
    gift: &Gift,
    own: Option<&Manifest>,
) -> Result<Terms, Error> {
    let own_offer = own.map_or_else(Offer::default, Manifest::offer);
    let mut words = vec![0; manifest::WORDS * group.world() as usize];
    group.all_gather(&own_offer.words(), &mut words)?;
    let offers = Offer::read_all(&words);
    let (gift, differing) = gift.agreed(&offers);
    let first = gift.givers[0];
    let offer = offers[first.index()];
    let wrong = || StateError::Manifest { giver: first };
    let len = offer.bytes().ok_or_else(wrong)?;
    let mut bytes = match own.filter(|_| group.rank() == first) {
        Some(manifest) => manifest.to_bytes(),
        None => zeros(len).ok_or_else(wrong)?,
    };
    group.broadcast(&mut bytes, first)?;
    match Manifest::from_bytes(offer, &bytes) {
        Some(manifest) => Ok(Terms {
            manifest,
            gift,
            differing,
            offer,
        }),
        None => Err(blame(group, first, wrong())),
    }
}

/// Room for as many bytes as another rank says; `None` where there is no memory for them.
fn zeros(len: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len).ok()?;
    bytes.resize(len, 0);
    Some(bytes)
}

/// Sends this rank's chunks, of a state that it has.
///
/// # Errors
/// [`StateError::Chunk`] if one of them was another than stated, [`Error::Group`].
pub(crate) fn give(group: &mut Group, terms: &Terms, parts: &mut Parts<'_>) -> Result<(), Error> {
    let mut held = ChunkSet::none(0);
    Transfer::begin(group, terms, parts, &mut held)?.run()
}

/// Takes the chunks over that are missing.
///
/// # Errors
/// [`Error::Group`]; what has come is held.
pub(crate) fn take<'a, S>(
    group: &mut Group,
    terms: &Terms,
    partial: &'a mut Partial<S>,
    parts: impl FnOnce(&'a mut S) -> Parts<'a>,
) -> Result<(), Error> {
    let Partial { held, state, .. } = partial;
    Transfer::begin(group, terms, &mut parts(state), held)?.run()
}

/// One rank's part of a transfer.
struct Transfer<'a, 'b> {
    group: &'a mut Group,
    terms: &'a Terms,
    parts: &'a mut Parts<'b>,
    /// Of a taker.
    held: &'a mut ChunkSet,
    /// As far as all ranks know.
    takers: Vec<Taker>,
    buffer: Vec<u8>,
}

/// A chunk that is not what it was stated to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) chunk: usize,
    pub(crate) giver: Rank,
}

impl<'a, 'b> Transfer<'a, 'b> {
    /// Learns what each taker holds.
    fn begin(
        group: &'a mut Group,
        terms: &'a Terms,
        parts: &'a mut Parts<'b>,
        held: &'a mut ChunkSet,
    ) -> Result<Self, Error> {
        let chunks = terms.manifest.chunks();
        let len = ChunkSet::words_of(chunks);
        let own = match terms.takes(group.rank()) {
            true => held.words().to_vec(),
            false => vec![0; len],
        };
        let mut words = vec![0; len * group.world() as usize];
        group.all_gather(&own, &mut words)?;
        let taker = |rank: &Rank| Taker {
            rank: *rank,
            held: ChunkSet::from_words(&words[rank.index() * len..][..len], chunks),
        };
        Ok(Self {
            takers: terms.gift.takers.iter().map(taker).collect(),
            group,
            terms,
            parts,
            held,
            buffer: Vec::new(),
        })
    }

    fn run(mut self) -> Result<(), Error> {
        loop {
            let pass = plan::next_pass(&self.terms.gift.givers, &self.takers, PASS);
            if pass.is_empty() {
                return Ok(());
            }
            let fault = self.carry_out(&pass)?;
            self.conclude(&pass, fault)?;
        }
    }

    /// Sends and receives; the first chunk that is wrong is returned, and not held.
    fn carry_out(&mut self, pass: &[Delivery]) -> Result<Option<Fault>, Error> {
        let own = self.group.rank();
        let mut fault = None;
        for Delivery { chunks, giver, to } in pass {
            let (giver, gives) = (*giver, own == *giver);
            let place = self.terms.manifest.place(chunks.clone());
            self.buffer.resize(place.len(), 0);
            if gives {
                self.parts.read(place.start, &mut self.buffer);
            }
            let takes = match *to {
                Recipient::Taker(taker) if gives => {
                    self.group.send(&self.buffer, taker)?;
                    false
                }
                Recipient::Taker(taker) if taker == own => {
                    self.group.receive(&mut self.buffer, giver)?;
                    true
                }
                Recipient::Taker(_) => false,
                Recipient::All => {
                    self.group.broadcast(&mut self.buffer, giver)?;
                    self.terms.takes(own)
                }
            };
            if takes && let Some(chunk) = self.keep(chunks.clone()) {
                fault = fault.or(Some(Fault { chunk, giver }));
            }
        }
        Ok(fault)
    }

    /// Puts the chunks that have come in their places, and returns the first that is another.
    fn keep(&mut self, chunks: Range<usize>) -> Option<usize> {
        let manifest = &self.terms.manifest;
        let (start, mut wrong) = (manifest.place(chunks.clone()).start, None);
        for chunk in chunks {
            let place = manifest.place(chunk..chunk + 1);
            let bytes = &self.buffer[place.start - start..place.end - start];
            if manifest.is_chunk(chunk, bytes) {
                self.parts.write(place.start, bytes);
                self.held.insert(chunk);
            } else {
                wrong = wrong.or(Some(chunk));
            }
        }
        wrong
    }

    /// Tells all whether a chunk was wrong, and notes what the takers hold now.
    fn conclude(&mut self, pass: &[Delivery], fault: Option<Fault>) -> Result<(), Error> {
        tell_fault(self.group, fault, self.terms.manifest.chunks())?;
        for Delivery { chunks, to, .. } in pass {
            for taker in &mut self.takers {
                if *to == Recipient::All || *to == Recipient::Taker(taker.rank) {
                    chunks.clone().for_each(|chunk| taker.held.insert(chunk));
                }
            }
        }
        Ok(())
    }
}

/// Tells all whether one of so many chunks was wrong, which ends the group.
///
/// # Errors
/// [`StateError::Chunk`] if one was, [`Error::Group`].
pub(crate) fn tell_fault(
    group: &mut Group,
    fault: Option<Fault>,
    chunks: usize,
) -> Result<(), Error> {
    let own = match fault {
        Some(Fault { chunk, giver }) => [chunk as u64 + 1, giver.number().into()],
        None => [0, 0],
    };
    let mut words = vec![0; own.len() * group.world() as usize];
    group.all_gather(&own, &mut words)?;
    let (reports, _) = words.as_chunks::<2>();
    for [chunk, giver] in reports {
        let is_giver = |rank: &Rank| u64::from(rank.number()) == *giver;
        let giver = Rank::all(group.world()).find(is_giver);
        if let (Some(chunk), Some(giver)) = (chunk.checked_sub(1), giver) {
            let error = StateError::Chunk {
                giver,
                chunk,
                chunks,
            };
            return Err(blame(group, giver, error));
        }
    }
    Ok(())
}

/// The giver at fault ends with this error, which the others hear of while they wait.
fn blame(group: &mut Group, giver: Rank, error: StateError) -> Error {
    if group.rank() == giver {
        return error.into();
    }
    match group.barrier() {
        Ok(()) => error.into(),
        Err(over) => over.into(),
    }
}

#[cfg(test)]
mod tests;

//! The numbers of one unit on their way from one division among workers to another: each takes what
//! it has not, in messages of a bound and with a hash, from all who have it. What has come outlives
//! a loss on the way.

mod pieces;
mod plan;

use std::mem;
use std::sync::Arc;

use meshwork_collectives::{Group, Rank};
use twox_hash::XxHash3_64;

use super::held::{Held, Kind, Whose};
use super::partition::Partition;
use super::survivors::Sources;
use super::unit::ShardedUnit;
use crate::Error;
use crate::replica::gather_bytes;
use crate::state_transfer::{self, Fault};
use pieces::{Piece, Store};
pub(super) use plan::Message;

/// How the numbers of a unit were divided, and who has them.
pub(super) struct Relayout<'a> {
    pub(super) from: Partition,
    pub(super) sources: &'a Sources,
    /// Kinds of the optimizer's state.
    pub(super) states: usize,
}

/// The numbers of a unit as they are to be divided, as far as they have come.
#[derive(Debug)]
pub(super) struct Arriving {
    pub(super) held: Box<Held>,
    pub(super) partition: Arc<Partition>,
    /// Whose part this worker has; `None` if it has all.
    pub(super) worker: Option<usize>,
    /// After so many steps.
    steps: u64,
    /// What has come, and for whose part.
    pieces: Pieces,
    missing: Pieces,
}

type Pieces = Vec<(Whose, Piece)>;

impl Arriving {
    /// None yet.
    pub(super) fn new(
        held: Box<Held>,
        partition: Arc<Partition>,
        worker: Option<usize>,
        steps: u64,
    ) -> Self {
        Self {
            held,
            partition,
            worker,
            steps,
            pieces: Pieces::new(),
            missing: Pieces::new(),
        }
    }

    /// Elements that have come.
    #[cfg(test)]
    pub(super) fn came(&self) -> usize {
        self.pieces.iter().map(|(_, piece)| piece.len()).sum()
    }

    fn store(&mut self) -> Store<'_> {
        Store {
            held: &mut self.held,
            partition: &self.partition,
            worker: self.worker,
        }
    }

    /// Puts values where this worker keeps them.
    fn put(&mut self, unit: &mut ShardedUnit, whose: Whose, piece: &Piece, values: &[f32]) {
        match unit.lent().filter(|_| piece.kind == Kind::Parameters) {
            Some(lent) => lent.rows(&self.partition, piece.tensor, None, |all| {
                all[piece.elements.clone()].copy_from_slice(values);
            }),
            None => self
                .store()
                .with(whose, piece, |rows| rows.copy_from_slice(values)),
        }
        self.pieces.push((whose, piece.clone()));
    }

    /// Puts what a message has brought where it is missing.
    fn put_all(&mut self, unit: &mut ShardedUnit, message: &Message, values: &[f32]) {
        let mut rest = values;
        for (_, piece) in &message.pieces {
            let (values, behind) = rest.split_at(piece.len());
            let is_for = |(_, missing): &&(Whose, Piece)| missing.common(piece).is_some();
            let found = self.missing.iter().find(is_for);
            let (whose, _) = found.expect("what comes was asked for");
            self.put(unit, *whose, piece, values);
            rest = behind;
        }
    }
}

impl Relayout<'_> {
    /// Brings all that this worker is to keep to it.
    pub(super) fn carry_out(
        &self,
        group: &mut Group,
        unit: &mut ShardedUnit,
        arriving: &mut Arriving,
    ) -> Result<(), Error> {
        let messages = self.plan(group, unit, arriving)?;
        let mut fault = None;
        for (chunk, message) in messages.iter().enumerate() {
            let is_whole = self.exchange(group, unit, arriving, message)?;
            if !is_whole {
                let giver = rank_of(message.giver);
                fault = fault.or(Some(Fault { chunk, giver }));
            }
        }
        state_transfer::tell_fault(group, fault, messages.len())
    }

    /// Takes what this worker has, and learns who sends what it misses.
    pub(super) fn plan(
        &self,
        group: &mut Group,
        unit: &mut ShardedUnit,
        arriving: &mut Arriving,
    ) -> Result<Vec<Message>, Error> {
        let mut missing = arriving.store().pieces(self.states);
        if let Some(place) = unit.place_in(self.sources.id) {
            self.take_own(unit, place, arriving, &mut missing)?;
        }
        if let Some(before) = unit.arriving.take()
            && before.steps == arriving.steps
        {
            take_arrived(before, unit, arriving, &mut missing)?;
        }
        let all = self.tell(group, &missing)?;
        arriving.missing = missing;
        Ok(plan::messages(
            &all,
            &self.from,
            &self.sources.of_parts,
            MOST,
        ))
    }

    /// Sends or takes a message, if it is one of this worker's; false if it was not what its hash
    /// says, and is not kept.
    pub(super) fn exchange(
        &self,
        group: &mut Group,
        unit: &mut ShardedUnit,
        arriving: &mut Arriving,
        message: &Message,
    ) -> Result<bool, Error> {
        let own = group.rank().index();
        let mut values = Vec::new();
        if message.giver == own {
            for (whose, piece) in &message.pieces {
                self.with_own(unit, *whose, piece, |rows| values.extend_from_slice(rows))?;
            }
            seal(&mut values);
            group.send(&values, rank_of(message.taker))?;
        } else if message.taker == own {
            values.resize(message.len() + HASH, 0.0);
            group.receive(&mut values, rank_of(message.giver))?;
            let Some(values) = open(&values) else {
                return Ok(false);
            };
            arriving.put_all(unit, message, values);
        }
        Ok(true)
    }

    /// What each worker misses.
    fn tell(&self, group: &mut Group, missing: &Pieces) -> Result<Vec<Vec<Piece>>, Error> {
        let words = missing.iter().flat_map(|(_, piece)| piece.words());
        let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        let read = |bytes: &Vec<u8>| {
            let (words, _) = bytes.as_chunks::<{ size_of::<u64>() }>();
            let words: Vec<u64> = words.iter().copied().map(u64::from_le_bytes).collect();
            let (pieces, _) = words.as_chunks::<{ pieces::WORDS }>();
            let read = |words| Piece::read(words, &self.from, self.states);
            pieces.iter().filter_map(read).collect()
        };
        Ok(gather_bytes(group, &bytes)?.iter().map(read).collect())
    }

    /// Copies what this worker has in its place in the division before.
    fn take_own(
        &self,
        unit: &mut ShardedUnit,
        place: usize,
        arriving: &mut Arriving,
        missing: &mut Pieces,
    ) -> Result<(), Error> {
        let (mut has, mut values) = (Vec::new(), Vec::new());
        unit.with_layout(self.sources.id, |held| {
            let (partition, worker) = (&self.from, Some(place));
            let mut store = Store {
                held,
                partition,
                worker,
            };
            has = store.pieces(self.states);
        })?;
        take(missing, &has, |from, onto, piece| {
            values.clear();
            self.with_own(unit, from, piece, |rows| values.extend_from_slice(rows))?;
            arriving.put(unit, onto, piece, &values);
            Ok(())
        })
    }

    /// Lets `act` have a piece that this worker has in the division before.
    fn with_own(
        &self,
        unit: &mut ShardedUnit,
        whose: Whose,
        piece: &Piece,
        act: impl FnOnce(&mut [f32]),
    ) -> Result<(), Error> {
        let (partition, worker) = (&self.from, unit.place_in(self.sources.id));
        unit.with_layout(self.sources.id, |held| {
            let mut store = Store {
                held,
                partition,
                worker,
            };
            store.with(whose, piece, act);
        })
    }
}

/// Copies what has come before a loss.
fn take_arrived(
    mut before: Arriving,
    unit: &mut ShardedUnit,
    arriving: &mut Arriving,
    missing: &mut Pieces,
) -> Result<(), Error> {
    let (has, mut values) = (mem::take(&mut before.pieces), Vec::new());
    take(missing, &has, |from, onto, piece| {
        // Where a model library has them, they are in their place.
        if piece.kind == Kind::Parameters && unit.lent().is_some() {
            arriving.pieces.push((onto, piece.clone()));
            return Ok(());
        }
        values.clear();
        before
            .store()
            .with(from, piece, |rows| values.extend_from_slice(rows));
        arriving.put(unit, onto, piece, &values);
        Ok(())
    })
}

/// Takes what is missing out of what is there, some at a time, and leaves the rest.
fn take(
    missing: &mut Pieces,
    has: &[(Whose, Piece)],
    mut copy: impl FnMut(Whose, Whose, &Piece) -> Result<(), Error>,
) -> Result<(), Error> {
    for (from, has) in has {
        let mut rest = Vec::with_capacity(missing.len());
        for (onto, piece) in missing.drain(..) {
            let Some(common) = piece.common(has) else {
                rest.push((onto, piece));
                continue;
            };
            for some in common.cut(MOST) {
                copy(*from, onto, &some)?;
            }
            rest.extend(piece.without(&common).map(|left| (onto, left)));
        }
        *missing = rest;
    }
    Ok(())
}

fn rank_of(worker: usize) -> Rank {
    Rank::new(u32::try_from(worker).expect("it is one of a group"))
}

/// Puts the hash of values behind them.
fn seal(values: &mut Vec<f32>) {
    let hash: [f32; HASH] = bytemuck::cast(hash_of(values));
    values.extend(hash);
}

/// Values before their hash; `None` if it is that of others.
fn open(sealed: &[f32]) -> Option<&[f32]> {
    let (values, hash) = sealed.split_last_chunk::<HASH>()?;
    (bytemuck::cast::<_, u64>(*hash) == hash_of(values)).then_some(values)
}

fn hash_of(values: &[f32]) -> u64 {
    XxHash3_64::oneshot(bytemuck::cast_slice(values))
}

/// Elements that a hash takes the room of.
const HASH: usize = size_of::<u64>() / size_of::<f32>();
/// Elements of a message: with its hash, those of a chunk of replicated states.
const MOST: usize = if cfg!(test) {
    24
} else {
    state_transfer::CHUNK / size_of::<f32>() - HASH
};

#[cfg(test)]
mod tests;

//! `RingOrder`: in which order ranks stand around a ring.
//!
//! A ring schedule is written for ranks that follow each other by number. Along another ring each
//! rank plays the part of its place, and what it does with the next place it does with the rank
//! there.

mod widest;

use std::fmt::{self, Display};
use std::ops::Range;
use std::sync::Arc;

use super::{Collective, Receive, Round, Send, rank_at};
use crate::Rank;

/// All ranks of a group around a ring: each passes on to the next one, the last to the first. What
/// is reduced goes around it the other way.
///
/// ```
/// use meshwork_schedule::{Rank, RingOrder};
///
/// // Links in the order of the ranks have 1 Mbit/s, those two further on 100.
/// let rate = |from: Rank, to: Rank| match (to.number() + 5 - from.number()) % 5 {
///     2 => 100,
///     _ => 1,
/// };
/// let ring = RingOrder::widest(5, rate);
/// assert_eq!(ring.to_string(), "0 > 2 > 4 > 1 > 3 > 0");
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RingOrder {
    ranks: Arc<[Rank]>,
    /// Where each rank stands.
    places: Arc<[usize]>,
}

impl RingOrder {
    /// These ranks, one after the other. `None` unless each rank of a group of as many is named
    /// once.
    #[must_use]
    pub fn new(ranks: impl IntoIterator<Item = Rank>) -> Option<Self> {
        let ranks: Arc<[Rank]> = ranks.into_iter().collect();
        let mut places = vec![None; ranks.len()];
        for (place, rank) in ranks.iter().enumerate() {
            let free = places.get_mut(rank.index())?;
            if free.replace(place).is_some() {
                return None;
            }
        }
        let places = places.into_iter().collect::<Option<_>>()?;
        Some(Self { ranks, places })
    }

    /// The ring whose slowest link is the fastest that a ring can have, and of those the one whose
    /// links are fastest in all: exactly for up to 12 ranks, nearly for more.
    ///
    /// `rate` says how much a link carries, from one rank to another. From equal rates comes the
    /// same ring on every machine.
    #[must_use]
    #[doc(alias("travelling salesman", "optimize topology"))]
    pub fn widest(world: u32, rate: impl Fn(Rank, Rank) -> u64) -> Self {
        let ranks: Vec<Rank> = Rank::all(world).collect();
        let rates = (ranks.iter())
            .map(|from| ranks.iter().map(|to| rate(*from, *to)).collect())
            .collect::<Vec<Vec<u64>>>();
        let order = widest::ring(&rates);
        Self::new(order.into_iter().map(rank_at)).expect("a solution names each rank once")
    }

    /// How many ranks there are.
    #[must_use]
    pub fn world(&self) -> usize {
        self.ranks.len()
    }

    /// The ranks, one after the other.
    #[must_use]
    pub fn ranks(&self) -> &[Rank] {
        &self.ranks
    }

    /// The links of the ring: from whom to whom.
    pub fn links(&self) -> impl Iterator<Item = (Rank, Rank)> + '_ {
        let next = self.ranks.iter().cycle().skip(1);
        let all = self.ranks.iter().zip(next);
        all.map(|(from, to)| (*from, *to))
            .filter(|(from, to)| from != to)
    }

    /// Where a rank stands, which is below the world.
    pub(super) fn place(&self, rank: Rank) -> Rank {
        rank_at(self.places[rank.index()])
    }

    /// The collective as it is among places.
    pub(super) fn among_places(&self, collective: Collective) -> Collective {
        let place = |root| self.place(root);
        match collective {
            Collective::Reduce { root } => Collective::Reduce { root: place(root) },
            Collective::Broadcast { root } => Collective::Broadcast { root: place(root) },
            Collective::Gather { root } => Collective::Gather { root: place(root) },
            Collective::Scatter { root } => Collective::Scatter { root: place(root) },
            Collective::AllReduce
            | Collective::ReduceScatter
            | Collective::AllGather
            | Collective::AllToAll
            | Collective::Barrier => collective,
        }
    }

    /// A round among places of a ring schedule over so many blocks, as it is among ranks.
    pub(super) fn among_ranks(&self, round: Round, blocks: usize) -> Round {
        let send = |Send { to, blocks: sent }| Send {
            to: self.ranks[to.index()],
            blocks: self.blocks_of_ranks(sent, blocks),
        };
        let receive = |one: Receive| Receive {
            from: self.ranks[one.from.index()],
            blocks: self.blocks_of_ranks(one.blocks, blocks),
            then: one.then,
        };
        Round {
            sends: round.sends.into_iter().map(send).collect(),
            receives: round.receives.into_iter().map(receive).collect(),
        }
    }

    /// The block of a place, or pair of places, becomes that of the rank there. Equal parts of a
    /// buffer change places too, alike on all ranks.
    fn blocks_of_ranks(&self, of_places: Range<usize>, blocks: usize) -> Range<usize> {
        let world = self.world();
        // Rings pass on one block at a time; a barrier none.
        debug_assert!(of_places.len() <= 1, "{of_places:?}");
        if of_places.is_empty() {
            return of_places;
        }
        let rank = |place: usize| self.ranks[place].index();
        let at = of_places.start;
        let block = match blocks == world {
            true => rank(at),
            false => rank(at / world) * world + rank(at % world),
        };
        block..block + 1
    }
}

impl Display for RingOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for rank in self.ranks.iter() {
            write!(f, "{} > ", rank.number())?;
        }
        match self.ranks.first() {
            Some(first) => write!(f, "{}", first.number()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;

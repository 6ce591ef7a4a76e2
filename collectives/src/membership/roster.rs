//! What every member has to know of every other before a group begins, gathered in ⌈log₂ n⌉ rounds.
//!
//! ```text
//!   of 5 ranks, rank 4 hears     in round 0  from 3   of 3
//!                                in round 1  from 2   of 1 2
//!                                in round 2  from 0   of 0
//! ```
//!
//! In round `k` a rank tells the one 2^k ahead of it about itself and those behind it, as many as
//! it has heard of by then, so that all know all at the end: nobody knows all before all are there.
//! (A dissemination barrier as in Hensgen, Finkel and Manber, 1988, that carries the blocks of
//! Bruck et al., 1997.)

use std::sync::Arc;

use crate::Rank;
use crate::overlay::ahead;
use crate::wire::{MemberRecord, RecordBatch};

/// The records so far.
#[derive(Debug)]
pub(super) struct Roster {
    me: Rank,
    records: Records,
    /// How many ranks, this one first and then backwards, are known without a gap.
    known: usize,
    /// Rounds whose records this rank has told.
    told: u32,
}

/// What is known of each rank.
#[derive(Debug)]
enum Records {
    Some(Vec<Option<MemberRecord>>),
    /// Shared with whoever needs it while the group runs: there is one of each process.
    All(Arc<[MemberRecord]>),
}

impl Records {
    fn of(&self, place: usize) -> Option<MemberRecord> {
        match self {
            Self::Some(records) => records[place],
            Self::All(records) => Some(records[place]),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Some(records) => records.len(),
            Self::All(records) => records.len(),
        }
    }
}

impl Roster {
    pub(super) fn new(me: Rank, own: MemberRecord, world: usize) -> Self {
        let mut records = vec![None; world];
        records[me.index()] = Some(own);
        Self {
            me,
            records: Records::Some(records),
            known: 1,
            told: 0,
        }
    }

    /// Of a group that has begun.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn complete_from(me: Rank, records: Arc<[MemberRecord]>) -> Self {
        Self {
            me,
            known: records.len(),
            told: u32::BITS,
            records: Records::All(records),
        }
    }

    /// Takes in what another rank knows. What is known already stays as it is.
    pub(super) fn hear(&mut self, batch: &RecordBatch) {
        let world = self.records.len();
        let Records::Some(records) = &mut self.records else {
            return;
        };
        for (offset, record) in batch.records.iter().enumerate().take(world) {
            let place = (batch.first as usize % world + offset) % world;
            records[place].get_or_insert(*record);
        }
        while self.known < world && self.records.of(self.behind(self.known)).is_some() {
            self.known += 1;
        }
    }

    /// Whom to tell what next, once that rank is there and all that it is to hear is known.
    pub(super) fn next(&mut self, is_here: impl Fn(Rank) -> bool) -> Option<(Rank, RecordBatch)> {
        let world = self.records.len();
        let distance = 1_usize.checked_shl(self.told)?;
        if distance >= world {
            return None;
        }
        let to = ahead(self.me, number(distance), number(world));
        let length = distance.min(world - distance);
        if self.known < length || !is_here(to) {
            return None;
        }
        self.told += 1;
        let first = self.behind(length - 1);
        let places = (0..length).map(|offset| (first + offset) % world);
        let records = places.filter_map(|place| self.records.of(place)).collect();
        let first = number(first);
        Some((to, RecordBatch { first, records }))
    }

    /// The records of all ranks, in order, once all are known and told on.
    pub(super) fn complete(&mut self) -> Option<Arc<[MemberRecord]>> {
        let world = self.records.len();
        let all_told = 1_usize
            .checked_shl(self.told)
            .is_none_or(|distance| distance >= world);
        if !all_told || self.known != world {
            return None;
        }
        let all: Arc<[MemberRecord]> = match &self.records {
            Records::Some(records) => records.iter().copied().collect::<Option<_>>()?,
            Records::All(records) => records.clone(),
        };
        self.records = Records::All(all.clone());
        Some(all)
    }

    /// Whether a rank runs on the host of this one, as far as is known.
    pub(super) fn shares_host(&self, rank: Rank) -> bool {
        let host = |rank: Rank| self.records.of(rank.index()).map(|record| record.host);
        host(rank).is_some_and(|there| there != [0; 16] && host(self.me) == Some(there))
    }

    /// The process of a rank, as far as is known.
    pub(super) fn process(&self, rank: Rank) -> Option<u32> {
        self.records.of(rank.index()).map(|record| record.process)
    }

    /// Ranks of which nothing is known.
    pub(super) fn unknown(&self) -> impl Iterator<Item = Rank> {
        let places = 0..self.records.len();
        places
            .filter(|place| self.records.of(*place).is_none())
            .map(Rank::at)
    }

    /// The place so many ranks behind this one; less than the world.
    fn behind(&self, distance: usize) -> usize {
        let world = self.records.len();
        (self.me.index() + world - distance) % world
    }
}

/// A world is a `u32`, so each number of its ranks is.
fn number(count: usize) -> u32 {
    u32::try_from(count).expect("a group checks its size before it joins")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Cores;

    fn record(rank: usize) -> MemberRecord {
        MemberRecord {
            incarnation: rank as u64 + 100,
            process: 7,
            host: [0; 16],
            cores: Cores::default(),
        }
    }

    fn rosters(world: u32) -> Vec<Roster> {
        let new = |rank: Rank| Roster::new(rank, record(rank.index()), world as usize);
        Rank::all(world).map(new).collect()
    }

    /// Delivers everything until nothing is left, and counts the messages of each rank.
    fn settle(rosters: &mut [Roster], is_here: impl Fn(Rank, Rank) -> bool) -> Vec<u32> {
        let mut sent = vec![0; rosters.len()];
        loop {
            let mut quiet = true;
            for from in 0..rosters.len() {
                let me = Rank::at(from);
                while let Some((to, batch)) = rosters[from].next(|to| is_here(me, to)) {
                    rosters[to.index()].hear(&batch);
                    sent[from] += 1;
                    quiet = false;
                }
            }
            if quiet {
                return sent;
            }
        }
    }

    #[test]
    fn all_know_all_after_as_many_messages_as_the_logarithm() {
        for world in 2..=70 {
            let mut rosters = rosters(world);
            let sent = settle(&mut rosters, |_, _| true);
            let all: Vec<_> = (0..world as usize).map(record).collect();
            for roster in &mut rosters {
                assert_eq!(roster.complete().as_deref(), Some(&all[..]));
                // What comes again changes nothing.
                let first = 0;
                let records = vec![record(9); all.len()];
                roster.hear(&RecordBatch { first, records });
                assert_eq!(roster.complete().as_deref(), Some(&all[..]));
            }
            let rounds = world.next_power_of_two().ilog2();
            assert!(sent.iter().all(|count| *count == rounds), "{world}");
        }
    }

    #[test]
    fn nobody_knows_all_while_one_is_missing() {
        for world in 2..=33 {
            let absent = Rank::new(world / 2);
            let mut rosters = rosters(world);
            settle(&mut rosters, |me, to| me != absent && to != absent);
            for roster in rosters.iter_mut().filter(|roster| roster.me != absent) {
                assert_eq!(roster.complete(), None);
                assert!(roster.unknown().any(|rank| rank == absent));
            }
        }
    }

    #[test]
    fn records_of_no_rank_and_too_many_of_them_change_nothing_else() {
        let mut roster = rosters(3).remove(1);
        roster.hear(&RecordBatch {
            first: u32::MAX,
            records: vec![record(9); 1000],
        });
        assert_eq!(roster.records.of(1), Some(record(1)));
        assert_eq!(roster.records.len(), 3);
    }
}

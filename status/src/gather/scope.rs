//! Which ranks are asked, for what, and through whom.

use std::collections::HashSet;
use std::ops::Range;

/// Ranks that one asks itself; of more it asks as many, each for a part.
const FAN_OUT: usize = 32;
/// Ranks that are asked, the first of a group, which may have more.
const MOST: u32 = 1024;
/// The most ranks whose operations are asked for at once.
const OPERATIONS_OF: u32 = 64;

/// What each rank is asked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Subject {
    /// How it fares.
    Status,
    /// Its last operations.
    Operations,
}

/// Whether whoever asks speaks for itself, or for another rank that was asked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Asker {
    Looker,
    Rank,
}

impl Asker {
    /// Where the aggregator is asked by another rank.
    pub(crate) const RELAYED: &'static str = "/job.json?relayed";

    pub(crate) fn of(query: Option<&str>) -> Self {
        match query {
            Some("relayed") => Self::Rank,
            Some(_) | None => Self::Looker,
        }
    }
}

/// The rank that puts a job together for the one that is asked: the last that was not silent. Where
/// there are few it is not worth the way, and the one asked does it itself: `None`.
pub(crate) fn aggregator(me: u32, world: usize, silent: &HashSet<u32>) -> Option<u32> {
    let world = u32::try_from(world).map_or(MOST, |world| world.min(MOST));
    if world as usize <= FAN_OUT + 1 {
        return None;
    }
    let last = (0..world).rev().find(|rank| !silent.contains(rank))?;
    (last != me).then_some(last)
}

/// Which ranks are asked for what, and through how many others.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Scope {
    pub(crate) subject: Subject,
    pub(crate) ranks: Range<u32>,
    /// 0 where only the rank that is asked speaks, and 2 where those that it asks may ask others.
    pub(crate) hops: u32,
}

/// Ranks for which one speaks.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Part {
    pub(crate) speaker: u32,
    pub(crate) ranks: Vec<u32>,
}

impl Scope {
    /// All ranks and how they fare.
    pub(crate) const ALL: Self = Self {
        subject: Subject::Status,
        ranks: 0..MOST,
        hops: 2,
    };

    /// What the query of an address says, as in `from=0&to=8&hops=1`: without it, only the rank
    /// that is asked. `None` for anything else.
    pub(crate) fn parse(subject: Subject, query: Option<&str>) -> Option<Self> {
        let mut scope = Self {
            subject,
            hops: 0,
            ..Self::ALL
        };
        for part in query.into_iter().flat_map(|query| query.split('&')) {
            let (name, number) = part.split_once('=')?;
            let number = number.parse().ok()?;
            match name {
                "from" => scope.ranks.start = number,
                "to" => scope.ranks.end = number,
                "hops" => scope.hops = number,
                _ => return None,
            }
        }
        let Range { start, end } = scope.ranks;
        let asked = end.checked_sub(start)?;
        let many = subject == Subject::Operations && scope.hops > 0 && asked > OPERATIONS_OF;
        (end <= MOST && scope.hops <= Self::ALL.hops && !many).then_some(scope)
    }

    /// The parts into which the ranks fall, but for this one; who was silent last speaks for itself
    /// alone.
    pub(crate) fn parts(&self, me: u32, world: usize, silent: &HashSet<u32>) -> Vec<Part> {
        let end = u32::try_from(world).map_or(MOST, |world| world.min(MOST));
        let asked = self.ranks.start..self.ranks.end.min(end);
        let others: Vec<u32> = asked.filter(|rank| *rank != me).collect();
        if self.hops < 2 || others.len() <= FAN_OUT {
            return others.into_iter().map(Part::single).collect();
        }
        let (silent, speaking): (Vec<u32>, Vec<u32>) =
            others.iter().partition(|rank| silent.contains(rank));
        let length = speaking.len().div_ceil(FAN_OUT).max(1);
        // The chief is the first, and speaks for nobody.
        let parts = speaking.chunks(length).map(|ranks| Part {
            speaker: ranks[ranks.len() - 1],
            ranks: ranks.to_vec(),
        });
        parts.chain(silent.into_iter().map(Part::single)).collect()
    }

    /// Where the speaker of a part is asked for it.
    pub(crate) fn path_of(&self, part: &Part) -> String {
        let path = match self.subject {
            Subject::Status => "/ranks.jsonl",
            Subject::Operations => "/operations.jsonl",
        };
        match (part.ranks.first(), part.ranks.last()) {
            (Some(first), Some(last)) if first < last => {
                format!("{path}?from={first}&to={}&hops=1", last + 1)
            }
            (Some(_) | None, Some(_) | None) => path.to_owned(),
        }
    }
}

impl Part {
    fn single(rank: u32) -> Self {
        Self {
            speaker: rank,
            ranks: vec![rank],
        }
    }

    /// The others, where it has not answered, each for itself.
    pub(crate) fn without_speaker(&self) -> impl Iterator<Item = Self> {
        let others = self.ranks.iter().filter(|rank| **rank != self.speaker);
        others.map(|rank| Self::single(*rank))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_ranks_the_last_that_speaks_puts_the_job_together() {
        let silent = HashSet::from([98, 99]);
        assert_eq!(aggregator(0, 1000, &silent), Some(999));
        assert_eq!(aggregator(999, 1000, &silent), None);
        assert_eq!(aggregator(0, 100, &silent), Some(97));
        assert_eq!(aggregator(97, 100, &silent), None);
        assert_eq!(aggregator(99, 100, &silent), Some(97));
        for few in 0..=33 {
            assert_eq!(aggregator(0, few, &HashSet::new()), None);
        }
        let all = (0..100).collect();
        assert_eq!(aggregator(0, 100, &all), None);
    }

    #[test]
    fn every_rank_is_asked_for_once_and_nobody_asks_many() {
        for world in [1, 2, 3, 32, 33, 34, 64, 100, 500, 1000, 1024] {
            for me in [0, world / 2, world - 1] {
                for silent in [HashSet::new(), HashSet::from([0, 1, 40, 77])] {
                    let parts = Scope::ALL.parts(me, world as usize, &silent);
                    let mut asked: Vec<_> =
                        parts.iter().flat_map(|part| part.ranks.clone()).collect();
                    asked.sort_unstable();
                    let others = (0..world).filter(|rank| *rank != me);
                    assert!(asked.into_iter().eq(others), "{me} of {world}");
                    assert!(parts.len() <= FAN_OUT + silent.len());
                    let chief = parts.iter().find(|part| part.speaker == 0);
                    assert!(chief.is_none_or(|part| part.ranks == [0]));
                    for part in parts {
                        assert!(part.ranks.len() <= FAN_OUT);
                        let alone = part.ranks.len() == 1;
                        assert!(alone || !silent.contains(&part.speaker) || world <= 33);
                        assert_eq!(part.without_speaker().count(), part.ranks.len() - 1);
                    }
                }
            }
        }
    }

    #[test]
    fn a_part_is_asked_for_by_an_address_that_says_the_same() {
        let part = Part {
            speaker: 5,
            ranks: vec![5, 6, 9],
        };
        let path = Scope::ALL.path_of(&part);
        let query = path.split_once('?').unwrap().1;
        let asked = Scope::parse(Subject::Status, Some(query)).unwrap();
        assert_eq!((asked.ranks, asked.hops), (5..10, 1));
        assert_eq!(Scope::ALL.path_of(&Part::single(5)), "/ranks.jsonl");
    }

    #[test]
    fn no_more_is_asked_for_than_there_may_be() {
        let parse = |query| Scope::parse(Subject::Operations, Some(query));
        for wrong in [
            "from=0&to=1025",
            "from=3&to=2",
            "hops=3",
            "hops=-1",
            "from=x",
            "from",
            "",
            "a=1",
            "from=0&to=65&hops=1",
            "to=99999999999",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
        assert!(parse("from=64&to=128&hops=2").is_some());
        assert_eq!(Scope::parse(Subject::Status, None).unwrap().hops, 0);
    }
}

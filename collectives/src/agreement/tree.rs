//! How a ballot gets to all members, and their answers back: along a tree.
//!
//! ```text
//!   of 8 members, the first begins     0 ──> 1,   2 ──> 3,   4 ──> 5,   4 ──> 6 ──> 7
//! ```
//!
//! Whoever gets it for some others passes it on to the nearest behind it at each power of two: the
//! same that are neighbours while an epoch lasts (see [`overlay`](crate::overlay)). Those that are
//! known to be lost have no place in it, and in the place of one that is found to be lost comes the
//! next of those that it was to pass the ballot on to.
//!
//! A tree is a way for messages and no more: an answer names all who give it, so it counts the same
//! by whatever way it came, and however often.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::MemberId;
use super::beats::BEATS;
use crate::wire::{Ballot, Decision, MemberProcess, MemberState, NEWCOMERS, Newcomer, Promises};

/// A member's place in the tree of the ballot that it follows: what it does besides voting.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) ballot: Ballot,
    /// Who has passed it on to this member; `None` where it is its own.
    pub(super) parent: Option<MemberId>,
    /// Whom this member passes it on to, and for which others.
    pub(super) branches: BTreeMap<MemberId, Vec<MemberId>>,
    pub(super) promised: Answers,
    /// Where those stand who have promised: what all of them have completed, and who is to be
    /// admitted by any of them.
    completed: u64,
    pub(super) newcomers: BTreeMap<MemberId, Newcomer>,
    /// What voters have accepted in the highest ballot before.
    pub(super) bound: Option<(Ballot, Decision)>,
    pub(super) proposal: Option<Decision>,
    pub(super) accepted: Answers,
    /// When it began, or was proposed.
    pub(super) since: Instant,
    /// When whoever began it asks those itself that have not answered.
    pub(super) asks: Instant,
    pub(super) asked: usize,
    /// When whoever began it says next that it still waits, and how often that has been said.
    pub(super) beats: Instant,
    pub(super) beat: u64,
}

/// Who has answered.
#[derive(Debug, Default)]
pub(super) struct Answers {
    pub(super) from: BTreeMap<MemberId, MemberProcess>,
    /// Of whom the parent knows.
    passed: BTreeSet<MemberId>,
    /// Since when there is one of whom it does not.
    news: Option<Instant>,
}

impl Answers {
    pub(super) fn add(&mut self, now: Instant, voters: impl IntoIterator<Item = MemberProcess>) {
        for voter in voters {
            if self.from.insert(voter.member_id, voter).is_none() {
                self.news.get_or_insert(now);
            }
        }
    }

    pub(super) fn voters(&self) -> BTreeSet<MemberId> {
        self.from.keys().copied().collect()
    }

    /// Those of whom the parent does not know, who are taken for passed up.
    fn take_news(&mut self) -> Vec<MemberProcess> {
        self.news = None;
        let news = self.from.values();
        news.filter(|voter| self.passed.insert(voter.member_id))
            .copied()
            .collect()
    }

    /// Nothing that was passed up is taken to have come there.
    fn tell_all_again(&mut self, now: Instant) {
        self.passed.clear();
        self.news = (!self.from.is_empty()).then_some(now);
    }
}

impl Node {
    pub(super) fn new(ballot: Ballot, now: Instant, retry: Duration) -> Self {
        Self {
            ballot,
            parent: None,
            branches: BTreeMap::new(),
            promised: Answers::default(),
            completed: u64::MAX,
            newcomers: BTreeMap::new(),
            bound: None,
            proposal: None,
            accepted: Answers::default(),
            since: now,
            asks: now + retry / 2,
            asked: 0,
            beats: now + retry / BEATS,
            beat: 0,
        }
    }

    /// The answers that it is about now.
    pub(super) fn answers(&self) -> &Answers {
        match self.proposal {
            None => &self.promised,
            Some(_) => &self.accepted,
        }
    }

    /// What all have completed who have promised.
    pub(super) fn completed(&self) -> u64 {
        match self.promised.from.is_empty() {
            true => 0,
            false => self.completed,
        }
    }

    /// It comes from this member from now on: by another way, when one on the way was lost. Whoever
    /// asks again has not heard the answer, though a connection may have taken it.
    pub(super) fn asked_by(&mut self, now: Instant, parent: MemberId) {
        self.parent = Some(parent);
        self.promised.tell_all_again(now);
        self.accepted.tell_all_again(now);
    }

    /// Takes in what voters have promised.
    pub(super) fn promise(&mut self, now: Instant, promises: Promises) {
        let Promises {
            voters,
            standing,
            accepted,
            ended: _,
        } = promises;
        self.promised.add(now, voters);
        self.completed = self.completed.min(standing.completed);
        for newcomer in standing.newcomers {
            self.admit(newcomer);
        }
        let highest = |bound: &Option<(Ballot, _)>| bound.as_ref().map(|(ballot, _)| *ballot);
        if highest(&accepted) > highest(&self.bound) {
            self.bound = accepted;
        }
    }

    /// All members have settled for the same few newcomers. Of those that anybody makes up besides
    /// there is no end.
    fn admit(&mut self, newcomer: Newcomer) {
        if self.newcomers.len() < NEWCOMERS {
            let member_id = newcomer.process.member_id;
            self.newcomers.entry(member_id).or_insert(newcomer);
        }
    }

    /// Whether this member has passed it on to that one, itself or by another.
    pub(super) fn covers(&self, member_id: MemberId) -> bool {
        let mut branches = self.branches.iter();
        branches.any(|(child, part)| *child == member_id || part.contains(&member_id))
    }

    /// Whether all have answered that it has been passed on to, but for those that are lost.
    fn is_complete(&self, is_lost: impl Fn(MemberId) -> bool) -> bool {
        let answers = &self.answers().from;
        let mut all = self
            .branches
            .iter()
            .flat_map(|(child, part)| part.iter().chain([child]));
        all.all(|member_id| answers.contains_key(member_id) || is_lost(*member_id))
    }

    /// When what is known is to be passed up, if anything is: at once when nothing more is to come,
    /// else after a while.
    pub(super) fn passes_up(
        &self,
        patience: Duration,
        is_lost: impl Fn(MemberId) -> bool,
    ) -> Option<Instant> {
        self.parent?;
        let since = self.answers().news?;
        Some(match self.is_complete(is_lost) {
            true => since,
            false => since + patience,
        })
    }

    /// The promises of whom the parent does not know.
    pub(super) fn promises(&mut self, ended: Vec<MemberId>) -> Promises {
        Promises {
            voters: self.promised.take_news(),
            standing: MemberState {
                completed: self.completed,
                newcomers: self.newcomers.values().cloned().collect(),
            },
            accepted: self.bound.clone(),
            ended,
        }
    }

    pub(super) fn acceptances(&mut self) -> Vec<MemberProcess> {
        self.accepted.take_news()
    }
}

/// Whom `me` passes on what is for all of `part`, and for which others each of them.
pub(super) fn branches(
    me: MemberId,
    part: &BTreeSet<MemberId>,
    members: &[MemberId],
) -> BTreeMap<MemberId, Vec<MemberId>> {
    let place = members.iter().position(|member_id| *member_id == me);
    let (before, behind) = members.split_at(place.map_or(0, |place| place + 1));
    let mut levels: BTreeMap<u32, (MemberId, Vec<MemberId>)> = BTreeMap::new();
    for (distance, member_id) in (1_usize..).zip(behind.iter().chain(before)) {
        if part.contains(member_id) && *member_id != me {
            levels
                .entry(distance.ilog2())
                .and_modify(|(_, others)| others.push(*member_id))
                .or_insert_with(|| (*member_id, Vec::new()));
        }
    }
    levels.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a voter promises that would admit these.
    fn promises(newcomers: Vec<Newcomer>) -> Promises {
        Promises {
            standing: MemberState {
                completed: 1,
                newcomers,
            },
            ..Promises::default()
        }
    }

    fn newcomer(member_id: MemberId, address: &str) -> Newcomer {
        let process = MemberProcess {
            member_id,
            incarnation: 1,
        };
        Newcomer::at(process, address)
    }

    #[test]
    fn newcomers_that_are_made_up_neither_replace_others_nor_grow_without_end() {
        let now = Instant::now();
        let mut node = Node::new(Ballot::NONE, now, Duration::from_secs(1));
        let settled = newcomer(7, "a:1");
        node.promise(now, promises(vec![settled.clone()]));
        node.promise(now, promises(vec![newcomer(7, "b:1")]));
        assert_eq!(node.newcomers.get(&7), Some(&settled));
        for first in (100..1000).step_by(50) {
            let made_up = (first..first + 50).map(|member_id| newcomer(member_id, "b:1"));
            node.promise(now, promises(made_up.collect()));
        }
        assert_eq!(node.newcomers.len(), NEWCOMERS);
        assert_eq!(node.newcomers.get(&7), Some(&settled));
    }

    /// How many steps the last of a part is away, and how many are told by whoever tells most.
    fn reach(me: MemberId, part: &BTreeSet<MemberId>, members: &[MemberId]) -> (usize, usize) {
        let (mut steps, mut most) = (0, 0);
        let mut told = BTreeSet::new();
        let mut wave = vec![(me, part.clone())];
        while !wave.is_empty() {
            let mut next = Vec::new();
            for (by, part) in wave {
                let below = branches(by, &part, members);
                most = most.max(below.len());
                for (child, others) in below {
                    assert!(told.insert(child), "{child} is told twice");
                    next.push((child, others.into_iter().collect()));
                }
            }
            steps += usize::from(!next.is_empty());
            wave = next;
        }
        assert_eq!(told, *part);
        (steps, most)
    }

    #[test]
    fn all_are_told_once_in_as_many_steps_as_the_logarithm_by_as_few_each() {
        for world in 1..=130 {
            // Member ids are in the order of ranks, whatever they are.
            let members: Vec<MemberId> = (0..world).map(|place| place * 7 % 131).collect();
            let most = world.next_power_of_two().ilog2() as usize;
            for me in [0, world / 3, world - 1].map(|place| members[place as usize]) {
                let all = members.iter().copied();
                let others: BTreeSet<_> = all.filter(|other| *other != me).collect();
                let (steps, told) = reach(me, &others, &members);
                assert!(steps <= most && told <= most, "{me} of {world}");
                let left = others.into_iter().filter(|other| other % 3 != 0).collect();
                let (steps, told) = reach(me, &left, &members);
                assert!(
                    steps <= most && told <= most,
                    "{me} of those left of {world}"
                );
            }
        }
    }

    #[test]
    fn members_pass_on_to_those_that_they_were_connected_with() {
        use crate::{Rank, overlay};
        let members: Vec<MemberId> = (0..100).collect();
        for me in [0, 33, 99] {
            let others = members.iter().copied().filter(|other| *other != me);
            let below = branches(me, &others.collect(), &members);
            let near = |child: &MemberId| overlay::adjacent(Rank::new(me), Rank::new(*child), 100);
            assert!(below.keys().all(near), "{below:?}");
        }
    }
}

//! Where members are that no list names, and how many there may be.

use std::collections::{BTreeMap, BTreeSet};

use crate::agreement::MemberId;
use crate::config::WORLD_LIMIT;
use crate::wire::{self, Decision};

/// Where those members are that came in later, and how many there may be.
///
/// Everybody has this from the decisions that admitted them, a newcomer from whom it asked.
#[derive(Debug)]
pub(super) struct Directory {
    most: u32,
    addresses: BTreeMap<MemberId, String>,
    /// How many members there were when somebody last told of them.
    told: usize,
    /// The epoch that was told of.
    epoch: u64,
}

impl Directory {
    /// For a group that may come to have so many members.
    pub(super) fn new(most: u32) -> Self {
        Self {
            most,
            addresses: BTreeMap::new(),
            told: 0,
            epoch: 0,
        }
    }

    /// The most members that the group may have.
    pub(super) fn most(&self) -> u32 {
        self.most
    }

    /// Whether the group, when somebody last told of it, had all the members that it may have, and
    /// none in the place of this one.
    pub(super) fn is_full_without(&self, member_id: MemberId) -> bool {
        self.told >= self.most as usize && !self.addresses.contains_key(&member_id)
    }

    pub(super) fn address(&self, member_id: MemberId) -> Option<String> {
        self.addresses.get(&member_id).cloned()
    }

    /// The members that are known by more than a list.
    pub(super) fn members(&self) -> Vec<MemberId> {
        self.addresses.keys().copied().collect()
    }

    /// A member tells a newcomer where all are; later epochs are worth more.
    pub(super) fn learn(&mut self, part: &wire::Directory) {
        if part.epoch < self.epoch {
            return;
        }
        if part.epoch > self.epoch {
            self.epoch = part.epoch;
            self.addresses.clear();
        }
        self.most = part.most;
        for (member_id, address) in &part.entries {
            let has_room = self.addresses.len() < WORLD_LIMIT as usize;
            if has_room || self.addresses.contains_key(member_id) {
                self.addresses.insert(*member_id, address.clone());
            }
        }
        self.told = self.addresses.len();
    }

    /// A decision tells where those are that it admits, once it is certain: what somebody says to
    /// be decided may not be.
    pub(super) fn hear(&mut self, decision: &Decision) {
        let newcomers = decision.newcomers.iter();
        let newcomers = newcomers.map(|one| (one.process.member_id, one.address.clone()));
        self.addresses.extend(newcomers);
    }

    /// A new epoch begins: whoever is not in it any more is forgotten.
    pub(super) fn follow(&mut self, decision: &Decision) {
        let survivors = decision.survivors.iter();
        let survivors: BTreeSet<MemberId> = survivors.map(|one| one.member_id).collect();
        self.addresses
            .retain(|member_id, _| survivors.contains(member_id));
        self.hear(decision);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{MemberProcess, Newcomer};

    fn process(member_id: MemberId) -> MemberProcess {
        MemberProcess {
            member_id,
            incarnation: 1,
        }
    }

    fn told(epoch: u64, entries: &[(MemberId, &str)]) -> wire::Directory {
        let entries = entries.iter();
        wire::Directory {
            epoch,
            most: 3,
            entries: entries.map(|(id, at)| (*id, (*at).to_owned())).collect(),
        }
    }

    #[test]
    fn addresses_are_those_of_the_latest_epoch_and_of_whom_it_admitted() {
        let mut directory = Directory::new(8);
        assert!(directory.address(1).is_none() && !directory.is_full_without(7));
        directory.learn(&told(3, &[(1, "b:1"), (4, "b:4")]));
        directory.learn(&told(3, &[(0, "b:0")]));
        assert!(directory.is_full_without(7) && directory.most() == 3);
        // That place is the asker's own, once whoever has it is gone.
        assert!(!directory.is_full_without(4));
        // What is late says less.
        directory.learn(&told(2, &[(1, "a:1")]));
        assert_eq!(directory.address(1), Some("b:1".to_owned()));
        let decision = Decision {
            epoch: 4,
            survivors: vec![process(0), process(4)],
            newcomers: vec![
                Newcomer::at(process(9), "c:9"),
                Newcomer::at(process(1), "c:1"),
            ],
            completed: 0,
        };
        directory.follow(&decision);
        let known = [0, 1, 4, 9].map(|member_id| directory.address(member_id).unwrap());
        assert_eq!(known, ["b:0", "c:1", "b:4", "c:9"]);
        assert_eq!(directory.members(), [0, 1, 4, 9]);
    }

    #[test]
    fn no_more_members_are_remembered_than_a_group_can_have() {
        let mut directory = Directory::new(8);
        for first in (0..2 * WORLD_LIMIT).step_by(wire::Directory::LIMIT) {
            let members = (first..).take(wire::Directory::LIMIT);
            let entries: Vec<_> = members.map(|member_id| (member_id, "a:1")).collect();
            directory.learn(&told(3, &entries));
        }
        assert_eq!(directory.members().len(), WORLD_LIMIT as usize);
        // Those that are known may turn out to be elsewhere.
        directory.learn(&told(3, &[(0, "b:1")]));
        assert_eq!(directory.address(0), Some("b:1".to_owned()));
    }
}

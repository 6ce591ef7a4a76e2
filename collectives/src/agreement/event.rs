//! What an agreement is told, and what it says is to be done.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::MemberId;
use crate::wire::{AgreementMessage, Decision, MemberProcess};

/// How long an agreement waits for what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AgreementTimeouts {
    /// For members of which nothing is known, before it is decided without them.
    pub(crate) gather: Duration,
    /// For the answers to a ballot, before another is tried.
    pub(crate) retry: Duration,
    /// For a decision.
    pub(crate) limit: Duration,
}

/// The epoch that is over, or that newcomers are asked into.
#[derive(Clone, Debug)]
pub(crate) struct PreviousEpoch {
    /// Counted from 1; 0 where this process was in none.
    pub(crate) epoch: u64,
    /// The member ids of its members in the order of their ranks.
    pub(crate) members: Arc<[MemberId]>,
    /// Who voted there for this process: the incarnations with those member ids that it has met.
    pub(crate) incarnations: Arc<BTreeMap<MemberId, u64>>,
}

impl PreviousEpoch {
    /// Of a process that was in no epoch.
    pub(crate) fn nowhere() -> Self {
        Self {
            epoch: 0,
            members: Arc::new([]),
            incarnations: Arc::default(),
        }
    }

    /// Whether this process is the voter with its member id. Where none was met, the first that is
    /// heard of is, and no other after it.
    pub(super) fn is_voter(&mut self, process: MemberProcess) -> bool {
        let MemberProcess {
            member_id,
            incarnation,
        } = process;
        if let Some(known) = self.incarnations.get(&member_id) {
            return *known == incarnation && self.members.contains(&member_id);
        }
        let is_member = self.members.contains(&member_id);
        if is_member {
            Arc::make_mut(&mut self.incarnations).insert(member_id, incarnation);
        }
        is_member
    }
}

/// Something that happened.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// A process with the member id of a member of the last epoch takes part.
    Reached(MemberProcess),
    /// A member of the last epoch takes part no longer.
    Lost(MemberId, Proof),
    Said {
        by: MemberProcess,
        message: AgreementMessage,
    },
    /// Somebody who has gone on tells what was decided.
    Decided(Decision),
    Tick,
}

/// How sure it is that a member is gone.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Proof {
    /// It cannot be reached, but may be alive on another side.
    Unreached,
    /// The kernel has told the end of its process.
    Ended,
}

/// Something to do.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// A member to be called, until it is reached or lost.
    Call(MemberId),
    Send(MemberId, AgreementMessage),
    /// This process is in the next epoch.
    Decided(Decision),
    /// The next epoch has begun without this process.
    Excluded(Decision),
    /// No decision within the limit: these members could be reached, this one among them.
    NoMajority(Vec<MemberId>),
}

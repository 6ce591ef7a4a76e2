//! Mistakes in how processes are driven, to show that the checks find them.
//!
//! The product has no switches for them: they are made between it and the simulated world.

use std::time::Duration;

use super::process::{End, Parcel, Posted};
use super::{ProblemKind, Scenario};
use crate::Rank;
use crate::agreement::{AgreementTimeouts, MemberId};
use crate::membership::MembershipTimeouts;
use crate::wire::{AgreementMessage, Decision, MemberProcess, Message};

/// A mistake that simulated processes make.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum Plant {
    /// None.
    #[default]
    Nothing,
    /// Some bytes of operations change on their way.
    CorruptedBytes,
    /// After a loss, a rank goes on from where it was itself.
    ForgottenRollback,
    /// An operation comes back before it is done.
    EarlyReturn,
    /// One of two ranks takes the other's silence for a proof of its death.
    SilenceAsProof,
    /// A voter forgets what it has accepted, and nobody tells what was decided.
    ForgottenVotes,
    /// Whoever is with a member id is taken for the one that was there.
    Impostors,
    /// A rank says that it has completed one operation more than it has.
    InflatedStanding,
    /// Ranks say that they have completed nothing.
    DeflatedStanding,
    /// No vote arrives.
    LostVotes,
    /// A survivor takes a decision for its exclusion.
    FalseExclusion,
    /// Nobody hears the last rank call, and it hears nobody.
    UnheardRank,
    /// No goodbye arrives.
    LostGoodbyes,
    /// An agreement waits for ever.
    NoDeadline,
    /// The last byte of each message is lost.
    TruncatedMessages,
    /// No sign of life arrives.
    LostHeartbeats,
    /// An abort names the neighbour of the culprit.
    WrongCulprit,
    /// The last of those who were there before goes on without those who are let in.
    UnadmittedNewcomers,
    /// Ranks are less patient than the job has asked for.
    Impatience,
    /// In the third operation of an epoch the last rank has one element more than the others.
    OtherContract,
    /// Rank 0 takes the end of the program for its exclusion.
    MissedEnd,
}

impl Plant {
    /// Every mistake with its name on a command line.
    pub const ALL: [(&'static str, Self); 21] = [
        ("none", Self::Nothing),
        ("corrupted-bytes", Self::CorruptedBytes),
        ("forgotten-rollback", Self::ForgottenRollback),
        ("early-return", Self::EarlyReturn),
        ("silence-as-proof", Self::SilenceAsProof),
        ("forgotten-votes", Self::ForgottenVotes),
        ("impostors", Self::Impostors),
        ("inflated-standing", Self::InflatedStanding),
        ("deflated-standing", Self::DeflatedStanding),
        ("lost-votes", Self::LostVotes),
        ("false-exclusion", Self::FalseExclusion),
        ("unheard-rank", Self::UnheardRank),
        ("lost-goodbyes", Self::LostGoodbyes),
        ("no-deadline", Self::NoDeadline),
        ("truncated-messages", Self::TruncatedMessages),
        ("lost-heartbeats", Self::LostHeartbeats),
        ("wrong-culprit", Self::WrongCulprit),
        ("unadmitted-newcomers", Self::UnadmittedNewcomers),
        ("impatience", Self::Impatience),
        ("other-contract", Self::OtherContract),
        ("missed-end", Self::MissedEnd),
    ];

    /// The kind of problem that it leads to, on some seeds among others.
    #[must_use]
    pub fn leads_to(self) -> Option<ProblemKind> {
        Some(match self {
            Self::Nothing => return None,
            Self::CorruptedBytes | Self::ForgottenRollback => ProblemKind::WrongValue,
            Self::EarlyReturn => ProblemKind::TooEarly,
            Self::SilenceAsProof
            | Self::ForgottenVotes
            | Self::Impostors
            | Self::UnadmittedNewcomers => ProblemKind::TwoDecisions,
            Self::InflatedStanding => ProblemKind::NotCompleted,
            Self::DeflatedStanding => ProblemKind::ThrownAway,
            Self::LostVotes | Self::FalseExclusion => ProblemKind::MajorityStopped,
            Self::MissedEnd => ProblemKind::NotFinished,
            Self::UnheardRank | Self::OtherContract => ProblemKind::WrongFailure,
            Self::LostGoodbyes | Self::NoDeadline => ProblemKind::Hangs,
            Self::TruncatedMessages => ProblemKind::Garbled,
            Self::LostHeartbeats | Self::WrongCulprit | Self::Impatience => ProblemKind::WrongBlame,
        })
    }

    /// The scenario in which it is found soonest.
    #[must_use]
    pub fn scenario(self) -> Scenario {
        match self {
            Self::UnadmittedNewcomers => Scenario::Growth,
            Self::Impatience => Scenario::Outage,
            Self::UnheardRank | Self::OtherContract | Self::MissedEnd => Scenario::Calm,
            _ => Scenario::Mixed,
        }
    }

    /// A message as it gets on the wire, if it does.
    pub(super) fn encode(self, mut message: Message) -> Option<Vec<u8>> {
        let lost = match (self, &message) {
            (Self::LostGoodbyes, Message::Goodbye)
            | (Self::LostHeartbeats, Message::Heartbeat | Message::Ack(_)) => true,
            (Self::LostVotes, Message::Spoken(said)) => {
                matches!(said.message, AgreementMessage::Accept { .. })
            }
            (Self::ForgottenVotes, Message::Spoken(said)) => {
                matches!(said.message, AgreementMessage::Decided(_))
            }
            _ => false,
        };
        if lost {
            return None;
        }
        if let (Self::WrongCulprit, Message::Abort(abort)) = (self, &mut message) {
            abort.culprit ^= 1;
        }
        let mut bytes = message.encode();
        if self == Self::TruncatedMessages {
            bytes.pop();
        }
        Some(bytes)
    }

    /// Whether a parcel is heard, in a job with so many member ids.
    pub(super) fn hears(self, member_ids: usize, posted: &Posted) -> bool {
        let call = !matches!(posted.parcel, Parcel::Message { .. });
        let last = |member_id: MemberId| member_id as usize + 1 == member_ids;
        !(self == Self::UnheardRank && call && (last(posted.from.member_id) || last(posted.to)))
    }

    /// How long agreements wait for what.
    pub(super) fn pace(self, pace: AgreementTimeouts) -> AgreementTimeouts {
        match self {
            Self::NoDeadline => AgreementTimeouts {
                limit: Duration::from_secs(86_400),
                ..pace
            },
            _ => pace,
        }
    }

    /// How long members wait for a sign of life.
    pub(super) fn patience(self, timeouts: MembershipTimeouts) -> MembershipTimeouts {
        match self {
            Self::Impatience => MembershipTimeouts {
                silence: timeouts.silence / 5,
                ..timeouts
            },
            _ => timeouts,
        }
    }

    /// What a process takes the end of the program for.
    pub(super) fn end(self, rank: Rank) -> End {
        match self {
            Self::MissedEnd if rank == Rank::CHIEF => End::LeftOut,
            _ => End::Finished,
        }
    }

    /// A decision as a process takes it that learns it.
    pub(super) fn learn(self, me: MemberProcess, decision: &mut Decision) {
        let mut survivors = decision.survivors.iter_mut();
        if self == Self::Impostors
            && let Some(same) = survivors.find(|survivor| survivor.member_id == me.member_id)
        {
            *same = me;
        }
        if self == Self::UnadmittedNewcomers && decision.survivors.last() == Some(&me) {
            decision.newcomers.clear();
        }
    }

    /// Changes one byte in some of what a rank writes to a stream.
    pub(super) fn corrupt(self, written: u64, bytes: &mut [u8]) {
        if self == Self::CorruptedBytes
            && written % 16 == 5
            && let Some(byte) = bytes.last_mut()
        {
            *byte ^= 1;
        }
    }
}

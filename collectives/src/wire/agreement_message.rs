//! What members say to each other while they agree on the next epoch.

use std::collections::BTreeSet;

use rkyv::{Archive, Deserialize, Serialize};

use super::{NEWCOMERS, Newcomer};

/// A try to reach a decision; higher ones overrule lower ones.
#[derive(Archive, Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub(crate) struct Ballot {
    pub(crate) round: u64,
    /// The member id of whoever began it.
    pub(crate) proposer: u32,
}

impl Ballot {
    /// Lower than all that anybody begins.
    pub(crate) const NONE: Self = Self {
        round: 0,
        proposer: 0,
    };

    /// One that this member begins, higher than `self`; `None` when there are no higher ones.
    pub(crate) fn next(self, proposer: u32) -> Option<Self> {
        let round = self.round.checked_add(1)?;
        Some(Self { round, proposer })
    }
}

/// A process with a member id: whoever starts again there is another.
#[derive(Archive, Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub(crate) struct MemberProcess {
    pub(crate) member_id: u32,
    pub(crate) incarnation: u64,
}

/// Where a member stands when its epoch ends.
#[derive(Archive, Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct MemberState {
    /// Operations that it has completed in that epoch.
    pub(crate) completed: u64,
    /// Who is to be admitted, as all members of that epoch have settled before it ended.
    pub(crate) newcomers: Vec<Newcomer>,
}

/// The next epoch.
#[derive(Archive, Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Decision {
    pub(crate) epoch: u64,
    /// Those who go on, in the order of their ranks.
    pub(crate) survivors: Vec<MemberProcess>,
    /// Those who are admitted; their ranks follow.
    pub(crate) newcomers: Vec<Newcomer>,
    /// Operations of the last epoch that all survivors have completed.
    pub(crate) completed: u64,
}

impl Decision {
    /// The next epoch's members, in the order of their ranks.
    pub(crate) fn members(&self) -> impl Iterator<Item = MemberProcess> + '_ {
        let newcomers = self.newcomers.iter().map(|newcomer| newcomer.process);
        self.survivors.iter().copied().chain(newcomers)
    }

    /// Whether it admits this process.
    pub(crate) fn admits(&self, process: MemberProcess) -> bool {
        let mut newcomers = self.newcomers.iter();
        newcomers.any(|newcomer| newcomer.process == process)
    }

    /// Whether it can be: nobody has two places, newcomers can be reached, and an epoch may follow.
    fn makes_sense(&self) -> bool {
        let mut places = BTreeSet::new();
        self.epoch < u64::MAX
            && self.members().all(|member| places.insert(member.member_id))
            && make_sense(&self.newcomers)
    }
}

/// Whether one step may admit these.
fn make_sense(newcomers: &[Newcomer]) -> bool {
    newcomers.len() <= NEWCOMERS && newcomers.iter().all(Newcomer::makes_sense)
}

impl AgreementMessage {
    /// Whether the decision that it speaks of, if any, can be.
    pub(super) fn makes_sense(&self) -> bool {
        match self {
            Self::Propose { decision, .. } | Self::Decided(decision) => decision.makes_sense(),
            Self::Promise { promises, .. } => {
                let Promises {
                    standing, accepted, ..
                } = promises;
                let decision = accepted.as_ref().map(|(_, decision)| decision);
                decision.is_none_or(Decision::makes_sense) && make_sense(&standing.newcomers)
            }
            Self::Prepare { .. }
            | Self::Accept { .. }
            | Self::Overtaken { .. }
            | Self::Waits { .. } => true,
        }
    }
}

/// What voters have promised, and where they stand.
#[derive(Archive, Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct Promises {
    pub(crate) voters: Vec<MemberProcess>,
    /// What all of them have completed, and who is to be admitted by any of them.
    pub(crate) standing: MemberState,
    /// What any of them has accepted in the highest ballot.
    pub(crate) accepted: Option<(Ballot, Decision)>,
    /// Members whose end a kernel has told one of them.
    pub(crate) ended: Vec<u32>,
}

#[derive(Archive, Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) enum AgreementMessage {
    /// Take part in no lower ballot, tell where you stand, and pass this on to the members of
    /// `part`.
    Prepare {
        ballot: Ballot,
        part: Vec<u32>,
    },
    /// The answer, of all that are named in it.
    Promise {
        ballot: Ballot,
        promises: Promises,
    },
    /// Accept this, unless you have promised a higher ballot, and pass it on.
    Propose {
        ballot: Ballot,
        decision: Decision,
        part: Vec<u32>,
    },
    /// These have.
    Accept {
        ballot: Ballot,
        voters: Vec<MemberProcess>,
    },
    /// A higher ballot is under way.
    Overtaken {
        by: Ballot,
    },
    Decided(Decision),
    /// Answers are waited for: no other ballot is needed. Counted, as it may come by two ways.
    Waits {
        ballot: Ballot,
        beat: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn newcomers(count: usize) -> Vec<Newcomer> {
        let processes = (0..).map(|member_id| MemberProcess {
            member_id,
            incarnation: 1,
        });
        let newcomers = processes.map(|process| Newcomer::at(process, "a:1"));
        newcomers.take(count).collect()
    }

    #[test]
    fn more_newcomers_than_one_step_admits_make_no_sense() {
        for (count, makes_sense) in [(0, true), (NEWCOMERS, true), (NEWCOMERS + 1, false)] {
            let decision = Decision {
                epoch: 2,
                survivors: Vec::new(),
                newcomers: newcomers(count),
                completed: 0,
            };
            let promises = |accepted, newcomers| Promises {
                standing: MemberState {
                    completed: 0,
                    newcomers,
                },
                accepted,
                ..Promises::default()
            };
            let ballot = Ballot::NONE;
            let accepted = Some((ballot, decision.clone()));
            for message in [
                AgreementMessage::Promise {
                    ballot,
                    promises: promises(None, newcomers(count)),
                },
                AgreementMessage::Promise {
                    ballot,
                    promises: promises(accepted, Vec::new()),
                },
                AgreementMessage::Decided(decision),
            ] {
                assert_eq!(message.makes_sense(), makes_sense, "{count}: {message:?}");
            }
        }
    }
}

//! How many members may go on: the majority rule, and what two members do instead.

use std::collections::BTreeSet;

use super::MemberId;
use crate::ConfigError;

/// Which of two ranks may go on without the other.
///
/// More ranks go on if they are more than half of the last epoch, or exactly half of it with its
/// rank 0 among them: two sides can never both be. Of two ranks, one alone proves nothing by
/// counting, so the choice is the job's. Whatever it is, never do both go on alone.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum TwoMemberPolicy {
    /// The one that has it from the kernel that the other's process ended: never while both live.
    /// Without such a proof, as between hosts, both stop. What anybody else says of the other's end
    /// is none; only a process that a launcher has started in the place of one that it saw end
    /// before the two had met ([`GroupConfig::RESTARTS_ENV`](crate::GroupConfig::RESTARTS_ENV)) is.
    #[default]
    Proven,
    /// Rank 0, however the other was lost; rank 1 never, though it may see rank 0 end. For rank 0
    /// may have gone on alone before that, and have let others in, who go on without it.
    Chief,
    /// Neither.
    Stop,
}

impl TwoMemberPolicy {
    /// The one of this name.
    ///
    /// # Errors
    /// [`ConfigError::TwoMemberPolicyName`] for another word.
    pub(crate) fn from_name(name: &str) -> Result<Self, ConfigError> {
        match name {
            "proven" => Ok(Self::Proven),
            "chief" => Ok(Self::Chief),
            "stop" => Ok(Self::Stop),
            other => Err(ConfigError::TwoMemberPolicyName {
                value: other.to_owned(),
            }),
        }
    }
}

/// Whether `votes` are enough to decide for all `members`, which are in the order of their ranks;
/// `ended` tells whose end is proven.
pub(super) fn decides(
    members: &[MemberId],
    pair: TwoMemberPolicy,
    votes: &BTreeSet<MemberId>,
    ended: impl Fn(&MemberId) -> bool,
) -> bool {
    let count = members
        .iter()
        .filter(|member_id| votes.contains(member_id))
        .count();
    let with_chief = members.first().is_some_and(|chief| votes.contains(chief));
    if members.len() == 2 && count == 1 {
        let proven = || {
            members
                .iter()
                .all(|member_id| votes.contains(member_id) || ended(member_id))
        };
        return match pair {
            TwoMemberPolicy::Proven => proven(),
            TwoMemberPolicy::Chief => with_chief,
            TwoMemberPolicy::Stop => false,
        };
    }
    2 * count > members.len() || (2 * count == members.len() && with_chief)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(members: &[MemberId], bits: u32) -> BTreeSet<MemberId> {
        let chosen = members.iter().enumerate();
        let chosen = chosen.filter(|(place, _)| bits >> place & 1 == 1);
        chosen.map(|(_, member_id)| *member_id).collect()
    }

    #[test]
    fn the_variable_takes_three_words() {
        use TwoMemberPolicy::{Chief, Proven, Stop};
        let words = [("proven", Proven), ("chief", Chief), ("stop", Stop)];
        for (word, policy) in words {
            assert_eq!(TwoMemberPolicy::from_name(word), Ok(policy));
        }
        let value = "Chief".to_owned();
        let refused = TwoMemberPolicy::from_name(&value);
        assert_eq!(refused, Err(ConfigError::TwoMemberPolicyName { value }));
    }

    #[test]
    fn two_sides_without_a_common_member_never_both_decide() {
        for world in 1..=10 {
            let members: Vec<MemberId> = (0..world).map(|place| 3 * place).collect();
            for bits in 0..1_u32 << world {
                for pair in [
                    TwoMemberPolicy::Proven,
                    TwoMemberPolicy::Chief,
                    TwoMemberPolicy::Stop,
                ] {
                    let decide =
                        |votes: BTreeSet<MemberId>| decides(&members, pair, &votes, |_| false);
                    let both = decide(side(&members, bits)) && decide(side(&members, !bits));
                    assert!(!both, "{world} members, side {bits:b}, {pair:?}");
                }
            }
        }
    }

    /// Rank 0 may have gone on alone, and others with it, before its end was seen.
    #[test]
    fn of_two_ranks_the_second_never_goes_on_without_a_chief_that_may_have() {
        let members = [4, 9];
        for proof in [false, true] {
            let alone = |vote| {
                decides(
                    &members,
                    TwoMemberPolicy::Chief,
                    &BTreeSet::from([vote]),
                    |_| proof,
                )
            };
            assert!(alone(4) && !alone(9), "proof: {proof}");
        }
    }

    #[test]
    fn more_than_half_decide_and_half_only_with_rank_0() {
        let members = [5, 1, 7, 3];
        let decide = |votes: &[MemberId]| {
            let votes = votes.iter().copied().collect();
            decides(&members, TwoMemberPolicy::Proven, &votes, |_| false)
        };
        assert!(decide(&[1, 7, 3]) && decide(&[5, 3]));
        assert!(!decide(&[1, 7]) && !decide(&[5]) && !decide(&[]));
        // Those who were no members have no vote.
        assert!(!decide(&[1, 7, 8, 9]));
    }

    #[test]
    fn of_two_ranks_one_decides_as_the_job_chose() {
        let members = [4, 9];
        let decide =
            |pair, vote, proof: bool| decides(&members, pair, &BTreeSet::from([vote]), |_| proof);
        assert!(
            decide(TwoMemberPolicy::Proven, 9, true) && !decide(TwoMemberPolicy::Proven, 4, false)
        );
        assert!(
            decide(TwoMemberPolicy::Chief, 4, false) && !decide(TwoMemberPolicy::Chief, 9, false)
        );
        assert!(!decide(TwoMemberPolicy::Chief, 9, true));
        assert!(!decide(TwoMemberPolicy::Stop, 4, true) && !decide(TwoMemberPolicy::Stop, 9, true));
        assert!(decides(
            &members,
            TwoMemberPolicy::Stop,
            &BTreeSet::from([4, 9]),
            |_| false
        ));
    }
}

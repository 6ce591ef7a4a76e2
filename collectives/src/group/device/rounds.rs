//! How far the ranks are with a communicator, told among them while it is made: where one is
//! refused, the others wait for it no longer.

use std::ops::ControlFlow;
use std::panic::Location;
use std::time::{Duration, Instant};

use meshwork_accel::{self as accel, Reduction};

use crate::contract::Kind;
use crate::operation::{OperationSpec, Work};
use crate::{Group, OperationError, Rank, ReduceOp};

/// Rounds in which every rank tells where it stands, those that are there already as well as those
/// that still wait; the last is the one in which all stand there, or one will not come.
pub(super) struct Rounds<'a> {
    group: &'a mut Group,
    caller: &'static Location<'static>,
    begun: Instant,
    patience: Duration,
    /// When the next round is due, for a rank that waits.
    due: Instant,
    /// What came of the last one.
    told: Result<Verdict, OperationError>,
}

/// Where a rank stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum JoinState {
    Refused,
    GaveUp,
    Waiting,
    Joined,
}

/// What all ranks know after a round.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Verdict {
    /// Nobody is missing for good yet.
    Open,
    AllJoined,
    /// This rank will not come.
    Without(Rank),
}

impl<'a> Rounds<'a> {
    pub(super) fn of(
        group: &'a mut Group,
        patience: Duration,
        caller: &'static Location<'static>,
    ) -> Self {
        let begun = Instant::now();
        Self {
            group,
            caller,
            begun,
            patience,
            due: begun + BETWEEN,
            told: Ok(Verdict::Open),
        }
    }

    /// Joins, and waits until all have or one will not; the first that will not is named, rather
    /// one that was refused than one that waited for it in vain.
    pub(super) fn join<R>(
        mut self,
        join: impl FnOnce(&mut accel::CancelCheck<'_>) -> Result<R, accel::Error>,
    ) -> Result<(Result<R, accel::Error>, Option<Rank>), OperationError> {
        let joined = join(&mut || self.look());
        let state = match &joined {
            Ok(_) => JoinState::Joined,
            Err(accel::Error::GivenUp { .. }) => JoinState::GaveUp,
            Err(_) => JoinState::Refused,
        };
        while self.told == Ok(Verdict::Open) {
            self.round(state);
        }
        match self.told? {
            Verdict::Without(rank) => Ok((joined, Some(rank))),
            Verdict::Open | Verdict::AllJoined => Ok((joined, None)),
        }
    }

    /// A look at the others by a rank that waits.
    fn look(&mut self) -> ControlFlow<()> {
        if self.told != Ok(Verdict::Open) || self.begun.elapsed() >= self.patience {
            return ControlFlow::Break(());
        }
        if Instant::now() >= self.due {
            self.round(JoinState::Waiting);
            self.due = Instant::now() + BETWEEN;
        }
        match self.told {
            Ok(Verdict::Open) => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        }
    }

    /// The smallest number of all ranks, which each hears.
    fn round(&mut self, state: JoinState) {
        let mut least = [state.number(self.group.rank())];
        let op = ReduceOp::Min;
        let told = Reduction::new(op)
            .map_err(OperationError::from)
            .and_then(|reduction| {
                let spec = OperationSpec::new(Kind::AllReduce, least.len()).with_op(op);
                let spec = spec.called_from(self.caller);
                let (buffer, root) = (&mut least[..], None);
                let work = Work::Reduce {
                    buffer,
                    reduction,
                    root,
                };
                self.group.perform(spec, work)
            });
        self.told = told.map(|()| Verdict::of(least[0]));
    }
}

impl JoinState {
    /// Smaller for what counts more, and then for the rank that comes first.
    fn number(self, rank: Rank) -> u32 {
        match self {
            Self::Refused => rank.number(),
            Self::GaveUp => RANKS + rank.number(),
            Self::Waiting => 2 * RANKS + rank.number(),
            Self::Joined => u32::MAX,
        }
    }
}

impl Verdict {
    /// Inverse of [`JoinState::number`], as far as all ranks must know.
    fn of(least: u32) -> Self {
        match least {
            u32::MAX => Self::AllJoined,
            waits if waits >= 2 * RANKS => Self::Open,
            missing => Self::Without(Rank::new(missing % RANKS)),
        }
    }
}

/// There are not so many ranks.
const RANKS: u32 = 1 << 16;

/// Long beside a round, and short beside what NCCL takes to connect.
const BETWEEN: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_refused_counts_more_than_who_gave_up_and_that_more_than_who_waits() {
        let all = [
            JoinState::Refused,
            JoinState::GaveUp,
            JoinState::Waiting,
            JoinState::Joined,
        ];
        let (first, last) = (Rank::new(0), Rank::new(RANKS - 1));
        for pair in all.windows(2) {
            assert!(pair[0].number(last) < pair[1].number(first), "{pair:?}");
        }
        for rank in [first, Rank::new(7), last] {
            let verdict = |state: JoinState| Verdict::of(state.number(rank));
            assert_eq!(verdict(JoinState::Refused), Verdict::Without(rank));
            assert_eq!(verdict(JoinState::GaveUp), Verdict::Without(rank));
            assert_eq!(verdict(JoinState::Waiting), Verdict::Open);
            assert_eq!(verdict(JoinState::Joined), Verdict::AllJoined);
        }
    }
}

//! What all workers have in common whose rounds end with a quorum, and when an exchange begins.
//! Pure.

use std::time::Duration;

use super::super::NotFinite;
use super::super::rounds::{OuterState, Rounds, Seal};
use super::Quorum;
use crate::LowCommunicationError;

/// The parameters and the outer momentum after each exchange, the same bits on all workers.
#[derive(Debug)]
pub(super) struct Common {
    /// Its step is that after which the last exchange began.
    pub(super) rounds: Rounds,
}

/// What a worker says of how far its training has come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Report {
    /// It makes inner steps of the round.
    Working,
    /// It makes inner steps, and gives those that it has made: it was late before.
    Ready,
    /// It has made those of the round, and has waited for so long.
    Waiting(Duration),
    /// It makes no more.
    Finished,
    /// It has given what it has to an exchange that a loss has interrupted.
    Begun,
}

/// What all workers do next.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Decision {
    /// They report again.
    Wait,
    /// They exchange what those have to give who have come so far.
    Exchange,
    /// All have finished.
    End,
}

impl Common {
    /// Exchanges that were made: the number of the next one.
    pub(super) fn made(&self) -> u64 {
        self.rounds.sealed
    }

    /// The fragment of the next exchange.
    pub(super) fn fragment(&self) -> usize {
        self.rounds.settings.exchange(self.made()).fragment
    }

    /// Makes the outer step of the next exchange.
    pub(super) fn take_in(&mut self, sum: &[f32], seal: Seal) -> Result<(), LowCommunicationError> {
        let rounds = &mut self.rounds;
        let settings = rounds.settings;
        if let Some(rank) = seal.not_finite
            && (settings.not_finite == NotFinite::Stop || seal.weight == 0.0)
        {
            return Err(LowCommunicationError::NotFinite { rank });
        }
        let next = settings.exchange(rounds.sealed);
        let range = rounds.ranges[next.fragment].clone();
        if seal.weight > 0.0 {
            let state = OuterState {
                agreed: &mut rounds.agreed[range.clone()],
                velocity: &mut rounds.velocity[range],
            };
            state.step(&settings, sum, seal.weight)?;
        }
        rounds.step = next.step;
        rounds.sealed += 1;
        rounds.last_seal = seal;
        Ok(())
    }
}

impl Report {
    pub(super) fn word(self) -> u64 {
        match self {
            Self::Working => 0,
            Self::Finished => 1,
            Self::Ready => 2,
            Self::Begun => 3,
            Self::Waiting(time) => {
                let millis = time.as_millis().min(u128::from(u64::MAX >> 1));
                4 + u64::try_from(millis).expect("at most 2^63")
            }
        }
    }

    pub(super) fn read(word: u64) -> Self {
        match word {
            0 => Self::Working,
            1 => Self::Finished,
            2 => Self::Ready,
            3 => Self::Begun,
            _ => Self::Waiting(Duration::from_millis(word - 4)),
        }
    }

    /// Whether others wait for the training of the worker that reports so, where the decision is to
    /// wait.
    pub(super) fn is_waited_for(self, reports: &[Self]) -> bool {
        match self {
            // An exchange has what it gives by then: only the end waits for it.
            Self::Ready => reports.contains(&Self::Finished),
            Self::Working => reports
                .iter()
                .any(|other| matches!(other, Self::Waiting(_) | Self::Finished)),
            Self::Waiting(_) | Self::Finished | Self::Begun => false,
        }
    }
}

impl Quorum {
    /// The same on all workers, as all have the reports of all.
    pub(super) fn decide(&self, reports: &[Report]) -> Decision {
        let [
            mut working,
            mut finished,
            mut ready,
            mut begun,
            mut waiting,
            mut patient,
        ] = [0_usize; 6];
        for report in reports {
            match report {
                Report::Working => working += 1,
                Report::Finished => finished += 1,
                Report::Ready => ready += 1,
                Report::Begun => begun += 1,
                Report::Waiting(time) => {
                    waiting += 1;
                    patient += usize::from(*time >= self.patience);
                }
            }
        }
        // Those who have finished give nothing, and are not waited for.
        let enough = self.workers.get().min(reports.len() - finished);
        let is_quorum = patient > 0 && patient + ready >= enough;
        match () {
            () if begun > 0 => Decision::Exchange,
            () if finished == reports.len() => Decision::End,
            () if waiting > 0 && (working == 0 || is_quorum) => Decision::Exchange,
            () => Decision::Wait,
        }
    }
}

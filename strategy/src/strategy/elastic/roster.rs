//! Whose state is taken over when workers have joined or left: that of all workers with the most
//! steps, who have the same. Pure; `strategy/training/session` exchanges the words and passes the
//! state on.

use meshwork_collectives::Rank;

use crate::state_transfer::Gift;
use crate::{DifferenceError, Error};

/// The state that a worker announces when the workers have changed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct WorkerState {
    /// Steps of its state; `None` if it has nothing to continue from.
    pub(crate) steps: Option<u64>,
    pub(crate) replicas: u64,
}

/// The number of words that a state takes.
pub(crate) const WORDS: usize = 2;

/// The source of the common state, from the states of all workers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum StateSource {
    /// No worker has a state to continue from: all take the chief's initial one.
    Begin(Gift),
    /// All have the same state.
    Even,
    /// Some take over the state of those who are ahead of them.
    Furthest(Gift),
}

impl WorkerState {
    pub(crate) fn words(self) -> [u64; WORDS] {
        let steps = self.steps.map_or(0, |steps| steps.saturating_add(1));
        [steps, self.replicas]
    }

    fn read([steps, replicas]: &[u64; WORDS]) -> Self {
        Self {
            steps: steps.checked_sub(1),
            replicas: *replicas,
        }
    }
}

/// Decides from the words of all workers, in the order of their ranks, whose state is taken over.
/// An error where worker `own` does not match the chief; the others then continue without it.
pub(crate) fn state_source(words: &[u64], own: Rank) -> Result<StateSource, Error> {
    let (words, _) = words.as_chunks();
    let states: Vec<_> = words.iter().map(WorkerState::read).collect();
    let first = states[Rank::CHIEF.index()];
    let replicas = states[own.index()].replicas;
    if replicas != first.replicas {
        return Err(DifferenceError::Replicas {
            rank: own,
            replicas,
            chiefs: first.replicas,
        }
        .into());
    }
    let most = states
        .iter()
        .fold(first.steps, |most, state| most.max(state.steps));
    let gives = |rank: &Rank| match most {
        None => *rank == Rank::CHIEF,
        Some(_) => states[rank.index()].steps == most,
    };
    let ranks = Rank::all(u32::MAX).zip(&states).map(|(rank, _)| rank);
    let (givers, takers): (Vec<_>, Vec<_>) = ranks.partition(gives);
    Ok(match most {
        None => StateSource::Begin(Gift { givers, takers }),
        Some(_) if takers.is_empty() => StateSource::Even,
        Some(_) => StateSource::Furthest(Gift { givers, takers }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(steps: &[Option<u64>]) -> StateSource {
        let words = |steps: &Option<u64>| {
            let state = WorkerState {
                steps: *steps,
                replicas: 2,
            };
            state.words()
        };
        let words: Vec<u64> = steps.iter().flat_map(words).collect();
        state_source(&words, Rank::CHIEF).unwrap()
    }

    #[test]
    fn all_that_are_furthest_give_their_state_to_all_others() {
        // Every way in which four workers can stand: outside, at the step, or one ahead.
        let states = [None, Some(0), Some(1)];
        for all in 0..states.len().pow(4) {
            let steps: Vec<_> = (0..4)
                .map(|rank| states[all / states.len().pow(rank) % states.len()])
                .collect();
            let most = *steps.iter().max().unwrap();
            let mut gift = Gift::default();
            for (rank, own) in Rank::all(4).zip(&steps) {
                let gives = *own == most && (most.is_some() || rank == Rank::CHIEF);
                match gives {
                    true => gift.givers.push(rank),
                    false => gift.takers.push(rank),
                }
            }
            let expected = match most {
                None => StateSource::Begin(gift),
                Some(_) if gift.takers.is_empty() => StateSource::Even,
                Some(_) => StateSource::Furthest(gift),
            };
            assert_eq!(of(&steps), expected, "{steps:?}");
        }
    }

    #[test]
    fn no_steps_are_more_than_nothing() {
        let gift = Gift {
            givers: vec![Rank::new(1)],
            takers: vec![Rank::new(0)],
        };
        assert_eq!(of(&[None, Some(0)]), StateSource::Furthest(gift));
    }

    #[test]
    fn another_number_of_replicas_ends_the_worker_that_has_it() {
        let words = [5, 2, 5, 2, 0, 3];
        let refused = state_source(&words, Rank::new(2));
        let expected = DifferenceError::Replicas {
            rank: Rank::new(2),
            replicas: 3,
            chiefs: 2,
        };
        assert_eq!(refused, Err(Error::from(expected)));
        assert!(state_source(&words, Rank::new(1)).is_ok());
    }
}

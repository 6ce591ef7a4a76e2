//! Whose state is taken over when workers have joined or left: that of the first worker with the
//! most steps. Pure; `strategy/training/session` exchanges the words and sends the state.

use meshwork_collectives::Rank;

use crate::Error;

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
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum StateSource {
    /// No worker has a state to continue from: all take the chief's initial one.
    Begin,
    /// All have the same state.
    Even,
    /// Some take over the state of this worker, which is ahead of them.
    From(Rank),
}

impl WorkerState {
    pub(crate) fn words(self) -> [u64; WORDS] {
        let steps = self.steps.map_or(0, |steps| steps.saturating_add(1));
        [steps, self.replicas]
    }

    /// Whether it takes over the state of `source`.
    pub(crate) fn is_behind(self, source: Self) -> bool {
        self.steps < source.steps
    }

    fn read([steps, replicas]: &[u64; WORDS]) -> Self {
        Self {
            steps: steps.checked_sub(1),
            replicas: *replicas,
        }
    }
}

/// Decides from the words of all workers, in the order of their ranks, whose state is taken over,
/// and returns that of the most advanced worker. An error where worker `own` does not match the
/// chief; the others then continue without it.
pub(crate) fn state_source(words: &[u64], own: Rank) -> Result<(StateSource, WorkerState), Error> {
    let (words, _) = words.as_chunks();
    let states: Vec<_> = words.iter().map(WorkerState::read).collect();
    let first = states[Rank::CHIEF.index()];
    let replicas = states[own.index()].replicas;
    if replicas != first.replicas {
        return Err(Error::ReplicasDiffer {
            rank: own,
            replicas,
            chiefs: first.replicas,
        });
    }
    let (mut source, mut furthest) = (Rank::CHIEF, first);
    for (rank, state) in Rank::all(u32::MAX).zip(&states) {
        if furthest.is_behind(*state) {
            (source, furthest) = (rank, *state);
        }
    }
    let state_source = match furthest.steps {
        None => StateSource::Begin,
        Some(_) if states.iter().all(|other| *other == furthest) => StateSource::Even,
        Some(_) => StateSource::From(source),
    };
    Ok((state_source, furthest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(steps: &[Option<u64>]) -> (StateSource, WorkerState) {
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
    fn the_first_that_is_furthest_gives_its_state() {
        // Every way in which four workers can stand: outside, at the step, or one ahead.
        let states = [None, Some(0), Some(1)];
        for all in 0..states.len().pow(4) {
            let steps: Vec<_> = (0..4)
                .map(|rank| states[all / states.len().pow(rank) % states.len()])
                .collect();
            let most = *steps.iter().max().unwrap();
            let (state_source, furthest) = of(&steps);
            assert_eq!(furthest.steps, most);
            let first = u32::try_from(steps.iter().position(|own| *own == most).unwrap()).unwrap();
            let even = steps.iter().all(|own| *own == most);
            let expected = match (most, even) {
                (None, _) => StateSource::Begin,
                (_, true) => StateSource::Even,
                (_, false) => StateSource::From(Rank::new(first)),
            };
            assert_eq!(state_source, expected, "{steps:?}");
        }
    }

    #[test]
    fn no_steps_are_more_than_nothing() {
        assert_eq!(
            of(&[None, Some(0)]),
            (
                StateSource::From(Rank::new(1)),
                WorkerState {
                    steps: Some(0),
                    replicas: 2
                }
            )
        );
    }

    #[test]
    fn another_number_of_replicas_ends_the_worker_that_has_it() {
        let words = [5, 2, 5, 2, 0, 3];
        let refused = state_source(&words, Rank::new(2));
        let expected = Error::ReplicasDiffer {
            rank: Rank::new(2),
            replicas: 3,
            chiefs: 2,
        };
        assert_eq!(refused, Err(expected));
        assert!(state_source(&words, Rank::new(1)).is_ok());
    }
}

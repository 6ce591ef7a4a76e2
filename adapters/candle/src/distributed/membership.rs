//! `Membership`: a worker in its job, which it leaves when it is dropped.

use std::thread;

use meshwork_strategy::MultiWorkerMirroredStrategy;

use crate::Error;

#[derive(Debug)]
pub(super) struct Membership {
    /// `None` once the worker has left.
    strategy: Option<MultiWorkerMirroredStrategy>,
    has_failed: bool,
}

impl Membership {
    pub(super) fn new(strategy: MultiWorkerMirroredStrategy) -> Self {
        Self {
            strategy: Some(strategy),
            has_failed: false,
        }
    }

    pub(super) fn strategy(&self) -> &MultiWorkerMirroredStrategy {
        self.strategy.as_ref().expect(THERE)
    }

    pub(super) fn strategy_mut(&mut self) -> &mut MultiWorkerMirroredStrategy {
        self.strategy.as_mut().expect(THERE)
    }

    /// Behind an error the others are not waited for any more.
    pub(super) fn remember<T>(&mut self, result: Result<T, Error>) -> Result<T, Error> {
        self.has_failed |= result.is_err();
        result
    }

    #[track_caller]
    pub(super) fn leave(mut self) -> Result<(), Error> {
        match self.strategy.take() {
            Some(strategy) => Ok(strategy.leave()?),
            None => Ok(()),
        }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let ends_well = !self.has_failed && !thread::panicking();
        if let Some(strategy) = self.strategy.take().filter(|_| ends_well) {
            // Behind the last step nobody needs a worker any more that is lost.
            drop(strategy.leave());
        }
    }
}

const THERE: &str = "only leaving takes the strategy, and the membership with it";

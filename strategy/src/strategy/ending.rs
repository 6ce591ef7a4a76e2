//! How a worker leaves: with all others, or with an error that it tells them.

use std::fmt::Display;

use super::MultiWorkerMirroredStrategy;
use super::training::others_have_ended;
use crate::Error;

impl MultiWorkerMirroredStrategy {
    /// Leaves the group: returns when all workers have finished.
    ///
    /// # Errors
    /// [`Error::Group`] when a worker was lost before, in a job that is not elastic.
    #[track_caller]
    pub fn leave(self) -> Result<(), Error> {
        let (elastic, rank) = (self.is_elastic(), self.rank());
        let group = match self.split {
            Some(split) => split.joined,
            None => self.group,
        };
        match group.leave() {
            // Behind the last step nobody is needed any more.
            Err(error) if elastic && others_have_ended(&error, rank) => Ok(()),
            left => Ok(left?),
        }
    }

    /// Ends the training on all workers, which report `reason` as this worker's: for a failure
    /// outside a step, such as data that cannot be read.
    pub fn abort(&mut self, reason: impl Display) {
        let reason = reason.to_string();
        if let Some(split) = &mut self.split {
            split.joined.abort(reason.clone());
        }
        self.group.abort(reason);
    }

    /// Tells the other workers about an error before it is returned.
    pub(crate) fn abort_on_error<R, E: Display>(&mut self, result: Result<R, E>) -> Result<R, E> {
        if let Err(error) = &result
            && (self.group.world() > 1 || self.split.is_some())
        {
            // Changes nothing if the group has failed already, which then is the error.
            self.abort(error);
        }
        result
    }
}

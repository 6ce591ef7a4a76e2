//! Workers that come and go while others exchange: nobody's training waits for that, as it is the
//! threads that go on together. Who gives what to whom is in `standing`.

use std::ops::ControlFlow;

use super::super::members::{all_standings, pass_on};
use super::super::standing::{self, Progress, Standing};
use super::shared::Place;
use super::thread::Participant;
use crate::Error;

impl Participant {
    /// Meets the workers that are there, and takes over what they have come to.
    pub(super) fn join(&mut self) -> Result<(), Error> {
        match self.assemble() {
            Err(error) if self.strategy.is_elastic() => self.recover(error),
            assembled => self.strategy.abort_on_error(assembled),
        }
    }

    /// Goes on without the workers that were lost, if those are the reason for this error.
    pub(super) fn recover(&mut self, mut error: Error) -> Result<(), Error> {
        loop {
            self.strategy.go_on_without_lost(error)?;
            match self.assemble() {
                Ok(()) => return Ok(()),
                Err(next) => error = next,
            }
        }
    }

    /// Lets in those who wait. All workers have made the same exchanges.
    pub(super) fn admit(&mut self) -> Result<(), Error> {
        match self.strategy.admit()? {
            true => self.assemble(),
            false => Ok(()),
        }
    }

    /// All workers have finished. Where they may be lost, none goes that has what another has
    /// missed: after a loss they tell each other anew.
    pub(super) fn end(&mut self) -> Result<ControlFlow<()>, Error> {
        if !self.strategy.is_elastic() {
            return Ok(ControlFlow::Break(()));
        }
        let Err(error) = self.strategy.group_mut().barrier() else {
            return Ok(ControlFlow::Break(()));
        };
        match self.recover(error.into()) {
            // They have ended, as this worker may: nothing is missing here.
            Err(_) if self.strategy.others_are_gone() => Ok(ControlFlow::Break(())),
            recovered => recovered.map(|()| ControlFlow::Continue(())),
        }
    }

    /// Brings the workers of a membership together: a seal that some have missed, and newcomers. An
    /// exchange that is not sealed begins anew with what was given.
    fn assemble(&mut self) -> Result<(), Error> {
        let standing = self.standing();
        let all = all_standings(&mut self.strategy, &standing)?;
        let own = self.strategy.rank();
        match self.strategy.is_elastic() {
            false => standing::check_equal(&all)?,
            true => {
                let gift = standing::elastic_gift(&all, own)?;
                if let Some(seal) = standing::missed(&all, own)? {
                    self.seal(seal)?;
                }
                if let Some(begun) = &mut self.under_way {
                    begun.sum = None;
                }
                let gives = gift.givers.contains(&own);
                let package = gives.then(|| self.shared.lock().common.rounds.package());
                if let Some(taken) = pass_on(&mut self.strategy, &gift, package, &mut self.partial)?
                {
                    self.shared.lock().take_over(&taken)?;
                }
            }
        }
        self.progress = Progress::Running;
        let workers = self.strategy.group_mut().world();
        self.shared.lock().place = Place { rank: own, workers };
        self.measure_links()
    }

    fn standing(&self) -> Standing {
        let common = &self.shared.lock().common;
        let settings = format!("{:?} {:?}", common.rounds.settings, self.quorum);
        Standing::of(&common.rounds, &self.lengths, &settings, self.progress)
    }
}

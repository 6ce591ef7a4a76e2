//! Workers that come and go: those who are left go on with what they have, and give newcomers what
//! all have in common. Who gives what to whom is in `standing`.

use std::time::Instant;

use super::OuterOptimizer;
use super::rounds::Seal;
use super::standing::{self, Progress, Standing};
use crate::state_transfer::{self, Gift, Manifest, Partial, Parts, Terms};
use crate::{Error, LowCommunicationError, MultiWorkerMirroredStrategy};

impl OuterOptimizer {
    /// Goes on without the workers that were lost, where that is why the group is over by now.
    pub(super) fn recover_if_over(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
    ) -> Result<(), Error> {
        if !strategy.is_to_recover() {
            return Ok(());
        }
        let began = Instant::now();
        let recovered = match strategy.group_mut().failure() {
            Some(failure) => self.recover(strategy, failure.into()),
            None => Ok(()),
        };
        self.waited += began.elapsed();
        recovered
    }

    /// Goes on without the workers that were lost, if those are the reason for this error.
    pub(super) fn recover(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
        mut error: Error,
    ) -> Result<(), Error> {
        loop {
            while let Some(started) = self.under_way.pop_front() {
                // What has come before the loss counts; all behind it fails for the same reason.
                if self.take_in(started).is_err() {
                    self.under_way.clear();
                }
            }
            strategy.go_on_without_lost(error)?;
            match self.assemble(strategy) {
                Ok(()) => return Ok(()),
                Err(next) => error = next,
            }
        }
    }

    /// Lets in those who wait. All workers are at the same step.
    pub(super) fn admit(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
    ) -> Result<(), Error> {
        let admitted = match strategy.admit() {
            Ok(true) => {
                // What is under way among those who were there has ended before.
                let under_way = std::mem::take(&mut self.under_way);
                let mut taken = under_way.into_iter().map(|started| self.take_in(started));
                taken
                    .try_for_each(|taken| taken)
                    .and_then(|()| self.assemble(strategy))
            }
            admitted => admitted.map(drop),
        };
        admitted.or_else(|error| self.recover(strategy, error))
    }

    /// Waits until all workers have all that they need of each other.
    pub(super) fn await_others(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
    ) -> Result<(), Error> {
        if !strategy.is_elastic() {
            return Ok(());
        }
        while let Err(error) = strategy.group_mut().barrier() {
            match self.recover(strategy, error.into()) {
                // They have ended, as this worker may: nothing is missing here.
                Err(_) if strategy.others_are_gone() => return Ok(()),
                recovered => recovered?,
            }
        }
        Ok(())
    }

    /// Brings the workers of a membership together: a seal that some have missed, newcomers, and
    /// the exchanges that are not sealed, which begin anew.
    pub(super) fn assemble(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
    ) -> Result<(), Error> {
        let all = all_standings(strategy, &self.standing())?;
        if !strategy.is_elastic() {
            standing::check_equal(&all)?;
        } else {
            let own = strategy.rank();
            let gift = standing::elastic_gift(&all, own)?;
            if let Some(seal) = standing::missed(&all, own)? {
                self.catch_up(seal)?;
            }
            self.rounds.forget_sums();
            self.rounds.forget_requests();
            let package = gift.givers.contains(&own).then(|| self.rounds.package());
            if let Some(taken) = pass_on(strategy, &gift, package, &mut self.partial)? {
                self.rounds.take_over(&taken)?;
                self.rounds.join_begun();
                self.has_taken_over = true;
                self.begins_round();
            }
        }
        self.progress = Progress::Running;
        self.measure_links(strategy)?;
        let unsealed = self.rounds.exchanges.iter();
        let unsealed = unsealed.filter(|one| one.seal.is_none()).count();
        self.start_last(strategy, unsealed)
    }

    fn catch_up(&mut self, seal: Seal) -> Result<(), LowCommunicationError> {
        match self.rounds.seal(seal) {
            true => Ok(()),
            false => Err(LowCommunicationError::NotStarted),
        }
    }

    fn standing(&self) -> Standing {
        let settings = format!("{:?}", self.rounds.settings);
        Standing::of(&self.rounds, &self.lengths, &settings, self.progress)
    }
}

/// Tells all how far this worker has come, and hears it of all.
#[track_caller]
pub(super) fn all_standings(
    strategy: &mut MultiWorkerMirroredStrategy,
    own: &Standing,
) -> Result<Vec<Standing>, Error> {
    let words = strategy.all_words(own.words())?;
    Ok(Standing::read_all(&words).ok_or(LowCommunicationError::Standing)?)
}

/// Gives what all have in common, of which each giver has a package, or returns it to those who
/// take it; whoever does neither takes part all the same. What has come of it before a loss is
/// kept.
pub(super) fn pass_on(
    strategy: &mut MultiWorkerMirroredStrategy,
    gift: &Gift,
    package: Option<Vec<u8>>,
    partial: &mut Option<Partial<Vec<u8>>>,
) -> Result<Option<Vec<u8>>, Error> {
    if gift.takers.is_empty() {
        return Ok(None);
    }
    let mut package = package;
    let manifest = package
        .as_mut()
        .map(|package| Manifest::of(Vec::new(), &Parts::one(package), state_transfer::CHUNK));
    let terms = state_transfer::agree(strategy.group_mut(), gift, manifest.as_ref())?;
    if !terms.differing.is_empty() {
        let ranks = terms.differing;
        return Err(Error::ReplicasDiverged { ranks });
    }
    if terms.takes(strategy.rank()) {
        return take(strategy, &terms, partial).map(Some);
    }
    let mut package = package.unwrap_or_default();
    let mut parts = Parts::one(&mut package);
    state_transfer::give(strategy.group_mut(), &terms, &mut parts)?;
    Ok(None)
}

fn take(
    strategy: &mut MultiWorkerMirroredStrategy,
    terms: &Terms,
    partial: &mut Option<Partial<Vec<u8>>>,
) -> Result<Vec<u8>, Error> {
    let begun = partial.take().filter(|partial| partial.is_of(terms));
    let mut taken = match begun {
        Some(partial) => partial,
        None => Partial::new(terms, vec![0; terms.manifest.total()]),
    };
    let group = strategy.group_mut();
    let came = state_transfer::take(group, terms, &mut taken, |package| Parts::one(package));
    match came {
        Ok(()) => Ok(taken.state),
        Err(error) => {
            *partial = Some(taken);
            Err(error)
        }
    }
}

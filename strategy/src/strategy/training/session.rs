//! The training loop of an elastic job: step, admit those who wait, shrink after a loss, and bring
//! all workers to the state of the most advanced one. The decision whose state that is is in
//! `elastic/roster`.

use std::fmt::Display;
use std::time::Instant;

use meshwork_collectives::{self as collectives, OperationError};

use super::{Elastic, others_can_go_on, says_diverged};
use crate::replica::gather_words;
use crate::state_transfer::{self, Gift, Manifest, Partial, Parts, Terms};
use crate::strategy::elastic::poll_interval::PollInterval;
use crate::strategy::elastic::roster::{self, StateSource, WorkerState};
use crate::strategy::mesh_of;
use crate::{
    Change, Error, LentArrays, MultiWorkerMirroredStrategy, Progress, Snapshot, StateError,
    Training,
};

/// One training from its first step to its last.
pub(super) struct Session<'a, T> {
    strategy: &'a mut MultiWorkerMirroredStrategy,
    training: &'a mut T,
    /// Whether others can continue from this state.
    begun: bool,
    /// Whether there was nothing left to do for these workers.
    is_done: bool,
    /// What has come of the state of others, until all of it is here.
    partial: Option<Partial<Taken>>,
}

/// Where a state goes that a worker takes over.
struct Taken {
    snapshot: Snapshot,
    /// Bytes behind it that are the training's own.
    lent: usize,
}

impl<'a, T: Training> Session<'a, T> {
    pub(super) fn new(strategy: &'a mut MultiWorkerMirroredStrategy, training: &'a mut T) -> Self {
        Self {
            strategy,
            training,
            begun: false,
            is_done: false,
            partial: None,
        }
    }

    pub(super) fn run(mut self) -> Result<(), T::Error> {
        self.strategy.meter.trains();
        let change = Change::to(self.strategy.group.epoch());
        if let Err(error) = self.assemble(&change) {
            self.go_on(error)?;
        }
        loop {
            match self.turn() {
                Ok(Progress::Step) => {}
                Ok(Progress::Done) => return Ok(()),
                Err(error) => match self.go_on(error) {
                    // They have ended, as this worker may: nothing is missing here.
                    Err(_) if self.is_done && self.strategy.others_are_gone() => return Ok(()),
                    went_on => went_on?,
                },
            }
        }
    }

    /// One step, and a poll for waiting processes when one is due.
    fn turn(&mut self) -> Result<Progress, T::Error> {
        let progress = self.training.step(self.strategy)?;
        self.is_done = progress == Progress::Done;
        self.strategy.meter.trained(self.training.steps());
        let due = match progress {
            Progress::Step => self.strategy.is_due(),
            // Later nobody is here any more to let anybody in.
            Progress::Done => self.strategy.is_elastic(),
        };
        if !due || !self.strategy.look()? {
            return Ok(progress);
        }
        let change = Change::to(self.strategy.group.epoch());
        self.strategy.regrouped()?;
        self.assemble(&change)?;
        Ok(Progress::Step)
    }

    /// Continues without the workers that were lost, if those are why this one has failed.
    fn go_on(&mut self, mut error: T::Error) -> Result<(), T::Error> {
        loop {
            let noticed = Instant::now();
            let Some(cause) = self.strategy.lost_others(&error) else {
                return self.strategy.abort_on_error(Err(error));
            };
            self.strategy.shrink()?;
            let change = Change {
                cause: Some(cause),
                noticed,
                ..Change::to(self.strategy.group.epoch())
            };
            match self.assemble(&change) {
                Ok(()) => return Ok(()),
                Err(next) => error = next,
            }
        }
    }

    /// Synchronizes the workers of a membership: those that are behind take over the most advanced
    /// state.
    fn assemble(&mut self, change: &Change) -> Result<(), T::Error> {
        let own = WorkerState {
            steps: self.begun.then(|| self.training.steps()),
            replicas: self.strategy.local_replicas as u64,
        };
        let words = self.strategy.all_words(own.words())?;
        let source = roster::state_source(&words, self.strategy.rank())?;
        self.training.regroup(self.strategy, change)?;
        match source {
            StateSource::Even => {}
            StateSource::Begin(gift) => {
                if self.strategy.is_chief() {
                    self.begin()?;
                }
                self.pass_on(&gift)?;
            }
            StateSource::Furthest(gift) => self.pass_on(&gift)?,
        }
        self.partial = None;
        (self.begun, self.is_done) = (true, false);
        Ok(())
    }

    /// Begins where nobody has a state to continue from.
    fn begin(&mut self) -> Result<(), T::Error> {
        let rank = self.strategy.rank();
        if self.partial.is_some() && !self.training.lend().is_empty() {
            return Err(Error::from(StateError::HalfTaken { rank }).into());
        }
        self.training.begin()
    }

    /// Gives this worker's state, or takes over that of others.
    fn pass_on(&mut self, gift: &Gift) -> Result<(), T::Error> {
        if gift.takers.is_empty() {
            return Ok(());
        }
        let mut given = match gift.givers.contains(&self.strategy.rank()) {
            true => Some(self.training.snapshot()?),
            false => None,
        };
        let manifest = given.as_mut().map(|snapshot| {
            let outline = snapshot.outline();
            let parts = Parts::new(snapshot.arrays_mut()).with(self.training.lend());
            Manifest::of(outline, &parts, state_transfer::CHUNK)
        });
        let group = &mut self.strategy.group;
        let terms = state_transfer::agree(group, gift, manifest.as_ref())?;
        if !terms.differing.is_empty() {
            let ranks = &terms.differing;
            tracing::warn!(
                ?ranks,
                "states differ after equal steps: these ranks take over that of most"
            );
        }
        // Whose state differs needs its copy no more.
        match given.filter(|_| !terms.takes(group.rank())) {
            Some(mut snapshot) => {
                let lent = self.training.lend();
                let mut parts = Parts::new(snapshot.arrays_mut()).with(lent);
                Ok(state_transfer::give(group, &terms, &mut parts)?)
            }
            None => self.take(&terms),
        }
    }

    /// Takes over the state of others. What has come of it before a loss counts.
    fn take(&mut self, terms: &Terms) -> Result<(), T::Error> {
        // Whoever is left with half a state has not trained to the end.
        self.is_done = false;
        let lent = self.training.lend();
        let unlike = StateError::Lent {
            rank: self.strategy.rank(),
            lent: lent.bytes(),
            giver: terms.gift.givers[0],
            total: terms.manifest.total(),
        };
        let overwrites = !lent.is_empty();
        let of_these =
            |partial: &Partial<Taken>| partial.is_of(terms) && partial.state.lent == lent.bytes();
        let partial = match self.partial.take().filter(of_these) {
            Some(partial) => partial,
            None => match Taken::of(terms, &lent) {
                Some(taken) => Partial::new(terms, taken),
                None => return Err(Error::from(unlike).into()),
            },
        };
        let partial = self.partial.insert(partial);
        if overwrites {
            self.begun = false;
        }
        let group = &mut self.strategy.group;
        state_transfer::take(group, terms, partial, |taken| {
            Parts::new(taken.snapshot.arrays_mut()).with(lent)
        })?;
        if let Some(partial) = self.partial.take() {
            self.training.restore(&partial.state.snapshot)?;
        }
        Ok(())
    }
}

impl Taken {
    /// Room for what is not lent; `None` if the two do not make up this state.
    fn of(terms: &Terms, lent: &LentArrays<'_>) -> Option<Self> {
        let bytes = terms.manifest.total().checked_sub(lent.bytes())?;
        Some(Self {
            snapshot: Snapshot::of_outline(terms.manifest.outline(), bytes)?,
            lent: lent.bytes(),
        })
    }
}

impl MultiWorkerMirroredStrategy {
    /// Whether a worker was lost that others can go on without, as far as is known without waiting.
    pub(crate) fn is_to_recover(&self) -> bool {
        self.elastic.is_some() && self.group.is_over()
    }

    /// Goes on with the workers that are left, if a loss is the reason for this error.
    pub(crate) fn go_on_without_lost(&mut self, error: Error) -> Result<(), Error> {
        match self.lost_others(&error) {
            Some(_) => self.shrink(),
            None => self.abort_on_error(Err(error)),
        }
    }

    /// Lets in the processes that wait; true if there were any.
    #[track_caller]
    pub(crate) fn admit(&mut self) -> Result<bool, Error> {
        let before = self.group.epoch();
        self.group.grow()?;
        let has_grown = self.group.epoch() != before;
        if has_grown {
            self.regrouped()?;
        }
        Ok(has_grown)
    }

    /// Lets waiting processes in if it is time to look, behind a step; true if there were any.
    #[track_caller]
    pub(crate) fn admit_if_due(&mut self) -> Result<bool, Error> {
        let has_grown = self.is_due() && self.look()?;
        if has_grown {
            self.regrouped()?;
        }
        Ok(has_grown)
    }

    /// A step was made; true if it is time to look for newcomers.
    fn is_due(&mut self) -> bool {
        let elastic = self.elastic.as_mut();
        elastic.is_some_and(|elastic| elastic.poll_interval.step())
    }

    /// Admits waiting processes; true if there were any.
    #[track_caller]
    fn look(&mut self) -> Result<bool, Error> {
        let before = self.group.epoch();
        match self.group.grow() {
            // Nobody can join a process that was alone from the start.
            Err(OperationError::NoEpochs) => {
                self.elastic = Some(Elastic::at(PollInterval::of(u64::MAX)));
                return Ok(false);
            }
            grown => grown?,
        }
        if self.group.epoch() != before {
            return Ok(true);
        }
        if let Some(Elastic {
            poll_interval,
            looked,
        }) = self.elastic
        {
            let mut steps = [poll_interval.proposed(looked.elapsed())];
            self.group
                .all_reduce(&mut steps, collectives::ReduceOp::Min)?;
            self.elastic = Some(Elastic::at(PollInterval::of(steps[0])));
        }
        Ok(false)
    }

    /// Shrinks the group to the workers that are left.
    fn shrink(&mut self) -> Result<(), Error> {
        while let Err(error) = self.group.shrink() {
            if !others_can_go_on(&error, self.group.rank()) {
                return Err(error.into());
            }
        }
        self.regrouped()
    }

    /// Why the group is over, where that is no fault of this worker's, and no reason to end. Where
    /// this worker's own error is that copies differ, it may have heard it of another before.
    fn lost_others(&self, error: &impl Display) -> Option<OperationError> {
        self.elastic?;
        if says_diverged(&error.to_string()) {
            return None;
        }
        let failure = self.group.failure()?;
        others_can_go_on(&failure, self.group.rank()).then_some(failure)
    }

    /// Updates everything that depends on who the workers are.
    fn regrouped(&mut self) -> Result<(), Error> {
        self.mesh = mesh_of(self.group.world(), self.local_replicas)?;
        self.elastic = self.elastic.map(|_| Elastic::new());
        self.group.set_communication(self.options.implementation());
        self.group
            .set_operation_timeout(self.options.timeouts().operation());
        Ok(())
    }

    /// All-gathers a few words of each worker, in the order of their ranks.
    #[track_caller]
    pub(crate) fn all_words<const N: usize>(&mut self, own: [u64; N]) -> Result<Vec<u64>, Error> {
        gather_words(&mut self.group, own)
    }
}

#[cfg(test)]
mod tests;

//! Rounds that end with those who have come: `QuorumOptimizer`.
//!
//! A thread of each worker takes part in all exchanges, also while its training is late: it then
//! gives nothing, and makes the outer step like all others. So the workers agree without anybody
//! in the middle, and who comes late finds what the others have come to. Pure are `common`, which
//! all have, and `follower`, the training of one; `thread` exchanges, among the workers that
//! `members` brings together.

mod common;
mod follower;
mod members;
mod shared;
mod state;
mod thread;

pub use state::QuorumState;

use std::num::{NonZeroU64, NonZeroUsize};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use meshwork_collectives::{MeasuredLinks, Rank};

use super::LowCommunication;
use super::links::Fastest;
use super::rounds::{Rounds, check_count};
use crate::{Error, LowCommunicationError, MultiWorkerMirroredStrategy};
use common::Common;
use follower::Follower;
use shared::{Place, Shared};
use state::Beginning;
use thread::Participant;

/// When an exchange begins without those who are late: the same on every worker.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Quorum {
    workers: NonZeroUsize,
    patience: Duration,
    late: Late,
    checkpoints_every: Option<NonZeroU64>,
}

/// What becomes of the inner steps of a worker that came too late for an exchange.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Late {
    /// They are part of its next contribution.
    #[default]
    Merge,
    /// They are forgotten: the worker goes on from what the others have come to.
    Drop,
}

impl Quorum {
    /// An exchange begins when all have come, or when so many have waited for others for so long;
    /// where there are fewer workers, when all of those have.
    #[must_use]
    pub fn new(workers: NonZeroUsize, patience: Duration) -> Self {
        Self {
            workers,
            patience,
            late: Late::default(),
            checkpoints_every: None,
        }
    }

    /// What becomes of the inner steps of those who came too late.
    #[must_use]
    pub fn with_late(mut self, late: Late) -> Self {
        self.late = late;
        self
    }

    /// Keeps, behind one of so many exchanges, all that each worker would lose by a restart, until
    /// its training comes by to save it: see [`QuorumOptimizer::checkpoint`]. That takes the memory
    /// of up to four models until then, and of eight from there to the next step.
    #[must_use]
    pub fn with_checkpoints(mut self, exchanges: NonZeroU64) -> Self {
        self.checkpoints_every = Some(exchanges);
        self
    }
}

/// The outer optimizer of a training whose rounds end with those who have come: nobody waits longer
/// for a worker that is late than the [quorum](Quorum) is patient.
///
/// As [`OuterOptimizer`](super::OuterOptimizer), but where an exchange was made without a worker,
/// that one goes on from the step at which the others are, and its inner steps are part of the next
/// exchange, whether it has made as many as the others by then or not. Contributions count by their
/// inner steps. What exchanges came to is the same bits on all workers; which of them a worker was
/// late for depends on the time.
///
/// A worker whose training hangs is waited for by those who have [finished](Self::finish), and by
/// all where there is no quorum without it. When it has made no step meanwhile for as long as the
/// quorum is patient and [operations wait](meshwork_collectives::Timeouts::operation) together, it
/// ends the training on all with an error that names it; in a job that is elastic, the others go
/// on.
///
/// In a job that is [elastic](MultiWorkerMirroredStrategy::elastic) a worker that is lost costs its
/// own inner steps since the last exchange, and holds up nobody's training: the others exchange
/// among those who are left. A newcomer begins with what all have in common, at their step.
///
/// The strategy is the optimizer's until the end, as all operations are made behind the training's
/// back: [`into_strategy`](Self::into_strategy) gives it back.
///
/// ```
/// use std::num::{NonZeroU32, NonZeroUsize};
/// use std::time::Duration;
/// use meshwork_strategy::low_communication::{LowCommunication, Quorum, QuorumOptimizer};
/// use meshwork_strategy::MultiWorkerMirroredStrategy;
///
/// let strategy = MultiWorkerMirroredStrategy::alone()?;
/// let mut parameters = vec![0.0_f32; 3];
/// let settings = LowCommunication::new(NonZeroU32::new(10).expect("10 is not 0"));
/// let quorum = Quorum::new(NonZeroUsize::MIN, Duration::from_secs(30));
/// let mut outer = QuorumOptimizer::new(strategy, settings, quorum, &[3], &parameters)?;
/// parameters.copy_from_slice(outer.agreed());
/// while outer.steps() < 500 {
///     for one in &mut parameters {
///         *one -= 0.05 * 2.0 * (*one - 3.0);
///     }
///     outer.step(&mut parameters)?;
/// }
/// outer.finish(&mut parameters)?;
/// assert!((parameters[0] - 3.0).abs() < 1e-2, "{}", parameters[0]);
/// outer.into_strategy().leave()?;
/// # Ok::<(), meshwork_strategy::Error>(())
/// ```
#[derive(Debug)]
pub struct QuorumOptimizer {
    follower: Follower,
    shared: Arc<Shared>,
    /// Until the end.
    thread: Option<JoinHandle<MultiWorkerMirroredStrategy>>,
    waited: Duration,
    /// Since the last step, if that came by a checkpoint.
    checkpoint: Option<QuorumState>,
}

impl QuorumOptimizer {
    /// Begins with `parameters`, tensors of these lengths one after the other: the same bits on all
    /// workers.
    ///
    /// In a job that is elastic they may differ, and what [`agreed`](Self::agreed) then has is what
    /// to begin with: see [`OuterOptimizer::new`](super::OuterOptimizer::new).
    ///
    /// # Errors
    /// [`LowCommunicationError`] where these settings, tensors and workers cannot be trained so;
    /// [`LowCommunicationError::Differs`] on all workers where they differ, or in a job that is
    /// elastic on the one that differs. [`Error::NoThread`], [`Error::Group`]. The strategy is left
    /// by it.
    #[track_caller]
    pub fn new(
        strategy: MultiWorkerMirroredStrategy,
        settings: LowCommunication,
        quorum: Quorum,
        lengths: &[usize],
        parameters: &[f32],
    ) -> Result<Self, Error> {
        let rounds = Rounds::new(settings, lengths, parameters)?;
        Self::joined(strategy, rounds, quorum, lengths, Beginning::Program)
    }

    #[track_caller]
    fn joined(
        mut strategy: MultiWorkerMirroredStrategy,
        rounds: Rounds,
        quorum: Quorum,
        lengths: &[usize],
        beginning: Beginning,
    ) -> Result<Self, Error> {
        quorum.check(&rounds.settings, &mut strategy)?;
        let place = Place {
            rank: strategy.rank(),
            workers: strategy.group_mut().world(),
        };
        let fastest = Fastest::of(rounds.ranges.len());
        let (progress, follower, offers) = beginning.parts();
        let shared = Arc::new(Shared::new(Common { rounds }, place, offers));
        let mut participant = Participant {
            strategy,
            shared: shared.clone(),
            quorum,
            lengths: lengths.to_vec(),
            progress,
            partial: None,
            fastest,
            under_way: None,
        };
        participant.join()?;
        let follower = match follower {
            Some(follower) if !shared.lock().has_taken_over => follower,
            Some(_) | None => Follower::new(&shared.lock().common, quorum.late),
        };
        let thread = Builder::new()
            .name("meshwork-exchanges".into())
            .spawn(move || participant.run())
            .map_err(|error| Error::NoThread { kind: error.kind() })?;
        Ok(Self {
            follower,
            shared,
            thread: Some(thread),
            waited: Duration::ZERO,
            checkpoint: None,
        })
    }

    /// Counts an inner step after which nothing is to be given or taken over; where something is,
    /// does nothing and says so: then it is [`step`](Self::step) that counts it. For parameters
    /// that have to be brought together first.
    #[must_use]
    pub fn step_alone(&mut self) -> bool {
        self.checkpoint = None;
        let mut state = self.shared.lock();
        state.waited_for_since = None;
        let has_news = state.ended.is_some() || state.cut.is_some();
        !has_news && self.follower.step_alone(&state.common, state.begun)
    }

    /// Is called after each inner step: gives what the next exchange is to have of this worker, and
    /// takes over what came of those whose delay is over.
    ///
    /// # Errors
    /// [`LowCommunicationError::NotFinite`] and [`LowCommunicationError::SumNotFinite`] on all
    /// workers, [`LowCommunicationError::ParameterCount`], [`LowCommunicationError::Finished`],
    /// [`Error::Group`].
    pub fn step(&mut self, parameters: &mut [f32]) -> Result<(), Error> {
        check_count(self.follower.agreed.len(), parameters)?;
        self.checkpoint = None;
        let mut state = self.shared.lock();
        state.waited_for_since = None;
        self.follower.made_inner_step(state.begun);
        drop(state);
        self.give_and_take(parameters)
    }

    /// All that is due at this step: it can be interrupted anywhere, and begun anew.
    fn give_and_take(&mut self, parameters: &mut [f32]) -> Result<(), Error> {
        let mut state = self.shared.lock();
        loop {
            if let Some(cut) = state.cut.take() {
                self.checkpoint = Some(cut.with_own(&self.follower, parameters));
            }
            match &state.ended {
                None => {}
                Some(Ok(())) => return Err(LowCommunicationError::Finished.into()),
                Some(Err(error)) => return Err(error.clone()),
            }
            let begun = state.begun;
            self.follower.catch_up(&state.common, begun, parameters);
            if let Some(contribution) = self.follower.offer(parameters, begun) {
                state.offer(contribution, Some(Instant::now()));
                self.shared.notify();
                continue;
            }
            match self.follower.due() {
                None => break,
                Some(number) if number < state.common.made() => {
                    self.follower.take_over(&state.common, parameters);
                }
                Some(_) => {
                    let began = Instant::now();
                    state = self.shared.wait(state);
                    self.waited += began.elapsed();
                }
            }
        }
        if let Some(contribution) = self.follower.offer_early(parameters, state.begun) {
            state.offer(contribution, None);
        }
        Ok(())
    }

    /// Ends the training: waits until all workers have ended it too, and leaves `parameters` with
    /// the values that all agree on. Steps since the last exchange are lost by it.
    ///
    /// # Errors
    /// Those of [`step`](Self::step).
    pub fn finish(&mut self, parameters: &mut [f32]) -> Result<(), Error> {
        check_count(self.follower.agreed.len(), parameters)?;
        let began = Instant::now();
        let mut state = self.shared.lock();
        state.finish();
        self.shared.notify();
        let ended = loop {
            match &state.ended {
                Some(ended) => break ended.clone(),
                None => state = self.shared.wait(state),
            }
        };
        self.waited += began.elapsed();
        ended?;
        self.follower.finish(&state.common);
        parameters.copy_from_slice(&self.follower.agreed);
        Ok(())
    }

    /// The parameters after the last outer step of each fragment that this worker has taken over.
    #[must_use]
    pub fn agreed(&self) -> &[f32] {
        &self.follower.agreed
    }

    /// How far the training has come: the inner steps of workers that are never late. One that is
    /// goes on where the others are.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.follower.step
    }

    /// This worker's rank. In a job that is elastic it may change at any time.
    #[must_use]
    pub fn rank(&self) -> Rank {
        self.shared.lock().place.rank
    }

    /// How many workers there are, which in a job that is elastic may change at any time.
    #[must_use]
    pub fn workers(&self) -> u32 {
        self.shared.lock().place.workers
    }

    /// Exchanges that were made, of all fragments together.
    #[must_use]
    pub fn outer_steps(&self) -> u64 {
        self.shared.lock().common.made()
    }

    /// Exchanges that this worker was late for.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.follower.missed
    }

    /// The first worker, of those there then, that the last exchange was made without, as its
    /// difference was not finite: see [`NotFinite::Exclude`](super::NotFinite::Exclude).
    #[must_use]
    pub fn excluded(&self) -> Option<Rank> {
        self.shared.lock().common.rounds.last_seal.not_finite
    }

    /// How often all parameters of this worker were set to those that all agree on, as its
    /// difference was not finite: see [`OuterOptimizer::resets`](super::OuterOptimizer::resets).
    #[must_use]
    pub fn resets(&self) -> u64 {
        self.follower.resets
    }

    /// How long this worker's training has waited for exchanges.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// Bytes of all differences that were exchanged, as they were compressed; see
    /// [`OuterOptimizer::bytes`](super::OuterOptimizer::bytes).
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.shared.lock().traffic.bytes
    }

    /// Bytes that a worker sends for these; see
    /// [`OuterOptimizer::sent`](super::OuterOptimizer::sent).
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.shared.lock().traffic.sent
    }

    /// The links between the workers, where they [are
    /// measured](LowCommunication::with_measured_links) and not all workers share memory.
    #[must_use]
    pub fn links(&self) -> Option<MeasuredLinks> {
        self.shared.lock().links.clone()
    }
}

impl QuorumOptimizer {
    /// Gives the strategy back. Before the training has [finished](Self::finish), ends it on all
    /// workers, or in a job that is elastic on this one.
    #[must_use = "a strategy that is dropped without leaving counts as lost"]
    pub fn into_strategy(mut self) -> MultiWorkerMirroredStrategy {
        let thread = self
            .thread
            .take()
            .expect("taken here and when it is dropped");
        match self.ended(thread) {
            Ok(strategy) => strategy,
            Err(panic) => resume_unwind(panic),
        }
    }

    fn ended(
        &self,
        thread: JoinHandle<MultiWorkerMirroredStrategy>,
    ) -> std::thread::Result<MultiWorkerMirroredStrategy> {
        self.shared.lock().is_dropped = true;
        self.shared.notify();
        thread.join()
    }
}

impl Drop for QuorumOptimizer {
    /// As [`into_strategy`](Self::into_strategy), and drops that.
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            // Its panic has been printed, and has ended the group.
            drop(self.ended(thread));
        }
    }
}

impl Quorum {
    fn check(
        &self,
        settings: &LowCommunication,
        strategy: &mut MultiWorkerMirroredStrategy,
    ) -> Result<(), LowCommunicationError> {
        let (workers, world) = (self.workers.get(), strategy.group_mut().world() as usize);
        match () {
            () if settings.round_time.is_some() => Err(LowCommunicationError::QuorumRoundTime),
            // More may come.
            () if strategy.is_elastic() => Ok(()),
            () if workers > world => Err(LowCommunicationError::QuorumSize { workers, world }),
            () => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;

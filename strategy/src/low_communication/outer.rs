//! `OuterOptimizer`: the exchanges under way, and the steps that begin and apply them.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use meshwork_collectives::{MeasuredLinks, Rank};

use super::LowCommunication;
use super::clock::Clock;
use super::exchange::{self, How, Started, Traffic};
use super::links::Fastest;
use super::rounds::{Rounds, check_count};
use super::standing::Progress;
use crate::state_transfer::Partial;
use crate::{Error, LowCommunicationError, MultiWorkerMirroredStrategy};

/// The outer optimizer of a training with little communication, and the parameters that all workers
/// agree on.
///
/// In a job that is [elastic](MultiWorkerMirroredStrategy::elastic) a worker that is lost costs its
/// own inner steps since the last exchange: the others go on with theirs, and exchange among those
/// who are left. A newcomer gets what all have in common behind an outer step; until its first
/// exchange it counts by the steps that it has made.
#[derive(Debug)]
pub struct OuterOptimizer {
    pub(super) rounds: Rounds,
    /// Those of the exchanges that are not sealed, in their order.
    pub(super) under_way: VecDeque<Started>,
    pub(super) progress: Progress,
    /// What has come of the state of others, until all of it is here.
    pub(super) partial: Option<Partial<Vec<u8>>>,
    /// Whether others' state came in the place of this worker's.
    pub(super) has_taken_over: bool,
    pub(super) lengths: Vec<usize>,
    pub(super) links: Option<MeasuredLinks>,
    pub(super) fastest: Fastest,
    clock: Clock,
    began: Instant,
    pub(super) waited: Duration,
    outer_steps: u64,
    excluded: Option<Rank>,
    resets: u64,
    traffic: Traffic,
}

impl OuterOptimizer {
    /// Begins with `parameters`, tensors of these lengths one after the other: the same bits on all
    /// workers.
    ///
    /// In a job that is elastic they may differ, and what [`agreed`](Self::agreed) then has is what
    /// to begin with: the chief's parameters, or what a training that runs already has come to,
    /// which is at [`steps`](Self::steps).
    ///
    /// # Errors
    /// [`LowCommunicationError`] where these settings and tensors cannot be trained so, and
    /// [`LowCommunicationError::Differs`] where settings, lengths or parameters differ: on all
    /// workers, or in a job that is elastic on the one that differs. [`Error::Group`].
    #[track_caller]
    pub fn new(
        strategy: &mut MultiWorkerMirroredStrategy,
        settings: LowCommunication,
        lengths: &[usize],
        parameters: &[f32],
    ) -> Result<Self, Error> {
        let rounds = Rounds::new(settings, lengths, parameters)?;
        Self::joined(strategy, rounds, Progress::Beginning, lengths)
    }

    #[track_caller]
    pub(super) fn joined(
        strategy: &mut MultiWorkerMirroredStrategy,
        rounds: Rounds,
        progress: Progress,
        lengths: &[usize],
    ) -> Result<Self, Error> {
        let mut outer = Self {
            links: None,
            fastest: Fastest::of(rounds.ranges.len()),
            rounds,
            under_way: VecDeque::new(),
            progress,
            partial: None,
            has_taken_over: false,
            lengths: lengths.to_vec(),
            clock: Clock::default(),
            began: Instant::now(),
            waited: Duration::ZERO,
            outer_steps: 0,
            excluded: None,
            resets: 0,
            traffic: Traffic::default(),
        };
        match outer.assemble(strategy) {
            Err(error) if strategy.is_elastic() => outer.recover(strategy, error)?,
            assembled => assembled?,
        }
        outer.begins_round();
        // All apply an exchange at one step, as newcomers are let in behind it.
        if outer.rounds.is_due() {
            let mut parameters = outer.rounds.agreed.clone();
            outer.apply_due(strategy, &mut parameters)?;
        }
        Ok(outer)
    }

    /// Counts an inner step after which nothing is to be exchanged or applied; where something is,
    /// or a worker was lost, does nothing and says so: then it is [`step`](Self::step) that counts
    /// it. For parameters that have to be brought together first.
    #[must_use]
    pub fn step_alone(&mut self, strategy: &MultiWorkerMirroredStrategy) -> bool {
        let (before, settings) = (self.rounds.step, &self.rounds.settings);
        let mut clock = self.clock;
        let after = clock.after_inner_step(settings, before, self.busy());
        let begins = (before + 1..=after).any(|step| settings.due(step).next().is_some());
        let mut exchanges = self.rounds.exchanges.iter();
        let ends = exchanges.any(|one| one.applied_after <= after);
        let is_alone = !begins && !ends && !strategy.is_to_recover();
        if is_alone {
            self.rounds.made_inner_step();
            (self.rounds.step, self.clock) = (after, clock);
        }
        is_alone
    }

    /// Is called after each inner step: begins the exchanges that are due, and applies those whose
    /// delay is over.
    ///
    /// In a job that is elastic it also goes on without workers that were lost, and lets in those
    /// that wait, after which the strategy's rank and number of workers are others.
    ///
    /// # Errors
    /// [`LowCommunicationError::NotFinite`] and [`LowCommunicationError::SumNotFinite`] on all
    /// workers, [`LowCommunicationError::ParameterCount`], [`Error::Group`].
    pub fn step(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
        parameters: &mut [f32],
    ) -> Result<(), Error> {
        check_count(self.rounds.agreed.len(), parameters)?;
        self.rounds.made_inner_step();
        let (before, busy) = (self.rounds.step, self.busy());
        let settings = self.rounds.settings;
        let after = self.clock.after_inner_step(&settings, before, busy);
        self.recover_if_over(strategy)?;
        while self.rounds.step < after {
            let begun = self.rounds.advance(parameters);
            let is_excluded = self.rounds.begin_anew_if_excluded(begun, parameters);
            self.resets += u64::from(is_excluded);
            self.start_last(strategy, begun)?;
            self.apply_due(strategy, parameters)?;
        }
        Ok(())
    }

    /// Ends the training, on all workers after the same step: applies the exchanges that are under
    /// way, and gives `parameters` the values that all agree on. Steps since the last exchange are
    /// lost by it.
    ///
    /// In a job that is elastic it returns once all workers have come so far, so that none is lost
    /// that another still needs.
    ///
    /// # Errors
    /// Those of [`step`](Self::step).
    pub fn finish(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
        parameters: &mut [f32],
    ) -> Result<(), Error> {
        check_count(self.rounds.agreed.len(), parameters)?;
        while !self.rounds.exchanges.is_empty() {
            self.apply_first(strategy, parameters)?;
        }
        parameters.copy_from_slice(&self.rounds.agreed);
        self.await_others(strategy)
    }

    /// The parameters after the last outer step of each fragment: the same bits on all workers.
    #[must_use]
    pub fn agreed(&self) -> &[f32] {
        &self.rounds.agreed
    }

    /// Whether what others have come to took the place of what this worker began with, as in a job
    /// that is elastic: its parameters are to be [`agreed`](Self::agreed) then.
    #[must_use]
    pub fn has_taken_over(&self) -> bool {
        self.has_taken_over
    }

    /// How far the training has come: the inner steps that each worker has made, or where
    /// [rounds end by time](LowCommunication::with_round_time) would have made. A newcomer begins
    /// where the others are.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.rounds.step
    }

    /// Outer steps of a fragment, of all fragments together, that this worker has taken part in.
    #[must_use]
    pub fn outer_steps(&self) -> u64 {
        self.outer_steps
    }

    /// The first worker, of those there then, that the last outer step was made without, as its
    /// difference was not finite: see [`NotFinite::Exclude`](super::NotFinite::Exclude).
    #[must_use]
    pub fn excluded(&self) -> Option<Rank> {
        self.excluded
    }

    /// How often all parameters of this worker were set to those that all agree on, as its
    /// difference was not finite: see [`NotFinite::Exclude`](super::NotFinite::Exclude), which has
    /// an example.
    #[must_use]
    pub fn resets(&self) -> u64 {
        self.resets
    }

    /// How long this worker has waited for exchanges, and for workers that came or went: inner
    /// steps did not go on meanwhile.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// Bytes of all differences that were exchanged, as they were compressed.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.traffic.bytes
    }

    /// Bytes that a worker sends for these, in the mean of all workers that there were each time:
    /// of N, 2 (N - 1) / N times as many. What a network adds to them is not counted.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.traffic.sent
    }

    /// The time that was spent on inner steps.
    fn busy(&self) -> Duration {
        self.began.elapsed().saturating_sub(self.waited)
    }

    pub(super) fn begins_round(&mut self) {
        self.clock = Clock::restarted(self.busy());
    }

    /// Starts the last exchanges of those that have begun.
    pub(super) fn start_last(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
        count: usize,
    ) -> Result<(), Error> {
        let first = self.rounds.exchanges.len().saturating_sub(count);
        let compression = self.rounds.settings.compression;
        for exchange in self.rounds.exchanges.range(first..) {
            let Some(contribution) = &exchange.contribution else {
                continue;
            };
            let length = contribution.values.len();
            let workers = strategy.group_mut().world();
            self.traffic.count(length, compression, workers);
            let how = How {
                residual: &self.rounds.residuals[exchange.fragment],
                compression: compression.map(|one| one.for_call(exchange.began_after)),
                limit: self.fastest.limit(exchange.fragment),
            };
            let started = exchange::start(strategy.group_mut(), contribution, how)?;
            self.under_way.push_back(started);
        }
        Ok(())
    }

    pub(super) fn apply_due(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
        parameters: &mut [f32],
    ) -> Result<(), Error> {
        while self.rounds.is_due() {
            self.apply_first(strategy, parameters)?;
        }
        Ok(())
    }

    /// Waits for the first exchange, applies it, and lets in those who waited.
    fn apply_first(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
        parameters: &mut [f32],
    ) -> Result<(), Error> {
        let began = Instant::now();
        let arrived = self.arrive(strategy);
        self.waited += began.elapsed();
        arrived?;
        if let Some(seal) = self.rounds.apply(parameters)? {
            self.outer_steps += 1;
            self.excluded = seal.not_finite;
            if seal.has_newcomers && strategy.is_elastic() {
                let began = Instant::now();
                let admitted = self.admit(strategy);
                self.waited += began.elapsed();
                admitted?;
            } else if seal.is_slow && self.rounds.settings.measures_links {
                self.measure_links_again(strategy)?;
            }
        }
        Ok(())
    }

    /// Waits until the first exchange is sealed.
    fn arrive(&mut self, strategy: &mut MultiWorkerMirroredStrategy) -> Result<(), Error> {
        let is_sealed = |rounds: &Rounds| {
            let first = rounds.exchanges.front();
            first.is_none_or(|one| one.seal.is_some())
        };
        self.arrive_until(strategy, is_sealed)
    }

    /// Waits until all exchanges are sealed.
    pub(super) fn arrive_all(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
    ) -> Result<(), Error> {
        let are_sealed = |rounds: &Rounds| rounds.exchanges.iter().all(|one| one.seal.is_some());
        self.arrive_until(strategy, are_sealed)
    }

    fn arrive_until(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
        enough: impl Fn(&Rounds) -> bool,
    ) -> Result<(), Error> {
        while !enough(&self.rounds) {
            let Some(started) = self.under_way.pop_front() else {
                return Err(LowCommunicationError::NotStarted.into());
            };
            match self.take_in(started) {
                Err(error) if strategy.is_elastic() => self.recover(strategy, error)?,
                taken => taken?,
            }
        }
        Ok(())
    }

    /// Waits for an exchange, the first that is not sealed, and keeps what came of it.
    pub(super) fn take_in(&mut self, started: Started) -> Result<(), Error> {
        let outcome = started.wait()?;
        if let Some(exchange) = self.rounds.unsealed() {
            if outcome.sum.is_some() {
                self.fastest.took(exchange.fragment, outcome.took);
            }
            exchange.sum = outcome.sum;
        }
        self.rounds.seal(outcome.sealed?);
        Ok(())
    }
}

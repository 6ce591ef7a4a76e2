//! The thread that takes part in all exchanges of a worker, whether its training has come so far or
//! not: it gives what it has been offered, or nothing, and makes the outer steps. What it shares
//! with the training is in `shared`, who comes and goes in `members`.

use std::mem::take;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use meshwork_collectives::Timeouts;

use super::super::exchange::{self, How};
use super::super::links::{Fastest, unless_too_many};
use super::super::rounds::{Contribution, Seal, Sum};
use super::super::standing::Progress;
use super::Quorum;
use super::common::{Decision, Report};
use super::shared::Shared;
use crate::state_transfer::Partial;
use crate::{Error, LowCommunicationError, MultiWorkerMirroredStrategy};

/// Workers report so many times within their patience, and at least as often as this.
const REPORTS: u32 = 10;
const SELDOM: Duration = Duration::from_secs(1);
/// More often than this makes no difference to a round.
const OFTEN: Duration = Duration::from_millis(1);

/// A worker's part in all exchanges.
pub(super) struct Participant {
    pub(super) strategy: MultiWorkerMirroredStrategy,
    pub(super) shared: Arc<Shared>,
    pub(super) quorum: Quorum,
    pub(super) lengths: Vec<usize>,
    pub(super) progress: Progress,
    /// What has come of the state of others, until all of it is here.
    pub(super) partial: Option<Partial<Vec<u8>>>,
    pub(super) fastest: Fastest,
    pub(super) under_way: Option<UnderWay>,
}

/// An exchange that has begun, until it is sealed: a loss begins it anew with the same.
#[derive(Debug)]
pub(super) struct UnderWay {
    pub(super) contribution: Contribution,
    /// Once summed.
    pub(super) sum: Option<Sum>,
}

impl Participant {
    /// Takes part until all workers have finished; then the strategy is the program's again.
    pub(super) fn run(mut self) -> MultiWorkerMirroredStrategy {
        let ended = match catch_unwind(AssertUnwindSafe(|| self.take_part())) {
            Ok(ended) => ended,
            Err(_) => {
                let group = self.strategy.group_mut();
                Err(group.abort("the thread that exchanges has panicked").into())
            }
        };
        self.shared.lock().ended = Some(ended);
        self.shared.notify();
        self.strategy
    }

    fn take_part(&mut self) -> Result<(), Error> {
        loop {
            match self.turn() {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => return Ok(()),
                Err(error @ Error::Group(_)) if self.strategy.is_elastic() => {
                    self.recover(error)?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn turn(&mut self) -> Result<ControlFlow<()>, Error> {
        let (report, is_dropped) = {
            let state = self.shared.lock();
            (state.report(), state.is_dropped)
        };
        let group = self.strategy.group_mut();
        if is_dropped {
            let error = group.abort("a worker dropped its outer optimizer before it had finished");
            return Err(error.into());
        }
        let report = match &self.under_way {
            Some(_) => Report::Begun,
            None => report,
        };
        let mut words = vec![0; group.world() as usize];
        group.all_gather(&[report.word()], &mut words)?;
        let reports: Vec<Report> = words.into_iter().map(Report::read).collect();
        match self.quorum.decide(&reports) {
            Decision::End => return self.end(),
            Decision::Wait => {
                self.check_training(report, &reports)?;
                // All others are there at once when one that works has news.
                let nobody_works = !reports.contains(&Report::Working);
                if report == Report::Working || nobody_works {
                    let interval = (self.quorum.patience / REPORTS).clamp(OFTEN, SELDOM);
                    self.shared.wait_for_news(report, interval);
                }
            }
            Decision::Exchange => self.exchange_next()?,
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Ends the group where the training of this worker hangs, which no operation notices: those
    /// who wait for it would wait for ever.
    fn check_training(&mut self, report: Report, reports: &[Report]) -> Result<(), Error> {
        let mut state = self.shared.lock();
        if !report.is_waited_for(reports) {
            state.waited_for_since = None;
            return Ok(());
        }
        let since = *state.waited_for_since.get_or_insert_with(Instant::now);
        drop(state);
        let timeout = self.strategy.options().timeouts().operation();
        let limit = self.quorum.patience.saturating_add(timeout);
        let waited = since.elapsed();
        if waited <= limit {
            return Ok(());
        }
        let error = self.strategy.group_mut().abort(format!(
            "the training of this worker made no step for {waited:.1?} while others waited for it, \
             and the quorum's patience and the operation timeout are {limit:.1?}: look at what it \
             waits for, such as its data, or give it more time by {}",
            Timeouts::OPERATION_ENV
        ));
        Err(error.into())
    }

    /// Makes the next exchange, with what this worker has to give by now; then lets in those who
    /// wait, or measures links that were slow.
    fn exchange_next(&mut self) -> Result<(), Error> {
        let seal = self.exchange()?;
        if seal.has_newcomers && self.strategy.is_elastic() {
            self.admit()
        } else if seal.is_slow {
            self.measure_links()
        } else {
            Ok(())
        }
    }

    fn exchange(&mut self) -> Result<Seal, Error> {
        let mut state = self.shared.lock();
        let (fragment, number) = (state.common.fragment(), state.common.made());
        let settings = state.common.rounds.settings;
        let under_way = match self.under_way.take() {
            Some(begun) => begun,
            None => UnderWay {
                contribution: state.begin(),
                sum: None,
            },
        };
        let residual = take(&mut state.common.rounds.residuals[fragment]);
        drop(state);
        let under_way = self.under_way.insert(under_way);
        let how = How {
            residual: &residual,
            compression: settings.compression.map(|one| one.for_call(number)),
            limit: self.fastest.limit(fragment),
        };
        let group = self.strategy.group_mut();
        let outcome = exchange::carry_out(group, &under_way.contribution, how);
        under_way.sum = outcome.sum;
        self.shared.lock().common.rounds.residuals[fragment] = residual;
        let seal = outcome.sealed?;
        self.fastest.took(fragment, outcome.took);
        self.seal(seal)?;
        Ok(seal)
    }

    /// All workers have the sum of the exchange that is under way: makes the outer step.
    pub(super) fn seal(&mut self, seal: Seal) -> Result<(), LowCommunicationError> {
        let sum = self.under_way.take().and_then(|begun| begun.sum);
        let sum = sum.ok_or(LowCommunicationError::NotStarted)?;
        let mut state = self.shared.lock();
        let common = &mut state.common;
        let fragment = common.fragment();
        if common.rounds.settings.compression.is_some() {
            common.rounds.residuals[fragment] = sum.left_out;
        }
        common.take_in(&sum.values, seal)?;
        let every = self.quorum.checkpoints_every;
        if every.is_some_and(|every| state.common.made().is_multiple_of(every.get())) {
            state.cut();
        }
        drop(state);
        self.shared.notify();
        Ok(())
    }

    pub(super) fn measure_links(&mut self) -> Result<(), Error> {
        if self.shared.lock().common.rounds.settings.measures_links {
            let links = unless_too_many(self.strategy.group_mut().measure_links())?;
            self.shared.lock().links = links;
            self.fastest.forget();
        }
        Ok(())
    }
}

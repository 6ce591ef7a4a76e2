//! Links that are measured when a training begins, and again when all workers find them slow.

use std::time::{Duration, Instant};

use meshwork_collectives::{MeasuredLinks, OperationError};

use super::OuterOptimizer;
use crate::{Error, MultiWorkerMirroredStrategy};

/// An exchange is slow that takes so many times as long as the fastest of the same fragment since
/// links were measured, and a moment more. It counts where all workers find so, of whom the last to
/// come waits for the network only.
const TIMES: u32 = 3;
const MOMENT: Duration = Duration::from_millis(100);

/// The fastest exchange of each fragment since links were measured.
#[derive(Debug)]
pub(super) struct Fastest(Vec<Option<Duration>>);

impl Fastest {
    pub(super) fn of(fragments: usize) -> Self {
        Self(vec![None; fragments])
    }

    /// An exchange of this fragment has taken so long.
    pub(super) fn took(&mut self, fragment: usize, time: Duration) {
        let fastest = &mut self.0[fragment];
        *fastest = Some(fastest.map_or(time, |fastest| fastest.min(time)));
    }

    /// How long an exchange of this fragment may take; `None` before the first.
    pub(super) fn limit(&self, fragment: usize) -> Option<Duration> {
        let limit = |fastest: Duration| fastest.saturating_mul(TIMES).saturating_add(MOMENT);
        self.0[fragment].map(limit)
    }

    pub(super) fn forget(&mut self) {
        self.0.fill(None);
    }
}

impl OuterOptimizer {
    /// The links between the workers, where they [are
    /// measured](super::LowCommunication::with_measured_links) and not all workers share memory:
    /// the same on all of them.
    #[must_use]
    pub fn links(&self) -> Option<&MeasuredLinks> {
        self.links.as_ref()
    }

    /// Measures the links, if the settings say so; all workers do at the same place.
    pub(super) fn measure_links(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
    ) -> Result<(), Error> {
        if self.rounds.settings.measures_links {
            self.links = unless_too_many(strategy.group_mut().measure_links())?;
            self.fastest.forget();
        }
        Ok(())
    }

    /// Measures the links again, as all workers found them slow.
    pub(super) fn measure_links_again(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
    ) -> Result<(), Error> {
        let began = Instant::now();
        let measured = match self.measure_links(strategy) {
            Err(error) if strategy.is_elastic() => self.recover(strategy, error),
            measured => measured,
        };
        self.waited += began.elapsed();
        measured
    }
}

/// What came of measuring. More workers than can be measured, which are as many on all of them, end
/// no training: it goes on as where nothing is measured.
pub(super) fn unless_too_many(
    measured: Result<Option<MeasuredLinks>, OperationError>,
) -> Result<Option<MeasuredLinks>, OperationError> {
    match measured {
        Err(error @ OperationError::TooManyToMeasure { .. }) => {
            tracing::warn!(%error, "exchanges do not go by measured links");
            Ok(None)
        }
        measured => measured,
    }
}

#[cfg(test)]
mod tests;

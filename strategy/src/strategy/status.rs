//! A worker's status over HTTP, where it is asked for.

use std::sync::Arc;

use meshwork_status::{
    Metric, MetricKind, Report, Server, Settings, StatusSource, TrainJob, TrainJobReports,
};

use super::MultiWorkerMirroredStrategy;
use crate::{Error, StrategyObserver, StrategyStatistics};

impl MultiWorkerMirroredStrategy {
    /// Serves this worker's status from now on until the strategy is dropped. Returns where.
    ///
    /// [`from_env`](Self::from_env) and [`elastic_from_env`](Self::elastic_from_env) do it where
    /// `MESHWORK_STATUS` says so.
    ///
    /// # Errors
    /// [`Error::Status`]
    pub fn serve_status(&mut self, settings: &Settings) -> Result<std::net::SocketAddr, Error> {
        // The port may be the same as before.
        self.status = None;
        let server = Server::start(settings, Arc::new(self.observer()))?;
        let address = server.address();
        self.status = Some(server);
        Ok(address)
    }

    pub(super) fn with_status_from_env(mut self) -> Result<Self, Error> {
        let settings = Settings::from_env().map_err(Error::from);
        if let Some(settings) = self.abort_on_error(settings)? {
            let served = self.serve_status(&settings);
            self.abort_on_error(served)?;
        }
        let train_job = TrainJob::from_env().map_err(Error::from);
        if let Some(train_job) = self.abort_on_error(train_job)? {
            let source = Arc::new(self.observer());
            let reports = TrainJobReports::start(train_job, source).map_err(Error::from);
            self.reports = Some(self.abort_on_error(reports)?);
        }
        Ok(self)
    }
}

impl StatusSource for StrategyObserver {
    fn report(&self) -> Report {
        let statistics = self.statistics();
        Report {
            numbers: numbers(&statistics),
            group: statistics.group,
        }
    }

    fn dump(&self) -> String {
        Self::dump(self)
    }

    fn members(&self) -> Vec<String> {
        StatusSource::members(self.group())
    }
}

/// Those that are known.
fn numbers(statistics: &StrategyStatistics) -> Vec<Metric> {
    let gauge = |name, help, value: Option<f64>| {
        Some(Metric {
            name,
            help,
            kind: MetricKind::Gauge,
            value: value?,
        })
    };
    let steps = Metric {
        name: "training_steps",
        help: "Steps of the training so far",
        kind: MetricKind::Counter,
        value: statistics.steps as f64,
    };
    let others = [
        gauge(
            "training_total_steps",
            "Steps that the training is to have",
            statistics.total_steps.map(|total| total as f64),
        ),
        gauge(
            "training_steps_per_second",
            "Steps in a second, of the last 32",
            statistics.steps_per_second,
        ),
        gauge(
            "training_samples_per_second",
            "Samples of all workers in a second, of the last 32 steps",
            statistics.samples_per_second,
        ),
        gauge(
            "training_loss",
            "The loss that the program has reported last",
            statistics.loss,
        ),
        gauge(
            "training_since_step_seconds",
            "Time since the last step",
            statistics.since_step.map(|since| since.as_secs_f64()),
        ),
        gauge(
            "checkpoint_age_seconds",
            "Time since the last checkpoint was saved",
            statistics.checkpoint_age.map(|age| age.as_secs_f64()),
        ),
        gauge(
            "resident_memory_bytes",
            "Memory of the process that is in use",
            statistics.resident_bytes.map(|bytes| bytes as f64),
        ),
    ];
    let others = others.into_iter().flatten();
    std::iter::once(steps).chain(others).collect()
}

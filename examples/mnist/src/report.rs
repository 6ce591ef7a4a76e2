//! What the user sees while training runs and when it has ended, and the log for programs.

mod json;

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use meshwork_strategy::{Change, MultiWorkerMirroredStrategy};

use crate::error::Error;
use crate::train::Outcome;
use json::JsonLog;

/// One step of training as it is reported.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// From 1 over the whole run.
    pub(crate) number: usize,
    /// Mean over the global batch, before the update.
    pub(crate) loss: f32,
    /// Of the global batch.
    pub(crate) samples: usize,
    /// Of the whole step: samples fetched, gradients computed and exchanged, variables updated.
    pub(crate) elapsed: Duration,
    /// Gigabytes (10⁹) of gradients that were reduced in a second; 0 if nobody else was there, and
    /// none where the step is one program.
    pub(crate) allreduce_gbps: Option<f64>,
}

/// Who shared the batches.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sharers {
    Workers(usize),
    #[cfg(feature = "xla")]
    Devices(usize),
}

/// Where the steps of a run are reported.
#[derive(Debug)]
struct Report {
    screen: Screen,
    json: Option<JsonLog>,
}

/// The report of whichever worker is chief; the others report nothing.
#[derive(Debug)]
pub(crate) struct Reporter {
    epoch_steps: usize,
    epochs: usize,
    json: Option<PathBuf>,
    log: Log,
    /// Made with the first step that this worker reports.
    report: Option<Report>,
}

/// Whether the run has begun before, with another chief or up to a checkpoint.
#[derive(Clone, Copy, Debug)]
enum Log {
    New,
    GoneOnWith,
}

#[derive(Debug)]
enum Screen {
    /// A bar that is drawn over itself.
    Bar(ProgressBar),
    /// A line now and then, for files and pipes.
    Lines { epoch_steps: usize, total: usize },
}

impl Step {
    /// Samples of the global batch in a second.
    pub(crate) fn samples_per_second(&self) -> f64 {
        self.samples as f64 / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

impl Sharers {
    /// How many, and of what.
    fn counted(self) -> (usize, &'static str) {
        match self {
            Self::Workers(count) => (count, "worker"),
            #[cfg(feature = "xla")]
            Self::Devices(count) => (count, "device"),
        }
    }
}

impl fmt::Display for Sharers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, one) = self.counted();
        write!(f, "{count} {one}{}", if count == 1 { "" } else { "s" })
    }
}

impl Reporter {
    /// For a run of `epochs` times `epoch_steps` steps, logged to the file `json` if there is one.
    pub(crate) fn new(epoch_steps: usize, epochs: usize, json: Option<&Path>) -> Self {
        Self {
            epoch_steps,
            epochs,
            json: json.map(Path::to_owned),
            log: Log::New,
            report: None,
        }
    }

    /// Tells of lost and of new workers; each speaks for itself, as any may be lost next.
    pub(crate) fn changed(&mut self, strategy: &MultiWorkerMirroredStrategy, change: &Change) {
        if change.epoch() > 1 {
            self.log = Log::GoneOnWith;
        }
        let workers = Sharers::Workers(strategy.num_replicas_in_sync());
        let line = match change.cause() {
            Some(cause) if strategy.num_replicas_in_sync() == 1 => {
                format!("{cause}; {workers} goes on")
            }
            Some(cause) => format!("{cause}; {workers} go on"),
            None if change.epoch() > 1 && strategy.is_chief() => {
                format!("{workers} train, with a new one")
            }
            None => return,
        };
        print_line(io::stderr(), &line);
    }

    /// Keeps what the log of a run holds that goes on from a checkpoint.
    pub(crate) fn goes_on(&mut self) {
        self.log = Log::GoneOnWith;
    }

    /// Reports one step; the log of an earlier chief, or of a run before its checkpoint, is
    /// continued.
    ///
    /// # Errors
    ///
    /// [`Error::Write`] if the log cannot be written.
    pub(crate) fn step(&mut self, step: &Step) -> Result<(), Error> {
        self.report()?.step(step)
    }

    /// Reports the end: so many came to `outcome`.
    ///
    /// # Errors
    ///
    /// [`Error::Write`] if the log cannot be written, [`Error::Output`] if the result cannot.
    pub(crate) fn finish(&mut self, outcome: &Outcome, sharers: Sharers) -> Result<(), Error> {
        self.report()?.finish(outcome, sharers)
    }

    fn report(&mut self) -> Result<&mut Report, Error> {
        let report = match self.report.take() {
            Some(report) => report,
            None => {
                let json = self.json.as_deref().map(|path| match self.log {
                    Log::New => JsonLog::create(path),
                    Log::GoneOnWith => JsonLog::go_on(path),
                });
                Report::new(self.epoch_steps, self.epochs, json.transpose()?)
            }
        };
        Ok(self.report.insert(report))
    }
}

impl Report {
    /// Reports `epochs` times `epoch_steps` steps on standard error, and to the log if there is
    /// one.
    fn new(epoch_steps: usize, epochs: usize, json: Option<JsonLog>) -> Self {
        let total = epoch_steps.saturating_mul(epochs);
        let screen = if io::stderr().is_terminal() {
            Screen::Bar(ProgressBar::new(total as u64).with_style(style()))
        } else {
            Screen::Lines { epoch_steps, total }
        };
        Self { screen, json }
    }

    /// Reports one step.
    ///
    /// # Errors
    ///
    /// [`Error::Write`] if the file cannot be written; what happens to standard error never stops
    /// training.
    fn step(&mut self, step: &Step) -> Result<(), Error> {
        match &self.screen {
            Screen::Bar(bar) => {
                bar.set_message(measurements(step));
                bar.set_position(step.number as u64);
            }
            Screen::Lines { epoch_steps, total } => {
                if step.number.is_multiple_of(LINE_EVERY)
                    || step.number.is_multiple_of(*epoch_steps)
                {
                    let line = format!("step {}/{total}  {}", step.number, measurements(step));
                    print_line(io::stderr(), &line);
                }
            }
        }
        self.json.as_mut().map_or(Ok(()), |json| json.step(step))
    }

    /// Reports the end: so many came to `outcome`.
    ///
    /// # Errors
    ///
    /// [`Error::Write`] if the file cannot be written, [`Error::Output`] if standard output cannot.
    fn finish(&mut self, outcome: &Outcome, sharers: Sharers) -> Result<(), Error> {
        if let Screen::Bar(bar) = &self.screen {
            bar.finish_and_clear();
        }
        if let Some(json) = &mut self.json {
            json.finish(outcome, sharers)?;
        }
        print_result(&format!(
            "test accuracy {:.2} % after {} steps in {:.1} s with {sharers}",
            outcome.test_accuracy * 100.0,
            outcome.losses.len(),
            outcome.wall.as_secs_f64(),
        ))
    }
}

/// Tells where the loss curve is.
pub(crate) fn announce_curve(path: &Path) {
    let path = std::path::absolute(path).unwrap_or_else(|_| PathBuf::from(path));
    print_line(io::stdout(), &format!("loss curve in {}", path.display()));
}

/// Writes a line whole, and does not mind a reader that has gone.
pub(crate) fn print_line(stream: impl Write, line: &str) {
    let _ = write_line(stream, line);
}

/// The same of the result, which is not to be lost where there still is a reader.
fn print_result(line: &str) -> Result<(), Error> {
    match write_line(io::stdout(), line) {
        Err(source) if source.kind() != io::ErrorKind::BrokenPipe => Err(Error::Output { source }),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn write_line(mut stream: impl Write, line: &str) -> io::Result<()> {
    stream.write_all(format!("{line}\n").as_bytes())?;
    stream.flush()
}

fn measurements(step: &Step) -> String {
    let (loss, speed) = (step.loss, step.samples_per_second());
    match step.allreduce_gbps {
        Some(gbps) => format!("loss {loss:.4}  {speed:.0} samples/s  all-reduce {gbps:.2} GB/s"),
        None => format!("loss {loss:.4}  {speed:.0} samples/s"),
    }
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template("{bar:24} step {pos}/{len}  {msg}  {eta} left")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// A line each this many steps, and one at the end of an epoch.
const LINE_EVERY: usize = 25;

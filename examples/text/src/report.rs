//! What the user sees while training runs and when it has ended, and the log for programs.

use std::fs::File;
use std::io::{self, Write};
use std::time::Duration;

use meshwork_strategy::MultiWorkerMirroredStrategy;
use serde_json::{Value, json};
use text::{Corpus, Error, sent_for_sum};

use crate::args::Args;

/// One step of training as it is reported.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// From 1.
    pub(crate) number: usize,
    /// Mean before the update, over the whole batch or over the chief's rows.
    pub(crate) loss: f32,
    /// Since the first step began.
    pub(crate) elapsed: Duration,
    /// Bytes that a worker has sent of what is exchanged; not known where the model is in parts.
    pub(crate) sent: Option<u64>,
}

/// The outcome of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Mean over the validation text.
    pub(crate) loss: f64,
    /// Of all steps.
    pub(crate) elapsed: Duration,
    /// Bytes that a worker has sent of what is exchanged; not known where the model is in parts.
    pub(crate) sent: Option<u64>,
    /// How long the chief has waited for others; not known where the model is in parts.
    pub(crate) waited: Option<Duration>,
    /// What the model writes.
    pub(crate) sample: String,
}

/// The report of the chief; the others report nothing.
#[derive(Debug)]
pub(crate) struct Reporter<'a> {
    args: &'a Args,
    chief: bool,
    workers: usize,
    parameters: usize,
    /// Bytes that a worker would have sent so far to sum gradients of 32 bits in each step.
    by_gradients: u64,
    json: Option<File>,
}

impl<'a> Reporter<'a> {
    /// Checks that the log can be written, before workers are started.
    pub(crate) fn check(args: &Args) -> Result<(), Error> {
        log(args).map(drop)
    }

    /// Tells what is trained on what.
    pub(crate) fn new(
        args: &'a Args,
        strategy: &MultiWorkerMirroredStrategy,
        corpus: &Corpus,
        parameters: usize,
    ) -> Result<Self, Error> {
        let (chief, workers) = (strategy.is_chief(), strategy.num_replicas_in_sync());
        if chief {
            let [train, validation] = corpus.lens();
            let line = format!(
                "{parameters} parameters, {} different characters, {train} to learn from, {validation} to be measured on",
                corpus.characters()
            );
            print_line(io::stderr(), &line);
        }
        let json = if chief { log(args)? } else { None };
        Ok(Self {
            args,
            chief,
            workers,
            parameters,
            by_gradients: 0,
            json,
        })
    }

    /// Looks who the workers are, which may have changed: whoever is the chief now reports.
    pub(crate) fn follow(&mut self, strategy: &MultiWorkerMirroredStrategy) -> Result<(), Error> {
        let (chief, workers) = (strategy.is_chief(), strategy.num_replicas_in_sync());
        if chief && !self.chief {
            self.json = more_log(self.args)?;
        }
        if chief && workers != self.workers {
            let line = format!("{workers} workers go on, where {} were", self.workers);
            print_line(io::stderr(), &line);
        }
        (self.chief, self.workers) = (chief, workers);
        Ok(())
    }

    /// Reports one step.
    pub(crate) fn step(&mut self, step: &Step) -> Result<(), Error> {
        self.by_gradients += sent_for_sum(4 * self.parameters as u64, self.workers);
        if !self.chief {
            return Ok(());
        }
        let steps = self.args.steps.get();
        if step.number.is_multiple_of(LINE_EVERY) || step.number == steps {
            let rate = self.rows_per_second(step.number, step.elapsed);
            let (number, loss) = (step.number, step.loss);
            let mut line = format!("step {number}/{steps}  loss {loss:.4}  {rate:.0} samples/s");
            if let Some(sent) = step.sent {
                line = format!("{line}  {:.2} MB sent", megabytes(sent));
            }
            print_line(io::stderr(), &line);
        }
        let elapsed = step.elapsed.as_secs_f64();
        self.line(&match step.sent {
            Some(sent) => {
                json!({ "step": step.number, "loss": step.loss, "wall_s": elapsed, "sent": sent })
            }
            None => json!({ "step": step.number, "loss": step.loss, "wall_s": elapsed }),
        })
    }

    /// Reports the end.
    pub(crate) fn finish(&mut self, result: &Outcome) -> Result<(), Error> {
        let steps = self.args.steps.get();
        let rate = self.rows_per_second(steps, result.elapsed);
        self.line(&json!({
            "final": true,
            "validation_loss": result.loss,
            "wall_s": result.elapsed.as_secs_f64(),
            "samples_per_s": rate,
            "workers": self.workers,
            "sent": result.sent,
            "waited_s": result.waited.map(|waited| waited.as_secs_f64()),
        }))?;
        let line = format!(
            "validation loss {:.4} after {steps} steps in {:.1} s with {} {}, {rate:.0} samples/s",
            result.loss,
            result.elapsed.as_secs_f64(),
            self.workers,
            if self.workers == 1 {
                "worker"
            } else {
                "workers"
            },
        );
        print_result(&line)?;
        if let Some(sent) = result.sent.filter(|sent| *sent > 0) {
            let mut line = format!("{:.2} MB sent a worker", megabytes(sent));
            let share = self.by_gradients as f64 / sent as f64;
            if share >= 1.1 {
                line = format!("{line}, {share:.1} times less than sums of gradients");
            }
            print_result(&line)?;
        }
        if let Some(waited) = result.waited {
            let share = 100.0 * waited.as_secs_f64() / result.elapsed.as_secs_f64();
            let line = format!("{share:.1} % of the time was spent waiting for other workers");
            print_result(&line)?;
        }
        match result.sample.as_str() {
            "" => Ok(()),
            sample => print_result(&format!("\n{sample}")),
        }
    }

    /// Rows of text of all workers in a second.
    fn rows_per_second(&self, steps: usize, elapsed: Duration) -> f64 {
        let rows = (steps * self.args.rows() * self.workers) as f64;
        rows / elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// One write for the line, so that a reader never sees half of it.
    fn line(&mut self, value: &Value) -> Result<(), Error> {
        let (Some(file), Some(path)) = (&mut self.json, &self.args.json) else {
            return Ok(());
        };
        file.write_all(format!("{value}\n").as_bytes())
            .map_err(Error::write(path))
    }
}

/// The log for programs, if there is to be one.
fn log(args: &Args) -> Result<Option<File>, Error> {
    let log = args.json.as_ref();
    log.map(|path| File::create(path).map_err(Error::write(path)))
        .transpose()
}

/// The same log, which another chief has begun.
fn more_log(args: &Args) -> Result<Option<File>, Error> {
    let log = args.json.as_ref();
    let open = |path| File::options().create(true).append(true).open(path);
    log.map(|path| open(path).map_err(Error::write(path)))
        .transpose()
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
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

/// A line each this many steps, and one at the end.
const LINE_EVERY: usize = 25;

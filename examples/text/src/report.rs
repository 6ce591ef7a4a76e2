//! What the user sees while training runs and when it has ended, and the log for programs.

use std::fs::File;
use std::io::{self, Write};
use std::time::Duration;

use candle_nn::VarMap;
use meshwork_strategy::MultiWorkerMirroredStrategy;
use serde_json::{Value, json};
use text::{Corpus, Error};

use crate::args::Args;

/// One step of training as it is reported.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// From 1.
    pub(crate) number: usize,
    /// Mean over the whole batch, before the update.
    pub(crate) loss: f32,
    /// Since the first step began.
    pub(crate) elapsed: Duration,
}

/// The outcome of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Mean over the validation text.
    pub(crate) loss: f64,
    /// Of all steps.
    pub(crate) elapsed: Duration,
    /// What the model writes.
    pub(crate) sample: String,
}

/// The report of the chief; the others report nothing.
#[derive(Debug)]
pub(crate) struct Reporter<'a> {
    args: &'a Args,
    chief: bool,
    workers: usize,
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
        vars: &VarMap,
    ) -> Result<Self, Error> {
        let (chief, workers) = (strategy.is_chief(), strategy.num_replicas_in_sync());
        if chief {
            let parameters: usize = vars.all_vars().iter().map(|var| var.elem_count()).sum();
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
            json,
        })
    }

    /// Reports one step.
    pub(crate) fn step(&mut self, step: &Step) -> Result<(), Error> {
        if !self.chief {
            return Ok(());
        }
        let steps = self.args.steps.get();
        if step.number.is_multiple_of(LINE_EVERY) || step.number == steps {
            let rate = self.rows_per_second(step.number, step.elapsed);
            let (number, loss) = (step.number, step.loss);
            let line = format!("step {number}/{steps}  loss {loss:.4}  {rate:.0} samples/s");
            print_line(io::stderr(), &line);
        }
        self.line(&json!({ "step": step.number, "loss": step.loss }))
    }

    /// Reports the end.
    pub(crate) fn finish(&mut self, result: &Outcome) -> Result<(), Error> {
        let steps = self.args.steps.get();
        let rate = self.rows_per_second(steps, result.elapsed);
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
        print_line(io::stdout(), &line);
        if !result.sample.is_empty() {
            print_line(io::stdout(), &format!("\n{}", result.sample));
        }
        self.line(&json!({
            "final": true,
            "validation_loss": result.loss,
            "wall_s": result.elapsed.as_secs_f64(),
            "samples_per_s": rate,
            "workers": self.workers,
        }))
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

/// Writes a line whole, and does not mind a reader that has gone.
pub(crate) fn print_line(mut stream: impl Write, line: &str) {
    let _ = stream
        .write_all(format!("{line}\n").as_bytes())
        .and_then(|()| stream.flush());
}

/// A line each this many steps, and one at the end.
const LINE_EVERY: usize = 25;

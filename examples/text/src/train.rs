//! The training loop: each worker computes its rows of every batch.

use std::time::Instant;

use candle_core::backprop::GradStore;
use candle_nn::VarMap;
use meshwork_strategy::MultiWorkerMirroredStrategy;
use text::{AdamW, Corpus, Error, Model, SharedVars, clip, rate, validation_loss};

use crate::args::Args;
use crate::report::{Outcome, Reporter, Step};

/// Trains, measures, and lets the chief show what the model writes.
pub(crate) fn run(args: &Args, strategy: &mut MultiWorkerMirroredStrategy) -> Result<(), Error> {
    let size = args.size()?;
    let corpus = Corpus::read(&args.data, size.context())?;
    let vars = VarMap::new();
    let model = Model::seeded(&vars, size, corpus.characters(), args.seed)?;
    let shared = SharedVars::new(strategy, &vars, &args.exchange()?, args.gradients())?;
    let mut reporter = Reporter::new(args, strategy, &corpus, &vars)?;
    let mut run = Run {
        args,
        corpus: &corpus,
        model: &model,
        vars: &vars,
        shared,
        optimizer: AdamW::new(&vars)?,
    };
    let start = Instant::now();
    // Of a training that runs already, the rest.
    let made = run.shared.steps();
    for step in (0..args.steps.get()).skip_while(|step| (*step as u64) < made) {
        let loss = run.step(strategy, step)?;
        reporter.follow(strategy)?;
        reporter.step(&Step {
            number: step + 1,
            loss,
            elapsed: start.elapsed(),
            sent: run.shared.sent(),
        })?;
    }
    let elapsed = start.elapsed();
    let waited = run.shared.waited();
    run.shared.finish(strategy)?;
    reporter.follow(strategy)?;
    // Whoever may lose others needs nobody for it, and waits for the chief.
    if strategy.is_elastic() && !strategy.is_chief() {
        return Ok(());
    }
    let loss = validation_loss(&model, &corpus, strategy)?;
    if strategy.is_chief() {
        let sample = model.sample(&corpus, args.sample, args.seed)?;
        reporter.finish(&Outcome {
            loss,
            elapsed,
            sent: run.shared.sent(),
            waited,
            sample,
        })?;
    }
    Ok(())
}

struct Run<'a> {
    args: &'a Args,
    corpus: &'a Corpus,
    model: &'a Model,
    vars: &'a VarMap,
    shared: SharedVars,
    optimizer: AdamW,
}

impl Run<'_> {
    /// One step: the mean loss before it, over the whole batch where gradients are summed and over
    /// this worker's rows where they are not.
    fn step(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
        step: usize,
    ) -> Result<f32, Error> {
        let args = self.args;
        let first = strategy.rank().index() * args.rows();
        let (mut gradients, loss) = self.gradients(step, first)?;
        let loss = self.shared.reduce(strategy, &mut gradients, loss)?;
        if !loss.is_finite() {
            return Err(Error::LossNotFinite {
                step: step + 1,
                loss,
                rate: args.lr,
            });
        }
        let scale = clip(self.vars, &gradients, MOST_NORM)?;
        let rate = rate(step, args.steps.get(), args.lr);
        self.optimizer.step(&gradients, rate, scale)?;
        self.shared.step(strategy)?;
        Ok(loss)
    }

    /// The mean gradients and loss of this worker's rows, from `first` on, a batch at a time.
    fn gradients(&self, step: usize, first: usize) -> Result<(GradStore, f32), Error> {
        let (batch, batches) = (self.args.batch.get(), self.args.accumulate.get());
        let share = 1.0 / batches as f64;
        let part = |index: usize| {
            let first = first + index * batch;
            let rows = self
                .corpus
                .batch(self.args.seed, step, first..first + batch);
            let loss = (self.model.loss(&rows)? * share)?;
            Ok::<_, Error>((loss.backward()?, loss.to_scalar::<f32>()?))
        };
        let (mut sum, mut loss) = part(0)?;
        for index in 1..batches {
            let (more, part) = part(index)?;
            for var in self.vars.all_vars() {
                if let (Some(one), Some(other)) = (sum.get(&var), more.get(&var)) {
                    let both = (one + other)?;
                    sum.insert(&var, both);
                }
            }
            loss += part;
        }
        Ok((sum, loss))
    }
}

/// The norm that gradients are clipped at.
const MOST_NORM: f32 = 1.0;

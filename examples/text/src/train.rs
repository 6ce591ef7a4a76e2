//! The training loop: each worker computes its rows of every batch.

use std::time::Instant;

use candle_core::backprop::GradStore;
use candle_nn::VarMap;
use meshwork_strategy::MultiWorkerMirroredStrategy;
use text::{AdamW, Batch, Corpus, Error, Model, SharedVars, clip, one_line, rate, validation_loss};

use crate::agreement;
use crate::args::Args;
use crate::report::{Outcome, Reporter, Step};

/// Trains, and leaves the job, or tells the other workers why not.
pub(crate) fn run(args: &Args, mut strategy: MultiWorkerMirroredStrategy) -> Result<(), Error> {
    if let Err(error) = train(args, &mut strategy) {
        // So that the others end with this reason; nothing if theirs is known already.
        strategy.abort(one_line(&error));
        return Err(error);
    }
    Ok(strategy.leave()?)
}

/// Trains, measures, and lets the chief show what the model writes.
fn train(args: &Args, strategy: &mut MultiWorkerMirroredStrategy) -> Result<(), Error> {
    let size = args.size()?;
    let corpus = args.corpus()?;
    agreement::compare(args, &corpus, strategy)?;
    let vars = VarMap::new();
    let device = args.device.of_worker(strategy.local_rank())?;
    let model = Model::seeded(&vars, size, corpus.characters(), args.seed, &device)?;
    let shared = SharedVars::new(strategy, &vars, &args.exchange()?, args.gradients())?;
    let parameters = vars.all_vars().iter().map(|var| var.elem_count()).sum();
    let mut reporter = Reporter::new(args, strategy, &corpus, parameters)?;
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
            sent: Some(run.shared.sent(strategy)),
        })?;
    }
    let elapsed = start.elapsed();
    let (waited, sent) = (run.shared.waited(strategy), run.shared.sent(strategy));
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
            sent: Some(sent),
            waited: Some(waited),
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
        args.check_loss(step, loss)?;
        let scale = clip(self.vars, &gradients, MOST_NORM)?;
        let rate = rate(step, args.steps.get(), args.lr);
        self.optimizer.step(&gradients, rate, scale)?;
        let resets = self.shared.resets();
        self.shared.step(strategy)?;
        if self.shared.resets() > resets {
            self.optimizer = AdamW::new(self.vars)?;
        }
        Ok(loss)
    }

    /// The mean gradients and loss of this worker's rows, from `first` on, a batch at a time.
    fn gradients(&self, step: usize, first: usize) -> Result<(GradStore, f32), Error> {
        let share = 1.0 / f64::from(self.args.accumulate.get());
        let mut batches = self.args.batches(self.corpus, step, first);
        let mut part = || {
            let rows = batches.next()?;
            Some(self.part(&rows, share))
        };
        let (mut sum, mut loss) = part().expect("a step has at least one batch")?;
        while let Some(more) = part() {
            let (more, part) = more?;
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

    /// Gradients and loss of one batch, each times its share.
    fn part(&self, rows: &Batch, share: f64) -> Result<(GradStore, f32), Error> {
        let loss = (self.model.loss(rows)? * share)?;
        Ok((loss.backward()?, loss.to_scalar::<f32>()?))
    }
}

/// The norm that gradients are clipped at.
pub(crate) const MOST_NORM: f32 = 1.0;

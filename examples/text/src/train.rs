//! The training loop: each worker computes its rows of every batch.

use std::time::Instant;

use candle_core::backprop::GradStore;
use candle_nn::VarMap;
use meshwork_candle::MirroredVars;
use meshwork_strategy::{MultiWorkerMirroredStrategy, ReplicaReduceOp};
use text::{AdamW, Corpus, Error, Model, clip, rate};

use crate::args::Args;
use crate::report::{Outcome, Reporter, Step};

/// Trains, measures, and lets the chief show what the model writes.
pub(crate) fn run(args: &Args, strategy: &mut MultiWorkerMirroredStrategy) -> Result<(), Error> {
    let size = args.size()?;
    let corpus = Corpus::read(&args.data, size.context())?;
    let vars = VarMap::new();
    let model = Model::seeded(&vars, size, corpus.characters(), args.seed)?;
    // One number is summed with the gradients: the loss.
    let mirrored = MirroredVars::with_extra(strategy, &vars, 1)?
        .with_communication_dtype(args.gradients.into());
    let mut reporter = Reporter::new(args, strategy, &corpus, &vars)?;
    let mut run = Run {
        args,
        corpus: &corpus,
        model: &model,
        vars: &vars,
        mirrored,
        optimizer: AdamW::new(&vars)?,
    };
    let start = Instant::now();
    for step in 0..args.steps.get() {
        let loss = run.step(strategy, step)?;
        reporter.step(&Step {
            number: step + 1,
            loss,
            elapsed: start.elapsed(),
        })?;
    }
    let elapsed = start.elapsed();
    run.mirrored.verify(strategy)?;
    let loss = run.validation_loss(strategy)?;
    if strategy.is_chief() {
        let sample = model.sample(&corpus, args.sample, args.seed)?;
        reporter.finish(&Outcome {
            loss,
            elapsed,
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
    mirrored: MirroredVars,
    optimizer: AdamW,
}

impl Run<'_> {
    /// One step, the same on every worker: the mean loss over the whole batch before it.
    fn step(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
        step: usize,
    ) -> Result<f32, Error> {
        let args = self.args;
        let made = strategy.run(|replica| {
            let workers = replica.num_replicas_in_sync() as f32;
            let first = replica.replica_id().index() * args.rows();
            let (mut gradients, loss) = self.gradients(step, first)?;
            self.mirrored.extra_mut()?[0] = loss / workers;
            self.mirrored
                .all_reduce(replica, &mut gradients, 1.0 / workers)?;
            let loss = self.mirrored.extra()[0];
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
            Ok(loss)
        });
        Ok(made?.into_first())
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

    /// The mean over the validation text, of which each worker looks at a part.
    fn validation_loss(&self, strategy: &mut MultiWorkerMirroredStrategy) -> Result<f64, Error> {
        let workers = strategy.num_replicas_in_sync();
        let part = strategy.rank().index();
        let measured = strategy.run(|_| {
            let (sum, rows) = self.model.validation_loss(self.corpus, part, workers)?;
            Ok::<_, Error>(vec![sum, rows as f64])
        })?;
        let [sum, rows] = *strategy
            .reduce(ReplicaReduceOp::Sum, measured)?
            .as_array()
            .expect("two numbers were reduced");
        Ok(sum / rows)
    }
}

/// The norm that gradients are clipped at.
const MOST_NORM: f32 = 1.0;

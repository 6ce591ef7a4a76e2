//! The training loop with a part of the model in each worker.

use std::time::Instant;

use meshwork_strategy::MultiWorkerMirroredStrategy;
use meshwork_strategy::sharded::Shard;
use text::{Corpus, Error, Split, SplitModel, one_line, rate, validation_loss};

use crate::agreement;
use crate::args::Args;
use crate::report::{Outcome, Reporter, Step};
use crate::train::MOST_NORM;

/// Trains, measures, lets the chief show what the model writes, and leaves the job.
pub(crate) fn run(
    args: &Args,
    mut strategy: MultiWorkerMirroredStrategy,
    shard: Shard,
) -> Result<(), Error> {
    let size = args.size()?;
    let corpus = args.corpus();
    let corpus = corpus.inspect_err(|error| strategy.abort(one_line(error)))?;
    let alike = agreement::compare(args, &corpus, &mut strategy);
    alike.inspect_err(|error| strategy.abort(one_line(error)))?;
    let split = Split {
        shard,
        group: args.shard_group,
        passes: args.accumulate,
        max_norm: MOST_NORM,
        seed: args.seed,
    };
    let mut model = SplitModel::new(strategy, size, corpus.characters(), split)?;
    let parameters = model.parameters();
    let mut reporter = Reporter::new(args, model.strategy_mut(), &corpus, parameters)?;
    let start = Instant::now();
    let trained = train(args, &corpus, &mut model, |number, loss| {
        reporter.step(&Step {
            number,
            loss,
            elapsed: start.elapsed(),
            sent: None,
        })
    });
    if let Err(error) = trained {
        // So that the others end with this reason; nothing if theirs is known already.
        model.strategy_mut().abort(one_line(&error));
        return Err(error);
    }
    let elapsed = start.elapsed();
    let (model, mut strategy) = model.into_whole()?;
    let loss = validation_loss(&model, &corpus, &mut strategy)?;
    if strategy.is_chief() {
        let sample = model.sample(&corpus, args.sample, args.seed)?;
        reporter.finish(&Outcome {
            loss,
            elapsed,
            sent: None,
            waited: None,
            sample,
        })?;
    }
    Ok(strategy.leave()?)
}

/// All steps; `report` is told the number of each, from 1, and its loss.
fn train(
    args: &Args,
    corpus: &Corpus,
    model: &mut SplitModel,
    mut report: impl FnMut(usize, f32) -> Result<(), Error>,
) -> Result<(), Error> {
    let first = model.strategy_mut().rank().index() * args.rows();
    for step in 0..args.steps.get() {
        let batches: Vec<_> = args.batches(corpus, step, first).collect();
        let loss = model.step(&batches, rate(step, args.steps.get(), args.lr))?;
        args.check_loss(step, loss)?;
        report(step + 1, loss)?;
    }
    Ok(())
}

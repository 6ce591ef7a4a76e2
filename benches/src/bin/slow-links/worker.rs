//! One worker of a trial.

use std::time::Instant;

use candle_nn::VarMap;
use meshwork_strategy::{
    CommunicationDtype, Error, LowCommunicationError, MultiWorkerMirroredStrategy, ReplicaReduceOp,
};
use text::{AdamW, Corpus, Exchange, Method, Model, SharedVars, clip, rate, validation_loss};

use crate::Failure;
use crate::args::{Args, Trial};
use crate::measured::Measured;

pub(crate) fn train(
    args: &Args,
    trial: &Trial,
    strategy: &mut MultiWorkerMirroredStrategy,
) -> Result<Measured, Failure> {
    let size = args.size()?;
    let corpus = Corpus::read(&args.data, size.context())?;
    let vars = VarMap::new();
    let device = args.device.of_worker(strategy.local_rank())?;
    let model = Model::seeded(&vars, size, corpus.characters(), trial.seed, &device)?;
    let exchange = args.exchange(trial);
    let warm_up = Exchange {
        method: Method::Ddp,
        ..exchange
    };
    let join = |how: &Exchange, strategy: &mut MultiWorkerMirroredStrategy| {
        SharedVars::new(strategy, &vars, how, CommunicationDtype::F32)
    };
    let beginning = if args.warm_up > 0 {
        &warm_up
    } else {
        &exchange
    };
    let mut shared = join(beginning, strategy)?;
    let mut inner = AdamW::new(&vars)?;
    let first = strategy.rank().index() * ROWS;
    let mut make_steps = |strategy: &mut MultiWorkerMirroredStrategy| {
        for step in 0..args.steps {
            if step > 0 && step == args.warm_up {
                shared = join(&exchange, strategy)?;
            }
            let rows = corpus.batch(trial.seed, step, first..first + ROWS);
            let loss = model.loss(&rows)?;
            let mut gradients = loss.backward()?;
            shared.reduce(strategy, &mut gradients, loss.to_scalar()?)?;
            let scale = clip(&vars, &gradients, 1.0)?;
            inner.step(&gradients, rate(step, args.steps, trial.lr), scale)?;
            shared.step(strategy)?;
        }
        Ok(())
    };
    let (before, began) = (sent(strategy)?, Instant::now());
    let made = make_steps(strategy);
    let sent = sent(strategy)?.checked_sub(before);
    let sent =
        sent.ok_or("a connection was made anew, and what went over the last is not known")?;
    let mut measured = Measured {
        loss: f64::NAN,
        bytes_per_worker: sent / trial.workers as u64,
        wall: began.elapsed(),
    };
    match made.and_then(|()| shared.finish(strategy)) {
        // All workers are told at the same step.
        Err(error) if has_diverged(&error) => {}
        ended => {
            ended?;
            measured.loss = validation_loss(&model, &corpus, strategy)?;
        }
    }
    Ok(measured)
}

/// Whether a worker has left the finite numbers.
fn has_diverged(error: &text::Error) -> bool {
    let text::Error::Workers(meshwork_candle::Error::Strategy(error)) = error else {
        return false;
    };
    matches!(
        error,
        Error::LowCommunication(LowCommunicationError::NotFinite { .. })
    )
}

/// Bytes that all workers have handed to their sockets so far.
fn sent(strategy: &mut MultiWorkerMirroredStrategy) -> Result<u64, Failure> {
    let peers = strategy.statistics().group.peers;
    let own: u64 = peers.iter().map(|peer| peer.bytes_sent).sum();
    let mut sum = [i64::try_from(own)?];
    strategy.run(|replica| replica.all_reduce(ReplicaReduceOp::Sum, &mut sum))?;
    Ok(u64::try_from(sum[0])?)
}

/// Rows of text that a worker computes in a step.
const ROWS: usize = 8;

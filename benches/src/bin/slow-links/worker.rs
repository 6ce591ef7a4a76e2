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
    let device = args.device.of_worker(strategy.rank().index())?;
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
        // Whoever is first would count less than the others send.
        strategy.run(|replica| replica.all_reduce(ReplicaReduceOp::Sum, &mut [0.0_f32]))?;
        Ok(())
    };
    let (sent, began) = (sent()?, Instant::now());
    let made = make_steps(strategy);
    let mut measured = Measured {
        loss: f64::NAN,
        bytes_per_worker: sent_since(sent)? / trial.workers as u64,
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

fn sent_since(before: u64) -> Result<u64, Failure> {
    Ok(sent()?.saturating_sub(before))
}

/// Bytes that all processes of this network namespace have sent.
fn sent() -> Result<u64, Failure> {
    let devices = std::fs::read_to_string("/proc/net/dev")?;
    let mut sum = 0;
    for line in devices.lines().skip(2) {
        let (_, counters) = line.split_once(':').ok_or("a line without a colon")?;
        let sent = counters.split_whitespace().nth(8);
        sum += sent.ok_or("a line with few counters")?.parse::<u64>()?;
    }
    Ok(sum)
}

/// Rows of text that a worker computes in a step.
const ROWS: usize = 8;

//! One worker of a trial.

use std::fmt::{self, Display};
use std::time::{Duration, Instant};

use candle_nn::VarMap;
use meshwork_strategy::{CommunicationDtype, MultiWorkerMirroredStrategy, ReplicaReduceOp};
use text::{AdamW, Corpus, Exchange, Method, Model, SharedVars, clip, rate, validation_loss};

use crate::Failure;
use crate::args::{Args, Trial};

/// What comes of a trial.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    /// The mean over the validation text, of what all workers agree on.
    pub(crate) loss: f64,
    bytes_per_worker: u64,
    wall: Duration,
}

impl Measured {
    pub(crate) fn csv(&self) -> String {
        let Self { loss, .. } = self;
        let (bytes, wall) = (self.bytes_per_worker, self.wall.as_secs_f64());
        format!("{loss:.4},{bytes},{wall:.1}")
    }

    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        let fields: Vec<&str> = text.split(',').collect();
        let [loss, bytes, wall] = fields[..] else {
            return Err(format!("no result: {text}").into());
        };
        Ok(Self {
            loss: loss.parse()?,
            bytes_per_worker: bytes.parse()?,
            wall: Duration::from_secs_f64(wall.parse()?),
        })
    }
}

impl Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (loss, wall) = (self.loss, self.wall.as_secs_f64());
        let megabytes = self.bytes_per_worker as f64 / 1e6;
        write!(
            f,
            "loss {loss:.4}, {megabytes:.1} MB sent a worker, {wall:.1} s"
        )
    }
}

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
    let (sent, began) = (sent()?, Instant::now());
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
    let (wall, bytes) = (began.elapsed(), sent_since(sent)?);
    shared.finish(strategy)?;
    Ok(Measured {
        loss: validation_loss(&model, &corpus, strategy)?,
        bytes_per_worker: bytes / trial.workers as u64,
        wall,
    })
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

//! One worker of a trial.

use std::fmt::{self, Display};
use std::time::{Duration, Instant};

use candle_nn::VarMap;
use meshwork_candle::{LowCommunicationVars, MirroredVars};
use meshwork_strategy::{MultiWorkerMirroredStrategy, ReplicaReduceOp};
use text::{AdamW, Corpus, Model, clip, rate};

use crate::Failure;
use crate::args::{Args, Method, Trial};

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

/// How gradients or parameters are brought together.
enum Together {
    EachStep(MirroredVars),
    NowAndThen(LowCommunicationVars),
}

pub(crate) fn train(
    args: &Args,
    trial: &Trial,
    strategy: &mut MultiWorkerMirroredStrategy,
) -> Result<Measured, Failure> {
    let size = args.size()?;
    let corpus = Corpus::read(&args.data, size.context())?;
    let vars = VarMap::new();
    let model = Model::seeded(&vars, size, corpus.characters(), trial.seed)?;
    let mut together = match trial.method {
        Method::Ddp => Together::EachStep(MirroredVars::new(strategy, &vars)?),
        Method::Local | Method::Diloco | Method::Streaming => {
            let settings = args.settings(trial);
            Together::NowAndThen(LowCommunicationVars::new(strategy, &vars, settings)?)
        }
    };
    let mut inner = AdamW::new(&vars)?;
    let first = strategy.rank().index() * ROWS;
    let (sent, began) = (sent()?, Instant::now());
    for step in 0..args.steps {
        let rows = corpus.batch(trial.seed, step, first..first + ROWS);
        let mut gradients = model.loss(&rows)?.backward()?;
        if let Together::EachStep(mirrored) = &mut together {
            let share = 1.0 / trial.workers as f32;
            strategy.run(|replica| mirrored.all_reduce(replica, &mut gradients, share))?;
        }
        let scale = clip(&vars, &gradients, 1.0)?;
        inner.step(&gradients, rate(step, args.steps, trial.lr), scale)?;
        if let Together::NowAndThen(outer) = &mut together {
            outer.step(strategy)?;
        }
    }
    // Whoever is first would count less than the others send.
    strategy.run(|replica| replica.all_reduce(ReplicaReduceOp::Sum, &mut [0.0_f32]))?;
    let (wall, bytes) = (began.elapsed(), sent_since(sent)?);
    if let Together::NowAndThen(outer) = &mut together {
        outer.adopt_agreed()?;
    }
    Ok(Measured {
        loss: validation_loss(&model, &corpus, strategy)?,
        bytes_per_worker: bytes / trial.workers as u64,
        wall,
    })
}

/// The mean over the validation text, of which each worker looks at a part.
fn validation_loss(
    model: &Model,
    corpus: &Corpus,
    strategy: &mut MultiWorkerMirroredStrategy,
) -> Result<f64, Failure> {
    let (part, parts) = (strategy.rank().index(), strategy.num_replicas_in_sync());
    let (sum, rows) = model.validation_loss(corpus, part, parts)?;
    let mut sums = [sum, rows as f64];
    strategy.run(|replica| replica.all_reduce(ReplicaReduceOp::Sum, &mut sums))?;
    Ok(sums[0] / sums[1])
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

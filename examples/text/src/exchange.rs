//! How the workers of a job come to one model: by their gradients in each step, or by what they
//! have learned since the last exchange.

use std::num::{NonZeroU8, NonZeroU32, NonZeroUsize};
use std::time::Duration;

use candle_core::backprop::GradStore;
use candle_nn::VarMap;
use clap::ValueEnum;
use meshwork_candle::{LowCommunicationVars, MirroredVars};
use meshwork_strategy::low_communication::{LowCommunication, NotFinite};
use meshwork_strategy::{
    CommunicationDtype, Compression, MultiWorkerMirroredStrategy, ReplicaReduceOp, Rounding,
};

use crate::{Corpus, Error, Model};

/// How workers train together.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Method {
    /// Gradients are summed in each step
    Ddp,
    /// Parameters are averaged after many steps
    Local,
    /// What is learned in many steps is the gradient of an outer optimizer
    Diloco,
    /// The same in parts, while steps go on
    Streaming,
}

/// The form on the wire of what is learned between exchanges.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Compress {
    /// 32 bits a parameter
    None,
    /// 8 bits
    Int8,
    /// 4 bits
    Int4,
    /// The largest 8 of 128 parameters
    Topk,
}

/// A method and its settings. All but [`Method::Ddp`] use those that follow it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exchange {
    /// How workers train together.
    pub method: Method,
    /// Steps between exchanges.
    pub inner_steps: NonZeroU32,
    /// The form on the wire.
    pub compress: Compress,
    /// Parts of the model that are streamed one after the other.
    pub fragments: NonZeroUsize,
    /// Steps that go on while a part is under way; until the next part begins if `None`.
    pub delay: Option<u32>,
    /// The rate of the outer optimizer, where the method has one.
    pub outer_rate: f32,
    /// What happens where a worker's variables are no numbers any more.
    pub not_finite: NotFinite,
    /// The rank of the products that [`Method::Ddp`] sends for gradients of matrices, if not these.
    pub power_sgd: Option<NonZeroUsize>,
}

impl Exchange {
    /// How differences are exchanged.
    #[must_use]
    pub fn settings(&self) -> LowCommunication {
        let settings = LowCommunication::new(self.inner_steps)
            .with_outer(self.outer_rate, MOMENTUM)
            .with_not_finite(self.not_finite);
        let settings = match self.compress {
            Compress::None => settings,
            Compress::Int8 => settings.with_compression(Compression::Int8(Rounding::Nearest)),
            Compress::Int4 => settings.with_compression(Compression::Int4(Rounding::Nearest)),
            Compress::Topk => settings.with_compression(Compression::TopK(TOP_K)),
        };
        match self.method {
            Method::Ddp | Method::Diloco => settings,
            Method::Local => settings.with_outer(1.0, 0.0),
            Method::Streaming => settings
                .with_fragments(self.fragments)
                .with_delay(match self.delay {
                    Some(delay) => delay,
                    None => self.steps_of_fragment(),
                })
                .with_local_share(0.5),
        }
    }

    /// Steps from the exchange of a part to that of the next.
    fn steps_of_fragment(&self) -> u32 {
        let steps = self.inner_steps.get();
        let fragments = u32::try_from(self.fragments.get()).map_or(steps, |parts| steps / parts);
        fragments.min(steps - 1)
    }
}

/// The variables of a model that all workers train.
#[derive(Debug)]
pub enum SharedVars {
    /// All workers have the same values after each step.
    EachStep(Box<MirroredVars>),
    /// They have the same after each exchange.
    NowAndThen(Box<LowCommunicationVars>),
}

/// Bytes that a worker sends so that all have the sum of so many: all but its own part, then the
/// sum of that to all others.
#[must_use]
pub fn sent_for_sum(bytes: u64, workers: usize) -> u64 {
    let workers = workers as u64;
    2 * bytes * workers.saturating_sub(1) / workers.max(1)
}

impl SharedVars {
    /// Gives `vars` the values that they have on the chief. `gradients` is the form in which
    /// [`Method::Ddp`] sends them.
    ///
    /// # Errors
    /// [`Error::Workers`] if models or settings differ between workers, or one is lost.
    pub fn new(
        strategy: &mut MultiWorkerMirroredStrategy,
        vars: &VarMap,
        exchange: &Exchange,
        gradients: CommunicationDtype,
    ) -> Result<Self, Error> {
        Ok(match exchange.method {
            // One number is summed with the gradients: the loss.
            Method::Ddp => {
                let mirrored = MirroredVars::with_extra(strategy, vars, 1)?;
                Self::EachStep(Box::new(match exchange.power_sgd {
                    Some(rank) => mirrored.with_power_sgd(rank),
                    None => mirrored.with_communication_dtype(gradients),
                }))
            }
            Method::Local | Method::Diloco | Method::Streaming => {
                let vars = LowCommunicationVars::new(strategy, vars, exchange.settings())?;
                Self::NowAndThen(Box::new(vars))
            }
        })
    }

    /// Makes `gradients` those that this worker's step is to use, and `loss`, the mean over its
    /// rows, what is known of all: the means over all workers, or what they were.
    ///
    /// # Errors
    /// [`Error::Workers`] if a worker is lost.
    pub fn reduce(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
        gradients: &mut GradStore,
        loss: f32,
    ) -> Result<f32, Error> {
        let Self::EachStep(mirrored) = self else {
            return Ok(loss);
        };
        let reduced = strategy.run(|replica| {
            let share = 1.0 / replica.num_replicas_in_sync() as f32;
            mirrored.extra_mut()?[0] = loss * share;
            mirrored.all_reduce(replica, gradients, share)?;
            Ok::<_, Error>(mirrored.extra()[0])
        });
        Ok(reduced?.into_first())
    }

    /// Is called after each step of the optimizer, and exchanges what is due.
    ///
    /// # Errors
    /// [`Error::Workers`] if a worker is lost.
    pub fn step(&mut self, strategy: &mut MultiWorkerMirroredStrategy) -> Result<(), Error> {
        match self {
            Self::EachStep(_) => Ok(()),
            Self::NowAndThen(outer) => Ok(outer.step(strategy)?),
        }
    }

    /// How often this worker's variables were set to those of all, as they were no numbers any
    /// more: then its optimizer is to begin anew.
    #[must_use]
    pub fn resets(&self) -> u64 {
        match self {
            Self::EachStep(_) => 0,
            Self::NowAndThen(vars) => vars.outer().resets(),
        }
    }

    /// Steps that a training which runs already had made when this worker came to it.
    #[must_use]
    pub fn steps(&self) -> u64 {
        match self {
            Self::EachStep(_) => 0,
            Self::NowAndThen(vars) => vars.outer().steps(),
        }
    }

    /// How long this worker has waited for others.
    #[must_use]
    pub fn waited(&self, strategy: &MultiWorkerMirroredStrategy) -> Duration {
        match self {
            Self::EachStep(_) => strategy.communication_stats().busy(),
            Self::NowAndThen(vars) => vars.outer().waited(),
        }
    }

    /// Bytes that a worker has sent of what is exchanged, in the mean of all: of each sum, all but
    /// its own part, and its part of the result to all others.
    #[must_use]
    pub fn sent(&self, strategy: &MultiWorkerMirroredStrategy) -> u64 {
        match self {
            Self::EachStep(_) => {
                let bytes = strategy.communication_stats().bytes();
                sent_for_sum(bytes, strategy.num_replicas_in_sync())
            }
            Self::NowAndThen(vars) => vars.outer().sent(),
        }
    }

    /// Ends the training: all workers have the same bits.
    ///
    /// # Errors
    /// [`Error::Workers`] if they do not.
    pub fn finish(&mut self, strategy: &mut MultiWorkerMirroredStrategy) -> Result<(), Error> {
        match self {
            Self::EachStep(mirrored) => {
                mirrored.verify(strategy)?;
                Ok(())
            }
            Self::NowAndThen(outer) => Ok(outer.finish(strategy)?),
        }
    }
}

/// The mean loss over the validation text, of which each worker looks at a part, or in a job whose
/// workers may change at all of it, as any may be lost.
///
/// # Errors
/// [`Error::Network`] if candle refuses an operation, [`Error::Workers`] if a worker is lost.
pub fn validation_loss(
    model: &Model,
    corpus: &Corpus,
    strategy: &mut MultiWorkerMirroredStrategy,
) -> Result<f64, Error> {
    if strategy.is_elastic() {
        let (sum, rows) = model.validation_loss(corpus, 0, 1)?;
        return Ok(sum / rows as f64);
    }
    let (part, parts) = (strategy.rank().index(), strategy.num_replicas_in_sync());
    let (sum, rows) = model.validation_loss(corpus, part, parts)?;
    let mut sums = [sum, rows as f64];
    strategy.run(|replica| replica.all_reduce(ReplicaReduceOp::Sum, &mut sums))?;
    Ok(sums[0] / sums[1])
}

/// Of the outer optimizer.
pub const OUTER_RATE: f32 = 0.7;
const MOMENTUM: f32 = 0.9;

/// Elements of each block of 128 that are sent.
const TOP_K: NonZeroU8 = NonZeroU8::new(8).expect("8 is not 0");

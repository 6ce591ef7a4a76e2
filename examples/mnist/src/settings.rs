//! What of the command line decides the result of a run.

use std::num::NonZeroUsize;

use crate::args::{Args, LearningRate};
use crate::error::Error;
use crate::model::Kind;

/// The settings that decide the result of a run; the number of workers is not one of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// The network.
    pub(crate) model: Kind,
    /// What its batch normalisations look at.
    pub(crate) normalized: Normalized,
    /// Passes over the training images.
    pub(crate) epochs: NonZeroUsize,
    /// Samples in a batch, over all workers.
    pub(crate) global_batch: NonZeroUsize,
    /// Decides initial variables and order.
    pub(crate) seed: u64,
    /// Learning rate at its highest.
    pub(crate) rate: LearningRate,
}

/// The samples that a batch is normalised by.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Normalized {
    /// This worker's.
    ByWorker,
    /// Those of all workers.
    Together,
}

impl Settings {
    /// The part of the command line that decides the result.
    ///
    /// # Errors
    ///
    /// [`Error::NothingToSynchronize`]
    pub(crate) fn new(args: &Args) -> Result<Self, Error> {
        let Args {
            model,
            sync_batch_norm,
            epochs,
            global_batch,
            seed,
            lr: rate,
            ..
        } = *args;
        let normalized = match (sync_batch_norm, model) {
            (false, _) => Normalized::ByWorker,
            (true, Kind::Resnet) => Normalized::Together,
            (true, Kind::Cnn | Kind::Mlp) => return Err(Error::NothingToSynchronize { model }),
        };
        Ok(Self {
            model,
            normalized,
            epochs,
            global_batch,
            seed,
            rate,
        })
    }

    /// The settings as a checkpoint has them.
    pub(crate) fn text(self) -> String {
        let Self {
            model,
            normalized,
            epochs,
            global_batch,
            seed,
            rate,
        } = self;
        let together = match normalized {
            Normalized::ByWorker => "",
            Normalized::Together => " --sync-batch-norm",
        };
        format!(
            "--model {model}{together} --epochs {epochs} --global-batch {global_batch} --seed {seed} --lr {rate}"
        )
    }

    /// Steps of one epoch over `samples` samples, the last with what is left over.
    pub(crate) fn epoch_steps(self, samples: usize) -> usize {
        samples.div_ceil(self.global_batch.get())
    }

    /// Steps of all epochs.
    pub(crate) fn steps(self, samples: usize) -> usize {
        self.epoch_steps(samples).saturating_mul(self.epochs.get())
    }
}

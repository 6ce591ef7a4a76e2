//! The gradients of one batch or several, until they are summed over all workers.

use burn_optim::{GradientsAccumulator, GradientsParams};
use burn_train::LearnerModel;
use meshwork_strategy::ReplicaContext;

use super::step::Step;
use crate::{Error, MirroredParams};

pub(super) struct Gradients<M> {
    /// With how many batches a step is made.
    every: usize,
    sum: GradientsAccumulator<M>,
    batches: usize,
    /// Of these batches, on this worker and on all.
    own_samples: u64,
    all_samples: u64,
}

impl<M: LearnerModel> Gradients<M> {
    pub(super) fn new(accumulation: Option<usize>) -> Self {
        Self {
            every: accumulation.unwrap_or(1),
            sum: GradientsAccumulator::new(),
            batches: 0,
            own_samples: 0,
            all_samples: 0,
        }
    }

    pub(super) fn add(&mut self, model: &M, gradients: GradientsParams, samples: u32) {
        self.sum.accumulate(model, gradients);
        self.own_samples += u64::from(samples);
    }

    /// Whether all workers have the gradients of a step, behind this batch.
    pub(super) fn are_due<O>(&mut self, step: &Step<O>) -> bool {
        self.all_samples += step.samples;
        self.batches += usize::from(step.samples > 0);
        let is_over = step.samples == 0 || step.is_last;
        self.batches >= self.every || (is_over && self.batches > 0)
    }

    /// Their sum over the workers, each times its share of the samples: the gradient of the mean
    /// over all of them.
    #[expect(clippy::cast_possible_truncation, reason = "a share is rounded")]
    pub(super) fn reduce(
        &mut self,
        replica: &mut ReplicaContext<'_>,
        mirrored: &mut MirroredParams,
        model: &M,
    ) -> Result<GradientsParams, Error> {
        let share = self.own_samples as f64 / self.all_samples as f64;
        (self.batches, self.own_samples, self.all_samples) = (0, 0, 0);
        mirrored.all_reduce(replica, model, self.sum.grads(), share as f32)
    }
}

//! The gradients of one batch or several, until they are summed over all workers.

use burn_core::module::{ModuleVisitor, Param};
use burn_core::tensor::Tensor;
use burn_optim::{GradientsAccumulator, GradientsParams};
use burn_train::LearnerModel;
use meshwork_strategy::ReplicaContext;

use super::Membership;
use super::step::Step;
use crate::{Error, MirroredParams};

/// This worker's.
pub(super) struct Gradients<M> {
    /// With how many batches a step is made.
    every: usize,
    /// Whether they may be needed for a second attempt.
    membership: Membership,
    sum: GradientsAccumulator<M>,
}

/// Of which batches a step is made.
#[derive(Default)]
pub(super) struct Batches {
    batches: usize,
    /// On this worker and on all.
    own_samples: u64,
    all_samples: u64,
}

impl<M: LearnerModel> Gradients<M> {
    pub(super) fn new(accumulation: Option<usize>) -> Self {
        Self {
            every: accumulation.unwrap_or(1),
            membership: Membership::Fixed,
            sum: GradientsAccumulator::new(),
        }
    }

    pub(super) fn keep(&mut self, membership: Membership) {
        self.membership = membership;
    }

    pub(super) fn add(&mut self, model: &M, gradients: GradientsParams) {
        self.sum.accumulate(model, gradients);
    }

    pub(super) fn forget(&mut self) {
        drop(self.sum.grads());
    }

    /// Whether all workers have the gradients of a step, behind this batch.
    pub(super) fn are_due<O>(&self, batches: &mut Batches, own: u32, step: &Step<O>) -> bool {
        batches.own_samples += u64::from(own);
        batches.all_samples += step.samples;
        batches.batches += usize::from(step.samples > 0);
        let is_over = step.samples == 0 || step.is_last;
        batches.batches >= self.every || (is_over && batches.batches > 0)
    }

    /// Their sum over the workers, each times its share of the samples: the gradient of the mean
    /// over all of them. After an error they are what they were, where they may be needed again.
    #[expect(clippy::cast_possible_truncation, reason = "a share is rounded")]
    pub(super) fn reduce(
        &mut self,
        replica: &mut ReplicaContext<'_>,
        mirrored: &mut MirroredParams,
        model: &M,
        batches: &Batches,
    ) -> Result<GradientsParams, Error> {
        let share = batches.own_samples as f64 / batches.all_samples as f64;
        let own = self.sum.grads();
        let is_elastic = self.membership == Membership::Elastic;
        let is_kept = is_elastic && replica.num_replicas_in_sync() > 1;
        let kept = is_kept.then(|| copy(model, &own));
        let sum = mirrored.all_reduce(replica, model, own, share as f32);
        if let Some(kept) = kept.filter(|_| sum.is_err()) {
            self.sum.accumulate(model, kept);
        }
        sum
    }
}

fn copy<M: LearnerModel>(model: &M, gradients: &GradientsParams) -> GradientsParams {
    let mut copy = Copy {
        gradients,
        copied: GradientsParams::new(),
    };
    model.visit(&mut copy);
    copy.copied
}

struct Copy<'a> {
    gradients: &'a GradientsParams,
    copied: GradientsParams,
}

impl ModuleVisitor for Copy<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(gradient) = self.gradients.get::<D>(param.id) {
            self.copied.register(param.id, gradient);
        }
    }
}

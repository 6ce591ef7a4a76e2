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
    /// Means over the samples of batches, each as often as it has as many samples as the first.
    sum: GradientsAccumulator<M>,
    first_samples: Option<u32>,
}

/// Of which batches a step is made.
#[derive(Default)]
pub(super) struct Batches {
    batches: usize,
    /// On all workers.
    samples: u64,
}

impl<M: LearnerModel> Gradients<M> {
    pub(super) fn new(accumulation: Option<usize>) -> Self {
        Self {
            every: accumulation.unwrap_or(1),
            membership: Membership::Fixed,
            sum: GradientsAccumulator::new(),
            first_samples: None,
        }
    }

    pub(super) fn keep(&mut self, membership: Membership) {
        self.membership = membership;
    }

    /// Of a batch of so many samples.
    pub(super) fn add(&mut self, model: &M, gradients: GradientsParams, samples: u32) {
        let first = *self.first_samples.get_or_insert(samples);
        let times = f64::from(samples) / f64::from(first);
        let gradients = match samples == first {
            true => gradients,
            false => mapped(model, &gradients, Some(times)),
        };
        self.sum.accumulate(model, gradients);
    }

    pub(super) fn forget(&mut self) {
        drop(self.sum.grads());
        self.first_samples = None;
    }

    /// Whether all workers have the gradients of a step, behind this batch.
    pub(super) fn are_due<O>(&self, batches: &mut Batches, step: &Step<O>) -> bool {
        batches.samples += step.samples;
        batches.batches += usize::from(step.samples > 0);
        let is_over = step.samples == 0 || step.is_last;
        batches.batches >= self.every || (is_over && batches.batches > 0)
    }

    /// Their sum over the workers: as many times as there are batches, the gradient of the mean
    /// over the samples of all of them. After an error they are what they were, where they may be
    /// needed again.
    #[expect(clippy::cast_possible_truncation, reason = "a share is rounded")]
    pub(super) fn reduce(
        &mut self,
        replica: &mut ReplicaContext<'_>,
        mirrored: &mut MirroredParams,
        model: &M,
        batches: &Batches,
    ) -> Result<GradientsParams, Error> {
        let first = self.first_samples.map_or(0.0, f64::from);
        let share = batches.batches as f64 * first / batches.samples as f64;
        let own = self.sum.grads();
        let is_elastic = self.membership == Membership::Elastic;
        let is_kept = is_elastic && replica.num_replicas_in_sync() > 1;
        let kept = is_kept.then(|| mapped(model, &own, None));
        let sum = mirrored.all_reduce(replica, model, own, share as f32);
        if let Some(kept) = kept.filter(|_| sum.is_err()) {
            self.sum.accumulate(model, kept);
        }
        sum
    }
}

/// The gradients of a model, so many times if that is said.
fn mapped<M: LearnerModel>(
    model: &M,
    gradients: &GradientsParams,
    times: Option<f64>,
) -> GradientsParams {
    let mut mapping = Mapping {
        gradients,
        times,
        mapped: GradientsParams::new(),
    };
    model.visit(&mut mapping);
    mapping.mapped
}

struct Mapping<'a> {
    gradients: &'a GradientsParams,
    times: Option<f64>,
    mapped: GradientsParams,
}

impl ModuleVisitor for Mapping<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(gradient) = self.gradients.get::<D>(param.id) {
            let gradient = match self.times {
                Some(times) => gradient.mul_scalar(times),
                None => gradient,
            };
            self.mapped.register(param.id, gradient);
        }
    }
}

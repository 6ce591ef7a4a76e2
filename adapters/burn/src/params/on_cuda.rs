//! Gradients that lie on a GPU, summed there.

use burn_core::module::Module;
use burn_optim::GradientsParams;
use meshwork_accel_cuda::CudaDevice;
use meshwork_strategy::{
    CommunicatorScope, MultiWorkerMirroredStrategy, ReplicaContext, ReplicaReduceOp, Route,
};

use super::{Checks, MirroredParams};
use crate::Error;
use crate::cuda::{self, CudaGradients};
use crate::walk::Known;

impl MirroredParams {
    /// Sums gradients on the GPU where burn computes them, which `cuda` has to be: by NCCL between
    /// workers, or through pinned host memory where that cannot go, as [`route`](Self::route) says.
    /// Where the module of a worker lies elsewhere, in host memory or on a GPU that is used by
    /// wgpu, all go on through host memory. All workers call it.
    ///
    /// The check of copies is left out, as it would bring all parameters to the host in each step:
    /// call [`verify`](Self::verify) from time to time.
    ///
    /// ```no_run
    /// use std::sync::Arc;
    /// use meshwork_accel_cuda::{CudaAccelerator, CudaDevice};
    /// use meshwork_burn::{Error, MirroredParams};
    /// use meshwork_strategy::{CommunicatorScope, MultiWorkerMirroredStrategy};
    ///
    /// # fn train<M: burn_core::module::Module>(
    /// #     mut strategy: MultiWorkerMirroredStrategy, model: M,
    /// # ) -> Result<(), Error> {
    /// // Of several workers on a host, each has a GPU of its own: the one that its model is on.
    /// let number = strategy.local_rank();
    /// let gpu = CudaDevice::new(Arc::new(CudaAccelerator::new()?), number)?;
    /// let (mirrored, model) = MirroredParams::new(&mut strategy, model)?;
    /// let mirrored = mirrored.on_cuda(&mut strategy, &model, gpu, CommunicatorScope::OneHost)?;
    /// println!("gradients go {}", mirrored.route());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Strategy`], [`Error::Cuda`].
    #[track_caller]
    pub fn on_cuda<M: Module>(
        mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
        module: &M,
        cuda: CudaDevice,
        reach: CommunicatorScope,
    ) -> Result<Self, Error> {
        match CudaGradients::of(strategy, module, self.buckets.specs(), cuda, reach)? {
            Ok(cuda) => {
                self.route = cuda.route();
                self.cuda = Some(cuda);
                self.checks = Checks::Never;
            }
            Err(fallback_reason) => self.route = Route::Staged(fallback_reason),
        }
        Ok(self)
    }

    pub(super) fn start_on_cuda<M: Module>(
        &mut self,
        part: &M,
        gradients: GradientsParams,
        weight: f32,
    ) -> Result<(), Error> {
        let known = Known {
            places: &self.places,
            path: &mut self.path,
        };
        let cuda = self.cuda.as_mut().expect("the caller has looked");
        cuda.start(part, gradients, weight, known)
    }

    /// With the caller's extra numbers, and which parameters have a gradient, which are few,
    /// through host memory.
    #[track_caller]
    pub(super) fn finish_on_cuda<M: Module>(
        &mut self,
        replica: &mut ReplicaContext<'_>,
        module: &M,
    ) -> Result<GradientsParams, Error> {
        let known = Known {
            places: &self.places,
            path: &mut self.path,
        };
        let cuda = self.cuda.as_mut().expect("the caller has looked");
        let (sums, are_given) = cuda.finish(replica)?;
        let numbers = &mut self.buckets.extra_mut()?[..self.extra + are_given.len()];
        for (mark, is_given) in numbers[self.extra..].iter_mut().zip(are_given) {
            *mark = f32::from(*is_given);
        }
        replica.all_reduce(ReplicaReduceOp::Sum, numbers)?;
        cuda::give(module, known, &sums, &numbers[self.extra..])
    }
}

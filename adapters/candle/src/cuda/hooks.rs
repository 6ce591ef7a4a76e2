//! Where gradients are caught while a backward pass still computes others.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, CudaStorage, CustomOp1, Layout, Shape, Tensor};

use super::Gradients;
use crate::Error;

/// What the hooks of all variables share.
#[derive(Clone, Debug)]
pub(super) struct Hooks {
    gradients: Arc<Mutex<Gradients>>,
    pass: Arc<Mutex<Pass>>,
}

/// One backward pass. Outside of any, hooks let gradients through.
#[derive(Debug, Default)]
struct Pass {
    is_open: bool,
    /// Why the pass ends early.
    failed: Option<Error>,
}

/// An identity that hands the gradient of one variable over.
struct Hook {
    index: usize,
    hooks: Hooks,
}

impl Hooks {
    pub(super) fn of(gradients: Gradients) -> Self {
        let gradients = Arc::new(Mutex::new(gradients));
        let pass = Arc::default();
        Self { gradients, pass }
    }

    /// The gradients, which nothing else has hold of outside of a backward pass.
    pub(super) fn gradients(&self) -> MutexGuard<'_, Gradients> {
        // What a step that panicked has left is dropped by the next one.
        self.gradients
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// A tensor that stands for variable number `index`: with its values, as a copy.
    pub(super) fn hook(&self, index: usize, variable: &Tensor) -> candle_core::Result<Tensor> {
        let hooks = self.clone();
        variable.contiguous()?.apply_op1(Hook { index, hooks })
    }

    /// From here on gradients are caught, and multiplied by `weight`.
    pub(super) fn open(&self, weight: f32) {
        self.gradients().begin(weight);
        let (is_open, failed) = (true, None);
        *self.pass() = Pass { is_open, failed };
    }

    /// Lets gradients through again, and says what went wrong.
    pub(super) fn close(&self) -> Result<(), Error> {
        match std::mem::take(&mut *self.pass()).failed {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    fn pass(&self) -> MutexGuard<'_, Pass> {
        self.pass.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hook {
    fn catch(&self, gradient: &Tensor) -> Result<(), Error> {
        let flat = gradient.flatten_all()?;
        self.hooks.gradients().ready(self.index, flat)
    }
}

impl CustomOp1 for Hook {
    fn name(&self) -> &'static str {
        "meshwork-cuda-gradient-hook"
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout) -> candle_core::Result<(CpuStorage, Shape)> {
        candle_core::bail!("{} is for variables on a GPU", self.name())
    }

    fn cuda_fwd(
        &self,
        storage: &CudaStorage,
        layout: &Layout,
    ) -> candle_core::Result<(CudaStorage, Shape)> {
        match layout.contiguous_offsets() {
            Some((0, _)) => Ok((storage.try_clone(layout)?, layout.shape().clone())),
            _ => Err(candle_core::Error::RequiresContiguous { op: self.name() }),
        }
    }

    fn bwd(
        &self,
        _: &Tensor,
        _: &Tensor,
        gradient: &Tensor,
    ) -> candle_core::Result<Option<Tensor>> {
        if !self.hooks.pass().is_open {
            return Ok(Some(gradient.clone()));
        }
        if let Err(error) = self.catch(gradient) {
            let text = error.to_string();
            self.hooks.pass().failed = Some(error);
            return Err(candle_core::Error::Msg(text));
        }
        Ok(None)
    }
}

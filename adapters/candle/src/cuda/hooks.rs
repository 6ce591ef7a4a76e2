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
    /// How many passes were before it.
    number: u64,
    /// Which variables have a gradient.
    are_given: Vec<bool>,
    /// Why the pass ends early.
    failed: Option<Error>,
}

/// An identity that hands the gradient of one variable over.
struct Hook {
    index: usize,
    /// The number of the pass that it was made for: later ones have other values.
    pass: u64,
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
        let (pass, hooks) = (self.pass().number, self.clone());
        let hook = Hook { index, pass, hooks };
        variable.contiguous()?.apply_op1(hook)
    }

    /// From here on gradients are caught, and multiplied by `weight`.
    pub(super) fn open(&self, weight: f32) {
        let mut gradients = self.gradients();
        gradients.begin(weight);
        let mut pass = self.pass();
        (pass.is_open, pass.failed) = (true, None);
        pass.are_given = vec![false; gradients.specs().len()];
    }

    /// Lets gradients through again, and says which were caught, or what went wrong.
    pub(super) fn close(&self) -> Result<Vec<bool>, Error> {
        let mut pass = self.pass();
        pass.is_open = false;
        pass.number += 1;
        let are_given = std::mem::take(&mut pass.are_given);
        pass.failed.take().map_or(Ok(are_given), Err)
    }

    fn pass(&self) -> MutexGuard<'_, Pass> {
        self.pass.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hook {
    fn catch(&self, gradient: &Tensor) -> Result<(), Error> {
        let (mut gradients, mut pass) = (self.hooks.gradients(), self.hooks.pass());
        let name = gradients.specs()[self.index].name();
        if self.pass != pass.number {
            let name = name.to_owned();
            return Err(Error::HookIsOld { name });
        }
        if std::mem::replace(&mut pass.are_given[self.index], true) {
            let name = name.to_owned();
            return Err(meshwork_strategy::Error::GradientTwice { name }.into());
        }
        gradients.ready(self.index, gradient.flatten_all()?)
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

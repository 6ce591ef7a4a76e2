//! Where gradients are caught while a backward pass still computes others.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use candle_core::backprop::GradStore;
use candle_core::{CpuStorage, CustomOp1, Layout, Shape, Tensor, Var};
use meshwork_strategy::{GradientBuckets, VariableSpec};

use crate::Error;
use crate::tensor::read_times;

/// The state that the hooks of all variables share.
#[derive(Clone, Debug, Default)]
pub(crate) struct GradientHooks(Arc<Mutex<BackwardPass>>);

/// One backward pass. Outside of any, hooks let gradients through.
#[derive(Debug, Default)]
struct BackwardPass {
    /// Only while a pass is under way.
    buckets: Option<GradientBuckets>,
    weight: f32,
    /// How many passes were before it.
    number: u64,
    /// Variables whose gradient has come.
    caught: Vec<bool>,
    /// Why the pass ends early.
    failed: Option<Error>,
}

/// An identity that hands the gradient of one variable over.
struct GradientHook {
    index: usize,
    /// The number of the pass that it was made for: later ones have other values.
    pass: u64,
    hooks: GradientHooks,
}

impl GradientHooks {
    /// A tensor that stands for variable number `index`: with its values, as a copy.
    pub(crate) fn hook(&self, index: usize, variable: &Tensor) -> candle_core::Result<Tensor> {
        let (pass, hooks) = (self.pass().number, self.clone());
        let hook = GradientHook { index, pass, hooks };
        variable.contiguous()?.apply_op1(hook)
    }

    /// From here on gradients go into `buckets`, times `weight`.
    pub(crate) fn open(&self, buckets: GradientBuckets, weight: f32) {
        let mut pass = self.pass();
        pass.caught.clear();
        pass.caught.resize(buckets.specs().len(), false);
        (pass.buckets, pass.weight, pass.failed) = (Some(buckets), weight, None);
    }

    /// Gives the buckets back; `None` if nothing was open.
    pub(crate) fn close(&self) -> Option<(GradientBuckets, Result<(), Error>)> {
        let mut pass = self.pass();
        let buckets = pass.buckets.take()?;
        pass.number += 1;
        let failed = pass.failed.take();
        Some((buckets, failed.map_or(Ok(()), Err)))
    }

    /// Completes the variables that have no gradient with zeros, from the last to the first, and
    /// marks those that have one, behind so many extra numbers.
    pub(crate) fn complete(
        &self,
        buckets: &mut GradientBuckets,
        extra: usize,
    ) -> Result<(), Error> {
        let pass = self.pass();
        for (index, caught) in pass.caught.iter().enumerate().rev() {
            buckets.extra_mut()?[extra + index] = f32::from(*caught);
            if !caught {
                buckets.gradient_mut(index)?.fill(0.0);
                buckets.ready_inside(index)?;
            }
        }
        Ok(())
    }

    fn pass(&self) -> MutexGuard<'_, BackwardPass> {
        // A pass that panicked has left buckets that the next one replaces.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Refuses gradients that came past the hooks, and are in no sum.
pub(crate) fn refuse_unhooked(
    specs: &[VariableSpec],
    vars: &[Var],
    gradients: &GradStore,
) -> Result<(), Error> {
    let mut all = specs.iter().zip(vars);
    match all.find(|(_, var)| gradients.get(var).is_some()) {
        Some((spec, _)) => Err(Error::NotHooked {
            name: spec.name().to_owned(),
        }),
        None => Ok(()),
    }
}

impl BackwardPass {
    fn catch(&mut self, hook: &GradientHook, gradient: &Tensor) -> Result<(), Error> {
        let Some(buckets) = &mut self.buckets else {
            return Ok(());
        };
        let index = hook.index;
        if hook.pass != self.number {
            let name = buckets.specs()[index].name().to_owned();
            return Err(Error::HookIsOld { name });
        }
        let slot = buckets.gradient_mut(index)?;
        read_times(self.weight, gradient, slot)?;
        buckets.ready_inside(index)?;
        self.caught[index] = true;
        Ok(())
    }
}

impl CustomOp1 for GradientHook {
    fn name(&self) -> &'static str {
        "meshwork-gradient-hook"
    }

    fn cpu_fwd(
        &self,
        storage: &CpuStorage,
        layout: &Layout,
    ) -> candle_core::Result<(CpuStorage, Shape)> {
        let (start, end) = layout
            .contiguous_offsets()
            .ok_or(candle_core::Error::RequiresContiguous { op: self.name() })?;
        let values = storage.as_slice::<f32>()?[start..end].to_vec();
        Ok((CpuStorage::F32(values), layout.shape().clone()))
    }

    fn bwd(
        &self,
        _: &Tensor,
        _: &Tensor,
        gradient: &Tensor,
    ) -> candle_core::Result<Option<Tensor>> {
        let mut pass = self.hooks.pass();
        if pass.buckets.is_none() {
            return Ok(Some(gradient.clone()));
        }
        if let Err(error) = pass.catch(self, gradient) {
            let text = error.to_string();
            pass.failed = Some(error);
            return Err(candle_core::Error::Msg(text));
        }
        Ok(None)
    }
}

//! Where gradients are caught while a backward pass still computes others.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use candle_core::{CpuStorage, CustomOp1, Layout, Shape, Tensor};
use meshwork_strategy::GradientPacks;

use crate::Error;
use crate::vars::read;

/// What the taps of all variables have in common.
#[derive(Clone, Debug, Default)]
pub(crate) struct Taps(Arc<Mutex<Flow>>);

/// One backward pass. Outside of any, taps let gradients through.
#[derive(Debug, Default)]
struct Flow {
    /// Only while a pass is under way.
    packs: Option<GradientPacks>,
    weight: f32,
    /// Variables whose gradient has come.
    caught: Vec<bool>,
    /// Why the pass ends early.
    failed: Option<Error>,
}

/// An identity that hands the gradient of one variable over.
struct Tap {
    index: usize,
    taps: Taps,
}

impl Taps {
    /// A tensor that stands for variable number `index`: with its values, as a copy.
    pub(crate) fn tap(&self, index: usize, variable: &Tensor) -> candle_core::Result<Tensor> {
        let taps = self.clone();
        variable.contiguous()?.apply_op1(Tap { index, taps })
    }

    /// From here on gradients go into `packs`, times `weight`.
    pub(crate) fn open(&self, packs: GradientPacks, weight: f32) {
        let mut flow = self.flow();
        flow.caught.clear();
        flow.caught.resize(packs.specs().len(), false);
        (flow.packs, flow.weight, flow.failed) = (Some(packs), weight, None);
    }

    /// Gives the packs back, with zero for variables without a gradient; `None` if nothing was open.
    pub(crate) fn close(&self) -> Option<(GradientPacks, Result<(), Error>)> {
        let mut flow = self.flow();
        let packs = flow.packs.take()?;
        let failed = flow.failed.take();
        Some((packs, failed.map_or(Ok(()), Err)))
    }

    /// Completes the variables that have no gradient, from the last to the first.
    pub(crate) fn complete(&self, packs: &mut GradientPacks) -> Result<(), Error> {
        let flow = self.flow();
        let missing = flow.caught.iter().enumerate().rev();
        for (index, _) in missing.filter(|(_, caught)| !**caught) {
            packs.gradient_mut(index)?.fill(0.0);
            packs.ready_inside(index)?;
        }
        Ok(())
    }

    fn flow(&self) -> MutexGuard<'_, Flow> {
        // A pass that panicked has left packs that the next one replaces.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Flow {
    fn catch(&mut self, index: usize, gradient: &Tensor) -> Result<(), Error> {
        let Some(packs) = &mut self.packs else {
            return Ok(());
        };
        let slot = packs.gradient_mut(index)?;
        read(gradient, slot)?;
        let weight = self.weight;
        slot.iter_mut().for_each(|value| *value *= weight);
        packs.ready_inside(index)?;
        self.caught[index] = true;
        Ok(())
    }
}

impl CustomOp1 for Tap {
    fn name(&self) -> &'static str {
        "meshwork-tap"
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
        let mut flow = self.taps.flow();
        if flow.packs.is_none() {
            return Ok(Some(gradient.clone()));
        }
        if let Err(error) = flow.catch(self.index, gradient) {
            let text = error.to_string();
            flow.failed = Some(error);
            return Err(candle_core::Error::Msg(text));
        }
        Ok(None)
    }
}

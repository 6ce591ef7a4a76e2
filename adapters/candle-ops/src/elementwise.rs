//! Operations that take each element by itself.

use candle_core::{CpuStorage, CustomOp1, Device, Layout, Result, Shape, Tensor};
use rayon::prelude::*;

use crate::spread;
use crate::storage::{read, values};

/// A function of each element, and how its gradient goes back.
#[derive(Clone, Copy)]
pub(crate) struct Elementwise {
    pub(crate) name: &'static str,
    /// Writes the values of the function of the second.
    pub(crate) forward: fn(&mut [f32], &[f32]),
    /// Writes the gradient, of the elements and that of the function's values.
    pub(crate) backward: fn(&mut [f32], &[f32], &[f32]),
}

impl Elementwise {
    pub(crate) fn apply(self, x: &Tensor) -> Result<Tensor> {
        x.contiguous()?.apply_op1(self)
    }
}

impl CustomOp1 for Elementwise {
    fn name(&self) -> &'static str {
        self.name
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let x = values(storage, layout)?;
        let mut into = vec![0.0; x.len()];
        let parts = into.par_chunks_mut(PART).zip(x.par_chunks(PART));
        spread::each(parts, |(into, x)| (self.forward)(into, x));
        Ok((CpuStorage::F32(into), layout.shape().clone()))
    }

    fn bwd(&self, x: &Tensor, _: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        let gradient = gradient.contiguous()?;
        let (from, slopes) = (read(x), read(&gradient));
        let (from, slopes) = (from.values()?, slopes.values()?);
        let mut into = vec![0.0; from.len()];
        let parts = into.par_chunks_mut(PART).zip(from.par_chunks(PART));
        let parts = parts.zip(slopes.par_chunks(PART));
        spread::each(parts, |((into, x), slopes)| {
            (self.backward)(into, x, slopes);
        });
        Ok(Some(Tensor::from_vec(into, x.shape(), &Device::Cpu)?))
    }
}

/// Elements that one thread takes at a time.
pub(crate) const PART: usize = 16 << 10;

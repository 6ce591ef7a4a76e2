//! ```text
//! 1×28×28 ─ linear ─ 128 ─ linear ─ 64 ─ linear ─ 10
//! ```

use candle_core::Tensor;
use candle_nn::{Linear, VarBuilder};
use meshwork_candle_ops as ops;

use super::CLASSES;
use crate::data::ImageShape;

#[derive(Debug)]
pub(super) struct Mlp {
    first: Linear,
    second: Linear,
    output: Linear,
}

impl Mlp {
    pub(super) fn new(images: ImageShape, vars: &VarBuilder<'_>) -> candle_core::Result<Self> {
        Ok(Self {
            first: candle_nn::linear(images.len(), 128, vars.pp("hidden1"))?,
            second: candle_nn::linear(128, 64, vars.pp("hidden2"))?,
            output: candle_nn::linear(64, CLASSES, vars.pp("output"))?,
        })
    }

    pub(super) fn forward(&self, images: &Tensor) -> candle_core::Result<Tensor> {
        let first = ops::silu(&ops::linear(&self.first, &images.flatten_from(1)?)?)?;
        let second = ops::silu(&ops::linear(&self.second, &first)?)?;
        ops::linear(&self.output, &second)
    }
}

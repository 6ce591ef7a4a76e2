//! ```text
//! 1×28×28 ─ conv 5×5, stride 2 ─ 8×14×14 ─ conv 3×3 ─ 24×14×14 ─ mean of 2×2 ─ 24×7×7 ─ linear ─ 48 ─ linear ─ 10
//! ```

use candle_core::Tensor;
use candle_nn::{Conv2d, Conv2dConfig, Linear, VarBuilder};
use meshwork_candle_ops as ops;

use super::CLASSES;
use crate::data::ImageShape;

#[derive(Debug)]
pub(super) struct Cnn {
    first: Conv2d,
    second: Conv2d,
    hidden: Linear,
    output: Linear,
}

impl Cnn {
    pub(super) fn new(images: ImageShape, vars: &VarBuilder<'_>) -> candle_core::Result<Self> {
        let quarter = |side: usize| side.div_ceil(2) / 2;
        let places = quarter(images.rows) * quarter(images.cols);
        let halving = Conv2dConfig {
            padding: 2,
            stride: 2,
            ..Conv2dConfig::default()
        };
        let keeping = Conv2dConfig {
            padding: 1,
            ..Conv2dConfig::default()
        };
        Ok(Self {
            first: candle_nn::conv2d(images.channels(), 8, 5, halving, vars.pp("conv1"))?,
            second: candle_nn::conv2d(8, 24, 3, keeping, vars.pp("conv2"))?,
            hidden: candle_nn::linear(24 * places, 48, vars.pp("hidden"))?,
            output: candle_nn::linear(48, CLASSES, vars.pp("output"))?,
        })
    }

    pub(super) fn forward(&self, images: &Tensor) -> candle_core::Result<Tensor> {
        let halves = ops::silu(&ops::conv2d(&self.first, images)?)?;
        let keeps = ops::silu(&ops::conv2d(&self.second, &halves)?)?;
        let quarters = ops::avg_pool2d(&keeps, 2)?.flatten_from(1)?;
        let hidden = ops::silu(&ops::linear(&self.hidden, &quarters)?)?;
        ops::linear(&self.output, &hidden)
    }
}

//! ```text
//! 1×28×28 ─ conv, stride 2 ─ 16×14×14 ─ block ─ 16×14×14 ─ block ─ 32×7×7 ─ block ─ 64×4×4 ─ mean ─ linear ─ 10
//!
//! block:  ┬ conv ─ norm ─ silu ─ conv ─ norm ┬ sum ─ silu
//!         └───── as it is, or conv ─ norm ───┘
//! ```
//!
//! Each convolution is 3×3, that beside a block 1×1, and each is normalised.

use candle_core::Tensor;
use candle_nn::{Conv2d, Conv2dConfig, Linear, ModuleT, VarBuilder};
use meshwork_candle::{BatchNorm, BatchNorms};
use meshwork_candle_ops as ops;

use super::{CLASSES, Mode};
use crate::data::ImageShape;

#[derive(Debug)]
pub(super) struct ResNet {
    stem: NormalConv,
    blocks: Vec<Block>,
    output: Linear,
}

/// What is added to its input.
#[derive(Debug)]
struct Block {
    first: NormalConv,
    second: NormalConv,
    /// Where the input has another shape than what is added.
    shortcut: Option<NormalConv>,
}

/// A convolution whose result is normalised, which makes a bias superfluous.
#[derive(Debug)]
struct NormalConv {
    conv: Conv2d,
    norm: BatchNorm,
}

/// The sizes of a convolution.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    inputs: usize,
    outputs: usize,
    kernel: usize,
    stride: usize,
}

impl ResNet {
    pub(super) fn new(
        images: ImageShape,
        norms: &BatchNorms,
        vars: &VarBuilder<'_>,
    ) -> candle_core::Result<Self> {
        let sizes = Sizes {
            inputs: images.channels(),
            outputs: 16,
            kernel: 3,
            stride: 2,
        };
        let stem = NormalConv::new(sizes, norms, &vars.pp("stem"))?;
        let blocks = [[16, 16, 1], [16, 32, 2], [32, 64, 2]];
        let blocks = blocks.into_iter().zip(["block1", "block2", "block3"]);
        let blocks = blocks.map(|([inputs, outputs, stride], name)| {
            let sizes = Sizes {
                inputs,
                outputs,
                kernel: 3,
                stride,
            };
            Block::new(sizes, norms, &vars.pp(name))
        });
        Ok(Self {
            stem,
            blocks: blocks.collect::<candle_core::Result<_>>()?,
            output: candle_nn::linear(64, CLASSES, vars.pp("output"))?,
        })
    }

    pub(super) fn forward(&self, images: &Tensor, mode: Mode) -> candle_core::Result<Tensor> {
        let stem = ops::silu(&self.stem.forward(images, mode)?)?;
        let mut hidden = stem;
        for block in &self.blocks {
            hidden = block.forward(&hidden, mode)?;
        }
        let (_, _, rows, cols) = hidden.dims4()?;
        let means = ops::avg_pool2d(&hidden, (rows, cols))?.flatten_from(1)?;
        ops::linear(&self.output, &means)
    }
}

impl Block {
    /// With convolutions of these sizes, the second of which keeps the shape.
    fn new(sizes: Sizes, norms: &BatchNorms, vars: &VarBuilder<'_>) -> candle_core::Result<Self> {
        let second = Sizes {
            inputs: sizes.outputs,
            stride: 1,
            ..sizes
        };
        let keeps = sizes.inputs == sizes.outputs && sizes.stride == 1;
        let beside = Sizes { kernel: 1, ..sizes };
        let shortcut = match keeps {
            true => None,
            false => Some(NormalConv::new(beside, norms, &vars.pp("shortcut"))?),
        };
        Ok(Self {
            first: NormalConv::new(sizes, norms, &vars.pp("first"))?,
            second: NormalConv::new(second, norms, &vars.pp("second"))?,
            shortcut,
        })
    }

    fn forward(&self, x: &Tensor, mode: Mode) -> candle_core::Result<Tensor> {
        let hidden = ops::silu(&self.first.forward(x, mode)?)?;
        let added = self.second.forward(&hidden, mode)?;
        let kept = match &self.shortcut {
            Some(shortcut) => &shortcut.forward(x, mode)?,
            None => x,
        };
        ops::silu(&(added + kept)?)
    }
}

impl NormalConv {
    fn new(sizes: Sizes, norms: &BatchNorms, vars: &VarBuilder<'_>) -> candle_core::Result<Self> {
        let Sizes {
            inputs,
            outputs,
            kernel,
            stride,
        } = sizes;
        let config = Conv2dConfig {
            padding: kernel / 2,
            stride,
            ..Conv2dConfig::default()
        };
        let conv = vars.pp("conv");
        Ok(Self {
            conv: candle_nn::conv2d_no_bias(inputs, outputs, kernel, config, conv)?,
            norm: norms.layer(outputs, vars.pp("norm"))?,
        })
    }

    fn forward(&self, x: &Tensor, mode: Mode) -> candle_core::Result<Tensor> {
        let convolved = ops::conv2d(&self.conv, x)?;
        self.norm.forward_t(&convolved, mode == Mode::Train)
    }
}

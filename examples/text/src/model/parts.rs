//! The parts of the transformer, each over variables of its own.

use candle_core::{Device, Result, Tensor};
use candle_nn::{Init, Linear, Module, VarBuilder};
use meshwork_candle_ops as ops;

use super::Size;

/// From the numbers of characters, and their places, to rows of the model's width.
#[derive(Debug)]
pub(crate) struct Embedding {
    characters: Tensor,
    places: Tensor,
}

impl Embedding {
    pub(crate) fn new(vars: &VarBuilder<'_>, size: Size, characters: usize) -> Result<Self> {
        let vars = vars.pp("embedding");
        Ok(Self {
            characters: variable(&vars, &[characters, size.width], "characters")?,
            places: variable(&vars, &[size.context, size.width], "places")?,
        })
    }

    /// What it is computed on.
    pub(crate) fn device(&self) -> &Device {
        self.characters.device()
    }
}

impl Module for Embedding {
    fn forward(&self, numbers: &Tensor) -> Result<Tensor> {
        let (rows, context) = numbers.dims2()?;
        let places = self.places.narrow(0, 0, context)?;
        let characters = self.characters.index_select(&numbers.flatten_all()?, 0)?;
        characters
            .reshape((rows, context, ()))?
            .broadcast_add(&places)
    }
}

/// Attention, and two dense layers behind it.
#[derive(Debug)]
pub(crate) struct Layer {
    heads: usize,
    first: Norm,
    projection: Linear,
    output: Linear,
    second: Norm,
    up: Linear,
    down: Linear,
}

impl Layer {
    pub(crate) fn new(vars: &VarBuilder<'_>, size: Size, index: usize) -> Result<Self> {
        let (vars, width) = (vars.pp(format!("layer{index}")), size.width);
        Ok(Self {
            heads: size.heads,
            first: Norm::new(&vars.pp("norm1"), width)?,
            projection: dense(&vars.pp("projection"), width, 3 * width)?,
            output: dense(&vars.pp("output"), width, width)?,
            second: Norm::new(&vars.pp("norm2"), width)?,
            up: dense(&vars.pp("up"), width, 4 * width)?,
            down: dense(&vars.pp("down"), 4 * width, width)?,
        })
    }
}

impl Module for Layer {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let projected = ops::linear(&self.projection, &self.first.forward(x)?)?;
        let seen = ops::causal_attention(&projected, self.heads)?;
        let x = (x + ops::linear(&self.output, &seen)?)?;
        let up = ops::gelu_erf(&ops::linear(&self.up, &self.second.forward(&x)?)?)?;
        &x + ops::linear(&self.down, &up)?
    }
}

/// From rows of the model's width to scores of characters.
#[derive(Debug)]
pub(crate) struct Head {
    norm: Norm,
    scores: Linear,
}

impl Head {
    pub(crate) fn new(vars: &VarBuilder<'_>, size: Size, characters: usize) -> Result<Self> {
        Ok(Self {
            norm: Norm::new(&vars.pp("norm"), size.width)?,
            scores: dense(&vars.pp("scores"), size.width, characters)?,
        })
    }
}

impl Module for Head {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        ops::linear(&self.scores, &self.norm.forward(x)?.flatten_to(1)?)
    }
}

#[derive(Debug)]
struct Norm {
    weight: Tensor,
    bias: Tensor,
}

impl Norm {
    fn new(vars: &VarBuilder<'_>, width: usize) -> Result<Self> {
        Ok(Self {
            weight: variable(vars, &[width], "weight")?,
            bias: variable(vars, &[width], "bias")?,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        ops::layer_norm(x, &self.weight, &self.bias, EPSILON)
    }
}

fn dense(vars: &VarBuilder<'_>, inputs: usize, outputs: usize) -> Result<Linear> {
    let weight = variable(vars, &[outputs, inputs], "weight")?;
    let bias = variable(vars, &[outputs], "bias")?;
    Ok(Linear::new(weight, Some(bias)))
}

/// A variable whose values are set later.
fn variable(vars: &VarBuilder<'_>, shape: &[usize], name: &str) -> Result<Tensor> {
    vars.get_with_hints(shape, name, Init::Const(0.0))
}

/// Keeps a constant row from a division by 0.
const EPSILON: f32 = 1e-5;

//! Dense layers.

use candle_core::{CpuStorage, CustomOp2, CustomOp3, Device, Layout, Result, Shape, Tensor};
use candle_nn::{Linear, Module};

use crate::Error;
use crate::product::{Matrix, Threads, add_column_sums, add_product};
use crate::storage::{is_ours, read, values};

/// The outputs of a dense `layer`, as its own `forward`, for inputs of any rank from 1.
///
/// # Errors
/// [`Error::Inputs`], [`Error::Bias`], and those of candle.
pub fn linear(layer: &Linear, inputs: &Tensor) -> Result<Tensor> {
    let (weight, bias) = (layer.weight(), layer.bias());
    if ![Some(inputs), Some(weight), bias]
        .into_iter()
        .flatten()
        .all(is_ours)
    {
        return layer.forward(inputs);
    }
    let (outputs, size) = weight.dims2()?;
    let Some(leading) = inputs.dims().strip_suffix(&[size]) else {
        return Err(Error::Inputs {
            inputs: inputs.dims().to_vec(),
            weight: weight.dims().to_vec(),
        }
        .into());
    };
    let rows = leading.iter().product();
    let (inputs, weight) = (inputs.contiguous()?, weight.contiguous()?);
    let op = Product {
        rows,
        outputs,
        size,
    };
    let Some(bias) = bias else {
        return inputs.apply_op2(&weight, op);
    };
    if bias.dims() != [outputs] {
        let bias = bias.dims().to_vec();
        return Err(Error::Bias { bias, outputs }.into());
    }
    inputs.apply_op3(&weight, &bias.contiguous()?, op)
}

/// Inputs times the transposed weight.
#[derive(Clone, Copy)]
struct Product {
    /// Of the inputs, which lie one below the other.
    rows: usize,
    outputs: usize,
    size: usize,
}

impl Product {
    fn inputs<'a>(&self, inputs: &'a [f32]) -> Matrix<'a> {
        Matrix::new(inputs, self.rows, self.size)
    }

    fn weight<'a>(&self, weight: &'a [f32]) -> Matrix<'a> {
        Matrix::new(weight, self.outputs, self.size)
    }

    /// Adds the product to `into`.
    fn forward(&self, mut into: Vec<f32>, inputs: &[f32], weight: &[f32]) -> CpuStorage {
        let weight = self.weight(weight).transposed();
        add_product(&mut into, self.inputs(inputs), weight, Threads::Pool);
        CpuStorage::F32(into)
    }

    fn shape(&self, inputs: &Layout) -> Shape {
        let mut dims = inputs.dims().to_vec();
        if let Some(last) = dims.last_mut() {
            *last = self.outputs;
        }
        Shape::from(dims)
    }

    /// The gradients of inputs and weight, of those that need one.
    fn gradients(
        &self,
        inputs: &Tensor,
        weight: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let (x, w, slopes) = (read(inputs), read(weight), read(gradient));
        let (x, w) = (self.inputs(x.values()?), w.values()?);
        let slopes = Matrix::new(slopes.values()?, self.rows, self.outputs);
        let product = |of: &Tensor, left, right| {
            if !of.track_op() {
                return Ok(None);
            }
            let mut into = vec![0.0; of.elem_count()];
            add_product(&mut into, left, right, Threads::Pool);
            Tensor::from_vec(into, of.shape(), &Device::Cpu).map(Some)
        };
        Ok((
            product(inputs, slopes, self.weight(w))?,
            product(weight, slopes.transposed(), x)?,
        ))
    }
}

impl CustomOp2 for Product {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn cpu_fwd(
        &self,
        inputs: &CpuStorage,
        inputs_layout: &Layout,
        weight: &CpuStorage,
        weight_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (x, w) = (
            values(inputs, inputs_layout)?,
            values(weight, weight_layout)?,
        );
        let shape = self.shape(inputs_layout);
        let into = vec![0.0; shape.elem_count()];
        Ok((self.forward(into, x, w), shape))
    }

    fn bwd(
        &self,
        inputs: &Tensor,
        weight: &Tensor,
        _: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        self.gradients(inputs, weight, &gradient.contiguous()?)
    }
}

impl CustomOp3 for Product {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn cpu_fwd(
        &self,
        inputs: &CpuStorage,
        inputs_layout: &Layout,
        weight: &CpuStorage,
        weight_layout: &Layout,
        bias: &CpuStorage,
        bias_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (x, w) = (
            values(inputs, inputs_layout)?,
            values(weight, weight_layout)?,
        );
        let shape = self.shape(inputs_layout);
        let into = values(bias, bias_layout)?.repeat(self.rows);
        Ok((self.forward(into, x, w), shape))
    }

    fn bwd(
        &self,
        inputs: &Tensor,
        weight: &Tensor,
        bias: &Tensor,
        _: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let gradient = gradient.contiguous()?;
        let (of_inputs, of_weight) = self.gradients(inputs, weight, &gradient)?;
        let mut of_bias = vec![0.0; self.outputs];
        add_column_sums(&mut of_bias, read(&gradient).values()?);
        let of_bias = Tensor::from_vec(of_bias, bias.shape(), &Device::Cpu)?;
        Ok((of_inputs, of_weight, Some(of_bias)))
    }
}

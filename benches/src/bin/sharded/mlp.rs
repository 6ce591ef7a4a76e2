//! Dense layers as units: their products, and no framework.

use std::ops::Range;

use meshwork_accel_cpu::product;
use meshwork_strategy::sharded::{Gradients, Parameters, Unit, UnitSpec};
use meshwork_strategy::{Error, VariableSpec};
use ndarray::{Array2, ArrayView1, ArrayView2, ArrayViewMut1, ArrayViewMut2, Axis};

/// A dense layer: a product with `[inputs, outputs]`, a bias, and a ReLU behind all but the last.
#[derive(Debug)]
pub(crate) struct Dense {
    number: usize,
    inputs: usize,
    outputs: usize,
    is_last: bool,
}

/// What a layer took and gave.
#[derive(Debug)]
pub(crate) struct Tape {
    input: Array2<f32>,
    output: Array2<f32>,
}

impl Dense {
    /// Layers from each of these sizes to the next.
    pub(crate) fn layers(sizes: &[usize]) -> Vec<Self> {
        let pairs = sizes.windows(2).enumerate();
        let layer = |(number, pair): (usize, &[usize])| Self {
            number,
            inputs: pair[0],
            outputs: pair[1],
            is_last: number + 2 == sizes.len(),
        };
        pairs.map(layer).collect()
    }

    fn weight<'a>(&self, parameters: &'a Parameters<'_>) -> ArrayView2<'a, f32> {
        ArrayView2::from_shape((self.inputs, self.outputs), &parameters[0])
            .expect("a parameter has the shape of its spec")
    }
}

impl Unit for Dense {
    type Value = Array2<f32>;
    type Tape = Tape;
    type Error = Error;

    fn spec(&self) -> Result<UnitSpec, Error> {
        let name = self.number;
        let weight = VariableSpec::new(format!("{name}.weight"), &[self.inputs, self.outputs])?;
        let bias = VariableSpec::new(format!("{name}.bias"), &[self.outputs])?;
        Ok(UnitSpec::new(name.to_string(), [weight, bias]))
    }

    fn forward(
        &self,
        parameters: Parameters<'_>,
        input: Array2<f32>,
    ) -> Result<(Array2<f32>, Tape), Error> {
        let mut output = Array2::zeros((input.nrows(), self.outputs));
        product(input.view(), self.weight(&parameters), output.view_mut())?;
        output += &ArrayView1::from(&parameters[1]);
        if !self.is_last {
            output.mapv_inplace(|value| value.max(0.0));
        }
        let tape = Tape {
            input,
            output: output.clone(),
        };
        Ok((output, tape))
    }

    fn backward(
        &self,
        parameters: Parameters<'_>,
        tape: Tape,
        mut delta: Array2<f32>,
        gradients: &mut Gradients<'_>,
    ) -> Result<Option<Array2<f32>>, Error> {
        if !self.is_last {
            delta.zip_mut_with(&tape.output, |delta, output| {
                if *output <= 0.0 {
                    *delta = 0.0;
                }
            });
        }
        let shape = (self.inputs, self.outputs);
        let weight = ArrayViewMut2::from_shape(shape, &mut gradients[0])
            .expect("a gradient has the shape of its parameter");
        product(tape.input.t(), delta.view(), weight)?;
        ArrayViewMut1::from(&mut gradients[1]).assign(&delta.sum_axis(Axis(0)));
        if self.number == 0 {
            return Ok(None);
        }
        let mut before = Array2::zeros(tape.input.raw_dim());
        product(
            delta.view(),
            self.weight(&parameters).t(),
            before.view_mut(),
        )?;
        Ok(Some(before))
    }
}

/// The mean cross-entropy with made-up classes, and its gradient.
pub(crate) fn loss(mut scores: Array2<f32>) -> (f64, Array2<f32>) {
    let (rows, classes) = scores.dim();
    let mut loss = 0.0;
    for (row, mut scores) in scores.outer_iter_mut().enumerate() {
        let largest = scores.iter().copied().fold(f32::MIN, f32::max);
        scores.mapv_inplace(|score| (score - largest).exp());
        let sum = scores.sum();
        loss -= f64::from((scores[row % classes] / sum).ln()) / rows as f64;
        scores.mapv_inplace(|power| power / sum / rows as f32);
        scores[row % classes] -= 1.0 / rows as f32;
    }
    (loss, scores)
}

/// Begins with weights that keep the size of what goes through them, and biases of 0.
pub(crate) fn initial(spec: &VariableSpec, elements: Range<usize>, rows: &mut [f32]) {
    let [inputs, _] = spec.shape() else {
        return rows.fill(0.0);
    };
    let scale = (3.0 / *inputs as f32).sqrt();
    for (at, value) in elements.zip(rows) {
        *value = scale * noise(at);
    }
}

/// Between -1 and 1, and the same everywhere.
pub(crate) fn noise(at: usize) -> f32 {
    let mut mixed = (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (mixed >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
}

//! Two layers: the first is cut by columns and the second by rows, so that what the one gives is
//! what the other takes, and one sum over `model` ends both.

use meshwork_core::Mesh;
use meshwork_dtensor::{Context, DTensor, DVariable, Error, ReduceAxes};
use meshwork_layout::ops::Orientation::{Plain, Transposed};
use meshwork_layout::{Layout, UNSHARDED};

use crate::text::Text;

/// The width of the hidden layer.
pub(crate) const HIDDEN: usize = 64;

pub(crate) struct Model {
    first: DVariable<f32>,
    bias: DVariable<f32>,
    second: DVariable<f32>,
}

/// How tensors lie on a mesh of `data` and `model`.
pub(crate) struct Layouts {
    pub(crate) inputs: Layout,
    pub(crate) labels: Layout,
    pub(crate) first: Layout,
    pub(crate) bias: Layout,
    pub(crate) second: Layout,
}

impl Layouts {
    pub(crate) fn new(mesh: &Mesh) -> Result<Self, Error> {
        Ok(Self {
            inputs: Layout::from_names(["data", UNSHARDED], mesh)?,
            labels: Layout::from_names(["data"], mesh)?,
            first: Layout::from_names([UNSHARDED, "model"], mesh)?,
            bias: Layout::from_names(["model"], mesh)?,
            second: Layout::from_names(["model", UNSHARDED], mesh)?,
        })
    }
}

impl Model {
    /// Weights that depend on the seed only, however they are cut.
    pub(crate) fn new(context: &Context, layouts: &Layouts, text: &Text) -> Result<Self, Error> {
        let first = context.random_normal(1, &[text.inputs(), HIDDEN], &layouts.first)?;
        let second = context.random_normal(2, &[HIDDEN, text.letters()], &layouts.second)?;
        Ok(Self {
            first: DVariable::new(first.scale(0.3)?),
            bias: DVariable::new(context.zeros(&[HIDDEN], &layouts.bias)?),
            second: DVariable::new(second.scale(0.1)?),
        })
    }

    /// One step of gradient descent, and the mean loss before it.
    pub(crate) fn step(
        &mut self,
        inputs: &DTensor<f32>,
        labels: &DTensor<i64>,
        rate: f32,
    ) -> Result<f32, Error> {
        let before = inputs.matmul(self.first.value())?.add(self.bias.value())?;
        let hidden = before.relu()?;
        let logits = hidden.matmul(self.second.value())?;
        let (losses, by_logits) = logits.sparse_cross_entropy(labels)?;
        let loss = losses.mean(&ReduceAxes::axes([0]))?;

        let by_logits = by_logits.scale(rate / batch_size(inputs))?;
        let by_second = hidden.matmul_stored(&by_logits, [Transposed, Plain])?;
        let by_hidden = by_logits.matmul_stored(self.second.value(), [Plain, Transposed])?;
        let by_before =
            by_hidden.zip_with(&before, |slope, x| if x > 0.0 { slope } else { 0.0 })?;
        let by_first = inputs.matmul_stored(&by_before, [Transposed, Plain])?;
        let by_bias = by_before.sum(&ReduceAxes::axes([0]))?;

        self.first.assign_sub(&by_first)?;
        self.bias.assign_sub(&by_bias)?;
        self.second.assign_sub(&by_second)?;
        Ok(loss.to_host()?.sum())
    }
}

#[expect(clippy::cast_precision_loss, reason = "batches are small")]
fn batch_size(inputs: &DTensor<f32>) -> f32 {
    inputs.shape()[0] as f32
}

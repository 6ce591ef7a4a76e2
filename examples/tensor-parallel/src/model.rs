//! Two layers: the first is cut by columns and the second by rows, so that what the one gives is
//! what the other takes, and one sum over `model` ends both.

use clap::ValueEnum;
use meshwork_core::Mesh;
use meshwork_dtensor::{
    AdamW, Context, DTensor, DVariable, Error, Sgd, Tape, Variable, VariableSet,
};
use meshwork_layout::{Layout, UNSHARDED};

use crate::text::Text;

/// The width of the hidden layer.
pub(crate) const HIDDEN: usize = 64;

pub(crate) struct Model {
    first: DVariable<f32>,
    bias: DVariable<f32>,
    second: DVariable<f32>,
    optimizer: Optimizer,
}

/// How weights follow their gradients.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Method {
    /// Gradient descent.
    Sgd,
    /// Adam with decoupled weight decay.
    AdamW,
}

enum Optimizer {
    Sgd(Sgd<f32>),
    AdamW(AdamW<f32>),
}

/// What the network sees, and what it should tell.
pub(crate) type Batch = (DTensor<f32>, DTensor<i64>);

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
    pub(crate) fn new(
        context: &Context,
        layouts: &Layouts,
        text: &Text,
        method: Method,
    ) -> Result<Self, Error> {
        let first = context.random_normal(1, &[text.inputs(), HIDDEN], &layouts.first)?;
        let second = context.random_normal(2, &[HIDDEN, text.letters()], &layouts.second)?;
        let first = DVariable::new(first.scale(0.3)?);
        let bias = DVariable::new(context.zeros(&[HIDDEN], &layouts.bias)?);
        let second = DVariable::new(second.scale(0.1)?);
        let optimizer = match method {
            Method::Sgd => Optimizer::Sgd(Sgd::new(0.5)),
            Method::AdamW => Optimizer::AdamW(AdamW::new(0.02, &[&first, &bias, &second])?),
        };
        Ok(Self {
            first,
            bias,
            second,
            optimizer,
        })
    }

    /// One step of training, and the mean loss before it.
    pub(crate) fn step(&mut self, batch: &Batch) -> Result<DTensor<f32>, Error> {
        let (inputs, labels) = batch;
        let tape = Tape::new();
        let first = tape.watch(self.first.value());
        let bias = tape.watch(self.bias.value());
        let second = tape.watch(self.second.value());
        let hidden = inputs.matmul(&first)?.add(&bias)?.relu()?;
        let (losses, _) = hidden.matmul(&second)?.sparse_cross_entropy(labels)?;
        let loss = losses.mean_all()?;

        let gradients = tape.gradient(&loss, [&first, &bias, &second])?;
        let variables = [&mut self.first, &mut self.bias, &mut self.second];
        let updates = variables.into_iter().zip(&gradients);
        match &mut self.optimizer {
            Optimizer::Sgd(sgd) => sgd.step(updates)?,
            Optimizer::AdamW(adam) => adam.step(updates)?,
        }
        Ok(loss)
    }
}

impl VariableSet for Model {
    fn visit(&mut self, visit: &mut dyn FnMut(&mut dyn Variable)) {
        (&mut self.first, &mut self.bias, &mut self.second).visit(visit);
        match &mut self.optimizer {
            Optimizer::Sgd(sgd) => sgd.visit(visit),
            Optimizer::AdamW(adam) => adam.visit(visit),
        }
    }
}

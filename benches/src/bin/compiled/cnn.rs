//! The network of `examples/mnist` for pictures of digits, as tensors: two convolutions, a pool and
//! two dense layers, by gradient descent.

use meshwork_core::Mesh;
use meshwork_dtensor::{Context, DTensor, DVariable, Error, Sgd, Tape, Variable, VariableSet};
use meshwork_layout::ops::{Activation, Convolution, Padding, Pool, Pooling, Windows};
use meshwork_layout::{Layout, UNSHARDED};

/// Pictures in a batch.
pub(crate) const BATCH: usize = 64;

/// Pictures, and what they show.
pub(crate) type Batch = (DTensor<f32>, DTensor<i64>);

pub(crate) struct Network {
    weights: Vec<DVariable<f32>>,
    sgd: Sgd<f32>,
}

/// Pictures that are made up, cut over `data`.
pub(crate) fn batch(context: &Context, mesh: &Mesh) -> Result<Batch, Error> {
    let rows = ["data", UNSHARDED, UNSHARDED, UNSHARDED];
    let rows = Layout::from_names(rows, mesh)?;
    let images = context.random_uniform(7, &[BATCH, 28, 28, 1], &rows)?;
    let rows = Layout::from_names(["data"], mesh)?;
    let labels = context.from_fn(&[BATCH], &rows, |at| at[0] as i64 * 7 % 10)?;
    Ok((images, labels))
}

impl Network {
    pub(crate) fn new(context: &Context, mesh: &Mesh) -> Result<Self, Error> {
        let shapes: [&[usize]; 8] = [
            &[5, 5, 1, 8],
            &[8],
            &[3, 3, 8, 24],
            &[24],
            &[1176, 48],
            &[48],
            &[48, 10],
            &[10],
        ];
        let mut weights = Vec::new();
        for (seed, shape) in (1..).zip(shapes) {
            let layout = Layout::replicated(mesh, shape.len());
            let made = context.random_normal::<f32>(seed, shape, &layout)?;
            weights.push(DVariable::new(made.scale(0.1)?));
        }
        Ok(Self {
            weights,
            sgd: Sgd::new(0.05),
        })
    }

    /// The mean loss, and nothing learnt.
    pub(crate) fn loss_of(&self, batch: &Batch) -> Result<DTensor<f32>, Error> {
        let weights: Vec<DTensor<f32>> = self.weights.iter().map(|w| w.value().clone()).collect();
        loss(&weights, batch)
    }

    /// One step, and the mean loss before it.
    pub(crate) fn step(&mut self, batch: &Batch) -> Result<DTensor<f32>, Error> {
        let tape = Tape::new();
        let watched = self.weights.iter().map(|own| tape.watch(own.value()));
        let watched: Vec<DTensor<f32>> = watched.collect();
        let loss = loss(&watched, batch)?;
        let all: Vec<&DTensor<f32>> = watched.iter().collect();
        let slopes = tape.gradients(&loss, &all)?;
        let updates = self.weights.iter_mut().zip(&slopes);
        let updates = updates.filter_map(|(own, slope)| Some((own, slope.as_ref()?)));
        self.sgd.step(updates)?;
        Ok(loss)
    }
}

fn loss(weights: &[DTensor<f32>], batch: &Batch) -> Result<DTensor<f32>, Error> {
    let (images, labels) = batch;
    let first = Windows::strides([2, 2]).padded(Padding::Explicit(vec![(2, 2); 2]));
    let second = Windows::strides([1, 1]).padded(Padding::Explicit(vec![(1, 1); 2]));
    let hidden = images.convolution(&weights[0], &Convolution::new(first))?;
    let hidden = hidden.add(&weights[1])?.activation(Activation::Silu)?;
    let hidden = hidden.convolution(&weights[2], &Convolution::new(second))?;
    let hidden = hidden.add(&weights[3])?.activation(Activation::Silu)?;
    let hidden = hidden.pool(&Pool::new(Pooling::Mean, [2, 2]))?;
    let hidden = hidden.reshape(&[Some(BATCH), Some(1176)])?;
    let hidden = hidden.matmul(&weights[4])?.add(&weights[5])?;
    let scores = hidden.activation(Activation::Silu)?.matmul(&weights[6])?;
    let (losses, _) = scores.add(&weights[7])?.sparse_cross_entropy(labels)?;
    losses.mean_all()
}

impl VariableSet for Network {
    fn visit(&mut self, visit: &mut dyn FnMut(&mut dyn Variable)) {
        self.weights.visit(visit);
    }
}

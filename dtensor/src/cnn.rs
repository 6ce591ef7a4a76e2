//! A convolutional network for pictures: the step of `examples/mnist`, which whole programs are
//! held to as well.

use meshwork_core::Mesh;
use meshwork_layout::Layout;
use meshwork_layout::ops::{Activation, Convolution, Padding, Pool, Pooling, Windows};

use crate::{Context, DTensor, DVariable, Error, Tape, Variable, VariableSet};

/// The sizes of a [`Cnn`]: those of the pictures, and how many classes there are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CnnSizes {
    /// Rows of a picture.
    pub rows: usize,
    /// Columns of a picture.
    pub columns: usize,
    /// Numbers for each place: 1 for grey pictures, 3 for coloured ones.
    pub channels: usize,
    /// What a picture may show.
    pub classes: usize,
}

/// Two convolutions, a mean of windows and two dense layers, with SiLU between them:
///
/// ```text
/// 28×28×1 ─ conv 5×5, stride 2 ─ 14×14×8 ─ conv 3×3 ─ 14×14×24 ─ mean of 2×2 ─ 7×7×24
///         ─ dense ─ 48 ─ dense ─ 10
/// ```
///
/// Weights are whole on each device of the mesh, and pictures may be cut over any of its
/// dimensions.
///
/// ```
/// use meshwork_core::{Client, CreateMesh};
/// use meshwork_dtensor::{Cnn, CnnSizes, Context, DTensor, Error, Sgd, compile};
/// use meshwork_layout::Layout;
///
/// let context = Context::alone(Client::new("localhost", 0, 1)?.with_devices("CPU", 2)?);
/// let mesh = context.create_mesh(CreateMesh::new().dims([("data", 2)]))?;
/// let sizes = CnnSizes { rows: 8, columns: 8, channels: 1, classes: 3 };
/// let mut cnn = Cnn::new(&context, &mesh, sizes)?;
/// let images = Layout::batch_sharded(&mesh, "data", 4)?;
/// let images = context.from_fn(&[4, 8, 8, 1], &images, |at| (at[0] * at[1]) as f32 * 0.1)?;
/// let labels = Layout::batch_sharded(&mesh, "data", 1)?;
/// let labels = context.from_fn(&[4], &labels, |at| at[0] as i64 % 3)?;
/// let mut step = compile(|cnn: &mut Cnn, batch: &(DTensor<f32>, DTensor<i64>)| {
///     let (loss, slopes) = cnn.gradients(batch)?;
///     Sgd::new(0.1).step(cnn.weights_mut().iter_mut().zip(&slopes))?;
///     Ok::<_, Error>(loss)
/// });
/// let batch = (images, labels);
/// let losses = [0, 1, 2].map(|_| step.call(&mut cnn, &batch).unwrap().to_host().unwrap().sum());
/// assert!(losses[2] < losses[0]);
/// assert_eq!(cnn.scores(&batch.0)?.shape(), [4, 3]);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct Cnn {
    /// A filter or a matrix and a bias of each layer.
    weights: Vec<DVariable<f32>>,
}

/// Pictures of `[batch, rows, columns, channels]`, and the class of each.
pub type ImageBatch = (DTensor<f32>, DTensor<i64>);

impl CnnSizes {
    /// The shapes of the weights: of each layer the filter (`[window.., inputs, outputs]`) or the
    /// matrix (`[inputs, outputs]`), and the bias. What is dense comes after places and channels,
    /// in this order.
    #[must_use]
    pub fn shapes(&self) -> [Vec<usize>; 8] {
        let quarter = |side: usize| side.div_ceil(2) / 2;
        let places = quarter(self.rows) * quarter(self.columns);
        let [first, second] = CHANNELS;
        [
            vec![5, 5, self.channels, first],
            vec![first],
            vec![3, 3, first, second],
            vec![second],
            vec![places * second, HIDDEN],
            vec![HIDDEN],
            vec![HIDDEN, self.classes],
            vec![self.classes],
        ]
    }
}

impl Cnn {
    /// Weights that depend on the sizes only, however large the mesh is: normal ones, as far spread
    /// as one over the root of the inputs of a neuron (LeCun et al., Efficient BackProp, 1998), and
    /// biases of zero.
    ///
    /// # Errors
    /// Those of [`Context::random_normal`] and [`Context::zeros`].
    #[track_caller]
    pub fn new(context: &Context, mesh: &Mesh, sizes: CnnSizes) -> Result<Self, Error> {
        let mut weights = Vec::new();
        for (seed, shape) in (1..).zip(sizes.shapes()) {
            let layout = Layout::replicated(mesh, shape.len());
            let made = match &shape[..] {
                [inputs @ .., _] if !inputs.is_empty() => {
                    let inputs: usize = inputs.iter().product();
                    let normal = context.random_normal::<f32>(seed, &shape, &layout)?;
                    normal.scale((inputs as f32).sqrt().recip())?
                }
                _ => context.zeros(&shape, &layout)?,
            };
            weights.push(DVariable::new(made));
        }
        Ok(Self { weights })
    }

    /// The weights, in the order of [`CnnSizes::shapes`].
    #[must_use]
    pub fn weights(&self) -> &[DVariable<f32>] {
        &self.weights
    }

    /// The same, to assign to.
    pub fn weights_mut(&mut self) -> &mut [DVariable<f32>] {
        &mut self.weights
    }

    /// A score of each class for each picture.
    ///
    /// # Errors
    /// Those of the ops.
    #[track_caller]
    pub fn scores(&self, images: &DTensor<f32>) -> Result<DTensor<f32>, Error> {
        scores(&self.values(), images)
    }

    /// The mean loss of a batch.
    ///
    /// # Errors
    /// Those of the ops.
    #[track_caller]
    pub fn loss_of(&self, batch: &ImageBatch) -> Result<DTensor<f32>, Error> {
        loss(&self.values(), batch)
    }

    /// The mean loss of a batch, and its gradient by each of the weights.
    ///
    /// # Errors
    /// Those of the ops.
    #[track_caller]
    pub fn gradients(
        &self,
        batch: &ImageBatch,
    ) -> Result<(DTensor<f32>, Vec<DTensor<f32>>), Error> {
        let tape = Tape::new();
        let watched = self.weights.iter().map(|own| tape.watch(own.value()));
        let watched: Vec<DTensor<f32>> = watched.collect();
        let loss = loss(&watched, batch)?;
        let all: Vec<&DTensor<f32>> = watched.iter().collect();
        let slopes: Option<Vec<_>> = tape.gradients(&loss, &all)?.into_iter().collect();
        Ok((loss, slopes.ok_or(Error::NotKept)?))
    }

    fn values(&self) -> Vec<DTensor<f32>> {
        let values = self.weights.iter().map(|own| own.value().clone());
        values.collect()
    }
}

fn loss(weights: &[DTensor<f32>], batch: &ImageBatch) -> Result<DTensor<f32>, Error> {
    let (images, labels) = batch;
    let (losses, _) = scores(weights, images)?.sparse_cross_entropy(labels)?;
    losses.mean_all()
}

fn scores(weights: &[DTensor<f32>], images: &DTensor<f32>) -> Result<DTensor<f32>, Error> {
    let around = |places| Padding::Explicit(vec![(places, places); 2]);
    let halving = Convolution::new(Windows::strides([2, 2]).padded(around(2)));
    let keeping = Convolution::new(Windows::strides([1, 1]).padded(around(1)));
    let bent = |sums: DTensor<f32>, bias| sums.add(bias)?.activation(Activation::Silu);
    let halves = bent(images.convolution(&weights[0], &halving)?, &weights[1])?;
    let kept = bent(halves.convolution(&weights[2], &keeping)?, &weights[3])?;
    let quarters = kept.pool(&Pool::new(Pooling::Mean, [2, 2]))?;
    let rows = quarters.reshape(&[Some(images.shape()[0]), None])?;
    let hidden = bent(rows.matmul(&weights[4])?, &weights[5])?;
    hidden.matmul(&weights[6])?.add(&weights[7])
}

impl VariableSet for Cnn {
    fn visit(&mut self, visit: &mut dyn FnMut(&mut dyn Variable)) {
        self.weights.visit(visit);
    }
}

/// What the convolutions make of each place, and the width of the layer behind them.
const CHANNELS: [usize; 2] = [8, 24];
const HIDDEN: usize = 48;

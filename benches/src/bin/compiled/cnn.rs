//! The network of `examples/mnist` for pictures of digits, by gradient descent.

use meshwork_core::Mesh;
use meshwork_dtensor::{
    Cnn, CnnSizes, Context, DTensor, Error, ImageBatch, Sgd, Variable, VariableSet,
};
use meshwork_layout::{Layout, UNSHARDED};

/// Pictures in a batch.
pub(crate) const BATCH: usize = 64;

const SIZES: CnnSizes = CnnSizes {
    rows: 28,
    columns: 28,
    channels: 1,
    classes: 10,
};

pub(crate) struct Network {
    cnn: Cnn,
    sgd: Sgd<f32>,
}

/// Pictures that are made up, cut over `data`.
pub(crate) fn batch(context: &Context, mesh: &Mesh) -> Result<ImageBatch, Error> {
    let rows = ["data", UNSHARDED, UNSHARDED, UNSHARDED];
    let rows = Layout::from_names(rows, mesh)?;
    let shape = [BATCH, SIZES.rows, SIZES.columns, SIZES.channels];
    let images = context.random_uniform(7, &shape, &rows)?;
    let rows = Layout::from_names(["data"], mesh)?;
    let labels = context.from_fn(&[BATCH], &rows, |at| at[0] as i64 * 7 % 10)?;
    Ok((images, labels))
}

impl Network {
    pub(crate) fn new(context: &Context, mesh: &Mesh) -> Result<Self, Error> {
        Ok(Self {
            cnn: Cnn::new(context, mesh, SIZES)?,
            sgd: Sgd::new(0.05),
        })
    }

    /// The mean loss, and nothing learnt.
    pub(crate) fn loss_of(&self, batch: &ImageBatch) -> Result<DTensor<f32>, Error> {
        self.cnn.loss_of(batch)
    }

    /// One step, and the mean loss before it.
    pub(crate) fn step(&mut self, batch: &ImageBatch) -> Result<DTensor<f32>, Error> {
        let (loss, slopes) = self.cnn.gradients(batch)?;
        self.sgd
            .step(self.cnn.weights_mut().iter_mut().zip(&slopes))?;
        Ok(loss)
    }
}

impl VariableSet for Network {
    fn visit(&mut self, visit: &mut dyn FnMut(&mut dyn Variable)) {
        self.cnn.visit(visit);
    }
}

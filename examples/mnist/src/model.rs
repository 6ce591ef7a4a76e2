//! The networks, and what one worker computes with them.
//!
//! All are smooth (SiLU, mean pooling): with kinks, as in ReLU and max pooling, two runs whose
//! sums differ in the last bit can part within a hundred steps, and a job with several workers
//! could not be compared with one worker's.

mod cnn;
mod mlp;
mod resnet;
#[cfg(test)]
mod tests;

use std::fmt;

use candle_core::{D, DType, Device, Tensor};
use candle_nn::{VarBuilder, VarMap};
use clap::ValueEnum;
use meshwork_candle::BatchNorms;
use meshwork_candle_ops as ops;

use crate::data::{Batch, ImageShape};
use crate::error::Error;
use crate::initial::seed_variables;
use cnn::Cnn;
use mlp::Mlp;
use resnet::ResNet;

/// Rows and columns that images have at least.
pub(crate) const LEAST_SIDE: usize = 16;

/// Which network.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Kind {
    /// Two convolutions and two dense layers
    Cnn,
    /// Three dense layers
    Mlp,
    /// Seven convolutions in three residual blocks, with batch normalisation
    Resnet,
}

/// A network; its variables live in the map it was made with.
#[derive(Debug)]
pub(crate) struct Model {
    network: Network,
    kind: Kind,
    images: ImageShape,
    /// Of a network without batch normalisation there are none.
    norms: BatchNorms,
}

#[derive(Debug)]
enum Network {
    Cnn(Cnn),
    Mlp(Mlp),
    ResNet(ResNet),
}

/// What a network computes for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Mode {
    /// Batches are normalised by their own statistics.
    Train,
    /// Batches are normalised by running statistics.
    Evaluate,
}

impl Model {
    /// The network over new variables in `vars`, with initial values that depend on `seed` only.
    ///
    /// # Errors
    ///
    /// [`Error::Network`] for this and the other methods, if candle refuses an operation.
    pub(crate) fn seeded(
        kind: Kind,
        images: ImageShape,
        vars: &VarMap,
        seed: u64,
    ) -> Result<Self, Error> {
        let norms = BatchNorms::new();
        let builder = VarBuilder::from_varmap(vars, DType::F32, &Device::Cpu);
        let network = Network::new(kind, images, &norms, &builder)?;
        seed_variables(vars, seed)?;
        Ok(Self {
            network,
            kind,
            images,
            norms,
        })
    }

    /// The same network over tensors that stand for its variables, with the same running
    /// statistics.
    pub(crate) fn over(&self, vars: &VarBuilder<'_>) -> Result<Self, Error> {
        let Self {
            kind,
            images,
            ref norms,
            ..
        } = *self;
        Ok(Self {
            network: Network::new(kind, images, norms, vars)?,
            kind,
            images,
            norms: norms.clone(),
        })
    }

    /// Its batch normalisations.
    pub(crate) fn norms(&self) -> &BatchNorms {
        &self.norms
    }

    /// The mean loss of `batch`, which must not be empty, times `weight`.
    pub(crate) fn loss(&self, batch: Batch, weight: f32) -> Result<Tensor, Error> {
        let (images, labels) = tensors(batch)?;
        let scores = self.network.forward(&images, Mode::Train)?;
        // A tensor, as candle has no backward pass of what is multiplied by the number 0, and other
        // workers wait for this one's part of it.
        let weight = Tensor::new(weight, &Device::Cpu)?;
        Ok((ops::cross_entropy(&scores, &labels)? * weight)?)
    }

    /// How many samples of `batch` get the highest score for their own class.
    pub(crate) fn count_correct(&self, batch: Batch) -> Result<f64, Error> {
        let (images, labels) = tensors(batch)?;
        let scores = self.network.forward(&images, Mode::Evaluate)?;
        let hits = scores
            .argmax(D::Minus1)?
            .eq(&labels)?
            .to_dtype(DType::F64)?;
        Ok(hits.sum_all()?.to_scalar()?)
    }
}

impl Network {
    fn new(
        kind: Kind,
        images: ImageShape,
        norms: &BatchNorms,
        vars: &VarBuilder<'_>,
    ) -> candle_core::Result<Self> {
        Ok(match kind {
            Kind::Cnn => Self::Cnn(Cnn::new(images, vars)?),
            Kind::Mlp => Self::Mlp(Mlp::new(images, vars)?),
            Kind::Resnet => Self::ResNet(ResNet::new(images, norms, vars)?),
        })
    }

    /// Ten scores for each image.
    fn forward(&self, images: &Tensor, mode: Mode) -> candle_core::Result<Tensor> {
        match self {
            Self::Cnn(cnn) => cnn.forward(images),
            Self::Mlp(mlp) => mlp.forward(images),
            Self::ResNet(resnet) => resnet.forward(images, mode),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cnn => "cnn",
            Self::Mlp => "mlp",
            Self::Resnet => "resnet",
        })
    }
}

fn tensors(batch: Batch) -> Result<(Tensor, Tensor), Error> {
    let count = batch.labels.len();
    let ImageShape { rows, cols, .. } = batch.shape;
    let shape = (count, batch.shape.channels(), rows, cols);
    let images = Tensor::from_vec(batch.pixels, shape, &Device::Cpu)?;
    let labels = Tensor::from_vec(batch.labels, count, &Device::Cpu)?;
    Ok((images, labels))
}

/// The classes of all data sets.
pub(crate) const CLASSES: usize = 10;

//! `--engine xla`: the same training, from the same first values and in the same order, whose step
//! is one program that XLA compiles for the devices of a PJRT plugin.
//!
//! ```text
//! batch ─┬─ device 0: its part ─ gradients ─┬─ sum ─ the same update on every device
//!        └─ device 1: its part ─ gradients ─┘
//!           └─────────────────── one program ───────────────────┘
//! ```

mod initial;
mod place;

use std::time::Instant;

use meshwork_dtensor::{
    Cnn, CnnSizes, Compiled, DTensor, Error as TensorError, ImageBatch, Momentum, Scalar, Variable,
    VariableSet, compile,
};
use meshwork_strategy::{EnvironmentResolver, MultiWorkerMirroredStrategy};

use crate::args::Args;
use crate::data::Dataset;
use crate::error::Error;
use crate::images::Images;
use crate::model::{CLASSES, Kind};
use crate::optimizer::{INERTIA, part_of_rate};
use crate::report::{Reporter, Sharers, Step};
use crate::settings::Settings;
use crate::train::{Outcome, TEST_BATCH};
use crate::{job, plot};
use place::Place;

/// Trains on the devices that were asked for, and measures the network.
///
/// # Errors
///
/// [`Error::OneProcess`], [`Error::OtherNetwork`] and [`Error::UnevenBatch`] before anything is
/// read; [`Error::Plugin`] and [`Error::Program`]; as the other engine for the rest.
pub(crate) fn run(args: &Args) -> Result<(), Error> {
    if EnvironmentResolver::from_env().is_described() {
        return Err(Error::OneProcess);
    }
    let settings = Settings::new(args)?;
    if settings.model != Kind::Cnn {
        let model = settings.model;
        return Err(Error::OtherNetwork { model });
    }
    let (batch, devices) = (settings.global_batch.get(), args.devices as usize);
    if !batch.is_multiple_of(devices) {
        return Err(Error::UnevenBatch { batch, devices });
    }
    let images = Images::load(&args.data)?;
    job::check_results(args)?;
    let steps = settings.epoch_steps(images.train_len());
    let mut reporter = Reporter::new(steps, args.epochs.get(), args.json.as_deref());
    let mut run = Run::new(settings, &images, Place::new(args)?)?;
    let outcome = run.outcome(&mut reporter)?;
    reporter.finish(&outcome, Sharers::Devices(devices))?;
    plot::leave(args.plot.as_deref(), &outcome.losses)
}

/// What a run needs from its first step to its last.
struct Run<'a> {
    settings: Settings,
    images: &'a Images,
    place: Place,
    learner: Learner,
}

impl<'a> Run<'a> {
    fn new(settings: Settings, images: &'a Images, place: Place) -> Result<Self, Error> {
        let shape = images.train.shape();
        let sizes = CnnSizes {
            rows: shape.rows,
            columns: shape.cols,
            channels: shape.channels(),
            classes: CLASSES,
        };
        let mut cnn = Cnn::new(place.context(), place.mesh(), sizes)?;
        let values = initial::values(&sizes, settings.seed);
        for (own, value) in cnn.weights_mut().iter_mut().zip(values) {
            own.assign(&place.context().copy_to_mesh(value, own.layout())?)?;
        }
        let weights: Vec<_> = cnn.weights().iter().collect();
        let [rate, inertia] = [settings.rate.value(), INERTIA].map(f32::from_f64);
        let momentum = Momentum::new(rate, inertia, &weights)?;
        Ok(Self {
            settings,
            images,
            place,
            learner: Learner { cnn, momentum },
        })
    }

    /// All steps, and how much was learnt in them.
    fn outcome(&mut self, reporter: &mut Reporter) -> Result<Outcome, Error> {
        let start = Instant::now();
        let (epochs, batch) = (self.settings.epochs.get(), self.settings.global_batch.get());
        let all = self.settings.steps(self.images.train_len());
        // The order of images is that of a worker alone.
        let mut alone = MultiWorkerMirroredStrategy::alone()?;
        let order = alone.distribute_dataset(self.images.train_len(), batch)?;
        let order = order.shuffled(self.settings.seed);
        let mut step = compile(Learner::step);
        let mut losses = Vec::new();
        for epoch in 0..epochs as u64 {
            for batch in order.epoch(epoch) {
                let begin = Instant::now();
                let part = f32::from_f64(part_of_rate(losses.len(), all));
                let loss = self.step(&mut step, batch.indices(), part)?;
                losses.push(loss);
                let number = losses.len();
                if !loss.is_finite() {
                    let (step, rate) = (number, self.settings.rate.value());
                    return Err(Error::LossNotFinite { step, loss, rate });
                }
                reporter.step(&Step {
                    number,
                    loss,
                    samples: batch.global_len(),
                    elapsed: begin.elapsed(),
                    allreduce_gbps: None,
                })?;
            }
        }
        let test_accuracy = self.accuracy()?;
        Ok(Outcome {
            losses,
            test_accuracy,
            wall: start.elapsed(),
        })
    }

    /// One step with images of these numbers, and their mean loss before it.
    fn step<F>(
        &mut self,
        step: &mut Compiled<Learner, Given, DTensor<f32>, F>,
        indices: &[usize],
        part_of_rate: f32,
    ) -> Result<f32, Error>
    where
        F: FnMut(&mut Learner, &Given) -> Result<DTensor<f32>, TensorError>,
    {
        let batch = self.place.batch(self.images.train.gather(indices))?;
        let given = (batch, self.place.number(part_of_rate)?);
        let loss = step.call(&mut self.learner, &given)?;
        Ok(loss.to_host()?.sum())
    }

    /// The part of the test images whose class has the highest score.
    fn accuracy(&mut self) -> Result<f64, Error> {
        let data: &Dataset = &self.images.test;
        let mut classes = compile(|learner: &mut Learner, images: &DTensor<f32>| {
            learner.cnn.scores(images)?.argmax(1)
        });
        let size = self.place.evenly(TEST_BATCH);
        let numbers: Vec<usize> = (0..data.len()).collect();
        let mut correct = 0;
        for chunk in numbers.chunks(size) {
            // Of one size, so that there is one program; what fills the last one is not counted.
            let mut whole = chunk.to_vec();
            whole.resize(size, chunk[0]);
            let batch = data.gather(&whole);
            let labels = batch.labels.clone();
            let (images, _) = self.place.batch(batch)?;
            let found = classes.call(&mut self.learner, &images)?.to_host()?;
            let both = found.iter().zip(&labels).take(chunk.len());
            correct += both
                .filter(|(found, label)| **found == i64::from(**label))
                .count();
        }
        Ok(correct as f64 / data.len() as f64)
    }
}

/// A network, and how it learns.
struct Learner {
    cnn: Cnn,
    momentum: Momentum<f32>,
}

/// A batch, and the part of the learning rate at which it is learnt from.
type Given = (ImageBatch, DTensor<f32>);

impl Learner {
    /// One step, and the mean loss before it.
    fn step(&mut self, given: &Given) -> Result<DTensor<f32>, TensorError> {
        let (batch, part) = given;
        let (loss, slopes) = self.cnn.gradients(batch)?;
        let updates = self.cnn.weights_mut().iter_mut().zip(&slopes);
        self.momentum.step_by(part, updates)?;
        Ok(loss)
    }
}

impl VariableSet for Learner {
    fn visit(&mut self, visit: &mut dyn FnMut(&mut dyn Variable)) {
        (&mut self.cnn, &mut self.momentum).visit(visit);
    }
}

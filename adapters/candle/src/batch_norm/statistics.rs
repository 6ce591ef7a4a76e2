//! Running statistics of all layers, and the sums over workers that batches are normalised by.

use std::collections::{BTreeMap, BTreeSet};

use meshwork_strategy::{MultiWorkerMirroredStrategy, Snapshot, StepSum, VariableSpec};

use super::Inputs;
use crate::Error;

/// The statistics of all layers, by their names.
#[derive(Debug)]
pub(super) struct Statistics {
    pub(super) epsilon: f64,
    pub(super) momentum: f64,
    pub(super) inputs: Inputs,
    layers: BTreeMap<String, Layer>,
    reach: Reach,
}

/// Whose batches count.
#[derive(Debug)]
enum Reach {
    /// Those of this worker.
    Worker,
    /// Those of all, by sums of these lengths.
    AllWorkers(BTreeMap<usize, StepSum>),
}

#[derive(Debug)]
struct Layer {
    running: Moments,
    /// What a step that is made again begins with.
    committed: Moments,
}

/// A mean and a variance for each feature.
#[derive(Clone, Debug)]
struct Moments {
    mean: Vec<f32>,
    variance: Vec<f32>,
}

/// What a batch is normalised by.
#[derive(Debug)]
pub(super) struct Batch {
    /// Values of each feature, of all workers if batches are synchronised.
    pub(super) count: f64,
    pub(super) mean: Vec<f32>,
    /// What makes variances 1.
    pub(super) scale: Vec<f32>,
    pub(super) inputs: Inputs,
}

impl Default for Statistics {
    fn default() -> Self {
        Self {
            epsilon: 1e-5,
            momentum: 0.1,
            inputs: Inputs::default(),
            layers: BTreeMap::new(),
            reach: Reach::Worker,
        }
    }
}

impl Statistics {
    /// Adds a layer, unless it is there.
    pub(super) fn add(&mut self, name: &str, features: usize) -> Result<(), Error> {
        match self.layers.get(name) {
            None => {
                let layer = Layer::new(features);
                self.layers.insert(name.to_owned(), layer);
                Ok(())
            }
            Some(layer) if layer.features() == features => Ok(()),
            Some(layer) => Err(Error::NormFeatures {
                name: name.to_owned(),
                features,
                found: layer.features(),
            }),
        }
    }

    pub(super) fn synchronize(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
    ) -> Result<(), Error> {
        let features = self.layers.values().map(Layer::features);
        let lens = features.flat_map(|features| [forward_len(features), backward_len(features)]);
        // Each length once, in one order on all workers.
        let lens: BTreeSet<_> = lens.collect();
        let sums = lens
            .into_iter()
            .map(|len| Ok((len, StepSum::new(strategy, len)?)));
        self.reach = Reach::AllWorkers(sums.collect::<Result<_, Error>>()?);
        Ok(())
    }

    /// Replaces `numbers` by their sums over the workers whose batches count.
    pub(super) fn add_up(&mut self, name: &str, numbers: &mut [f64]) -> Result<(), Error> {
        match &mut self.reach {
            Reach::Worker => Ok(()),
            Reach::AllWorkers(sums) => match sums.get_mut(&numbers.len()) {
                Some(sum) => Ok(sum.add_up(numbers)?),
                None => Err(Error::NormIsLate {
                    name: name.to_owned(),
                }),
            },
        }
    }

    /// What a batch is normalised by whose sums these are on this worker: of the values of each
    /// feature, of their squares, and their count. Goes into the running statistics.
    pub(super) fn observe(&mut self, name: &str, sums: &mut [f64]) -> Result<Batch, Error> {
        let (epsilon, momentum, inputs) = (self.epsilon, self.momentum, self.inputs);
        let momentum = match (&self.reach, inputs) {
            (_, Inputs::Samples) => momentum,
            (Reach::Worker, Inputs::Padding) => 0.0,
            (Reach::AllWorkers(_), Inputs::Padding) => {
                sums.fill(0.0);
                momentum
            }
        };
        self.add_up(name, sums)?;
        let layer = self.layer(name);
        let features = layer.features();
        let count = sums[2 * features];
        if count < 2.0 {
            return Err(Error::NormOfOne {
                name: name.to_owned(),
            });
        }
        let mut batch = Batch {
            count,
            mean: Vec::with_capacity(features),
            scale: Vec::with_capacity(features),
            inputs,
        };
        for feature in 0..features {
            let mean = sums[feature] / count;
            let variance = (sums[features + feature] / count - mean * mean).max(0.0);
            batch.mean.push(narrow(mean));
            batch.scale.push(narrow(1.0 / (variance + epsilon).sqrt()));
            let unbiased = variance * count / (count - 1.0);
            let Moments {
                mean: means,
                variance: variances,
            } = &mut layer.running;
            approach(&mut means[feature], mean, momentum);
            approach(&mut variances[feature], unbiased, momentum);
        }
        Ok(batch)
    }

    /// The running means, and what makes running variances 1.
    pub(super) fn scales(&mut self, name: &str) -> [Vec<f32>; 2] {
        let epsilon = self.epsilon;
        let Moments { mean, variance } = &self.layer(name).running;
        let scale = |variance: &f32| narrow(1.0 / (f64::from(*variance) + epsilon).sqrt());
        [mean.clone(), variance.iter().map(scale).collect()]
    }

    pub(super) fn commit(&mut self) {
        for layer in self.layers.values_mut() {
            layer.committed.clone_from(&layer.running);
        }
    }

    pub(super) fn roll_back(&mut self) {
        for layer in self.layers.values_mut() {
            layer.running.clone_from(&layer.committed);
        }
    }

    pub(super) fn broadcast(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
    ) -> Result<(), Error> {
        let specs = self.specs()?;
        let mut values = self.values();
        strategy.scope(|scope| scope.mirror(&specs, &mut values))?;
        let mut rest = &values[..];
        for moments in self.moments_mut() {
            let (mine, behind) = rest.split_at(moments.len());
            moments.copy_from_slice(mine);
            rest = behind;
        }
        self.commit();
        Ok(())
    }

    /// All running statistics, in the order of the names of their layers.
    pub(super) fn values(&self) -> Vec<f32> {
        let running = self.layers.values().map(|layer| &layer.running);
        running
            .flat_map(|moments| [&moments.mean[..], &moments.variance[..]])
            .flatten()
            .copied()
            .collect()
    }

    pub(super) fn save(&self, mut snapshot: Snapshot) -> Result<Snapshot, Error> {
        let (specs, values) = (self.specs()?, self.values());
        let mut rest = &values[..];
        for spec in &specs {
            let (mine, behind) = rest.split_at(spec.len());
            snapshot = snapshot.with_array(spec, mine)?;
            rest = behind;
        }
        Ok(snapshot)
    }

    pub(super) fn restore(&mut self, snapshot: &Snapshot) -> Result<(), Error> {
        let specs = self.specs()?;
        for (spec, moments) in specs.iter().zip(self.moments_mut()) {
            moments.copy_from_slice(snapshot.array(spec)?);
        }
        self.commit();
        Ok(())
    }

    /// Names and shapes, in the order of [`values`](Self::values).
    fn specs(&self) -> Result<Vec<VariableSpec>, Error> {
        let mut specs = Vec::with_capacity(2 * self.layers.len());
        for (name, layer) in &self.layers {
            for what in ["running_mean", "running_var"] {
                let shape = [layer.features()];
                specs.push(VariableSpec::new(format!("{name}.{what}"), &shape)?);
            }
        }
        Ok(specs)
    }

    fn moments_mut(&mut self) -> impl Iterator<Item = &mut Vec<f32>> {
        let running = self.layers.values_mut().map(|layer| &mut layer.running);
        running.flat_map(|moments| [&mut moments.mean, &mut moments.variance])
    }

    fn layer(&mut self, name: &str) -> &mut Layer {
        let layer = self.layers.get_mut(name);
        layer.expect("layers are added when they are made")
    }
}

impl Layer {
    fn new(features: usize) -> Self {
        let running = Moments {
            mean: vec![0.0; features],
            variance: vec![1.0; features],
        };
        let committed = running.clone();
        Self { running, committed }
    }

    fn features(&self) -> usize {
        self.running.mean.len()
    }
}

/// Numbers that a forward pass sums: of each feature two, and the count.
pub(super) fn forward_len(features: usize) -> usize {
    2 * features + 1
}

/// Numbers that a backward pass sums.
pub(super) fn backward_len(features: usize) -> usize {
    2 * features
}

/// Takes a part of the way to `new`.
fn approach(running: &mut f32, new: f64, part: f64) {
    *running = narrow(f64::from(*running) * (1.0 - part) + new * part);
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "statistics are of the precision of variables"
)]
fn narrow(value: f64) -> f32 {
    value as f32
}

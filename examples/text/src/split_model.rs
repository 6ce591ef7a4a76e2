//! The transformer with a part of its state in each worker.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::ops::Range;

use candle_core::{DType, Device};
use candle_nn::{VarBuilder, VarMap};
use meshwork_candle::{ModuleUnit, Sharded, ShardedStack};
use meshwork_strategy::sharded::{self, Shard, ShardGroup, Sharding};
use meshwork_strategy::{MultiWorkerMirroredStrategy, VariableSpec};

use crate::initial::{weight_of, write};
use crate::model::{Embedding, Head, Layer, Size, loss_of, numbers};
use crate::optimizer::{BETAS, DECAY, EPSILON};
use crate::{Batch, Error, Model};

/// A transformer that is trained with a part of it in each worker.
#[derive(Debug)]
pub struct SplitModel {
    size: Size,
    characters: usize,
    passes: NonZeroU32,
    kept: Kept,
}

/// What each worker has.
#[derive(Debug)]
enum Kept {
    Whole {
        model: Box<Model>,
        training: Box<Sharded<sharded::AdamW>>,
    },
    Units(Box<ShardedStack<sharded::AdamW>>),
}

/// How a transformer is trained in parts.
#[derive(Clone, Copy, Debug)]
pub struct Split {
    /// What each worker keeps a part of.
    pub shard: Shard,
    /// Workers that keep one model together, if not all do.
    pub group: Option<NonZeroU32>,
    /// Batches that are added up for a step.
    pub passes: NonZeroU32,
    /// The norm that gradients are clipped at.
    pub max_norm: f32,
    /// Decides initial values.
    pub seed: u64,
}

impl SplitModel {
    /// A transformer with the initial values of [`Model::seeded`].
    ///
    /// # Errors
    /// [`Error::Workers`] if models or settings differ between workers, or one is lost;
    /// [`Error::Network`] if candle refuses an operation.
    pub fn new(
        strategy: MultiWorkerMirroredStrategy,
        size: Size,
        characters: usize,
        split: Split,
    ) -> Result<Self, Error> {
        let optimizer = adamw(0.0);
        let group = split.group.map_or(ShardGroup::All, ShardGroup::Workers);
        let sharding = Sharding::new(split.shard)
            .with_group(group)
            .with_max_norm(split.max_norm)
            .with_accumulation(split.passes);
        let kept = match split.shard {
            Shard::Nothing | Shard::Optimizer | Shard::Gradients => {
                let vars = VarMap::new();
                let model = Model::seeded(&vars, size, characters, split.seed, &Device::Cpu)?;
                let training = Sharded::with_strategy(strategy, &vars, optimizer, sharding)?;
                Kept::Whole {
                    model: Box::new(model),
                    training: Box::new(training),
                }
            }
            Shard::Parameters => {
                let units = units(size, characters)?;
                let initial = initial(&units, split.seed)?;
                let stack =
                    ShardedStack::with_initial(strategy, units, optimizer, sharding, initial)?;
                Kept::Units(Box::new(stack))
            }
        };
        Ok(Self {
            size,
            characters,
            passes: split.passes,
            kept,
        })
    }

    /// A step with the batches of this worker, as many as a step adds up, at a learning rate.
    /// Returns the mean loss of all batches of all workers, before it.
    ///
    /// # Errors
    /// [`Error::Network`] if candle refuses an operation, [`Error::Workers`] if a worker is lost,
    /// or has another number of batches.
    pub fn step(&mut self, batches: &[Batch], rate: f64) -> Result<f32, Error> {
        let share = 1.0 / f64::from(self.passes.get());
        let Some((last, before)) = batches.split_last() else {
            return Err(Error::NoBatch);
        };
        match &mut self.kept {
            Kept::Whole { model, training } => {
                *training.optimizer_mut() = adamw(rate);
                for batch in before {
                    training.accumulate(&(model.loss(batch)? * share)?)?;
                }
                Ok(training.backward_step(&(model.loss(last)? * share)?)?)
            }
            Kept::Units(stack) => {
                *stack.optimizer_mut() = adamw(rate);
                for batch in before {
                    let input = numbers(&batch.inputs, batch.context, &Device::Cpu)?;
                    stack.accumulate(&input, |scores| loss_of(scores, batch)? * share)?;
                }
                let input = numbers(&last.inputs, last.context, &Device::Cpu)?;
                Ok(stack.backward_step(&input, |scores| loss_of(scores, last)? * share)?)
            }
        }
    }

    /// Parameters of the whole model.
    #[must_use]
    pub fn parameters(&self) -> usize {
        match &self.kept {
            Kept::Whole { training, .. } => training.parameters(),
            Kept::Units(stack) => stack.parameters(),
        }
    }

    /// The strategy, such as to tell the others of an error.
    pub fn strategy_mut(&mut self) -> &mut MultiWorkerMirroredStrategy {
        match &mut self.kept {
            Kept::Whole { training, .. } => training.strategy_mut(),
            Kept::Units(stack) => stack.strategy_mut(),
        }
    }

    /// The whole model, on every worker.
    ///
    /// # Errors
    /// [`Error::Workers`] if a worker is lost, [`Error::Network`] if candle refuses an operation.
    pub fn into_whole(self) -> Result<(Model, MultiWorkerMirroredStrategy), Error> {
        match self.kept {
            Kept::Whole { model, training } => Ok((*model, training.into_strategy()?)),
            Kept::Units(mut stack) => {
                let tensors = stack.tensors()?;
                let vars = VarBuilder::from_tensors(tensors, DType::F32, &Device::Cpu);
                let model = Model::over(&vars, self.size, self.characters)?;
                Ok((model, stack.into_strategy()?))
            }
        }
    }
}

/// The transformer as units: what stands for characters, each layer, and what scores them.
///
/// # Errors
/// [`Error::Network`] if candle refuses an operation.
fn units(size: Size, characters: usize) -> Result<Vec<ModuleUnit>, Error> {
    let mut units = vec![ModuleUnit::new("embedding", move |vars| {
        Embedding::new(&vars, size, characters)
    })?];
    for index in 0..size.layers {
        let layer = ModuleUnit::new(format!("layer{index}"), move |vars| {
            Layer::new(&vars, size, index)
        });
        units.push(layer?);
    }
    units.push(ModuleUnit::new("head", move |vars| {
        Head::new(&vars, size, characters)
    })?);
    Ok(units)
}

/// What writes the initial values of rows.
fn initial(
    units: &[ModuleUnit],
    seed: u64,
) -> Result<impl FnMut(&VariableSpec, Range<usize>, &mut [f32]) + use<>, Error> {
    let specs = sharded::Stack::new(units).specs()?;
    let all = specs.iter().flat_map(|unit| unit.parameters());
    let widths = all.filter_map(|spec| Some((spec.name().to_owned(), *spec.shape().last()?)));
    let widths: HashMap<String, usize> = widths.collect();
    Ok(
        move |spec: &VariableSpec, elements: Range<usize>, rows: &mut [f32]| {
            let weight = weight_of(spec.name()).filter(|weight| widths.contains_key(weight));
            let inputs = match weight {
                Some(weight) => widths[&weight],
                None => widths[spec.name()],
            };
            write(spec.name(), inputs, seed, elements, rows);
        },
    )
}

/// The optimizer of this example at a learning rate.
#[expect(
    clippy::cast_possible_truncation,
    reason = "variables are of this precision"
)]
fn adamw(rate: f64) -> sharded::AdamW {
    sharded::AdamW::new(rate as f32)
        .with_betas(BETAS)
        .with_epsilon(EPSILON)
        .with_weight_decay(DECAY as f32)
}

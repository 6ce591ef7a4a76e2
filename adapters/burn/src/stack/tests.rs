//! Models of units among threads: equal losses whatever is sharded, and those of burn's own
//! optimizer on the whole model; frozen and tied parameters; a loss of a worker; files.

use std::cell::Cell;

use burn_core as burn;
use burn_core::module::{Module, Param};
use burn_core::tensor::{DType, Device, Int, TensorData};
use burn_optim::{AdamWConfig, GradientsParams};
use meshwork_collectives::Group;
use meshwork_strategy::sharded::{AdamW, Sgd, Shard};
use meshwork_testing::in_threads;

use super::*;
use crate::testing::each;

const KINDS: [Shard; 4] = [
    Shard::Nothing,
    Shard::Optimizer,
    Shard::Gradients,
    Shard::Parameters,
];
const STEPS: usize = 4;

/// Looks tokens up in a table.
#[derive(Module, Debug)]
struct Embed {
    table: Param<Tensor<2>>,
}

/// Two weights, a bias, and what is not trained.
#[derive(Module, Debug)]
struct Block {
    weight: Param<Tensor<2>>,
    again: Param<Tensor<2>>,
    bias: Param<Tensor<1>>,
    scale: Param<Tensor<1>>,
}

#[derive(Module, Debug)]
struct Whole {
    embed: Embed,
    first: Block,
    second: Block,
}

fn filled<const D: usize>(shape: [usize; D], start: usize) -> Param<Tensor<D>> {
    let values = (start..start + shape.iter().product::<usize>()).map(|at| (at as f32).sin());
    let values = TensorData::new(values.collect(), shape);
    Param::from_data(values, &Device::flex().autodiff())
}

impl Embed {
    fn new() -> Self {
        let table = filled([7, 3], 0);
        Self { table }
    }

    fn forward(&self, tokens: Tensor<2, Int>) -> Tensor<3> {
        burn_core::tensor::module::embedding(self.table.val(), tokens)
    }
}

impl Block {
    /// With one weight in two places.
    fn tied(start: usize) -> Self {
        let weight = filled([3, 3], start);
        let again = weight.clone();
        let untied = Self::new(start);
        Self {
            weight,
            again,
            ..untied
        }
    }

    fn new(start: usize) -> Self {
        let (weight, again) = (filled([3, 3], start), filled([3, 3], start + 11));
        let bias = filled([3], start + 5);
        let scale = filled([3], 1).set_require_grad(false);
        Self {
            weight,
            again,
            bias,
            scale,
        }
    }

    fn forward(&self, input: Tensor<3>) -> Tensor<3> {
        let hidden = input.matmul(self.weight.val().unsqueeze()) + self.bias.val().unsqueeze();
        let output = hidden.tanh().matmul(self.again.val().unsqueeze());
        output * self.scale.val().unsqueeze()
    }
}

fn units() -> Vec<BurnUnit> {
    units_of(Block::tied)
}

fn units_of(build: fn(usize) -> Block) -> Vec<BurnUnit> {
    let embed = |embed: &Embed, input: Activation| embed.forward(input.ints()).into();
    let block = |name, start| {
        let forward = |block: &Block, input: Activation| block.forward(input.tensor()).into();
        BurnUnit::new(name, move || build(start), forward).unwrap()
    };
    let embed = BurnUnit::new("embed", Embed::new, embed).unwrap();
    vec![embed, block("first", 20), block("second", 40)]
}

fn tokens(step: usize, worker: usize) -> Tensor<2, Int> {
    let tokens: Vec<i64> = (0..8)
        .map(|at| ((at * 3 + step + worker * 2) % 7) as i64)
        .collect();
    Tensor::from_data(TensorData::new(tokens, [2, 4]), &Device::flex())
}

fn loss(output: Tensor<3>) -> Tensor<1> {
    (output - 0.5).square().mean()
}

fn step(
    strategy: &mut MultiWorkerMirroredStrategy,
    model: &mut ShardedUnits<AdamW>,
    step: usize,
) -> f32 {
    let worker = strategy.rank().index();
    let loss = strategy.run(|replica| {
        let loss = model.accumulate(replica, tokens(step, worker), loss)?;
        model.step(replica)?;
        Ok::<_, Error>(loss)
    });
    loss.unwrap().into_first()
}

fn outputs(
    strategy: &mut MultiWorkerMirroredStrategy,
    model: &mut ShardedUnits<AdamW>,
) -> Vec<f32> {
    let output = strategy.run(|replica| model.forward::<3>(replica, tokens(9, 0)));
    let output = output.unwrap().into_first();
    output.into_data().try_to_vec::<f32>().unwrap()
}

fn losses(workers: u32, sharding: Sharding, build: fn(usize) -> Block) -> Vec<Vec<f32>> {
    each(workers, |mut strategy| {
        let optimizer = AdamW::new(0.05);
        let mut model =
            ShardedUnits::new(&mut strategy, units_of(build), optimizer, sharding).unwrap();
        let losses = (0..STEPS)
            .map(|at| step(&mut strategy, &mut model, at))
            .collect();
        assert_eq!(model.steps(), STEPS as u64);
        strategy.leave().unwrap();
        losses
    })
}

#[test]
fn losses_are_the_same_to_the_bit_whatever_is_sharded_among_1_2_and_3_workers() {
    for workers in 1..4 {
        let whole = losses(
            workers,
            Sharding::new(Shard::Nothing).with_max_norm(0.5),
            Block::tied,
        );
        for shard in KINDS {
            let sharding = Sharding::new(shard).with_max_norm(0.5);
            assert_eq!(
                losses(workers, sharding, Block::tied),
                whole,
                "{shard:?} of {workers}"
            );
        }
    }
}

#[test]
fn losses_are_those_of_burns_own_optimizer_on_the_whole_model() {
    let mut model = Whole {
        embed: Embed::new(),
        first: Block::new(20),
        second: Block::new(40),
    };
    let config = AdamWConfig::new().with_epsilon(1e-8).with_weight_decay(0.0);
    let mut optimizer = config.init();
    let found = losses(1, Sharding::new(Shard::Parameters), Block::new).remove(0);
    for (at, found) in found.into_iter().enumerate() {
        let hidden = model.first.forward(model.embed.forward(tokens(at, 0)));
        let loss = loss(model.second.forward(hidden));
        let expected = loss.clone().into_scalar::<f32>();
        assert!(
            (found - expected).abs() < 1e-5,
            "step {at}: {found} {expected}"
        );
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(0.05, model, gradients);
    }
}

/// One weight, twice.
#[derive(Module, Debug)]
struct Twice {
    one: Param<Tensor<1>>,
    other: Param<Tensor<1>>,
}

#[test]
fn a_parameter_in_two_places_of_a_unit_has_the_gradient_of_both() {
    let build = || {
        let one = Param::from_data([1.0], &Device::flex().autodiff());
        let other = one.clone();
        Twice { one, other }
    };
    let forward = |twice: &Twice, input: Activation| {
        let input = input.tensor::<1>();
        (input.clone() * twice.one.val() + input * twice.other.val()).into()
    };
    let units = vec![BurnUnit::new("twice", build, forward).unwrap()];
    let mut strategy = MultiWorkerMirroredStrategy::alone().unwrap();
    let sharding = Shard::Parameters;
    let mut model = ShardedUnits::new(&mut strategy, units, Sgd::new(0.1), sharding).unwrap();
    let input = Tensor::<1>::from_data([3.0], &Device::flex());
    let output = strategy.run(|replica| {
        model.accumulate(replica, input.clone(), |output: Tensor<1>| output.sum())?;
        model.step(replica)?;
        model.forward::<1>(replica, input.clone())
    });
    // The weight is 1 - 0.1 × 2 × 3.
    let output = output.unwrap().into_first().into_scalar::<f32>();
    assert!((output - 2.0 * 3.0 * 0.4).abs() < 1e-6, "{output}");
}

#[test]
fn a_name_in_two_units_is_refused() {
    let mut strategy = MultiWorkerMirroredStrategy::alone().unwrap();
    let twice = units().into_iter().chain(units()).collect();
    let made = ShardedUnits::new(&mut strategy, twice, AdamW::new(0.1), Shard::Parameters);
    let told = made.unwrap_err().to_string();
    assert!(told.contains("embed.table"), "{told}");
}

#[test]
fn what_is_saved_by_three_workers_is_loaded_by_two_and_computes_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = ShardedCheckpoints::new(folder.path());
    let saved = each(3, |mut strategy| {
        let optimizer = AdamW::new(0.05);
        let mut model =
            ShardedUnits::new(&mut strategy, units(), optimizer, Shard::Parameters).unwrap();
        step(&mut strategy, &mut model, 0);
        let saved = strategy.run(|replica| {
            model.save(replica, &checkpoints)?;
            model.finish_save(replica)
        });
        saved.unwrap();
        let outputs = outputs(&mut strategy, &mut model);
        strategy.leave().unwrap();
        outputs
    });
    let loaded = each(2, |mut strategy| {
        let optimizer = AdamW::new(0.05);
        let mut model =
            ShardedUnits::new(&mut strategy, units(), optimizer, Shard::Gradients).unwrap();
        let step = strategy.run(|replica| model.load(replica, &checkpoints));
        assert_eq!(step.unwrap().into_first(), Some(1));
        let outputs = outputs(&mut strategy, &mut model);
        strategy.leave().unwrap();
        outputs
    });
    assert!(
        saved
            .iter()
            .chain(&loaded)
            .all(|output| *output == saved[0])
    );
}

/// Of three workers one is lost, and the losses of the others, with as many newcomers, are those of
/// a checkpoint.
fn goes_on(newcomers: u32) {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = ShardedCheckpoints::new(folder.path());
    let sharding = Sharding::new(Shard::Parameters).with_neighbour_copies();
    let trained = each(3, |mut strategy| {
        let optimizer = AdamW::new(0.05);
        let mut model = ShardedUnits::new(&mut strategy, units(), optimizer, sharding).unwrap();
        step(&mut strategy, &mut model, 0);
        let saved = strategy.run(|replica| {
            model.save(replica, &checkpoints)?;
            model.finish_save(replica)
        });
        saved.unwrap();
        let is_lost = strategy.rank().index() == 1;
        (!is_lost).then_some((strategy, model))
    });
    let left = trained.into_iter().flatten().map(Some);
    let all: Vec<_> = left.chain((0..newcomers).map(|_| None)).collect();
    let groups = Group::local(2 + newcomers).unwrap();
    let found = in_threads(groups.into_iter().zip(all), |(group, old)| {
        let mut strategy = MultiWorkerMirroredStrategy::from_group(group).unwrap();
        let (_old, mut model) = match old {
            Some((old, model)) => (Some(old), model),
            None => {
                let optimizer = AdamW::new(0.05);
                let made = ShardedUnits::elastic(&strategy, units(), optimizer, sharding);
                (None, made.unwrap())
            }
        };
        assert_eq!(model.regroup(&mut strategy).unwrap(), Regrouped::Kept);
        let losses = [1, 2].map(|at| step(&mut strategy, &mut model, at));
        strategy.leave().unwrap();
        losses[1]
    });
    let expected = each(2 + newcomers, |mut strategy| {
        let optimizer = AdamW::new(0.05);
        let mut model = ShardedUnits::new(&mut strategy, units(), optimizer, sharding).unwrap();
        strategy
            .run(|replica| model.load(replica, &checkpoints))
            .unwrap();
        let losses = [1, 2].map(|at| step(&mut strategy, &mut model, at));
        strategy.leave().unwrap();
        losses[1]
    });
    assert_eq!(found, expected);
}

#[test]
fn a_model_of_units_goes_on_without_a_lost_worker_and_with_newcomers() {
    goes_on(0);
    goes_on(2);
}

#[test]
fn a_newcomer_that_is_made_as_in_a_new_job_has_the_values_of_the_others() {
    let make = |strategy: &mut MultiWorkerMirroredStrategy| {
        let sharding = Sharding::new(Shard::Parameters).with_neighbour_copies();
        ShardedUnits::new(strategy, units(), AdamW::new(0.05), sharding).unwrap()
    };
    let trained = each(2, |mut strategy| {
        let mut model = make(&mut strategy);
        step(&mut strategy, &mut model, 0);
        let outputs = outputs(&mut strategy, &mut model);
        ((strategy, model), outputs)
    });
    let (left, expected): (Vec<_>, Vec<_>) = trained.into_iter().unzip();
    let groups = Group::local(3).unwrap().into_iter();
    let all = groups.zip(left.into_iter().map(Some).chain([None]));
    let found = in_threads(all, |(group, old)| {
        let mut strategy = MultiWorkerMirroredStrategy::from_group(group).unwrap();
        let mut model = match old {
            Some((_old, mut model)) => {
                assert_eq!(model.regroup(&mut strategy).unwrap(), Regrouped::Kept);
                model
            }
            None => make(&mut strategy),
        };
        let outputs = outputs(&mut strategy, &mut model);
        strategy.leave().unwrap();
        outputs
    });
    assert!(found.iter().all(|outputs| *outputs == expected[0]));
}

#[derive(Module, Debug)]
struct Scale {
    weight: Param<Tensor<1>>,
}

#[test]
fn values_that_one_worker_cannot_read_are_no_beginning_on_any() {
    let errors = each(2, |mut strategy| {
        let (is_last, built) = (strategy.rank().index() == 1, Cell::new(0));
        let build = move || {
            built.set(built.get() + 1);
            // The first time its parameters are looked at, and the second time taken.
            let dtype = match is_last && built.get() == 2 {
                true => DType::F64,
                false => DType::F32,
            };
            let device = Device::flex().autodiff();
            let weight = Tensor::<1>::from_data([1.0, 2.0], (&device, dtype));
            Scale {
                weight: Param::from_tensor(weight),
            }
        };
        let forward = |scale: &Scale, input: Activation| {
            let output = input.tensor::<1>() * scale.weight.val();
            output.into()
        };
        let units = vec![BurnUnit::new("scale", build, forward).unwrap()];
        let made = ShardedUnits::new(&mut strategy, units, Sgd::new(0.1), Shard::Optimizer);
        made.unwrap_err()
    });
    let Error::Strategy(first) = &errors[0] else {
        panic!("{errors:?}");
    };
    let at_fault = first.rank_at_fault().map(|rank| rank.index());
    assert_eq!(at_fault, Some(1), "{first}");
    let is_type = matches!(errors[1], Error::ElementType { .. });
    assert!(is_type, "{errors:?}");
}

#[test]
fn what_is_no_loss_of_others_is_returned() {
    let mut strategy = MultiWorkerMirroredStrategy::alone().unwrap();
    let optimizer = AdamW::new(0.05);
    let made = ShardedUnits::new(&mut strategy, units(), optimizer, Shard::Parameters);
    let mut model = made.unwrap();
    let early = strategy.run(|replica| model.step(replica));
    let early = early.map(drop).unwrap_err();
    let told = early.to_string();
    let returned = model.go_on(&mut strategy, early).unwrap_err();
    assert_eq!(returned.to_string(), told);
    assert_eq!(model.admit(&mut strategy).unwrap(), None);
}

//! Sharded training with workers that are threads of one process: against burn's own optimizer on
//! the mean of all workers' gradients, whatever is sharded; parameters in two places; files.

mod survivors;

use burn_core as burn;
use burn_core::module::{Param, RunningState};
use burn_core::tensor::{Device, Tensor};
use burn_optim::AdamWConfig;
use meshwork_strategy::sharded::{AdamW, Sgd, Shard};

use super::*;
use crate::MirroredParams;
use crate::testing::each;

const KINDS: [Shard; 3] = [Shard::Nothing, Shard::Optimizer, Shard::Gradients];

/// Two weights, a bias, what the loss does not depend on, and what is not trained.
#[derive(Module, Debug)]
struct Network {
    mean: RunningState<Tensor<1>>,
    first: Param<Tensor<2>>,
    bias: Param<Tensor<1>>,
    again: Param<Tensor<2>>,
    unused: Param<Tensor<1>>,
}

impl Network {
    fn new(own: usize) -> Self {
        let device = Device::flex().autodiff();
        let weight = |start: usize| {
            let values = (start..start + 9).map(|at| ((at * 7 + own) as f32 * 0.618).sin());
            Param::from_data(TensorData::new(values.collect(), [3, 3]), &device)
        };
        Self {
            mean: RunningState::new(Tensor::from_data([own as f32; 3], &device)),
            first: weight(0),
            again: weight(20),
            bias: Param::from_data([0.1 + own as f32; 3], &device),
            unused: Param::from_data([1.0, 2.0], &device),
        }
    }

    fn gradients(&self, step: usize, worker: usize) -> GradientsParams {
        let values = (0..12).map(|at| ((at + step * 5 + worker * 3) as f32).cos());
        let inputs = TensorData::new(values.collect(), [4, 3]);
        let inputs = Tensor::<2>::from_data(inputs, &Device::flex().autodiff());
        let hidden = (inputs.matmul(self.first.val()) + self.bias.val().unsqueeze()).tanh();
        let outputs = hidden.matmul(self.again.val()) + self.mean.value().unsqueeze();
        GradientsParams::from_grads(outputs.square().mean().backward(), self)
    }

    fn values(&self) -> Vec<Vec<f32>> {
        fn of<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
            tensor.into_data().try_to_vec().unwrap()
        }
        vec![
            of(self.first.val()),
            of(self.again.val()),
            of(self.bias.val()),
            of(self.unused.val()),
            of(self.mean.value()),
        ]
    }
}

fn adamw() -> AdamW {
    AdamW::new(0.02).with_weight_decay(0.05)
}

/// A step with the gradients of so many passes.
fn step<O: ElementWise>(
    strategy: &mut MultiWorkerMirroredStrategy,
    sharded: &mut ShardedParams<O>,
    network: Network,
    number: usize,
    passes: usize,
) -> Network {
    let worker = strategy.rank().index();
    let stepped = strategy.run(|replica| {
        for pass in 0..passes {
            let gradients = network.gradients(number * passes + pass, worker);
            sharded.add_gradients(replica, &network, gradients)?;
        }
        sharded.step(replica, network.clone())
    });
    stepped.unwrap().into_first()
}

#[test]
fn any_shards_train_as_burns_optimizer_with_the_mean_of_all_gradients() {
    for workers in [1, 2, 4] {
        let by_burn = each(workers, |mut strategy| {
            let worker = strategy.rank().index();
            let (mut mirrored, mut network) =
                MirroredParams::new(&mut strategy, Network::new(worker)).unwrap();
            let config = AdamWConfig::new()
                .with_weight_decay(0.05)
                .with_epsilon(1e-8);
            let mut optimizer = config.init();
            for number in 0..4 {
                let gradients = network.gradients(number, worker);
                let reduced = strategy.run(|replica| {
                    let share = 1.0 / replica.num_replicas_in_sync() as f32;
                    mirrored.all_reduce(replica, &network, gradients, share)
                });
                let mut reduced = reduced.unwrap().into_first();
                // Of a shard, no gradient counts as zero.
                let device = network.unused.device().without_autodiff();
                let none = Tensor::<1>::zeros([2], &device);
                reduced.register(network.unused.id, none);
                network = optimizer.step(0.02, network, reduced);
            }
            strategy.leave().unwrap();
            network.values()
        });
        let sharded = KINDS.map(|shard| {
            let ended = each(workers, |mut strategy| {
                let network = Network::new(strategy.rank().index());
                let (mut sharded, mut network) =
                    ShardedParams::new(&mut strategy, network, adamw(), shard).unwrap();
                for number in 0..4 {
                    network = step(&mut strategy, &mut sharded, network, number, 1);
                }
                assert_eq!((sharded.steps(), sharded.norm()), (4, None));
                strategy.leave().unwrap();
                network.values()
            });
            assert!(ended.iter().all(|one| *one == ended[0]), "workers differ");
            ended.into_iter().next().unwrap()
        });
        assert!(sharded.iter().all(|one| *one == sharded[0]), "{workers}");
        for (found, expected) in sharded[0].iter().zip(&by_burn[0]) {
            for (found, expected) in found.iter().zip(expected) {
                assert!(
                    (found - expected).abs() < 1e-4,
                    "{workers}: {found} {expected}"
                );
            }
        }
    }
}

#[derive(Module, Debug)]
struct Tied {
    one: Param<Tensor<1>>,
    other: Option<Param<Tensor<1>>>,
}

#[test]
fn a_parameter_in_two_places_has_the_gradient_of_both() {
    let trained = [true, false].map(|is_tied| {
        let one = Param::from_data([0.5, -0.25], &Device::flex().autodiff());
        let other = is_tied.then(|| one.clone());
        let mut strategy = MultiWorkerMirroredStrategy::alone().unwrap();
        let tied = Tied { one, other };
        let made = ShardedParams::new(&mut strategy, tied, adamw(), Shard::Optimizer);
        let (mut sharded, mut tied) = made.unwrap();
        for _ in 0..3 {
            let other = tied.other.as_ref().unwrap_or(&tied.one);
            let loss = (tied.one.val().exp() * (other.val() * 3.0).cos()).sum();
            let gradients = GradientsParams::from_grads(loss.backward(), &tied);
            let stepped = strategy.run(|replica| {
                sharded.add_gradients(replica, &tied, gradients)?;
                sharded.step(replica, tied)
            });
            tied = stepped.unwrap().into_first();
        }
        let values =
            |param: &Param<Tensor<1>>| param.val().into_data().try_to_vec::<f32>().unwrap();
        let other = values(tied.other.as_ref().unwrap_or(&tied.one));
        assert_eq!(values(&tied.one), other);
        other
    });
    assert_eq!(trained[0], trained[1]);
}

#[test]
fn passes_add_up_and_norms_are_limited() {
    let summed = KINDS.map(|shard| {
        let (sum, norm) = descent(Sharding::new(shard), 0, 3);
        assert_eq!(norm, None);
        let passes = [0, 1, 2].map(|pass| descent(Sharding::new(shard), pass, 1).0);
        let of_passes = |at: usize| passes.iter().map(|pass| pass[at]).sum::<f32>();
        assert_near(&sum, &(0..sum.len()).map(of_passes).collect::<Vec<_>>());
        let length = sum.iter().map(|one| one * one).sum::<f32>().sqrt();
        let half: Vec<f32> = sum.iter().map(|one| one / 2.0).collect();
        let limited = Sharding::new(shard).with_max_norm(length / 2.0);
        let (limited, norm) = descent(limited, 0, 3);
        assert_near(&limited, &half);
        let is_that = |norm: f64| (norm - f64::from(length)).abs() < 1e-4;
        assert!(norm.is_some_and(is_that), "{norm:?} {length}");
        sum
    });
    for other in &summed[1..] {
        assert_near(other, &summed[0]);
    }
}

/// What the first step of two workers takes from the parameters, by an optimizer that takes the
/// gradient itself: of AdamW's steps the length of gradients is no part.
fn descent(sharding: Sharding, number: usize, passes: usize) -> (Vec<f32>, Option<f64>) {
    let mut ended = each(2, |mut strategy| {
        let made = ShardedParams::new(&mut strategy, Network::new(0), Sgd::new(1.0), sharding);
        let (mut sharded, network) = made.unwrap();
        let before = network.values().concat();
        let network = step(&mut strategy, &mut sharded, network, number, passes);
        strategy.leave().unwrap();
        let after = network.values().concat();
        let taken = before.iter().zip(&after);
        let taken: Vec<f32> = taken.map(|(before, after)| before - after).collect();
        (taken, sharded.norm())
    });
    ended.remove(0)
}

#[track_caller]
fn assert_near(found: &[f32], expected: &[f32]) {
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < 1e-5, "{found} {expected}");
    }
}

#[test]
fn what_some_workers_save_any_others_load() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = ShardedCheckpoints::new(folder.path());
    let saved = each(3, |mut strategy| {
        let (mut sharded, network) =
            ShardedParams::new(&mut strategy, Network::new(0), adamw(), Shard::Gradients).unwrap();
        let network = step(&mut strategy, &mut sharded, network, 0, 1);
        let network = strategy.run(|replica| {
            let network = sharded.save(replica, network.clone(), &checkpoints)?;
            sharded.finish_save(replica)?;
            Ok::<_, Error>(network)
        });
        strategy.leave().unwrap();
        network.unwrap().into_first().values()
    });
    for workers in [1, 2] {
        let loaded = each(workers, |mut strategy| {
            let network = Network::new(5);
            let (mut sharded, network) =
                ShardedParams::new(&mut strategy, network, adamw(), Shard::Optimizer).unwrap();
            let loaded =
                strategy.run(|replica| sharded.load(replica, network.clone(), &checkpoints));
            let (step, network) = loaded.unwrap().into_first();
            assert_eq!(step, Some(1));
            strategy.leave().unwrap();
            network.values()
        });
        assert!(loaded.iter().all(|values| *values == saved[0]), "{workers}");
    }
}

#[test]
fn parameters_in_parts_and_modules_that_were_changed_are_refused() {
    let mut strategy = MultiWorkerMirroredStrategy::alone().unwrap();
    let made = ShardedParams::new(&mut strategy, Network::new(0), adamw(), Shard::Parameters);
    let told = made.map(|_| ()).unwrap_err().to_string();
    assert!(told.contains("unit by unit"), "{told}");
    let mut strategy = MultiWorkerMirroredStrategy::alone().unwrap();
    let made = ShardedParams::new(&mut strategy, Network::new(0), adamw(), Shard::Optimizer);
    let (mut sharded, network) = made.unwrap();
    let mut changed = network.clone();
    changed.bias = Param::from_data([0.0; 3], &Device::flex().autodiff());
    let told = strategy.run(|replica| {
        sharded.add_gradients(replica, &network, network.gradients(0, 0))?;
        sharded.step(replica, changed.clone())
    });
    let told = told.map(|_| ()).unwrap_err().to_string();
    assert!(told.contains("not in the module any more"), "{told}");
}

//! Burn modules of several workers against flat parameters under the same outer optimizer, whose
//! bits are those of a simulation; restarts; losses.

use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Barrier;
use std::time::Duration;

use burn_core as burn;
use burn_core::module::{Param, RunningState};
use burn_core::tensor::{Device, Tensor, TensorData};
use burn_optim::{AdamWConfig, GradientsParams, ModuleOptimizer, SgdConfig};
use meshwork_strategy::low_communication::Quorum;
use meshwork_strategy::{Compression, Cursor, JoinMode, Rounding};

use super::*;
use crate::testing::{each, elastic};
use crate::{restore_optimizer, save_optimizer};

const ELEMENTS: usize = 300 + 6;
const RATE: f32 = 0.125;

/// Two tensors that are trained, and a mean that is not.
#[derive(Module, Debug)]
struct Network {
    mean: RunningState<Tensor<1>>,
    matrix: Param<Tensor<2>>,
    row: Param<Tensor<1>>,
}

impl Network {
    fn new(own: usize) -> Self {
        let device = Device::flex().autodiff();
        let all = beginning(own);
        let matrix = TensorData::new(all[..300].to_vec(), [20, 15]);
        let row = TensorData::new(all[300..].to_vec(), [6]);
        Self {
            mean: RunningState::new(Tensor::from_data([own as f32; 3], &device)),
            matrix: Param::from_data(matrix, &device),
            row: Param::from_data(row, &device),
        }
    }

    /// Those of half the sum of squared distances from a goal: the distances.
    fn gradients(&self, worker: usize, step: u64) -> GradientsParams {
        let device = Device::flex().autodiff();
        let goal = goal(worker, step);
        let matrix = Tensor::from_data(TensorData::new(goal[..300].to_vec(), [20, 15]), &device);
        let row = Tensor::from_data(TensorData::new(goal[300..].to_vec(), [6]), &device);
        let loss = (self.matrix.val() - matrix).square().sum() * 0.5
            + (self.row.val() - row).square().sum() * 0.5;
        GradientsParams::from_grads(loss.backward(), self)
    }

    fn bits(&self) -> Vec<u32> {
        let matrix = self.matrix.val().into_data().try_to_vec::<f32>();
        let row = self.row.val().into_data().try_to_vec();
        bits(&[matrix.unwrap(), row.unwrap()].concat())
    }

    fn mean(&self) -> Vec<f32> {
        self.mean.value().into_data().try_to_vec().unwrap()
    }
}

fn beginning(own: usize) -> Vec<f32> {
    let value = |at: usize| ((at + own * 7) as f32 * 0.7).sin();
    (0..ELEMENTS).map(value).collect()
}

fn goal(worker: usize, step: u64) -> Vec<f32> {
    let value = |at: usize| ((at + worker * 31) as f32 + step as f32 * 0.3).cos();
    (0..ELEMENTS).map(value).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn whole() -> LowCommunication {
    LowCommunication::new(NonZeroU32::new(5).unwrap())
}

fn streaming() -> LowCommunication {
    LowCommunication::new(NonZeroU32::new(6).unwrap())
        .with_fragments(NonZeroUsize::new(2).unwrap())
        .with_delay(2)
        .with_local_share(0.5)
}

fn compressed() -> LowCommunication {
    streaming().with_compression(Compression::Int4(Rounding::Stochastic { seed: 3 }))
}

/// An inner step of gradient descent, for which burn has the same arithmetic.
fn descend(own: &mut [f32], worker: usize, step: u64) {
    for (own, goal) in own.iter_mut().zip(goal(worker, step)) {
        *own -= (*own - goal) * RATE;
    }
}

/// Own and agreed parameters of every worker after each step, and at the end.
type History = Vec<Vec<[Vec<u32>; 2]>>;

fn flat(world: u32, settings: LowCommunication, steps: u64) -> History {
    each(world, |mut strategy| {
        let (mut own, worker) = (beginning(0), strategy.rank().index());
        let made = OuterOptimizer::new(&mut strategy, settings, &[300, 6], &own);
        let mut outer = made.unwrap();
        let mut history = Vec::new();
        for step in 1..=steps {
            descend(&mut own, worker, step);
            outer.step(&mut strategy, &mut own).unwrap();
            history.push([bits(&own), bits(outer.agreed())]);
        }
        outer.finish(&mut strategy, &mut own).unwrap();
        history.push([bits(&own), bits(outer.agreed())]);
        strategy.leave().unwrap();
        history
    })
}

fn of_burn(world: u32, settings: LowCommunication, steps: u64) -> History {
    each(world, |mut strategy| {
        let worker = strategy.rank().index();
        let made = LowCommunicationParams::new(&mut strategy, Network::new(worker), settings);
        let (mut outer, mut network) = made.unwrap();
        let mut inner = SgdConfig::new().init();
        let mut history = Vec::new();
        for step in 1..=steps {
            let gradients = network.gradients(worker, step);
            network = inner.step(f64::from(RATE), network, gradients);
            network = outer.step(&mut strategy, network).unwrap();
            let agreed = outer.agreed(network.clone()).unwrap();
            assert_eq!(agreed.bits(), bits(outer.outer().agreed()));
            history.push([network.bits(), agreed.bits()]);
        }
        let network = outer.finish(&mut strategy, network).unwrap();
        assert_eq!(network.mean(), [0.0; 3]);
        history.push([network.bits(), bits(outer.outer().agreed())]);
        strategy.leave().unwrap();
        history
    })
}

#[test]
fn modules_are_trained_to_the_bits_of_flat_parameters() {
    for world in [1, 2, 3] {
        for settings in [whole(), streaming(), compressed()] {
            let expected = flat(world, settings, 15);
            assert!(of_burn(world, settings, 15) == expected, "{settings:?}");
            let ends = expected.iter().map(|worker| &worker[15]);
            assert!(
                ends.clone().all(|end| end == &expected[0][15]),
                "{settings:?}"
            );
        }
    }
}

fn adamw() -> ModuleOptimizer {
    AdamWConfig::new().init()
}

#[test]
fn a_restart_after_any_step_goes_on_with_the_same_bits() {
    let steps = 14;
    let trained = |restart: u64| {
        each(2, |mut strategy| {
            let worker = strategy.rank().index();
            let made = LowCommunicationParams::new(&mut strategy, Network::new(0), compressed());
            let (mut outer, mut network) = made.unwrap();
            let mut inner = adamw();
            for step in 1..=steps {
                let gradients = network.gradients(worker, step);
                network = inner.step(0.02, network, gradients);
                network = outer.step(&mut strategy, network).unwrap();
                if step != restart {
                    continue;
                }
                let snapshot = Snapshot::new(step, Cursor::start());
                let snapshot = outer.save(&mut strategy, &network, snapshot).unwrap();
                let snapshot = save_optimizer(&inner, snapshot).unwrap();
                let read = Snapshot::from_bytes(&snapshot.to_bytes().unwrap()).unwrap();
                // Another module, whose parameters have other ids.
                let other = Network::new(9);
                (outer, network) =
                    LowCommunicationParams::restore(&mut strategy, other, compressed(), &read)
                        .unwrap();
                inner = restore_optimizer(adamw(), &read).unwrap();
            }
            strategy.leave().unwrap();
            [network.bits(), bits(outer.outer().agreed())]
        })
    };
    let expected = trained(0);
    for restart in 1..steps {
        assert!(
            trained(restart) == expected,
            "restarted after step {restart}"
        );
    }
}

#[test]
fn a_worker_with_an_older_snapshot_than_the_others_has_what_they_agree_on() {
    let mut strategy = MultiWorkerMirroredStrategy::alone().unwrap();
    let made = LowCommunicationParams::new(&mut strategy, Network::new(0), streaming());
    let (mut outer, mut network) = made.unwrap();
    let mut saved = Vec::new();
    for step in 1..=8 {
        let mut inner = SgdConfig::new().init();
        let gradients = network.gradients(0, step);
        network = inner.step(f64::from(RATE), network, gradients);
        network = outer.step(&mut strategy, network).unwrap();
        if step % 4 == 0 {
            let snapshot = Snapshot::new(step, Cursor::start());
            saved.push(outer.save(&mut strategy, &network, snapshot).unwrap());
        }
    }
    let restored = elastic(2, |_, mut strategy| {
        let (worker, settings) = (strategy.rank().index(), streaming());
        let (snapshot, other) = (&saved[worker], Network::new(9));
        let made = LowCommunicationParams::restore(&mut strategy, other, settings, snapshot);
        let (mut outer, network) = made.unwrap();
        assert_eq!(outer.outer().has_taken_over(), worker == 0);
        let had = [network.bits(), bits(outer.outer().agreed())];
        outer.finish(&mut strategy, network).unwrap();
        strategy.leave().unwrap();
        had
    });
    let agreed = &restored[1][1];
    assert_eq!(restored[0], [agreed.clone(), agreed.clone()]);
    // Who has the newest goes on with its own.
    assert_eq!(restored[1][0], network.bits());
}

#[test]
fn a_training_goes_on_without_a_worker_that_is_lost() {
    let met = Barrier::new(3);
    let ended = elastic(3, |_, mut strategy| {
        let worker = strategy.rank().index();
        let made = LowCommunicationParams::new(&mut strategy, Network::new(worker), whole());
        let (mut outer, mut network) = made.unwrap();
        for step in 1..=20 {
            if step == 8 {
                met.wait();
                if worker == 2 {
                    return None;
                }
            }
            let gradients = network.gradients(worker, step);
            let mut inner = SgdConfig::new().init();
            network = inner.step(f64::from(RATE), network, gradients);
            network = outer.step(&mut strategy, network).unwrap();
        }
        let network = outer.finish(&mut strategy, network).unwrap();
        assert_eq!(
            (outer.outer().steps(), strategy.num_replicas_in_sync()),
            (20, 2)
        );
        strategy.leave().unwrap();
        Some(network.bits())
    });
    let [Some(one), Some(other), None] = &ended[..] else {
        panic!("{ended:?}");
    };
    assert_eq!(one, other);
}

#[test]
fn a_newcomer_begins_with_what_all_have_come_to() {
    // A worker of one trains, and another comes in.
    let met = Barrier::new(2);
    let ended = elastic(2, |job, mut strategy| {
        let is_newcomer = strategy.rank().index() == 1;
        if is_newcomer {
            // Lost at once, and here again while the other trains.
            drop(strategy);
            met.wait();
            strategy = job.join(1, JoinMode::Late);
        }
        let made = LowCommunicationParams::new(&mut strategy, Network::new(4), whole());
        let (mut outer, mut network) = made.unwrap();
        assert_eq!(is_newcomer, outer.outer().steps() > 0);
        if is_newcomer {
            assert_eq!(network.bits(), bits(outer.outer().agreed()));
            assert_ne!(network.bits(), bits(&beginning(4)));
        }
        let mut inner = SgdConfig::new().init();
        // From where both are there, as many steps.
        let (mut last, mut waits) = (u64::MAX, !is_newcomer);
        while outer.outer().steps() < last {
            if last == u64::MAX && strategy.num_replicas_in_sync() == 2 {
                last = outer.outer().steps() + 10;
            }
            let gradients = network.gradients(strategy.rank().index(), outer.outer().steps());
            network = inner.step(f64::from(RATE), network, gradients);
            network = outer.step(&mut strategy, network).unwrap();
            if waits && outer.outer().steps() == 5 {
                met.wait();
                waits = false;
            }
        }
        let network = outer.finish(&mut strategy, network).unwrap();
        strategy.leave().unwrap();
        network.bits()
    });
    assert_eq!(ended[0], ended[1]);
}

#[test]
fn rounds_that_end_with_a_quorum_have_one_end_and_one_snapshot() {
    let quorum = Quorum::new(NonZeroUsize::new(2).unwrap(), Duration::from_secs(60));
    let ended = each(2, |strategy| {
        let worker = strategy.rank().index();
        let made = QuorumParams::new(strategy, Network::new(worker), streaming(), quorum);
        let (mut outer, mut network) = made.unwrap();
        let mut inner = SgdConfig::new().init();
        for step in 1..=12 {
            let gradients = network.gradients(worker, step);
            network = inner.step(f64::from(RATE), network, gradients);
            network = outer.step(network).unwrap();
        }
        let network = outer.finish(network).unwrap();
        assert_eq!(outer.outer().missed(), 0);
        let snapshot = Snapshot::new(12, Cursor::start());
        let snapshot = outer.outer().save(snapshot).unwrap();
        outer.into_strategy().leave().unwrap();
        (network.bits(), snapshot.to_bytes().unwrap())
    });
    // Nobody was late, and the end applies what is under way.
    let expected = flat(2, streaming(), 12);
    for (end, _) in &ended {
        assert_eq!(end, &expected[0][12][0]);
    }
    let restored = each(2, |strategy| {
        let snapshot = Snapshot::from_bytes(&ended[0].1).unwrap();
        let network = Network::new(strategy.rank().index() + 5);
        let made = QuorumParams::restore(strategy, network, streaming(), quorum, &snapshot);
        let (mut outer, network) = made.unwrap();
        let network = outer.finish(network).unwrap();
        outer.into_strategy().leave().unwrap();
        network.bits()
    });
    assert!(restored.iter().all(|end| end == &ended[0].0));
}

#[test]
fn a_module_that_was_changed_is_refused() {
    let mut strategy = MultiWorkerMirroredStrategy::alone().unwrap();
    let once = LowCommunication::new(NonZeroU32::MIN);
    let (mut outer, network) =
        LowCommunicationParams::new(&mut strategy, Network::new(0), once).unwrap();
    let mut changed = network.clone();
    changed.row = Param::from_data([0.0; 6], &Device::flex().autodiff());
    let told = outer.step(&mut strategy, changed).map(drop).unwrap_err();
    assert!(
        matches!(&told, Error::NotMirrored { name, .. } if name == "row"),
        "{told}"
    );
    let mut changed = network;
    changed.matrix = changed.matrix.clone().no_grad();
    outer.step(&mut strategy, changed).unwrap();
}

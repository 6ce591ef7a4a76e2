//! A worker that is lost, and those who are left: they go on with the bits of a checkpoint.

use std::sync::Barrier;

use meshwork_collectives::Group;
use meshwork_testing::in_threads;

use super::*;
use crate::testing::elastic;

const VICTIM: usize = 1;
const STEPS: usize = 3;

type Worker = (MultiWorkerMirroredStrategy, ShardedParams<AdamW>, Network);

fn begin(mut strategy: MultiWorkerMirroredStrategy, shard: Shard) -> Worker {
    let network = Network::new(strategy.rank().index());
    let sharding = Sharding::new(shard).with_max_norm(0.5);
    let sharding = sharding.with_neighbour_copies();
    let made = ShardedParams::new(&mut strategy, network, adamw(), sharding);
    let (sharded, network) = made.unwrap();
    (strategy, sharded, network)
}

/// The steps behind the first, and what comes of them but the running mean, of which each worker
/// has its own.
fn ends(worker: Worker) -> Vec<Vec<f32>> {
    let (mut strategy, mut sharded, mut network) = worker;
    for number in 1..STEPS {
        network = step(&mut strategy, &mut sharded, network, number, 2);
    }
    strategy.leave().unwrap();
    network.values()
}

/// One worker is lost between the passes of the second step.
fn without_one(workers: usize, shard: Shard) -> Vec<Vec<Vec<f32>>> {
    let met = Barrier::new(workers);
    let ended = elastic(workers, |_, strategy| {
        let (mut strategy, mut sharded, network) = begin(strategy, shard);
        let network = step(&mut strategy, &mut sharded, network, 0, 2);
        let worker = strategy.rank().index();
        let gradients = network.gradients(2, worker);
        let added = strategy.run(|replica| sharded.add_gradients(replica, &network, gradients));
        added.unwrap();
        met.wait();
        if worker == VICTIM {
            return None;
        }
        let gradients = network.gradients(3, worker);
        let stepped = strategy.run(|replica| {
            sharded.add_gradients(replica, &network, gradients)?;
            sharded.step(replica, network.clone())
        });
        let error = stepped.map(drop).unwrap_err();
        let (regrouped, network) = sharded.go_on(&mut strategy, error, network).unwrap();
        assert_eq!(regrouped, Regrouped::Kept);
        assert_eq!((sharded.steps(), sharded.norm()), (1, None));
        assert_eq!(strategy.num_replicas_in_sync(), workers - 1);
        Some(ends((strategy, sharded, network)))
    });
    ended.into_iter().flatten().collect()
}

/// The same by a checkpoint, which as many workers load as are left.
fn by_checkpoint(workers: u32, shard: Shard) -> Vec<Vec<Vec<f32>>> {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = ShardedCheckpoints::new(folder.path());
    each(workers, |strategy| {
        let (mut strategy, mut sharded, network) = begin(strategy, shard);
        let network = step(&mut strategy, &mut sharded, network, 0, 2);
        let saved = strategy.run(|replica| {
            sharded.save(replica, network, &checkpoints)?;
            sharded.finish_save(replica)
        });
        saved.unwrap();
        strategy.leave().unwrap();
    });
    each(workers - 1, |strategy| {
        let (mut strategy, mut sharded, network) = begin(strategy, shard);
        let loaded = strategy.run(|replica| sharded.load(replica, network, &checkpoints));
        let (step, network) = loaded.unwrap().into_first();
        assert_eq!(step, Some(1));
        ends((strategy, sharded, network))
    })
}

#[test]
fn a_module_goes_on_without_a_lost_worker_to_the_bit() {
    for (workers, shard) in [2, 3].into_iter().flat_map(|n| KINDS.map(|kind| (n, kind))) {
        let expected = by_checkpoint(workers, shard);
        let found = without_one(workers as usize, shard);
        assert!(found == expected, "{shard:?} of {workers}");
    }
}

/// A step fails behind its update, on its way to the others: what it has left is not overwritten by
/// the module of before, which is given to go on with.
#[test]
fn what_a_failed_step_has_left_counts_and_not_the_module_of_before() {
    let mut strategy = MultiWorkerMirroredStrategy::alone().unwrap();
    let made = ShardedParams::new(&mut strategy, Network::new(0), adamw(), Shard::Optimizer);
    let (mut sharded, before) = made.unwrap();
    let after = step(&mut strategy, &mut sharded, before.clone(), 0, 1);
    // As `step` leaves it where it ends between the update and the module.
    drop(
        sharded
            .values
            .take_from(after.clone(), &sharded.places)
            .unwrap(),
    );
    let (regrouped, module) = sharded.regroup(&mut strategy, before).unwrap();
    assert_eq!(regrouped, Regrouped::Kept);
    assert_eq!(module.values(), after.values());
}

/// A step is made, and the module that it returns is dropped, as where a program's next call fails.
#[test]
fn a_module_of_before_is_not_taken_for_that_of_the_last_step() {
    let parts = Vec::new();
    for (late, regrouped) in [
        (0, Regrouped::Kept),
        (1, Regrouped::Kept),
        (2, Regrouped::Lost { parts }),
    ] {
        let ended = elastic(2, |_, strategy| {
            let (mut strategy, mut sharded, before) = begin(strategy, Shard::Optimizer);
            let after = step(&mut strategy, &mut sharded, before.clone(), 0, 1);
            let given = match strategy.rank().index() < late {
                true => before,
                false => after.clone(),
            };
            let (regrouped, module) = sharded.regroup(&mut strategy, given).unwrap();
            strategy.leave().unwrap();
            (regrouped, module.values() == after.values())
        });
        let is_last = regrouped == Regrouped::Kept;
        assert_eq!(ended, vec![(regrouped, is_last); 2], "{late}");
    }
}

#[test]
fn a_module_that_all_have_changed_since_the_step_counts() {
    for (regrouped, is_kept) in elastic(2, |_, strategy| {
        let (mut strategy, mut sharded, network) = begin(strategy, Shard::Optimizer);
        let mut network = step(&mut strategy, &mut sharded, network, 0, 1);
        let clamp = |weight: Param<Tensor<2>>| {
            weight.map(|values| values.clamp(-0.1, 0.1).detach().require_grad())
        };
        (network.first, network.again) = (clamp(network.first), clamp(network.again));
        let clamped = network.values();
        let (regrouped, network) = sharded.regroup(&mut strategy, network).unwrap();
        strategy.leave().unwrap();
        (regrouped, network.values() == clamped)
    }) {
        assert_eq!((regrouped, is_kept), (Regrouped::Kept, true));
    }
}

#[test]
fn a_step_of_no_length_leaves_a_module_that_counts() {
    for regrouped in elastic(2, |_, strategy| {
        let (mut strategy, mut sharded, network) = begin(strategy, Shard::Optimizer);
        *sharded.optimizer_mut() = AdamW::new(0.0);
        let network = step(&mut strategy, &mut sharded, network, 0, 1);
        let regrouped = sharded.regroup(&mut strategy, network).unwrap().0;
        strategy.leave().unwrap();
        regrouped
    }) {
        assert_eq!(regrouped, Regrouped::Kept);
    }
}

#[test]
fn a_newcomer_that_is_made_as_in_a_new_job_gets_the_module_of_the_others() {
    let trained = each(2, |strategy| {
        let (mut strategy, mut sharded, network) = begin(strategy, Shard::Gradients);
        let network = step(&mut strategy, &mut sharded, network, 0, 2);
        (strategy, sharded, network)
    });
    let groups = Group::local(3).unwrap().into_iter();
    let all = groups.zip(trained.into_iter().map(Some).chain([None]));
    let ended = in_threads(all, |(group, worker)| {
        let mut strategy = MultiWorkerMirroredStrategy::from_group(group).unwrap();
        let Some((_old, mut sharded, network)) = worker else {
            let worker = begin(strategy, Shard::Gradients);
            assert_eq!(worker.1.steps(), 1);
            return ends(worker);
        };
        let (regrouped, network) = sharded.regroup(&mut strategy, network).unwrap();
        assert_eq!(regrouped, Regrouped::Kept);
        ends((strategy, sharded, network))
    });
    assert!(ended.iter().all(|values| *values == ended[0]));
}

#[test]
fn what_is_no_loss_of_others_is_returned() {
    let strategy = MultiWorkerMirroredStrategy::alone().unwrap();
    let (mut strategy, mut sharded, network) = begin(strategy, Shard::Gradients);
    let stepped = strategy.run(|replica| sharded.step(replica, network.clone()));
    let early = stepped.map(drop).unwrap_err();
    let told = early.to_string();
    let returned = sharded.go_on(&mut strategy, early, network).map(drop);
    assert_eq!(returned.unwrap_err().to_string(), told);
}

//! A worker that is lost, and those who are left: they go on with the bits of a checkpoint.

use std::sync::Barrier;

use super::*;
use crate::testing::elastic;

const VICTIM: usize = 1;
const STEPS: usize = 3;

/// The losses of steps, and the values that they end with.
type Trained = (Vec<f32>, Vec<f32>);

/// With other values on each worker, of which the chief's count.
fn begin(strategy: MultiWorkerMirroredStrategy, shard: Shard) -> (Model, Sharded<AdamW>) {
    let model = Model::new(strategy.rank().index());
    let sharding = Sharding::new(shard).with_max_norm(0.02);
    let sharding = sharding.with_neighbour_copies();
    let is_frozen = |name: &str| name == "scale";
    let optimizer = AdamW::new(0.05);
    let training = Sharded::with_frozen(strategy, &model.vars, is_frozen, optimizer, sharding);
    (model, training.unwrap())
}

/// Each worker has samples of its own.
fn loss(model: &Model, step: usize, worker: usize) -> Tensor {
    model.loss(step, worker * 4..worker * 4 + 4)
}

/// Two passes.
fn step(model: &Model, training: &mut Sharded<AdamW>, step: usize) -> Result<f32, Error> {
    let worker = training.worker();
    training.accumulate(&loss(model, step, worker))?;
    training.backward_step(&loss(model, step + 9, worker))
}

/// The steps behind the first, and what comes of them.
fn ends(worker: (Model, Sharded<AdamW>)) -> Trained {
    let (model, mut training) = worker;
    let losses = (1..STEPS).map(|at| step(&model, &mut training, at).unwrap());
    let losses = losses.collect();
    training.leave().unwrap();
    (losses, model.values())
}

/// One worker is lost between the passes of the second step.
fn without_one(workers: usize, shard: Shard) -> Vec<Trained> {
    let met = Barrier::new(workers);
    let ended = elastic(workers, |_, strategy| {
        let (model, mut training) = begin(strategy, shard);
        step(&model, &mut training, 0).unwrap();
        let worker = training.worker();
        training.accumulate(&loss(&model, 1, worker)).unwrap();
        met.wait();
        if worker == VICTIM {
            return None;
        }
        let error = training.backward_step(&loss(&model, 10, worker));
        let regrouped = training.go_on(error.unwrap_err()).unwrap();
        assert_eq!(regrouped, Regrouped::Kept);
        assert_eq!((training.steps(), training.norm()), (1, None));
        assert_eq!(training.workers(), workers - 1);
        Some(ends((model, training)))
    });
    ended.into_iter().flatten().collect()
}

/// The same by a checkpoint, which as many workers load as are left.
fn by_checkpoint(workers: u32, shard: Shard) -> Vec<Trained> {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = ShardedCheckpoints::new(folder.path());
    each(workers, |strategy| {
        let (model, mut training) = begin(strategy, shard);
        step(&model, &mut training, 0).unwrap();
        training.save(&checkpoints).unwrap();
        training.leave().unwrap();
    });
    each(workers - 1, |strategy| {
        let (model, mut training) = begin(strategy, shard);
        assert_eq!(training.load(&checkpoints).unwrap(), Some(1));
        ends((model, training))
    })
}

#[test]
fn variables_go_on_without_a_lost_worker_to_the_bit() {
    for (workers, shard) in [2, 3].into_iter().flat_map(|n| KINDS.map(|kind| (n, kind))) {
        let expected = by_checkpoint(workers, shard);
        let found = without_one(workers as usize, shard);
        assert!(found == expected, "{shard:?} of {workers}");
    }
}

#[test]
fn what_is_no_loss_of_others_is_returned() {
    let strategy = MultiWorkerMirroredStrategy::alone().unwrap();
    let (model, mut training) = begin(strategy, Shard::Optimizer);
    let rows = model.loss(0, 0..4).broadcast_as(2).unwrap();
    let own = training.backward_step(&rows).unwrap_err();
    let returned = training.go_on(own).unwrap_err();
    assert!(matches!(returned, Error::Candle(_)), "{returned}");
}

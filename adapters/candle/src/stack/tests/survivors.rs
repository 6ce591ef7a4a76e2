//! A worker that is lost, and those who are left: they go on with the bits of a checkpoint.

use std::sync::Barrier;

use super::*;
use crate::testing::elastic;

const PASSES: NonZeroU32 = NonZeroU32::new(2).unwrap();
const VICTIM: usize = 1;
const STEPS: usize = 3;

fn stack_on(strategy: MultiWorkerMirroredStrategy, shard: Shard) -> ShardedStack<AdamW> {
    let sharding = Sharding::new(shard)
        .with_accumulation(PASSES)
        .with_neighbour_copies();
    let optimizer = AdamW::new(0.02);
    ShardedStack::with_initial(strategy, units(), optimizer, sharding, initial).unwrap()
}

fn step(stack: &mut ShardedStack<AdamW>, step: usize) -> Result<f32, Error> {
    let worker = stack.strategy_mut().rank().index();
    stack.accumulate(&input(step, worker), loss)?;
    stack.backward_step(&input(step + 9, worker), loss)
}

type Trained = (Vec<f32>, Vec<(String, Vec<u32>)>);

/// The steps behind the first, and what comes of them.
fn ends(mut stack: ShardedStack<AdamW>) -> Trained {
    let losses = (1..STEPS).map(|at| step(&mut stack, at).unwrap()).collect();
    let tensors = bits(stack.tensors().unwrap());
    stack.leave().unwrap();
    (losses, tensors)
}

/// One worker is lost between the passes of the second step.
fn without_one(workers: usize, shard: Shard) -> Vec<Trained> {
    let met = Barrier::new(workers);
    let ended = elastic(workers, |strategy| {
        let mut stack = stack_on(strategy, shard);
        step(&mut stack, 0).unwrap();
        let worker = stack.strategy_mut().rank().index();
        stack.accumulate(&input(1, worker), loss).unwrap();
        met.wait();
        if worker == VICTIM {
            return None;
        }
        let error = stack.backward_step(&input(10, worker), loss).unwrap_err();
        assert_eq!(stack.go_on(error).unwrap(), Regrouped::Kept);
        assert_eq!(stack.steps(), 1);
        assert_eq!(stack.strategy_mut().num_replicas_in_sync(), workers - 1);
        Some(ends(stack))
    });
    ended.into_iter().flatten().collect()
}

/// The same by a checkpoint, which as many workers load as are left.
fn by_checkpoint(workers: u32, shard: Shard) -> Vec<Trained> {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = ShardedCheckpoints::new(folder.path());
    each(workers, |strategy| {
        let mut stack = stack_on(strategy, shard);
        step(&mut stack, 0).unwrap();
        stack.save(&checkpoints).unwrap();
        stack.leave().unwrap();
    });
    each(workers - 1, |strategy| {
        let mut stack = stack_on(strategy, shard);
        assert_eq!(stack.load(&checkpoints).unwrap(), Some(1));
        ends(stack)
    })
}

#[test]
fn a_stack_goes_on_without_a_lost_worker_to_the_bit() {
    for (workers, shard) in [2, 3].into_iter().flat_map(|n| KINDS.map(|kind| (n, kind))) {
        let expected = by_checkpoint(workers, shard);
        let found = without_one(workers as usize, shard);
        assert!(found == expected, "{shard:?} of {workers}");
    }
}

#[test]
fn what_is_no_loss_of_others_is_returned() {
    let mut stack = stack_on(
        MultiWorkerMirroredStrategy::alone().unwrap(),
        Shard::Parameters,
    );
    let failing = |_: &Tensor| Err(candle_core::Error::Msg("no loss".to_owned()));
    let own = stack.accumulate(&input(0, 0), failing).unwrap_err();
    let returned = stack.go_on(own).unwrap_err();
    assert!(matches!(returned, Error::Candle(_)), "{returned}");
    let early = stack.backward_step(&input(0, 0), loss).unwrap_err();
    let told = early.to_string();
    assert_eq!(stack.go_on(early).unwrap_err().to_string(), told);
}

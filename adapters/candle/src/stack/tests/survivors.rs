//! A worker that is lost, and those who are left: they go on with the bits of a checkpoint.

use std::sync::Barrier;

use meshwork_strategy::JoinMode;

use super::*;
use crate::testing::elastic;

const PASSES: NonZeroU32 = NonZeroU32::new(2).unwrap();
const VICTIM: usize = 1;
const STEPS: usize = 3;

fn sharding(shard: Shard) -> Sharding {
    let sharding = Sharding::new(shard).with_accumulation(PASSES);
    sharding.with_neighbour_copies()
}

fn stack_on(strategy: MultiWorkerMirroredStrategy, shard: Shard) -> ShardedStack<AdamW> {
    let sharding = sharding(shard);
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
    let ended = elastic(workers, |_, strategy| {
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
fn a_stack_that_has_lost_a_part_is_refused_until_it_has_other_values() {
    let met = Barrier::new(2);
    elastic(2, |_, strategy| {
        let (optimizer, sharding) = (AdamW::new(0.02), Sharding::new(Shard::Parameters));
        let made = ShardedStack::with_strategy(strategy, units(), optimizer, sharding, 1);
        let mut stack = made.unwrap();
        let beginning = bits(stack.tensors().unwrap());
        let worker = stack.strategy_mut().rank().index();
        stack.backward_step(&input(0, worker), loss).unwrap();
        met.wait();
        if worker == VICTIM {
            return;
        }
        let error = stack.backward_step(&input(1, worker), loss).unwrap_err();
        let parts = vec![VICTIM];
        assert_eq!(stack.go_on(error).unwrap(), Regrouped::Lost { parts });
        let refused = stack.backward_step(&input(0, worker), loss).unwrap_err();
        let told = refused.to_string();
        assert!(
            told.starts_with("parts [1] of the model were lost"),
            "{told}"
        );
        stack.initialize(1).unwrap();
        assert_eq!(bits(stack.tensors().unwrap()), beginning);
        stack.backward_step(&input(0, worker), loss).unwrap();
        stack.leave().unwrap();
    });
}

fn next(stack: &mut ShardedStack<AdamW>) -> Result<f32, Error> {
    let at = usize::try_from(stack.steps()).unwrap();
    step(stack, at)
}

/// Two steps behind those that were made when all are there again.
fn goes_on_to(stack: &mut ShardedStack<AdamW>, joined: u64) -> Trained {
    let losses = (joined..joined + 2).map(|_| next(stack).unwrap()).collect();
    (losses, bits(stack.tensors().unwrap()))
}

/// Of three workers one is lost, and comes again while the others train: after which step, and what
/// comes of it.
fn with_one_again(shard: Shard) -> Vec<(u64, Trained)> {
    let met = Barrier::new(3);
    elastic(3, |job, strategy| {
        let mut stack = stack_on(strategy, shard);
        step(&mut stack, 0).unwrap();
        let worker = stack.strategy_mut().rank().index();
        met.wait();
        if worker == VICTIM {
            drop(stack);
            let strategy = job.join(VICTIM, JoinMode::Late);
            let optimizer = AdamW::new(0.02);
            let joined = ShardedStack::elastic(strategy, units(), optimizer, sharding(shard), 1);
            let (mut stack, regrouped) = joined.unwrap();
            assert_eq!(regrouped, Regrouped::Kept);
            let joined = stack.steps();
            let trained = goes_on_to(&mut stack, joined);
            stack.leave().unwrap();
            return (joined, trained);
        }
        let regrouped = loop {
            let stepped = next(&mut stack).and_then(|_| stack.admit());
            match stepped {
                Ok(None) => {}
                Ok(Some(regrouped)) => break regrouped,
                Err(error) => assert_eq!(stack.go_on(error).unwrap(), Regrouped::Kept),
            }
        };
        assert_eq!(regrouped, Regrouped::Kept);
        let joined = stack.steps();
        let trained = goes_on_to(&mut stack, joined);
        stack.leave().unwrap();
        (joined, trained)
    })
}

#[test]
fn a_worker_that_comes_again_gets_its_part_and_trains_on_with_the_bits_of_the_others() {
    for shard in KINDS {
        let found = with_one_again(shard);
        let (joined, _) = found[0];
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = ShardedCheckpoints::new(folder.path());
        for (workers, until) in [(3, 1), (2, joined)] {
            each(workers, |strategy| {
                let mut stack = stack_on(strategy, shard);
                stack.load(&checkpoints).unwrap();
                for _ in stack.steps()..until {
                    next(&mut stack).unwrap();
                }
                stack.save(&checkpoints).unwrap();
                stack.leave().unwrap();
            });
        }
        let expected = each(3, |strategy| {
            let mut stack = stack_on(strategy, shard);
            assert_eq!(stack.load(&checkpoints).unwrap(), Some(joined));
            (joined, goes_on_to(&mut stack, joined))
        });
        assert!(found == expected, "{shard:?} from step {joined}");
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

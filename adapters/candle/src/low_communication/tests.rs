//! What workers have after a restart.

use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::time::Duration;

use candle_core::{DType, Device, Tensor};
use candle_nn::{AdamW, Init, Optimizer, SGD};
use meshwork_strategy::low_communication::{NotFinite, Quorum};
use meshwork_strategy::{Compression, Cursor, Rank, Rounding};

use super::*;
use crate::testing::{each, elastic};

fn model(value: f64) -> VarMap {
    let model = VarMap::new();
    for (name, length) in [("row", 7), ("long", 200)] {
        model
            .get(length, name, Init::Const(value), DType::F32, &Device::Cpu)
            .unwrap();
    }
    model
}

fn bits(model: &VarMap) -> Vec<u32> {
    let vars = crate::values::by_name(model);
    let values = vars
        .iter()
        .flat_map(|(_, var)| var.to_vec1::<f32>().unwrap());
    values.map(f32::to_bits).collect()
}

/// Towards a goal that differs from worker to worker and step to step.
fn inner_step(model: &VarMap, worker: usize, step: u64) {
    let goal = |at: usize| ((at + worker * 31) as f32 + step as f32 * 0.3).cos();
    let mut inner = SGD::new(model.all_vars(), 0.125).unwrap();
    for (_, var) in crate::values::by_name(model) {
        let goal: Vec<f32> = (0..var.elem_count()).map(goal).collect();
        let goal = Tensor::from_slice(&goal, var.shape(), &Device::Cpu).unwrap();
        let loss = (var.as_tensor() - goal).unwrap().sqr().unwrap();
        inner.backward_step(&loss.sum_all().unwrap()).unwrap();
    }
}

fn streaming() -> LowCommunication {
    LowCommunication::new(NonZeroU32::new(6).unwrap())
        .with_fragments(NonZeroUsize::new(2).unwrap())
        .with_delay(2)
        .with_local_share(0.5)
        .with_compression(Compression::Int8(Rounding::Nearest))
}

#[test]
fn a_restart_after_any_step_goes_on_with_the_same_bits() {
    let steps = 14;
    let trained = |restart: u64| {
        each(2, |mut strategy| {
            let (worker, mut vars) = (strategy.rank().index(), model(0.5));
            let made = LowCommunicationVars::new(&mut strategy, &vars, streaming());
            let mut outer = made.unwrap();
            for step in 1..=steps {
                inner_step(&vars, worker, step);
                outer.step(&mut strategy).unwrap();
                if step == restart {
                    let snapshot = Snapshot::new(step, Cursor::start());
                    let snapshot = outer.save(&mut strategy, snapshot).unwrap();
                    vars = model(9.0);
                    let restored =
                        LowCommunicationVars::restore(&mut strategy, &vars, streaming(), &snapshot);
                    outer = restored.unwrap();
                }
            }
            outer.finish(&mut strategy).unwrap();
            strategy.leave().unwrap();
            bits(&vars)
        })
    };
    let expected = trained(0);
    assert_eq!(expected[0], expected[1]);
    for restart in 1..steps {
        assert!(
            trained(restart) == expected,
            "restarted after step {restart}"
        );
    }
}

#[test]
fn a_worker_with_an_older_snapshot_than_the_others_has_what_they_agree_on() {
    let (mut strategy, vars) = (MultiWorkerMirroredStrategy::alone().unwrap(), model(0.5));
    let mut outer = LowCommunicationVars::new(&mut strategy, &vars, streaming()).unwrap();
    let mut saved = Vec::new();
    for step in 1..=8 {
        inner_step(&vars, 0, step);
        outer.step(&mut strategy).unwrap();
        if step % 4 == 0 {
            let snapshot = Snapshot::new(step, Cursor::start());
            saved.push(outer.save(&mut strategy, snapshot).unwrap());
        }
    }
    let restored = elastic(2, |_, mut strategy| {
        let (worker, vars) = (strategy.rank().index(), model(9.0));
        let snapshot = &saved[worker];
        let made = LowCommunicationVars::restore(&mut strategy, &vars, streaming(), snapshot);
        let mut outer = made.unwrap();
        assert_eq!(outer.outer().has_taken_over(), worker == 0);
        let agreed = outer.outer().agreed().iter().map(|one| one.to_bits());
        let had = (bits(&vars), agreed.collect::<Vec<_>>());
        outer.finish(&mut strategy).unwrap();
        strategy.leave().unwrap();
        had
    });
    let agreed = &restored[1].1;
    assert_eq!(restored[0], (agreed.clone(), agreed.clone()));
    // Who has the newest goes on with its own.
    assert_eq!(restored[1].0, bits(&vars));
}

#[test]
fn a_worker_that_was_excluded_recovers_with_a_new_optimizer() {
    let settings = streaming().with_not_finite(NotFinite::Exclude);
    let ended = each(2, |mut strategy| {
        let (worker, vars) = (strategy.rank().index(), model(0.5));
        let mut outer = LowCommunicationVars::new(&mut strategy, &vars, settings).unwrap();
        let begin = || AdamW::new_lr(vars.all_vars(), 0.01).unwrap();
        let mut inner = begin();
        let mut excluded = Vec::new();
        for step in 1..=18 {
            let sums = crate::values::by_name(&vars);
            let sums = sums.iter().map(|(_, var)| var.sqr()?.sum_all());
            let loss = sums.reduce(|one, other| one? + other?).unwrap().unwrap();
            // From here on it is NaN in all variables, and in all moments.
            let broken = if (worker, step) == (1, 7) {
                f64::NAN
            } else {
                1.0
            };
            inner.backward_step(&(loss * broken).unwrap()).unwrap();
            let (resets, exchanges) = (outer.outer().resets(), outer.outer().outer_steps());
            outer.step(&mut strategy).unwrap();
            if outer.outer().resets() > resets {
                inner = begin();
            }
            if outer.outer().outer_steps() > exchanges {
                excluded.extend(outer.outer().excluded());
            }
        }
        assert_eq!(outer.outer().resets(), worker as u64);
        outer.finish(&mut strategy).unwrap();
        strategy.leave().unwrap();
        (excluded, bits(&vars))
    });
    assert_eq!(ended[0].0, [Rank::new(1)]);
    assert_eq!(ended[0], ended[1]);
    let finite = |bits: &u32| f32::from_bits(*bits).is_finite();
    assert!(ended[0].1.iter().all(finite));
}

#[test]
fn one_snapshot_of_a_training_with_a_quorum_restores_all() {
    let quorum = Quorum::new(NonZeroUsize::new(2).unwrap(), Duration::from_secs(60));
    let ended = each(2, |strategy| {
        let (worker, vars) = (strategy.rank().index(), model(0.5));
        let mut outer = QuorumVars::new(strategy, &vars, streaming(), quorum).unwrap();
        for step in 1..=12 {
            inner_step(&vars, worker, step);
            outer.step().unwrap();
        }
        outer.finish().unwrap();
        let saved = outer.outer().save(Snapshot::new(12, Cursor::start()));
        outer.into_strategy().leave().unwrap();
        (bits(&vars), saved.unwrap().to_bytes().unwrap())
    });
    let restored = each(2, |strategy| {
        let snapshot = Snapshot::from_bytes(&ended[0].1).unwrap();
        let vars = model(9.0);
        let made = QuorumVars::restore(strategy, &vars, streaming(), quorum, &snapshot);
        let mut outer = made.unwrap();
        outer.finish().unwrap();
        outer.into_strategy().leave().unwrap();
        bits(&vars)
    });
    assert_eq!(restored, [ended[0].0.clone(), ended[1].0.clone()]);
    assert_eq!(restored[0], restored[1]);
}

#[test]
fn each_worker_of_a_quorum_goes_on_from_its_own_checkpoint_with_the_same_bits() {
    let quorum = Quorum::new(NonZeroUsize::new(2).unwrap(), Duration::from_secs(60));
    let quorum = quorum.with_checkpoints(NonZeroU64::new(2).unwrap());
    let train = |mut outer: QuorumVars, vars: &VarMap| {
        let (worker, mut saved) = (outer.outer().rank().index(), None);
        while outer.outer().steps() < 20 {
            inner_step(vars, worker, outer.outer().steps() + 1);
            outer.step().unwrap();
            if let (None, Some(state)) = (&saved, outer.outer().checkpoint()) {
                let snapshot = Snapshot::new(state.exchanges(), Cursor::start());
                saved = Some(state.add_to(snapshot).unwrap());
            }
        }
        outer.finish().unwrap();
        outer.into_strategy().leave().unwrap();
        (saved, bits(vars))
    };
    let ended = each(2, |strategy| {
        let vars = model(0.5);
        train(
            QuorumVars::new(strategy, &vars, streaming(), quorum).unwrap(),
            &vars,
        )
    });
    let restored = each(2, |strategy| {
        let (saved, _) = &ended[strategy.rank().index()];
        let (saved, vars) = (saved.as_ref().unwrap(), model(9.0));
        let made = QuorumVars::restore(strategy, &vars, streaming(), quorum, saved);
        train(made.unwrap(), &vars).1
    });
    assert_eq!(restored, [ended[0].1.clone(), ended[1].1.clone()]);
}

//! Gradients of low rank of a candle model: what is left out of them stays when workers change.

use std::num::NonZeroUsize;

use candle_core::Device;
use candle_nn::Init;
use meshwork_strategy::Cursor;

use super::super::*;
use super::{values, var};
use crate::testing::each;

fn model() -> VarMap {
    let model = VarMap::new();
    for (name, shape) in [("w", (12, 20)), ("v", (30, 10))] {
        let ones = Init::Const(1.0);
        let made = model.get(shape, name, ones, DType::F32, &Device::Cpu);
        made.unwrap();
    }
    model
}

/// The gradients that all take for the sums of one step.
fn step(
    strategy: &mut MultiWorkerMirroredStrategy,
    model: &VarMap,
    mirrored: &mut MirroredVars,
    number: u32,
) -> Vec<f32> {
    let phase = f64::from(number * 5 + strategy.rank().number());
    let mut loss = Tensor::zeros((), DType::F32, &Device::Cpu).unwrap();
    for name in ["w", "v"] {
        let var = var(model, name);
        let count = u32::try_from(var.elem_count()).unwrap();
        let places = Tensor::arange(0_u32, count, &Device::Cpu).unwrap();
        let places = places.to_dtype(DType::F32).unwrap();
        let factors = places.affine(0.7, phase).unwrap().sin().unwrap();
        let factors = factors.reshape(var.shape()).unwrap();
        let part = (var.as_tensor() * factors).unwrap().sum_all().unwrap();
        loss = (loss + part).unwrap();
    }
    let mut gradients = loss.backward().unwrap();
    let reduced = strategy.run(|replica| mirrored.all_reduce(replica, &mut gradients, 1.0));
    reduced.unwrap();
    let all = ["w", "v"].map(|name| gradients.get(&var(model, name)).unwrap().flatten_all());
    let all = all.map(|one| one.unwrap().to_vec1().unwrap());
    all.concat()
}

fn mirrored(strategy: &mut MultiWorkerMirroredStrategy, model: &VarMap) -> MirroredVars {
    let two = NonZeroUsize::new(2).unwrap();
    MirroredVars::new(strategy, model)
        .unwrap()
        .with_power_sgd(two)
}

#[test]
fn what_is_left_out_stays_when_workers_change() {
    each(2, |mut strategy| {
        let model = model();
        let [mut one, mut other] = [(); 2].map(|()| mirrored(&mut strategy, &model));
        for number in 0..6 {
            if number == 3 {
                other.regroup(&mut strategy).unwrap();
            }
            let expected = step(&mut strategy, &model, &mut one, number);
            assert_eq!(step(&mut strategy, &model, &mut other, number), expected);
        }
        strategy.leave().unwrap();
    });
}

#[test]
fn what_was_left_out_is_the_gradient_of_a_step_in_which_no_worker_has_one() {
    each(2, |mut strategy| {
        let model = model();
        let mut mirrored = mirrored(&mut strategy, &model);
        let has_one = |mirrored: &mut MirroredVars, strategy: &mut MultiWorkerMirroredStrategy| {
            let loss = var(&model, "w").sqr().unwrap().sum_all().unwrap();
            let mut gradients = loss.backward().unwrap();
            let reduced = strategy.run(|replica| mirrored.all_reduce(replica, &mut gradients, 1.0));
            reduced.unwrap();
            gradients.get(&var(&model, "v")).is_some()
        };
        assert!(!has_one(&mut mirrored, &mut strategy));
        step(&mut strategy, &model, &mut mirrored, 0);
        assert!(has_one(&mut mirrored, &mut strategy));
        strategy.leave().unwrap();
    });
}

/// A worker alone has what all have.
#[test]
fn any_snapshot_has_the_factors_of_all_and_a_workers_own_what_it_has_left_out() {
    let mut alone = MultiWorkerMirroredStrategy::alone().unwrap();
    let [model, other] = [(); 2].map(|()| model());
    let mut trained = mirrored(&mut alone, &model);
    for number in 0..3 {
        step(&mut alone, &model, &mut trained, number);
    }
    var(&model, "w")
        .set(&(var(&model, "w").as_tensor() * 2.0).unwrap())
        .unwrap();
    let shared = trained.save(Snapshot::new(3, Cursor::start())).unwrap();
    let own = trained.save_left_out(&alone, shared.clone()).unwrap();
    let [mut newcomer, mut again] = [(); 2].map(|()| mirrored(&mut alone, &other));
    newcomer.restore(&shared).unwrap();
    again.restore(&own).unwrap();
    again.restore_left_out(&alone, &own).unwrap();
    assert_eq!(values(&var(&other, "w")), [2.0; 240]);
    let expected = step(&mut alone, &model, &mut trained, 3);
    assert_eq!(step(&mut alone, &other, &mut again, 3), expected);
    assert_ne!(step(&mut alone, &other, &mut newcomer, 3), expected);
}

//! Wrapped optimizers with workers that are threads of one process, against one worker that has the
//! batches of all; models and losses that differ, or are no numbers; how a worker ends.

mod ends;
mod not_finite;

use candle_core::{DType, Device};
use candle_nn::{AdamW, Init, Linear, Module, ParamsAdamW, SGD, VarBuilder, linear};

use super::*;
use crate::testing::each;

/// A layer of 3 inputs and 2 outputs, with other values on each worker until they are mirrored.
fn layer(own: usize) -> (VarMap, Linear) {
    let vars = VarMap::new();
    let layer = linear(
        3,
        2,
        VarBuilder::from_varmap(&vars, DType::F32, &Device::Cpu),
    )
    .unwrap();
    for (name, var) in vars.data().lock().unwrap().iter() {
        let values = (0..var.elem_count()).map(|at| ((at + name.len()) as f32 + own as f32).sin());
        let values = Tensor::from_iter(values, &Device::Cpu).unwrap();
        var.set(&values.reshape(var.dims()).unwrap()).unwrap();
    }
    (vars, layer)
}

/// The mean over samples `from..to` of step `step`.
fn loss(layer: &Linear, step: usize, samples: std::ops::Range<usize>) -> Tensor {
    let rows = samples.len();
    let values =
        samples.flat_map(|sample| (0..3).map(move |at| (step * 31 + sample * 3 + at) as f32));
    let inputs = Tensor::from_iter(values.map(f32::cos), &Device::Cpu).unwrap();
    let outputs = layer.forward(&inputs.reshape((rows, 3)).unwrap()).unwrap();
    (outputs - 0.5).unwrap().sqr().unwrap().mean_all().unwrap()
}

fn values(vars: &VarMap) -> Vec<f32> {
    let vars = vars.data().lock().unwrap();
    let mut names: Vec<_> = vars.keys().collect();
    names.sort();
    let of = |name| vars[name].flatten_all().unwrap().to_vec1::<f32>().unwrap();
    names.into_iter().flat_map(of).collect()
}

/// Losses and values after some steps on batches of 4 samples a worker, as `passes` parts of them.
fn train(
    strategy: MultiWorkerMirroredStrategy,
    batch: usize,
    passes: usize,
    max_norm: Option<f64>,
) -> (Vec<f32>, Vec<f32>) {
    let (vars, layer) = layer(strategy.rank().index());
    let parameters = ParamsAdamW {
        lr: 0.1,
        ..ParamsAdamW::default()
    };
    let optimizer = AdamW::new(vars.all_vars(), parameters).unwrap();
    let mut optimizer = Distributed::with_strategy(strategy, optimizer, &vars).unwrap();
    if let Some(norm) = max_norm {
        optimizer = optimizer.with_max_norm(norm);
    }
    assert_eq!(optimizer.is_chief(), optimizer.worker() == 0);
    let start = optimizer.worker() * batch;
    let part = batch / passes;
    let losses = (0..6).map(|step| {
        let of_pass = |pass| {
            let from = start + pass * part;
            (loss(&layer, step, from..from + part) / passes as f64).unwrap()
        };
        for pass in 0..passes - 1 {
            optimizer.accumulate(&of_pass(pass)).unwrap();
        }
        optimizer.backward_step(&of_pass(passes - 1)).unwrap()
    });
    let losses = losses.collect();
    assert!(optimizer.optimizer_mut().learning_rate() > 0.0);
    optimizer.leave().unwrap();
    (losses, values(&vars))
}

#[test]
fn workers_train_as_one_that_has_the_batches_of_all() {
    for max_norm in [None, Some(0.01), Some(1e9)] {
        let one = MultiWorkerMirroredStrategy::alone().unwrap();
        let (losses, expected) = train(one, 12, 1, max_norm);
        for (workers, passes) in [(2, 1), (3, 1), (3, 2), (2, 3)] {
            let batch = 12 / workers as usize;
            let ran = each(workers, |strategy| train(strategy, batch, passes, max_norm));
            for (found, values) in &ran {
                assert_eq!((found, values), (&ran[0].0, &ran[0].1));
                for (found, expected) in values.iter().zip(&expected) {
                    assert!((found - expected).abs() < 1e-5, "{found} {expected}");
                }
                for (found, expected) in found.iter().zip(&losses) {
                    assert!((found - expected).abs() < 1e-5, "{found} {expected}");
                }
            }
        }
    }
}

/// Losses and values after two epochs in which each sample counts the same, in one pass, in two, or
/// in one before the step.
fn train_by_samples(
    strategy: MultiWorkerMirroredStrategy,
    samples: usize,
    global_batch: usize,
) -> (Vec<f32>, Vec<f32>) {
    let (vars, layer) = layer(strategy.rank().index());
    let optimizer = SGD::new(vars.all_vars(), 0.1).unwrap();
    let mut optimizer = Distributed::with_strategy(strategy, optimizer, &vars).unwrap();
    let dataset = optimizer
        .strategy_mut()
        .distribute_dataset(samples, global_batch)
        .unwrap();
    let mut losses = Vec::new();
    for (step, batch) in (0..2).flat_map(|epoch| dataset.epoch(epoch)).enumerate() {
        let own = batch.indices();
        // The part of these in the mean over this worker's samples, which follow each other.
        let part = |some: &[usize]| {
            let first = *some.first()?;
            let mean = loss(&layer, 0, first..first + some.len());
            let share = some.len() as f64 / own.len() as f64;
            Some((mean * share).unwrap())
        };
        let before = match step % 3 {
            0 => 0,
            1 => own.len().min(1),
            _ => own.len(),
        };
        let (before, last) = own.split_at(before);
        if let Some(before) = part(before) {
            optimizer.accumulate(&before).unwrap();
        }
        let mean = optimizer.backward_step_weighted(part(last).as_ref(), batch.weight());
        losses.push(mean.unwrap());
    }
    optimizer.leave().unwrap();
    (losses, values(&vars))
}

#[test]
fn samples_count_the_same_in_uneven_parts_and_where_a_worker_has_none() {
    // The last batches are of 4 samples, and of one: two of three workers have none.
    for samples in [14, 11] {
        let one = MultiWorkerMirroredStrategy::alone().unwrap();
        let (losses, expected) = train_by_samples(one, samples, 5);
        assert_eq!(losses.len(), 6);
        let ran = each(3, |strategy| train_by_samples(strategy, samples, 5));
        for (found, values) in &ran {
            assert_eq!((found, values), (&ran[0].0, &ran[0].1));
            let pairs = found.iter().chain(values);
            for (found, expected) in pairs.zip(losses.iter().chain(&expected)) {
                assert!((found - expected).abs() < 1e-5, "{found} {expected}");
            }
        }
    }
}

#[test]
fn passes_add_up_once_for_a_variable_of_two_names() {
    each(2, |strategy| {
        let vars = VarMap::new();
        let init = Init::Const(0.0);
        vars.get(3, "x", init, DType::F32, &Device::Cpu).unwrap();
        let x = vars.data().lock().unwrap()["x"].clone();
        let y = x.clone();
        vars.data().lock().unwrap().insert("y".to_owned(), y);
        let optimizer = SGD::new(vec![x.clone()], 1.0).unwrap();
        let mut optimizer = Distributed::with_strategy(strategy, optimizer, &vars).unwrap();
        let loss = || {
            let y = (x.as_tensor() * 10.0).unwrap();
            (x.as_tensor() + y).unwrap().sum_all().unwrap()
        };
        optimizer.accumulate(&loss()).unwrap();
        optimizer.backward_step(&loss()).unwrap();
        assert_eq!(x.to_vec1::<f32>().unwrap(), [-22.0; 3]);
        optimizer.leave().unwrap();
    });
}

#[test]
fn a_variable_that_no_pass_of_any_worker_uses_is_left_alone() {
    for workers in [1, 2] {
        each(workers, |strategy| {
            let is_last = strategy.rank().number() + 1 == workers;
            let vars = VarMap::new();
            let get = |name| {
                let made = vars.get(3, name, Init::Const(1.0), DType::F32, &Device::Cpu);
                made.unwrap()
            };
            let [frozen, before, always] = ["frozen", "before", "always"].map(get);
            let decaying = ParamsAdamW {
                weight_decay: 0.1,
                ..ParamsAdamW::default()
            };
            let optimizer = AdamW::new(vars.all_vars(), decaying).unwrap();
            let mut optimizer = Distributed::with_strategy(strategy, optimizer, &vars).unwrap();
            let loss = |of: &Tensor| of.sqr().unwrap().sum_all().unwrap();
            for _ in 0..3 {
                if is_last {
                    optimizer.accumulate(&loss(&before)).unwrap();
                }
                optimizer.backward_step(&loss(&always)).unwrap();
            }
            optimizer.leave().unwrap();
            let values = |of: &Tensor| of.to_vec1::<f32>().unwrap();
            assert_eq!(values(&frozen), [1.0; 3]);
            for used in [&before, &always] {
                assert!(values(used)[0] < 1.0, "{used}");
            }
        });
    }
}

#[test]
fn a_small_norm_is_left_alone_and_a_large_one_becomes_what_was_asked_for() {
    let (vars, layer) = layer(0);
    let mut strategy = MultiWorkerMirroredStrategy::alone().unwrap();
    let mut mirrored = MirroredVars::new(&mut strategy, &vars).unwrap();
    let mut gradients = loss(&layer, 0, 0..4).backward().unwrap();
    let reduced = strategy.run(|replica| mirrored.all_reduce(replica, &mut gradients, 1.0));
    reduced.unwrap();
    let norm = |gradients: &GradStore| {
        let square = |var: candle_core::Var| {
            let gradient = gradients.get(&var).unwrap().sqr().unwrap();
            f64::from(gradient.sum_all().unwrap().to_scalar::<f32>().unwrap())
        };
        mirrored
            .named()
            .map(|named| square(named.1))
            .sum::<f64>()
            .sqrt()
    };
    let before = norm(&gradients);
    for (most, expected) in [(2.0 * before, before), (before / 4.0, before / 4.0)] {
        let told = mirrored.clip_norm(&mut gradients, most).unwrap();
        assert!((told - before).abs() < 1e-6, "{told} {before}");
        assert!((norm(&gradients) - expected).abs() < 1e-6);
    }
}

#[test]
fn a_norm_that_is_not_above_0_is_refused() {
    for most in [-1.0, 0.0, f64::NAN] {
        let (vars, layer) = layer(0);
        let strategy = MultiWorkerMirroredStrategy::alone().unwrap();
        let optimizer = SGD::new(vars.all_vars(), 0.1).unwrap();
        let optimizer = Distributed::with_strategy(strategy, optimizer, &vars).unwrap();
        let (mut optimizer, before) = (optimizer.with_max_norm(most), values(&vars));
        let error = optimizer.backward_step(&loss(&layer, 0, 0..4)).unwrap_err();
        let number = format!("to a norm of {most}:");
        assert!(error.to_string().contains(&number), "{error}");
        assert_eq!(values(&vars), before);
    }
}

#[test]
fn workers_whose_models_differ_are_told_apart() {
    let errors = each(3, |strategy| {
        let vars = VarMap::new();
        let outputs = 2 + usize::from(strategy.rank() == Rank::new(1));
        linear(
            3,
            outputs,
            VarBuilder::from_varmap(&vars, DType::F32, &Device::Cpu),
        )
        .unwrap();
        let optimizer = SGD::new(vars.all_vars(), 0.1).unwrap();
        Distributed::with_strategy(strategy, optimizer, &vars).unwrap_err()
    });
    for error in errors {
        let error = error.to_string();
        assert!(error.contains("bias of shape [3] on rank 1"), "{error}");
    }
}

/// Each worker's error, of a step or at its end, where `program` makes more calls on rank 1.
fn check_both_are_told(
    program: impl Fn(&mut Distributed<SGD>, &Linear) -> Result<(), Error> + Sync,
) {
    let ended = each(2, |strategy| {
        let (vars, layer) = layer(0);
        let optimizer = SGD::new(vars.all_vars(), 0.1).unwrap();
        let mut optimizer = Distributed::with_strategy(strategy, optimizer, &vars).unwrap();
        program(&mut optimizer, &layer)?;
        optimizer.leave()
    });
    for error in ended {
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains("rank 0") && error.contains("rank 1"),
            "{error}"
        );
        assert!(
            error.contains("all_reduce") && error.contains(".rs:"),
            "{error}"
        );
    }
}

#[test]
fn a_loader_with_more_batches_on_one_worker_is_told_with_both_calls() {
    check_both_are_told(|optimizer, layer| {
        for step in 0..3 + optimizer.worker() {
            optimizer.backward_step(&loss(layer, step, 0..4))?;
        }
        Ok(())
    });
}

#[test]
fn a_metric_that_only_one_worker_has_is_told_with_both_calls() {
    check_both_are_told(|optimizer, layer| {
        for step in 0..3 {
            optimizer.backward_step(&loss(layer, step, 0..4))?;
            if optimizer.worker() == 1 {
                let strategy = optimizer.strategy_mut();
                let hits = strategy.per_replica(|_| 3_i64);
                strategy.reduce(meshwork_strategy::ReplicaReduceOp::Sum, hits)?;
            }
        }
        Ok(())
    });
    // As one more number beside the gradients, too.
    let errors = each(2, |mut strategy| {
        let (vars, layer) = layer(0);
        let numbers = strategy.rank().index();
        let mut mirrored = MirroredVars::with_extra(&mut strategy, &vars, numbers).unwrap();
        let mut gradients = loss(&layer, 0, 0..4).backward().unwrap();
        let reduced = strategy.run(|replica| mirrored.all_reduce(replica, &mut gradients, 0.5));
        reduced.unwrap_err().to_string()
    });
    for error in errors {
        assert!(
            error.contains("of 18 f32") && error.contains("of 19 f32"),
            "{error}"
        );
    }
}

#[test]
fn a_worker_whose_loss_is_refused_is_named_on_all() {
    let errors = each(2, |strategy| {
        let rank = strategy.rank();
        let (vars, layer) = layer(0);
        let optimizer = SGD::new(vars.all_vars(), 0.1).unwrap();
        let mut optimizer = Distributed::with_strategy(strategy, optimizer, &vars).unwrap();
        let loss = match rank {
            Rank::CHIEF => loss(&layer, 0, 0..4),
            _ => loss(&layer, 0, 0..4).broadcast_as(2).unwrap(),
        };
        optimizer.backward_step(&loss).unwrap_err()
    });
    let Error::Strategy(chiefs) = &errors[0] else {
        panic!("{errors:?}");
    };
    assert_eq!(chiefs.rank_at_fault(), Some(Rank::new(1)), "{chiefs}");
    assert!(matches!(errors[1], Error::Candle(_)), "{errors:?}");
}

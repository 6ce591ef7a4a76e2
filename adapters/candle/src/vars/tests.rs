//! `MirroredVars` with workers that are threads of one process: weighted sums, hooked against plain
//! backward passes bit for bit, buckets, changes of membership, snapshots and copies that diverge.

mod absent;
mod low_rank;

use candle_core::Device;
use candle_nn::{Init, Optimizer, SGD};
use meshwork_strategy::{CommunicationOptions, Cursor, Rank};

use super::*;
use crate::testing::each;

fn model(initial: f64) -> VarMap {
    let model = VarMap::new();
    for name in ["z", "a", "m"] {
        model
            .get((2, 3), name, Init::Const(initial), DType::F32, &Device::Cpu)
            .unwrap();
    }
    model
}

fn var(model: &VarMap, name: &str) -> Var {
    model.data().lock().unwrap()[name].clone()
}

fn values(var: &Var) -> Vec<f32> {
    var.flatten_all().unwrap().to_vec1().unwrap()
}

#[test]
fn all_workers_take_rank_0s_values_in_the_order_of_names() {
    each(3, |mut strategy| {
        let model = model(f64::from(strategy.rank().number()) + 1.0);
        let mirrored = MirroredVars::new(&mut strategy, &model).unwrap();
        let names: Vec<_> = mirrored.specs().iter().map(VariableSpec::name).collect();
        assert_eq!(names, ["a", "m", "z"]);
        assert_eq!(values(&var(&model, "m")), [1.0; 6]);
        strategy.leave().unwrap();
    });
}

#[test]
fn gradients_are_summed_with_their_weights_and_the_optimizer_applies_the_sum() {
    each(2, |mut strategy| {
        let model = model(1.0);
        let mut mirrored = MirroredVars::with_extra(&mut strategy, &model, 1).unwrap();
        let own = f64::from(strategy.rank().number()) + 1.0;
        // d/da = own, transposed on the way so that the gradient is not contiguous; z is unused.
        let a = (var(&model, "a").t().unwrap() * own)
            .unwrap()
            .sum_all()
            .unwrap();
        let m = (var(&model, "m").as_tensor() * (own * 2.0))
            .unwrap()
            .sum_all()
            .unwrap();
        let mut gradients = (a + m).unwrap().backward().unwrap();
        mirrored.extra_mut().unwrap()[0] = 0.25;
        let step = strategy.run(|replica| mirrored.all_reduce(replica, &mut gradients, 0.5));
        step.unwrap();
        assert_eq!(mirrored.extra(), [0.5]);
        let mut optimizer = SGD::new(model.all_vars(), 1.0).unwrap();
        optimizer.step(&gradients).unwrap();
        // 0.5 * (1 + 2) for a, twice that for m, nothing for z.
        assert_eq!(values(&var(&model, "a")), [-0.5; 6]);
        assert_eq!(values(&var(&model, "m")), [-2.0; 6]);
        assert_eq!(values(&var(&model, "z")), [1.0; 6]);
        mirrored.verify(&mut strategy).unwrap();
        strategy.leave().unwrap();
    });
}

#[test]
fn a_hooked_backward_pass_gives_the_bits_of_a_plain_one() {
    // One bucket, several, and each variable in its own.
    for bytes in [0, 30, 1] {
        each(2, |strategy| {
            let options = CommunicationOptions::new().with_bytes_per_bucket(bytes);
            let mut strategy = strategy.with_options(options);
            let model = model(0.5);
            let mut mirrored = MirroredVars::with_extra(&mut strategy, &model, 1).unwrap();
            let own = f64::from(strategy.rank().number()) + 1.0;
            // a is used twice, z not at all.
            let loss = |a: &Tensor, m: &Tensor| {
                let product = ((a * m).unwrap() * own).unwrap();
                (product.tanh().unwrap() + a).unwrap().sum_all().unwrap()
            };
            for _ in 0..3 {
                let plain = loss(&var(&model, "a"), &var(&model, "m"));
                let mut plain = plain.backward().unwrap();
                let reduced = strategy.run(|replica| {
                    mirrored.extra_mut()?[0] = 1.0;
                    mirrored.all_reduce(replica, &mut plain, 0.25)
                });
                reduced.unwrap();
                let hooked = strategy.run(|replica| {
                    let vars = mirrored.hooked()?;
                    let loss = loss(&vars.get((2, 3), "a")?, &vars.get((2, 3), "m")?);
                    mirrored.extra_mut()?[0] = 1.0;
                    mirrored.backward(replica, &loss, 0.25)
                });
                let hooked = hooked.unwrap().into_first();
                assert_eq!(mirrored.extra(), [2.0]);
                for name in ["a", "m", "z"] {
                    let bits = |gradients: &GradStore| {
                        let gradient = gradients.get(&var(&model, name))?;
                        let values = gradient.flatten_all().unwrap().to_vec1::<f32>();
                        let bits = values.unwrap().into_iter().map(f32::to_bits);
                        Some(bits.collect::<Vec<_>>())
                    };
                    assert_eq!(bits(&plain), bits(&hooked), "{name}");
                    assert_eq!(bits(&plain).is_none(), name == "z");
                }
            }
            strategy.leave().unwrap();
        });
    }
}

/// A model of one variable that has two names.
fn tied() -> VarMap {
    let model = VarMap::new();
    let x = model.get((2, 3), "x", Init::Const(1.0), DType::F32, &Device::Cpu);
    x.unwrap();
    let x = var(&model, "x");
    model.data().lock().unwrap().insert("y".to_owned(), x);
    model
}

#[test]
fn a_variable_of_two_names_has_one_gradient_which_counts_once() {
    for bytes in [0, 1] {
        each(2, |strategy| {
            let options = CommunicationOptions::new().with_bytes_per_bucket(bytes);
            let mut strategy = strategy.with_options(options);
            let model = tied();
            let mut mirrored = MirroredVars::new(&mut strategy, &model).unwrap();
            let names: Vec<_> = mirrored.specs().iter().map(VariableSpec::name).collect();
            assert_eq!(names, ["x"]);
            let loss = |x: &Tensor, y: &Tensor| {
                let y = (y * 10.0).unwrap();
                (x + y).unwrap().sum_all().unwrap()
            };
            let x = var(&model, "x");
            let mut plain = loss(&x, &var(&model, "y")).backward().unwrap();
            let reduced = strategy.run(|replica| mirrored.all_reduce(replica, &mut plain, 0.5));
            reduced.unwrap();
            assert_eq!(values_of(plain.get(&x).unwrap()), [11.0; 6]);
            let hooked = strategy.run(|replica| {
                let vars = mirrored.hooked()?;
                let loss = loss(&vars.get((2, 3), "x")?, &vars.get((2, 3), "y")?);
                mirrored.backward(replica, &loss, 0.5)
            });
            let mut hooked = hooked.unwrap().into_first();
            assert_eq!(values_of(hooked.get(&x).unwrap()), [11.0; 6]);
            let norm = mirrored.clip_norm(&mut hooked, 1.0).unwrap();
            assert!((norm - 726.0_f64.sqrt()).abs() < 1e-9, "{norm}");
            for one in values_of(hooked.get(&x).unwrap()) {
                assert!((one - 1.0 / 6.0_f32.sqrt()).abs() < 1e-6, "{one}");
            }
            strategy.leave().unwrap();
        });
    }
}

#[test]
fn hooks_let_gradients_through_outside_of_a_step() {
    let mut strategy = MultiWorkerMirroredStrategy::alone().unwrap();
    let model = model(2.0);
    let mirrored = MirroredVars::new(&mut strategy, &model).unwrap();
    let a = mirrored.hooked().unwrap().get((2, 3), "a").unwrap();
    let gradients = a.sqr().unwrap().sum_all().unwrap().backward().unwrap();
    let gradient = gradients.get(&var(&model, "a")).unwrap();
    assert_eq!(
        gradient.flatten_all().unwrap().to_vec1::<f32>().unwrap(),
        [4.0; 6]
    );
}

#[test]
fn a_loss_past_the_hooks_is_refused_by_name_on_all_workers() {
    let errors = each(2, |mut strategy| {
        let (model, is_chief) = (model(0.5), strategy.is_chief());
        let mut mirrored = MirroredVars::new(&mut strategy, &model).unwrap();
        let step = strategy.run(|replica| {
            let m = match is_chief {
                true => mirrored.hooked()?.get((2, 3), "m")?,
                false => var(&model, "m").into_inner(),
            };
            mirrored.backward(replica, &m.sqr()?.sum_all()?, 0.5)
        });
        step.map(drop).unwrap_err()
    });
    let Error::Strategy(chiefs) = &errors[0] else {
        panic!("{errors:?}");
    };
    assert_eq!(chiefs.rank_at_fault(), Some(Rank::new(1)), "{chiefs}");
    let is_named = matches!(&errors[1], Error::NotHooked { name } if name == "m");
    assert!(is_named, "{errors:?}");
}

#[test]
fn a_model_of_an_earlier_step_is_refused_by_name() {
    let mut strategy = MultiWorkerMirroredStrategy::alone().unwrap();
    let model = model(0.5);
    let mut mirrored = MirroredVars::new(&mut strategy, &model).unwrap();
    let a = mirrored.hooked().unwrap().get((2, 3), "a").unwrap();
    let mut step = || {
        // What is built by several calls before a pass is of one step.
        let m = mirrored.hooked().unwrap().get((2, 3), "m").unwrap();
        let loss = (&a * m).unwrap().sum_all().unwrap();
        let made = strategy.run(|replica| mirrored.backward(replica, &loss, 1.0));
        made.map(drop)
    };
    step().unwrap();
    let error = step().unwrap_err();
    let is_named = matches!(&error, Error::HookIsOld { name } if name == "a");
    assert!(is_named, "{error}");
}

#[test]
fn a_second_pass_of_one_model_is_told_to_build_it_anew_for_each() {
    let mut strategy = MultiWorkerMirroredStrategy::alone().unwrap();
    let mut mirrored = MirroredVars::new(&mut strategy, &model(0.5)).unwrap();
    let m = mirrored.hooked().unwrap().get((2, 3), "m").unwrap();
    let loss = m.sqr().unwrap().sum_all().unwrap();
    let mut pass = || {
        let made = strategy.run(|replica| mirrored.backward(replica, &loss, 1.0));
        made.map(drop)
    };
    pass().unwrap();
    let told = pass().unwrap_err().to_string();
    let remedy = "call hooked() and build the model anew for each backward pass";
    assert!(told.ends_with(remedy), "{told}");
}

#[test]
fn buckets_give_the_sums_of_one_buffer_and_rounded_ones_come_close() {
    for (bytes, dtype) in [
        (0, CommunicationDtype::F32),
        (1, CommunicationDtype::F32),
        (30, CommunicationDtype::F32),
        (0, CommunicationDtype::Bf16),
    ] {
        each(2, |strategy| {
            let options = CommunicationOptions::new().with_bytes_per_bucket(bytes);
            let mut strategy = strategy.with_options(options);
            let model = model(1.0);
            let mut mirrored = MirroredVars::new(&mut strategy, &model)
                .unwrap()
                .with_communication_dtype(dtype);
            let own = f64::from(strategy.rank().number()) + 1.0;
            for _ in 0..3 {
                let loss = (var(&model, "a").as_tensor() * own)
                    .unwrap()
                    .sum_all()
                    .unwrap();
                let mut gradients = loss.backward().unwrap();
                strategy
                    .run(|replica| mirrored.all_reduce(replica, &mut gradients, 0.5))
                    .unwrap();
                let sum = gradients
                    .get(&var(&model, "a"))
                    .unwrap()
                    .flatten_all()
                    .unwrap();
                assert_eq!(sum.to_vec1::<f32>().unwrap(), [1.5; 6]);
            }
            strategy.leave().unwrap();
        });
    }
}

#[test]
fn a_copy_that_was_changed_on_one_worker_is_found_by_the_next_step_in_either_form() {
    for dtype in [CommunicationDtype::F32, CommunicationDtype::Bf16] {
        let errors = each(2, |mut strategy| {
            let (model, is_changed) = (model(1.0), !strategy.is_chief());
            let mirrored = MirroredVars::with_extra(&mut strategy, &model, 1).unwrap();
            let mut mirrored = mirrored.with_communication_dtype(dtype);
            let mut step = |mirrored: &mut MirroredVars| {
                let mut gradients = fresh_gradients(&model);
                mirrored.extra_mut().unwrap()[0] = 1001.0;
                strategy.run(|replica| mirrored.all_reduce(replica, &mut gradients, 0.5))
            };
            step(&mut mirrored).unwrap();
            assert_eq!(mirrored.extra(), [2002.0]);
            if is_changed {
                let m = var(&model, "m");
                m.set(&(m.as_tensor() * 1.5).unwrap()).unwrap();
            }
            step(&mut mirrored).unwrap_err().to_string()
        });
        for error in errors {
            assert!(error.contains("rank 1 differ from rank 0's"), "{error}");
        }
    }
}

#[test]
fn variables_apart_keep_their_values_and_are_compared_when_workers_change() {
    each(2, |mut strategy| {
        let own = strategy.rank().number() as f32;
        let model = model(f64::from(own));
        let mut mirrored = MirroredVars::apart(&mut strategy, &model, 1).unwrap();
        mirrored.regroup(&mut strategy).unwrap();
        assert_eq!(values(&var(&model, "m")), [own; 6]);
        if !strategy.is_chief() {
            let more = model.get(1, "b", Init::Const(0.0), DType::F32, &Device::Cpu);
            more.unwrap();
            mirrored = MirroredVars::apart(&mut strategy, &model, 1).unwrap();
        }
        let told = mirrored.regroup(&mut strategy);
        let error = match told {
            Err(error) => error,
            // The chief learns it when it waits for the others.
            Ok(()) => mirrored.verify(&mut strategy).unwrap_err(),
        };
        let error = error.to_string();
        assert!(error.contains("b of shape [1] on rank 1"), "{error}");
    });
}

#[test]
fn values_come_back_from_a_snapshot() {
    let mut strategy = MultiWorkerMirroredStrategy::alone().unwrap();
    let saved = model(3.0);
    let mut mirrored = MirroredVars::new(&mut strategy, &saved).unwrap();
    let snapshot = mirrored.save(Snapshot::new(1, Cursor::start())).unwrap();
    let other = model(7.0);
    let mut restored = MirroredVars::new(&mut strategy, &other).unwrap();
    restored.restore(&snapshot).unwrap();
    assert_eq!(values(&var(&other, "m")), [3.0; 6]);
    let names: Vec<_> = restored.named().map(|(name, _)| name).collect();
    assert_eq!(names, ["a", "m", "z"]);
}

#[test]
fn a_copy_that_was_changed_on_one_worker_is_found() {
    each(2, |mut strategy| {
        let model = model(1.0);
        let mut mirrored = MirroredVars::new(&mut strategy, &model).unwrap();
        mirrored.verify(&mut strategy).unwrap();
        if !strategy.is_chief() {
            let m = var(&model, "m");
            m.set(&(m.as_tensor() * 1.5).unwrap()).unwrap();
        }
        let error = mirrored.verify(&mut strategy).unwrap_err().to_string();
        assert!(error.contains("rank 1 differ from rank 0's"), "{error}");
        strategy.leave().unwrap();
    });
}

#[test]
fn variables_of_another_type_are_refused_by_name() {
    let model = VarMap::new();
    model
        .get(2, "half", Init::Const(0.0), DType::F64, &Device::Cpu)
        .unwrap();
    let mut strategy = MultiWorkerMirroredStrategy::alone().unwrap();
    let error = MirroredVars::new(&mut strategy, &model)
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "variable half holds F64 values: only F32 variables can be trained on several workers"
    );
}

/// A gradient of each variable: as they come from a backward pass, in memory of their own.
fn fresh_gradients(model: &VarMap) -> GradStore {
    let all = ["z", "a", "m"].map(|name| var(model, name).sqr().unwrap().sum_all().unwrap());
    let [z, a, m] = all;
    ((z + a).unwrap() + m).unwrap().backward().unwrap()
}

#[test]
fn a_step_takes_memory_for_candles_list_of_arguments_and_for_no_values() {
    for world in [1, 2] {
        each(world, |mut strategy| {
            let model = VarMap::new();
            for name in ["z", "a", "m"] {
                let init = Init::Const(0.5);
                model
                    .get(30_000, name, init, DType::F32, &Device::Cpu)
                    .unwrap();
            }
            let mut mirrored = MirroredVars::with_extra(&mut strategy, &model, 1).unwrap();
            let mut step = |gradients: &mut GradStore| {
                mirrored.extra_mut().unwrap()[0] = 1.0;
                let sums = strategy.run(|replica| mirrored.all_reduce(replica, gradients, 0.5));
                sums.unwrap();
            };
            (0..2).for_each(|_| step(&mut fresh_gradients(&model)));
            for _ in 0..10 {
                let mut gradients = fresh_gradients(&model);
                let counted = allocation_counter::measure(|| step(&mut gradients));
                // One for each variable, where candle's operations in place list their arguments.
                assert!(counted.count_total <= 3, "{counted:?}");
                assert!(counted.bytes_total <= 3 * 128, "{counted:?}");
                let sum = gradients.get(&var(&model, "m")).unwrap();
                let expected = 0.5 * world as f32;
                assert!(values_of(sum).iter().all(|value| *value == expected));
            }
            strategy.leave().unwrap();
        });
    }
}

#[test]
fn a_worker_alone_keeps_its_gradients_as_they_are() {
    let mut strategy = MultiWorkerMirroredStrategy::alone().unwrap();
    let model = model(1.5);
    let mut mirrored = MirroredVars::with_extra(&mut strategy, &model, 1).unwrap();
    mirrored.extra_mut().unwrap()[0] = 0.25;
    let loss = var(&model, "a").sqr().unwrap().sum_all().unwrap();
    let mut gradients = loss.backward().unwrap();
    let mut step = |gradients: &mut GradStore| {
        let sums = strategy.run(|replica| mirrored.all_reduce(replica, gradients, 1.0));
        sums.unwrap();
    };
    step(&mut gradients);
    let counted = allocation_counter::measure(|| step(&mut gradients));
    assert_eq!(counted.count_total, 0, "{counted:?}");
    assert_eq!(mirrored.extra(), [0.25]);
    // 3 in six places.
    let norm = mirrored.clip_norm(&mut gradients, 1.0).unwrap();
    assert!((norm - 54.0_f64.sqrt()).abs() < 1e-9, "{norm}");
    let of = |name| gradients.get(&var(&model, name)).map(values_of);
    for one in of("a").unwrap() {
        assert!((one - 1.0 / 6.0_f32.sqrt()).abs() < 1e-6, "{one}");
    }
    assert_eq!((of("m"), of("z")), (None, None));
}

#[test]
fn sums_of_gradients_that_share_memory_are_apart() {
    each(2, |mut strategy| {
        let model = model(1.0);
        let mut mirrored = MirroredVars::new(&mut strategy, &model).unwrap();
        let mut gradients = fresh_gradients(&model);
        // Two rows of one tensor each, and one that is not contiguous.
        let both = Tensor::arange(0.0_f32, 12.0, &Device::Cpu).unwrap();
        let both = both.reshape((4, 3)).unwrap();
        gradients.insert(&var(&model, "a"), both.narrow(0, 0, 2).unwrap());
        gradients.insert(&var(&model, "m"), both.narrow(0, 2, 2).unwrap());
        let turned = Tensor::ones((3, 2), DType::F32, &Device::Cpu).unwrap();
        gradients.insert(&var(&model, "z"), turned.t().unwrap());
        let sums = strategy.run(|replica| mirrored.all_reduce(replica, &mut gradients, 1.0));
        sums.unwrap();
        let of = |name| values_of(gradients.get(&var(&model, name)).unwrap());
        assert_eq!(of("a"), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(of("m"), [12.0, 14.0, 16.0, 18.0, 20.0, 22.0]);
        assert_eq!(of("z"), [2.0; 6]);
        assert_eq!(values_of(&both)[..3], [0.0, 1.0, 2.0], "a view was written");
        strategy.leave().unwrap();
    });
}

fn values_of(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

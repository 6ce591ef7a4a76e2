//! Layers against candle's own on one worker; workers that are threads of one process, with uneven
//! parts and with none, against one worker that has all samples; running statistics kept, given and
//! taken back; and what is refused.

use candle_core::backprop::GradStore;
use candle_core::{DType, Var};
use candle_nn::{BatchNormConfig, VarMap, batch_norm};
use meshwork_strategy::{CommunicationOptions, Cursor};

use super::*;
use crate::MirroredVars;
use crate::testing::each;

fn builder(vars: &VarMap) -> VarBuilder<'static> {
    VarBuilder::from_varmap(vars, DType::F32, &Device::Cpu)
}

/// Normalisation with one layer of two features.
fn one_layer() -> (BatchNorms, BatchNorm) {
    let norms = BatchNorms::new();
    let layer = norms.layer(2, builder(&VarMap::new()).pp("a"));
    (norms, layer.unwrap())
}

/// Numbers that are far from 0, of this shape.
fn numbers(shape: &[usize], seed: f32) -> Tensor {
    let count: usize = shape.iter().product();
    let values = (0..count).map(|at| 20.0 + seed + (at as f32 * 1.3 + seed).sin() * 3.0);
    let values = Tensor::from_iter(values, &Device::Cpu).unwrap();
    values.reshape(shape).unwrap()
}

fn flat(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

#[track_caller]
fn assert_near(found: &Tensor, expected: &Tensor) {
    assert_eq!(found.dims(), expected.dims());
    let (found, expected) = (flat(found), flat(expected));
    let largest = expected
        .iter()
        .fold(1.0_f32, |most, value| most.max(value.abs()));
    for (found, expected) in found.iter().zip(&expected) {
        let near = (found - expected).abs() <= 1e-4 * largest;
        assert!(near, "{found} {expected} {largest}");
    }
}

/// A function of normalised values whose gradient is uneven.
fn loss(normal: &Tensor) -> Tensor {
    let weights = numbers(normal.dims(), 0.5);
    let curved = (normal + normal.sqr().unwrap()).unwrap();
    (curved * weights).unwrap().sum_all().unwrap()
}

#[test]
fn a_worker_by_itself_has_the_values_and_gradients_of_candles_own_layer() {
    for shape in [&[6, 3][..], &[4, 2, 5, 7], &[3, 4, 1, 9]] {
        let (ours, theirs) = (VarMap::new(), VarMap::new());
        let norms = BatchNorms::new().with_epsilon(1e-3).with_momentum(0.3);
        let own = norms.layer(shape[1], builder(&ours).pp("a")).unwrap();
        let config = BatchNormConfig {
            eps: 1e-3,
            momentum: 0.3,
            ..BatchNormConfig::default()
        };
        let other = batch_norm(shape[1], config, builder(&theirs).pp("a")).unwrap();
        for vars in [&ours, &theirs] {
            let vars = vars.data().lock().unwrap();
            vars["a.weight"].set(&numbers(&[shape[1]], 3.0)).unwrap();
            vars["a.bias"].set(&numbers(&[shape[1]], 4.0)).unwrap();
        }
        for step in 0..3_u8 {
            let x = Var::from_tensor(&numbers(shape, f32::from(step))).unwrap();
            let [found, expected] = [
                own.forward_t(&x, true).unwrap(),
                other.forward_t(&x, true).unwrap(),
            ];
            assert_near(&found, &expected);
            let gradients = [loss(&found), loss(&expected)].map(|loss| loss.backward().unwrap());
            assert_near(gradients[0].get(&x).unwrap(), gradients[1].get(&x).unwrap());
            for name in ["a.weight", "a.bias"] {
                let of = |vars: &VarMap, gradients: &GradStore| {
                    let var = vars.data().lock().unwrap()[name].clone();
                    gradients.get(&var).unwrap().clone()
                };
                assert_near(&of(&ours, &gradients[0]), &of(&theirs, &gradients[1]));
            }
        }
        let x = numbers(shape, 9.0);
        let [found, expected] = [
            own.forward_t(&x, false).unwrap(),
            other.forward_t(&x, false).unwrap(),
        ];
        assert_near(&found, &expected);
        assert_eq!(ours.data().lock().unwrap().len(), 2);
    }
}

/// Two layers, one behind the other, in two steps: values, gradients of inputs and variables, and
/// running statistics.
fn trained(
    strategy: Option<&mut MultiWorkerMirroredStrategy>,
    inputs: &Tensor,
    weights: &Tensor,
    are: Inputs,
) -> Vec<Tensor> {
    let vars = VarMap::new();
    let norms = BatchNorms::new();
    norms.set_inputs(are);
    let first = norms.layer(2, builder(&vars).pp("first")).unwrap();
    let second = norms.layer(2, builder(&vars).pp("second")).unwrap();
    if let Some(strategy) = strategy {
        norms.synchronize(strategy).unwrap();
    }
    let mut all = Vec::new();
    for _ in 0..2 {
        let x = Var::from_tensor(inputs).unwrap();
        let hidden = first.forward_t(&x, true).unwrap().sqr().unwrap();
        let normal = second.forward_t(&hidden, true).unwrap();
        let loss = (&normal * weights).unwrap().sum_all().unwrap();
        let gradients = loss.backward().unwrap();
        all.extend([normal, gradients.get(&x).unwrap().clone()]);
        let named = vars.data().lock().unwrap();
        for name in ["first.bias", "first.weight", "second.bias", "second.weight"] {
            all.push(gradients.get(&named[name]).unwrap().clone());
        }
    }
    let running = norms.statistics().values();
    all.push(Tensor::new(running, &Device::Cpu).unwrap());
    all
}

#[test]
fn workers_normalise_as_one_that_has_all_samples() {
    let (inputs, weights) = (numbers(&[7, 2, 3], 0.0), numbers(&[7, 2, 3], 1.0));
    let expected = trained(None, &inputs, &weights, Inputs::Samples);
    for parts in [&[4, 3][..], &[1, 5, 1], &[7, 0], &[0, 6, 0, 1]] {
        let world = u32::try_from(parts.len()).unwrap();
        let found = each(world, |mut strategy| {
            let rank = strategy.rank().index();
            let start: usize = parts[..rank].iter().sum();
            let (part, are) = match parts[rank] {
                0 => (0..1, Inputs::Padding),
                rows => (start..start + rows, Inputs::Samples),
            };
            let part = |all: &Tensor| all.narrow(0, part.start, part.len()).unwrap();
            let (inputs, mut weights) = (part(&inputs), part(&weights));
            if are == Inputs::Padding {
                weights = weights.zeros_like().unwrap();
            }
            let mut found = trained(Some(&mut strategy), &inputs, &weights, are);
            if are == Inputs::Padding {
                for of_row in found.iter_mut().filter(|found| found.rank() == 3) {
                    *of_row = of_row.narrow(0, 0, 0).unwrap();
                }
            }
            strategy.leave().unwrap();
            found
        });
        for (at, expected) in expected.iter().enumerate() {
            let all: Vec<_> = found.iter().map(|found| &found[at]).collect();
            match expected.rank() {
                // Rows of all workers.
                3 => assert_near(&Tensor::cat(&all, 0).unwrap(), expected),
                // Gradients of variables, which are summed; running statistics, which are equal.
                _ if at + 1 < found[0].len() => {
                    let sum = all[1..]
                        .iter()
                        .fold(all[0].clone(), |sum, one| (sum + *one).unwrap());
                    assert_near(&sum, expected);
                }
                _ => {
                    assert_near(all[0], expected);
                    let bits = |one: &Tensor| flat(one).into_iter().map(f32::to_bits).collect();
                    let first: Vec<u32> = bits(all[0]);
                    assert!(all.iter().all(|one| bits(one) == first));
                }
            }
        }
    }
}

#[test]
fn gradients_of_several_buckets_are_reduced_between_the_sums_of_layers() {
    let run = |world| {
        each(world, |strategy| {
            let options = CommunicationOptions::new().with_bytes_per_bucket(8);
            let mut strategy = strategy.with_options(options);
            let vars = VarMap::new();
            let norms = BatchNorms::new();
            let names = ["a", "b", "c"];
            for name in names {
                norms.layer(2, builder(&vars).pp(name)).unwrap();
            }
            let mut mirrored = MirroredVars::new(&mut strategy, &vars).unwrap();
            norms.synchronize(&mut strategy).unwrap();
            let rows = 12 / world as usize;
            let inputs = numbers(&[12, 2], 0.0);
            let part = inputs
                .narrow(0, strategy.rank().index() * rows, rows)
                .unwrap();
            let made = strategy.run(|replica| {
                let hooked = mirrored.hooked()?;
                let mut x = part.clone();
                for name in names {
                    let normal = norms.layer(2, hooked.pp(name))?.forward_t(&x, true)?;
                    x = (&normal + normal.sqr()?)?;
                }
                let loss = (x.sqr()?.sum_all()? / 12.0)?;
                mirrored.backward(replica, &loss, 1.0)
            });
            let gradients = made.unwrap().into_first();
            norms.verify(&mut strategy).unwrap();
            let named = mirrored.named();
            let found: Vec<_> = named
                .map(|(_, var)| gradients.get(&var).unwrap().clone())
                .collect();
            strategy.leave().unwrap();
            found
        })
    };
    let expected = run(1).remove(0);
    for found in [run(2), run(3)].concat() {
        for (found, expected) in found.iter().zip(&expected) {
            assert_near(found, expected);
        }
    }
}

#[test]
fn without_synchronisation_workers_differ_until_they_have_the_chiefs() {
    each(2, |mut strategy| {
        let (norms, layer) = one_layer();
        let own = numbers(&[5, 2], strategy.rank().number() as f32);
        layer.forward_t(&own, true).unwrap();
        assert!(norms.verify(&mut strategy).is_err());
    });
    let running = each(2, |mut strategy| {
        let (norms, layer) = one_layer();
        let own = numbers(&[5, 2], strategy.rank().number() as f32);
        layer.forward_t(&own, true).unwrap();
        let before = norms.statistics().values();
        norms.broadcast(&mut strategy).unwrap();
        norms.verify(&mut strategy).unwrap();
        let after = norms.statistics().values();
        strategy.leave().unwrap();
        [before, after]
    });
    assert_eq!(running[1][1], running[0][0]);
    assert_ne!(running[1][0], running[0][0]);
}

#[test]
fn candles_own_layer_makes_workers_differ() {
    each(2, |mut strategy| {
        let vars = VarMap::new();
        let config = BatchNormConfig::default();
        let layer = batch_norm(2, config, builder(&vars).pp("a")).unwrap();
        let mut mirrored = MirroredVars::new(&mut strategy, &vars).unwrap();
        let own = numbers(&[5, 2], strategy.rank().number() as f32);
        let loss = layer.forward_t(&own, true).unwrap().sum_all().unwrap();
        let mut gradients = loss.backward().unwrap();
        let step = strategy.run(|replica| mirrored.all_reduce(replica, &mut gradients, 1.0));
        let error = step.unwrap_err().to_string();
        assert!(
            error.contains("diverged") || error.contains("differ"),
            "{error}"
        );
    });
}

#[test]
fn a_step_that_failed_leaves_no_trace_and_snapshots_are_whole() {
    let (norms, layer) = one_layer();
    let step = |seed| layer.forward_t(&numbers(&[5, 2], seed), true).unwrap();
    step(1.0);
    norms.commit();
    let committed = norms.statistics().values();
    step(2.0);
    assert_ne!(norms.statistics().values(), committed);
    norms.roll_back();
    assert_eq!(norms.statistics().values(), committed);

    step(3.0);
    let saved = norms.save(Snapshot::new(1, Cursor::start())).unwrap();
    let values = norms.statistics().values();
    step(4.0);
    norms.restore(&saved).unwrap();
    norms.roll_back();
    assert_eq!(norms.statistics().values(), values);
    let other = BatchNorms::new();
    other.layer(2, builder(&VarMap::new()).pp("b")).unwrap();
    let error = other.restore(&saved).unwrap_err().to_string();
    assert!(error.contains("b.running_mean"), "{error}");
}

#[test]
fn what_cannot_be_normalised_is_named() {
    let (norms, layer) = one_layer();
    let refused = |x: &Tensor| layer.forward_t(x, true).unwrap_err().to_string();
    for shape in [&[4, 3][..], &[4]] {
        let error = refused(&numbers(shape, 0.0));
        assert!(
            error.contains("a of 2 features") && error.contains(&format!("{shape:?}")),
            "{error}"
        );
    }
    for shape in [&[1, 2][..], &[0, 2], &[1, 2, 1, 1]] {
        assert!(refused(&numbers(shape, 0.0)).contains("less than 2 values"));
    }
    let before = norms.statistics().values();
    norms.set_inputs(Inputs::Padding);
    layer.forward_t(&numbers(&[4, 2], 0.0), true).unwrap();
    assert_eq!(
        norms.statistics().values(),
        before,
        "padding has been counted"
    );
    let error = norms.layer(3, builder(&VarMap::new()).pp("a")).unwrap_err();
    assert!(
        error.to_string().contains("3 features and was made with 2"),
        "{error}"
    );

    let mut alone = MultiWorkerMirroredStrategy::alone().unwrap();
    norms.synchronize(&mut alone).unwrap();
    let late = norms.layer(5, builder(&VarMap::new()).pp("late")).unwrap();
    let error = late.forward_t(&numbers(&[4, 5], 0.0), true).unwrap_err();
    assert!(error.to_string().contains("late is newer"), "{error}");
}

#[test]
fn a_worker_that_ends_in_a_forward_pass_is_the_error_of_the_others() {
    each(2, |mut strategy| {
        let (norms, layer) = one_layer();
        norms.synchronize(&mut strategy).unwrap();
        if strategy.rank().index() == 1 {
            strategy.abort("out of data");
            return;
        }
        let error = layer.forward_t(&numbers(&[4, 2], 0.0), true).unwrap_err();
        assert!(error.to_string().contains("out of data"), "{error}");
    });
}

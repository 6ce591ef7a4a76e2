//! Losses and gradients that are a NaN or an infinity on some workers.

use super::*;

/// A loss that is multiplied by this on some workers.
fn times(layer: &Linear, step: usize, factor: f64) -> Tensor {
    (loss(layer, step, 0..4) * factor).unwrap()
}

#[test]
fn a_loss_that_is_not_finite_names_its_workers_on_all_and_changes_nothing() {
    for (workers, bad, text) in [
        (1, &[0][..], "rank 0"),
        (2, &[1][..], "rank 1"),
        (3, &[0, 2][..], "rank 0, rank 2"),
    ] {
        for no_number in [f64::NAN, f64::INFINITY] {
            each(workers, |strategy| {
                let factor = match bad.contains(&strategy.rank().index()) {
                    true => no_number,
                    false => 1.0,
                };
                let (vars, layer) = layer(0);
                let optimizer = AdamW::new(vars.all_vars(), ParamsAdamW::default()).unwrap();
                let mut optimizer = Distributed::with_strategy(strategy, optimizer, &vars).unwrap();
                let before = values(&vars);
                for is_before in [false, true] {
                    let told = match is_before {
                        false => optimizer.backward_step(&times(&layer, 0, factor)),
                        true => {
                            optimizer.accumulate(&times(&layer, 0, factor)).unwrap();
                            optimizer.backward_step(&times(&layer, 0, 1.0))
                        }
                    };
                    let told = told.unwrap_err();
                    let Error::NotFinite { ranks } = &told else {
                        panic!("{told}");
                    };
                    let ranks: Vec<_> = ranks.iter().map(|rank| rank.index()).collect();
                    assert_eq!(ranks, bad);
                    let begin = format!("the loss of {text} is not finite");
                    assert!(told.to_string().starts_with(&begin), "{told}");
                    assert_eq!(values(&vars), before);
                }
                let mean = optimizer.backward_step(&times(&layer, 1, 1.0)).unwrap();
                assert!(mean.is_finite());
                assert_ne!(values(&vars), before);
                optimizer.leave().unwrap();
            });
        }
    }
}

/// A step in which the gradients of the last worker are NaN, and losses are not.
fn root_of_0(
    strategy: MultiWorkerMirroredStrategy,
    with: impl Fn(Distributed<SGD>) -> Distributed<SGD>,
) -> (Result<f32, Error>, Vec<f32>) {
    let is_last = strategy.rank().index() + 1 == strategy.num_replicas_in_sync();
    let vars = VarMap::new();
    let x = vars.get(3, "x", Init::Const(0.0), DType::F32, &Device::Cpu);
    let x = x.unwrap();
    let optimizer = SGD::new(vars.all_vars(), 0.1).unwrap();
    let mut optimizer = with(Distributed::with_strategy(strategy, optimizer, &vars).unwrap());
    let own = match is_last {
        true => x.sqr().unwrap().sqrt().unwrap(),
        false => x.clone(),
    };
    let made = optimizer.backward_step(&own.sum_all().unwrap());
    let made_of = x.to_vec1::<f32>().unwrap();
    // All can go on together, whatever came of it.
    optimizer.leave().unwrap();
    (made, made_of)
}

#[test]
fn a_norm_that_is_not_finite_is_told_on_all_and_changes_nothing() {
    for workers in [1, 2] {
        for (made, x) in each(workers, |strategy| {
            root_of_0(strategy, |optimizer| optimizer.with_max_norm(1.0))
        }) {
            let told = made.unwrap_err();
            let is_named = matches!(told, Error::NormNotFinite { norm, .. } if norm.is_nan());
            assert!(is_named, "{told}");
            assert_eq!(x, [0.0; 3]);
        }
    }
}

#[test]
fn who_wants_to_makes_steps_with_numbers_that_are_not_finite() {
    for (made, x) in each(2, |strategy| {
        root_of_0(strategy, |optimizer| {
            optimizer.with_max_norm(1.0).without_error_if_nonfinite()
        })
    }) {
        assert_eq!(made.unwrap(), 0.0);
        assert!(x.iter().all(|one| one.is_nan()), "{x:?}");
    }
    each(2, |strategy| {
        let factor = [1.0, f64::NAN][strategy.rank().index()];
        let (vars, layer) = layer(0);
        let optimizer = SGD::new(vars.all_vars(), 0.1).unwrap();
        let optimizer = Distributed::with_strategy(strategy, optimizer, &vars).unwrap();
        let mut optimizer = optimizer.without_error_if_nonfinite();
        let mean = optimizer.backward_step(&times(&layer, 0, factor)).unwrap();
        assert!(mean.is_nan());
        assert!(values(&vars).iter().all(|one| one.is_nan()));
        optimizer.leave().unwrap();
    });
}

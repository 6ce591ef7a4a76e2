//! Sharded training with workers that are threads of one process: against candle's optimizer on one
//! worker with the batches of all, whatever is sharded; frozen, tied and unused variables; files.

mod survivors;

use std::num::NonZeroU32;
use std::ops::Range;

use candle_core::Device;
use candle_nn::{Init, Linear, Module, Optimizer, ParamsAdamW, VarBuilder, linear};
use meshwork_strategy::sharded::{AdamW, Shard, ShardGroup};

use super::*;
use crate::testing::each;

const KINDS: [Shard; 3] = [Shard::Nothing, Shard::Optimizer, Shard::Gradients];

/// Two layers with one weight, so that it has two uses, and a bias that has none.
struct Model {
    vars: VarMap,
    layer: Linear,
    scale: Tensor,
}

impl Model {
    /// With other values on each worker until it is trained.
    fn new(own: usize) -> Self {
        let vars = VarMap::new();
        let builder = VarBuilder::from_varmap(&vars, DType::F32, &Device::Cpu);
        let layer = linear(3, 3, builder.pp("layer")).unwrap();
        let scale = builder
            .get_with_hints(1, "scale", Init::Const(0.0))
            .unwrap();
        builder
            .get_with_hints((2, 2), "unused", Init::Const(0.0))
            .unwrap();
        for (name, var) in vars.data().lock().unwrap().iter() {
            let values =
                (0..var.elem_count()).map(|at| ((at + name.len()) as f32 + own as f32).sin());
            let values = Tensor::from_iter(values, &Device::Cpu).unwrap();
            var.set(&values.reshape(var.dims()).unwrap()).unwrap();
        }
        Self { vars, layer, scale }
    }

    /// The mean over samples of a step.
    fn loss(&self, step: usize, samples: Range<usize>) -> Tensor {
        let rows = samples.len();
        let values =
            samples.flat_map(|sample| (0..3).map(move |at| (step * 31 + sample * 3 + at) as f32));
        let inputs = Tensor::from_iter(values.map(f32::cos), &Device::Cpu).unwrap();
        let hidden = self.layer.forward(&inputs.reshape((rows, 3)).unwrap());
        let hidden = hidden.unwrap().tanh().unwrap();
        let outputs = self.layer.forward(&hidden).unwrap();
        let outputs = outputs.broadcast_mul(&self.scale).unwrap();
        (outputs - 0.5).unwrap().sqr().unwrap().mean_all().unwrap()
    }

    fn values(&self) -> Vec<f32> {
        let named = by_name(&self.vars);
        let of = |(_, var): &(String, Var)| var.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        named.iter().flat_map(of).collect()
    }
}

#[derive(Clone, Copy, Debug)]
struct Run {
    sharding: Sharding,
    batch: usize,
    passes: usize,
    steps: usize,
}

impl Run {
    fn train(self, model: &Model, training: &mut Sharded<AdamW>) -> Vec<f32> {
        let (first, part) = (training.worker() * self.batch, self.batch / self.passes);
        let losses = (0..self.steps).map(|step| {
            let of_pass = |pass| {
                let from = first + pass * part;
                (model.loss(step, from..from + part) / self.passes as f64).unwrap()
            };
            for pass in 0..self.passes - 1 {
                training.accumulate(&of_pass(pass)).unwrap();
            }
            training.backward_step(&of_pass(self.passes - 1)).unwrap()
        });
        losses.collect()
    }

    fn on(self, strategy: MultiWorkerMirroredStrategy) -> (Vec<f32>, Vec<f32>) {
        let model = Model::new(strategy.rank().index());
        let optimizer = AdamW::new(0.05).with_weight_decay(0.01);
        let mut training =
            Sharded::with_strategy(strategy, &model.vars, optimizer, self.sharding).unwrap();
        assert_eq!(training.is_chief(), training.worker() == 0);
        let losses = self.train(&model, &mut training);
        assert_eq!(training.steps(), self.steps as u64);
        training.leave().unwrap();
        (losses, model.values())
    }
}

/// The same by candle's optimizer on one worker.
fn by_candle(max_norm: Option<f32>) -> (Vec<f32>, Vec<f32>) {
    let model = Model::new(0);
    let parameters = ParamsAdamW {
        lr: 0.05,
        weight_decay: 0.01,
        ..ParamsAdamW::default()
    };
    let vars: Vec<_> = by_name(&model.vars)
        .into_iter()
        .map(|named| named.1)
        .collect();
    let mut optimizer = candle_nn::AdamW::new(vars.clone(), parameters).unwrap();
    let losses = (0..6).map(|step| {
        let loss = model.loss(step, 0..12);
        let mut gradients = loss.backward().unwrap();
        let mut square = 0.0;
        for var in &vars {
            let gradient = gradients
                .remove(var)
                .unwrap_or_else(|| var.zeros_like().unwrap());
            let values = gradient.flatten_all().unwrap().to_vec1::<f32>().unwrap();
            square += values.iter().map(|value| value * value).sum::<f32>();
            gradients.insert(var, gradient);
        }
        let by = max_norm.map_or(1.0, |most| (most / square.sqrt()).min(1.0));
        for var in &vars {
            let scaled = (gradients.get(var).unwrap() * f64::from(by)).unwrap();
            gradients.insert(var, scaled);
        }
        optimizer.step(&gradients).unwrap();
        loss.to_scalar::<f32>().unwrap()
    });
    let losses = losses.collect();
    (losses, model.values())
}

#[test]
fn any_workers_and_shards_train_as_candles_optimizer_does_on_one_worker() {
    for max_norm in [None, Some(0.02)] {
        let (losses, expected) = by_candle(max_norm);
        for (workers, passes) in [(1, 1), (2, 1), (4, 1), (3, 2), (2, 3)] {
            let ran = KINDS.map(|shard| {
                let mut sharding = Sharding::new(shard);
                if let Some(norm) = max_norm {
                    sharding = sharding.with_max_norm(norm);
                }
                let run = Run {
                    sharding,
                    batch: 12 / workers as usize,
                    passes,
                    steps: 6,
                };
                let ran = each(workers, |strategy| run.on(strategy));
                assert!(ran.iter().all(|one| *one == ran[0]), "workers differ");
                ran.into_iter().next().unwrap()
            });
            if passes == 1 {
                assert!(ran.iter().all(|one| *one == ran[0]), "bits of {workers}");
            }
            for (found, values) in &ran {
                for (found, expected) in values.iter().zip(&expected) {
                    assert!((found - expected).abs() < 1e-4, "{found} {expected}");
                }
                for (found, expected) in found.iter().zip(&losses).filter(|_| passes == 1) {
                    assert!((found - expected).abs() < 1e-5, "{found} {expected}");
                }
            }
        }
    }
}

#[test]
fn copies_of_a_model_train_as_candles_optimizer_does_on_one_worker() {
    let (losses, expected) = by_candle(None);
    for shard in [Shard::Optimizer, Shard::Gradients] {
        let two = ShardGroup::Workers(NonZeroU32::new(2).unwrap());
        let run = Run {
            sharding: Sharding::new(shard).with_group(two),
            batch: 3,
            passes: 1,
            steps: 6,
        };
        let ran = each(4, |strategy| run.on(strategy));
        assert!(ran.iter().all(|one| *one == ran[0]), "workers differ");
        for (found, expected) in ran[0].1.iter().zip(&expected) {
            assert!((found - expected).abs() < 1e-4, "{found} {expected}");
        }
        for (found, expected) in ran[0].0.iter().zip(&losses) {
            assert!((found - expected).abs() < 1e-5, "{found} {expected}");
        }
    }
}

#[test]
fn norms_are_told_where_they_are_limited() {
    for (sharding, is_told) in [
        (Sharding::new(Shard::Optimizer), false),
        (Sharding::new(Shard::Optimizer).with_max_norm(1e9), true),
    ] {
        let model = Model::new(0);
        let mut training = Sharded::new(&model.vars, AdamW::new(0.05), sharding).unwrap();
        training.backward_step(&model.loss(0, 0..4)).unwrap();
        assert_eq!(training.norm().is_some_and(|norm| norm > 0.0), is_told);
    }
}

#[test]
fn frozen_variables_take_the_chiefs_values_and_keep_them() {
    for shard in KINDS {
        let ended = each(2, |strategy| {
            let model = Model::new(strategy.rank().index());
            let is_frozen = |name: &str| name == "scale" || name == "unused";
            let optimizer = AdamW::new(0.05).with_weight_decay(0.1);
            let training = Sharded::with_frozen(strategy, &model.vars, is_frozen, optimizer, shard);
            let mut training = training.unwrap();
            for step in 0..3 {
                training.backward_step(&model.loss(step, 0..4)).unwrap();
            }
            training.leave().unwrap();
            model.values()
        });
        // 9 weights, 3 biases, and behind them what is frozen.
        let chiefs = Model::new(0).values();
        assert_eq!(ended[0], ended[1]);
        assert_eq!(ended[0][12..], chiefs[12..]);
        assert!(
            ended[0]
                .iter()
                .zip(&chiefs)
                .take(12)
                .all(|(one, other)| one != other)
        );
    }
}

#[test]
fn a_variable_with_two_names_is_trained_once() {
    let of = |tied: bool| {
        let model = Model::new(0);
        if tied {
            let mut vars = model.vars.data().lock().unwrap();
            let again = vars["layer.weight"].clone();
            vars.insert("zzz".to_owned(), again);
        }
        let mut training = Sharded::new(&model.vars, AdamW::new(0.05), Shard::Optimizer).unwrap();
        training.backward_step(&model.loss(0, 0..4)).unwrap();
        model
            .layer
            .weight()
            .flatten_all()
            .unwrap()
            .to_vec1::<f32>()
            .unwrap()
    };
    assert_eq!(of(true), of(false));
}

#[test]
fn what_some_workers_save_any_others_load_and_go_on_from() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = ShardedCheckpoints::new(folder.path());
    let on = |strategy: MultiWorkerMirroredStrategy, shard: Shard| {
        let model = Model::new(strategy.rank().index());
        let training = Sharded::with_strategy(strategy, &model.vars, AdamW::new(0.05), shard);
        (model, training.unwrap())
    };
    // All workers compute the same, so that their number does not matter.
    let go_on = |model: &Model, training: &mut Sharded<AdamW>| {
        for step in 3..6 {
            training.backward_step(&model.loss(step, 0..4)).unwrap();
        }
        model.values()
    };
    let went_on = each(4, |strategy| {
        let (model, mut training) = on(strategy, Shard::Gradients);
        assert_eq!(training.load(&checkpoints).unwrap(), None);
        for step in 0..3 {
            training.backward_step(&model.loss(step, 0..4)).unwrap();
        }
        training.save(&checkpoints).unwrap();
        let values = go_on(&model, &mut training);
        training.leave().unwrap();
        values
    });
    for (workers, shard) in [
        (1, Shard::Nothing),
        (2, Shard::Optimizer),
        (4, Shard::Gradients),
    ] {
        let restarted = each(workers, |strategy| {
            let (model, mut training) = on(strategy, shard);
            assert_eq!(training.load(&checkpoints).unwrap(), Some(3));
            let values = go_on(&model, &mut training);
            training.leave().unwrap();
            values
        });
        for values in restarted {
            for (found, expected) in values.iter().zip(&went_on[0]) {
                assert!((found - expected).abs() < 1e-6, "{found} {expected}");
            }
        }
    }
}

#[test]
fn what_cannot_be_sharded_is_refused_by_name() {
    let model = Model::new(0);
    let refused = |sharding: Sharding| {
        Sharded::new(&model.vars, AdamW::new(0.1), sharding)
            .unwrap_err()
            .to_string()
    };
    let whole = refused(Sharding::new(Shard::Parameters));
    assert!(whole.contains("unit by unit"), "{whole}");
    let half = model
        .vars
        .get(2, "half", Init::Const(0.0), DType::F64, &Device::Cpu);
    half.unwrap();
    let half = refused(Sharding::new(Shard::Optimizer));
    assert!(half.starts_with("variable half holds F64 values"), "{half}");
    let errors = each(2, |strategy| {
        let shard = KINDS[strategy.rank().index()];
        let model = Model::new(0);
        let made = Sharded::with_strategy(strategy, &model.vars, AdamW::new(0.1), shard);
        made.unwrap_err().to_string()
    });
    assert!(
        errors.iter().all(|error| error.contains("kind of shards")),
        "{errors:?}"
    );
}

#[test]
fn a_worker_whose_loss_is_refused_is_named_on_all() {
    let errors = each(2, |strategy| {
        let rank = strategy.rank().index();
        let model = Model::new(0);
        let made = Sharded::with_strategy(strategy, &model.vars, AdamW::new(0.1), Shard::Gradients);
        let mut training = made.unwrap();
        let loss = match rank {
            0 => model.loss(0, 0..4),
            _ => model.loss(0, 0..4).broadcast_as(2).unwrap(),
        };
        training.backward_step(&loss).unwrap_err()
    });
    let Error::Strategy(chiefs) = &errors[0] else {
        panic!("{errors:?}");
    };
    assert_eq!(
        chiefs.rank_at_fault().map(|rank| rank.index()),
        Some(1),
        "{chiefs}"
    );
    assert!(matches!(errors[1], Error::Candle(_)), "{errors:?}");
}

#[test]
fn losses_of_passes_that_are_given_up_are_not_told() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = ShardedCheckpoints::new(folder.path());
    let model = Model::new(0);
    let mut training = Sharded::new(&model.vars, AdamW::new(0.05), Shard::Optimizer).unwrap();
    training.save(&checkpoints).unwrap();
    let given_up: [fn(&mut Sharded<AdamW>, &ShardedCheckpoints); 2] = [
        |training, checkpoints| assert_eq!(training.load(checkpoints).unwrap(), Some(0)),
        |training, _| training.initialize().unwrap(),
    ];
    for give_up in given_up {
        training.accumulate(&model.loss(0, 0..4)).unwrap();
        give_up(&mut training, &checkpoints);
        let loss = model.loss(1, 0..4);
        let expected = loss.to_scalar::<f32>().unwrap();
        assert_eq!(training.backward_step(&loss).unwrap(), expected);
    }
}

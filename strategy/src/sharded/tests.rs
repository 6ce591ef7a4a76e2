//! Sharded training gives the numbers of training without shards, and of a naive loop over one
//! model; memory is what the formula says; mistakes and losses are named.

mod checkpoint;
mod lent;
mod memory;
mod mesh;
mod regroup;
mod tensor_parallel;

use std::num::NonZeroU32;
use std::ops::Range;

use meshwork_collectives::{Group, Rank};
use meshwork_testing::in_threads;
use proptest::prelude::*;

use super::*;
use crate::testing::each;
use crate::{Error, MultiWorkerMirroredStrategy, ReplicaContext, StateError, VariableSpec};

const KINDS: [Shard; 4] = [
    Shard::Nothing,
    Shard::Optimizer,
    Shard::Gradients,
    Shard::Parameters,
];

/// Saves a model, and waits until it is written.
fn save_whole<O: ElementWise>(
    strategy: &mut MultiWorkerMirroredStrategy,
    model: &mut ShardedModel<O>,
    checkpoints: &ShardedCheckpoints,
) {
    let saved = strategy.run(|replica| {
        model.save(replica, checkpoints)?;
        model.finish_save(replica)
    });
    saved.unwrap();
}

/// A unit by the shapes of its parameters: those that are trained, and the frozen ones.
#[derive(Clone, Debug)]
struct Shapes {
    trained: Vec<Vec<usize>>,
    frozen: Vec<Vec<usize>>,
}

impl Shapes {
    fn new(trained: &[&[usize]], frozen: &[&[usize]]) -> Self {
        let owned = |shapes: &[&[usize]]| shapes.iter().map(|shape| shape.to_vec()).collect();
        Self {
            trained: owned(trained),
            frozen: owned(frozen),
        }
    }
}

fn units(shapes: &[Shapes]) -> Vec<UnitSpec> {
    let unit = |(number, unit): (usize, &Shapes)| {
        let specs = |kind: &str, shapes: &[Vec<usize>]| -> Vec<VariableSpec> {
            let named = shapes.iter().enumerate();
            let spec = |(at, shape): (usize, &Vec<usize>)| {
                VariableSpec::new(format!("{number}.{kind}{at}"), shape).unwrap()
            };
            named.map(spec).collect()
        };
        UnitSpec::new(format!("unit {number}"), specs("w", &unit.trained))
            .with_frozen(specs("f", &unit.frozen))
    };
    shapes.iter().enumerate().map(unit).collect()
}

fn initial(spec: &VariableSpec, elements: Range<usize>, rows: &mut [f32]) {
    let name: usize = spec.name().bytes().map(usize::from).sum();
    for (at, value) in elements.zip(rows) {
        *value = ((at * 31 + name) as f32 * 0.618).sin();
    }
}

/// The gradient of an element by its value: as odd as any, and another one for every worker and
/// pass.
fn slope(value: f32, at: usize, worker: usize, pass: u32) -> f32 {
    (value * 3.0 + at as f32 * 0.7 + worker as f32 * 1.3 + pass as f32 * 2.1).sin()
}

#[derive(Clone, Copy, Debug)]
struct Run {
    sharding: Sharding,
    workers: u32,
    steps: u64,
}

impl Run {
    fn new(shard: Shard, workers: u32) -> Self {
        let sharding = Sharding::new(shard);
        Self {
            sharding,
            workers,
            steps: 3,
        }
    }

    fn passes(&self) -> u32 {
        self.sharding.passes.map_or(1, NonZeroU32::get)
    }

    /// The parameters of every unit at the end, which all workers see alike, and the norms.
    fn train<O: ElementWise + Clone + Sync>(
        self,
        units: &[UnitSpec],
        optimizer: &O,
    ) -> (Vec<Vec<Vec<f32>>>, Vec<Option<f64>>) {
        let mut all = each(self.workers, |mut strategy| {
            let optimizer = optimizer.clone();
            let mut model =
                ShardedModel::new(&mut strategy, self.sharding, units, optimizer, initial).unwrap();
            let norms = (0..self.steps).map(|_| self.step(&mut strategy, &mut model, units));
            let norms: Vec<_> = norms.collect();
            let values = values(&mut strategy, &mut model, units);
            strategy.leave().unwrap();
            (values, norms)
        });
        let first = all.remove(0);
        assert!(all.iter().all(|other| *other == first), "workers differ");
        first
    }

    fn step<O: ElementWise>(
        &self,
        strategy: &mut MultiWorkerMirroredStrategy,
        model: &mut ShardedModel<O>,
        units: &[UnitSpec],
    ) -> Option<f64> {
        self.try_step(strategy, model, units).unwrap()
    }

    fn try_step<O: ElementWise>(
        &self,
        strategy: &mut MultiWorkerMirroredStrategy,
        model: &mut ShardedModel<O>,
        units: &[UnitSpec],
    ) -> Result<Option<f64>, Error> {
        let worker = strategy.rank().index();
        let norm = strategy.run(|replica| {
            self.passes_of(replica, model, units, worker)?;
            model.step(replica)
        });
        Ok(norm?.into_first())
    }

    fn passes_of<O: ElementWise>(
        &self,
        replica: &mut ReplicaContext<'_>,
        model: &mut ShardedModel<O>,
        units: &[UnitSpec],
        worker: usize,
    ) -> Result<(), Error> {
        for pass in 0..self.passes() {
            for unit in 0..units.len() {
                model.forward(replica, unit, |_| ())?;
            }
            for unit in (0..units.len()).rev() {
                model.backward(replica, unit, |parameters, gradients| {
                    for tensor in 0..units[unit].trainable().len() {
                        let values = parameters[tensor].iter().enumerate();
                        for (slot, (at, value)) in gradients[tensor].iter_mut().zip(values) {
                            *slot = slope(*value, at, worker, pass);
                        }
                    }
                })?;
            }
        }
        Ok(())
    }

    /// The same by a loop over one whole model.
    fn oracle(self, units: &[UnitSpec], optimizer: &AdamW) -> Vec<Vec<Vec<f32>>> {
        let mut values: Vec<Vec<Vec<f32>>> = units
            .iter()
            .map(|unit| {
                let tensors = unit.parameters().iter();
                tensors
                    .map(|spec| {
                        let mut values = vec![0.0; spec.len()];
                        initial(spec, 0..spec.len(), &mut values);
                        values
                    })
                    .collect()
            })
            .collect();
        let mut moments = [values.clone(), values.clone()];
        moments
            .iter_mut()
            .flatten()
            .flatten()
            .for_each(|moment| moment.fill(0.0));
        for step in 1..=self.steps {
            let mut gradients = values.clone();
            for (unit, spec) in units.iter().enumerate() {
                gradients[unit].truncate(spec.trainable().len());
                for gradient in &mut gradients[unit] {
                    for (at, slot) in gradient.iter_mut().enumerate() {
                        let value = *slot;
                        let of_worker = |worker: u32| -> f32 {
                            let passes = 0..self.passes();
                            passes
                                .map(|pass| slope(value, at, worker as usize, pass))
                                .sum()
                        };
                        let sum: f32 = (0..self.workers).map(of_worker).sum();
                        *slot = sum / self.workers as f32;
                    }
                }
            }
            let squares = gradients
                .iter()
                .flatten()
                .flatten()
                .map(|slope| slope * slope);
            let norm = squares.sum::<f32>().sqrt();
            if let Some(most) = self.sharding.max_norm.filter(|most| norm > *most) {
                let all = gradients.iter_mut().flatten().flatten();
                all.for_each(|slope| *slope *= most / norm);
            }
            let [means, squares] = &mut moments;
            for (unit, gradients) in gradients.iter().enumerate() {
                for (tensor, gradients) in gradients.iter().enumerate() {
                    let mut state = [&mut means[unit][tensor][..], &mut squares[unit][tensor][..]];
                    optimizer.update(step, &mut values[unit][tensor], gradients, &mut state);
                }
            }
        }
        values
    }
}

/// The parameters of every unit.
fn values<O: ElementWise>(
    strategy: &mut MultiWorkerMirroredStrategy,
    model: &mut ShardedModel<O>,
    units: &[UnitSpec],
) -> Vec<Vec<Vec<f32>>> {
    let values = strategy.run(|replica| {
        let unit = |(number, spec): (usize, &UnitSpec)| {
            model.forward(replica, number, |parameters| {
                let count = 0..spec.parameters().len();
                count.map(|at| parameters[at].to_vec()).collect()
            })
        };
        let units = units.iter().enumerate();
        units.map(unit).collect::<Result<Vec<_>, Error>>()
    });
    values.unwrap().into_first()
}

fn shapes() -> impl Strategy<Value = Vec<Shapes>> {
    let shapes = |most| prop::collection::vec(prop::collection::vec(0_usize..6, 0..3), 0..most);
    let unit = (shapes(4), shapes(2)).prop_map(|(trained, frozen)| Shapes { trained, frozen });
    prop::collection::vec(unit, 1..5)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn any_shards_of_any_units_train_as_one_whole_model(
        shapes in shapes(), workers in 1_u32..5, passes in 1_u32..4, prefetch in 0_usize..3,
        max_norm in prop::option::of(0.1_f32..2.0),
    ) {
        let (units, optimizer) = (units(&shapes), AdamW::new(0.01).with_epsilon(1e-3));
        let mut bits = None;
        for shard in KINDS {
            let mut run = Run::new(shard, workers);
            let passes = NonZeroU32::new(passes).unwrap();
            run.sharding = run.sharding.with_accumulation(passes).with_prefetch(prefetch);
            run.sharding.max_norm = max_norm;
            let (found, _) = run.train(&units, &optimizer);
            let expected = run.oracle(&units, &optimizer);
            let pairs = found.iter().flatten().flatten().zip(expected.iter().flatten().flatten());
            for (found, expected) in pairs {
                prop_assert!((found - expected).abs() < 1e-4, "{:?}: {} {}", run, found, expected);
            }
            if passes.get() == 1 {
                prop_assert_eq!(bits.get_or_insert_with(|| found.clone()), &found);
            }
        }
    }
}

#[test]
fn norms_and_every_optimizer_are_the_same_to_the_bit_whatever_is_sharded() {
    let units = units(&[
        Shapes::new(&[&[7, 3], &[3]], &[&[5]]),
        Shapes::new(&[&[2], &[], &[1, 40]], &[]),
        Shapes::new(&[&[9, 2]], &[]),
    ]);
    fn same<O: ElementWise + Clone + Sync>(units: &[UnitSpec], optimizer: &O) {
        for workers in [2, 3, 4] {
            let trained = KINDS.map(|shard| {
                let mut run = Run::new(shard, workers);
                run.sharding = run.sharding.with_max_norm(0.5);
                run.train(units, optimizer)
            });
            assert!(
                trained[0]
                    .1
                    .iter()
                    .all(|norm| norm.is_some_and(|norm| norm > 0.5))
            );
            assert!(trained.iter().all(|other| *other == trained[0]));
        }
    }
    same(&units, &Sgd::new(0.1));
    same(&units, &Momentum::new(0.1, 0.9));
    same(&units, &AdamW::new(0.01).with_weight_decay(0.1));
}

#[test]
fn workers_that_are_given_different_models_are_named() {
    let of = |rows| {
        [UnitSpec::new(
            "unit",
            [VariableSpec::new("w", &[rows, 2]).unwrap()],
        )]
    };
    let errors = each(3, |mut strategy| {
        let rows = if strategy.rank() == Rank::new(2) {
            5
        } else {
            4
        };
        let sharding = Sharding::new(Shard::Parameters);
        let made = ShardedModel::new(&mut strategy, sharding, &of(rows), Sgd::new(0.1), initial);
        made.unwrap_err()
    });
    for error in errors {
        let told = error.to_string();
        assert!(told.contains("w of shape [5, 2] on rank 2"), "{told}");
    }
    let errors = each(3, |mut strategy| {
        let is_last = strategy.rank() == Rank::new(2);
        let sharding = Sharding::new(if is_last {
            Shard::Optimizer
        } else {
            Shard::Gradients
        });
        let made = ShardedModel::new(&mut strategy, sharding, &of(4), Sgd::new(0.1), initial);
        made.unwrap_err()
    });
    for error in errors {
        assert_eq!(error.rank_at_fault(), Some(Rank::new(2)), "{error}");
        assert!(error.to_string().contains("kind of shards"), "{error}");
    }
}

#[test]
fn a_worker_that_dies_is_named_wherever_the_others_are() {
    let units = units(&vec![Shapes::new(&[&[4, 4]], &[]); 3]);
    let two = ShardGroup::Workers(NonZeroU32::new(2).unwrap());
    let cases = KINDS.map(|shard| (3, Sharding::new(shard)));
    let copies = KINDS.map(|shard| (4, Sharding::new(shard).with_group(two)));
    for (workers, sharding) in cases.into_iter().chain(copies) {
        let ended = each(workers, |mut strategy| {
            let mut run = Run::new(sharding.shard, workers);
            run.sharding = sharding;
            let mut model =
                ShardedModel::new(&mut strategy, sharding, &units, Sgd::new(0.1), initial).unwrap();
            run.step(&mut strategy, &mut model, &units);
            let rank = strategy.rank();
            let result = strategy.run(|replica| {
                for unit in 0..3 {
                    model.forward(replica, unit, |_| ())?;
                }
                if rank == Rank::new(1) {
                    return Ok(None);
                }
                for unit in (0..3).rev() {
                    model.backward(replica, unit, |_, gradients| gradients[0].fill(1.0))?;
                }
                model.step(replica)
            });
            if rank == Rank::new(1) {
                // Dropped here, without leaving, half-way.
                return None;
            }
            let error = result.err().or_else(|| strategy.leave().err());
            error.map(|error| error.rank_at_fault())
        });
        for rank in (0..ended.len()).filter(|rank| *rank != 1) {
            let at_fault = ended[rank].expect("a worker is lost");
            assert_eq!(at_fault, Some(Rank::new(1)), "{sharding:?}");
        }
    }
}

#[test]
fn a_unit_without_its_passes_and_one_with_too_many_are_refused_by_name() {
    let units = units(&vec![Shapes::new(&[&[2]], &[]); 2]);
    let mut strategy = MultiWorkerMirroredStrategy::alone().unwrap();
    let sharding = Sharding::new(Shard::Parameters);
    let mut model =
        ShardedModel::new(&mut strategy, sharding, &units, Sgd::new(0.1), initial).unwrap();
    let missing = strategy.run(|replica| {
        model.backward(replica, 1, |_, gradients| gradients[0].fill(0.0))?;
        model.step(replica)
    });
    let unit = "unit 0".to_owned();
    assert_eq!(
        missing.unwrap_err(),
        Error::UnitPasses {
            unit,
            found: 0,
            needed: 1
        }
    );
    let twice = strategy.run(|replica| model.backward(replica, 1, |_, _| ()));
    let unit = "unit 1".to_owned();
    assert_eq!(
        twice.unwrap_err(),
        Error::UnitPasses {
            unit,
            found: 2,
            needed: 1
        }
    );
}

#[test]
fn a_name_given_twice_and_several_replicas_are_refused() {
    let spec = VariableSpec::new("w", &[2]).unwrap();
    let tied = [
        UnitSpec::new("a", [spec.clone()]),
        UnitSpec::new("b", [spec]),
    ];
    let sharding = Sharding::new(Shard::Optimizer);
    let mut strategy = MultiWorkerMirroredStrategy::alone().unwrap();
    let made = ShardedModel::new(&mut strategy, sharding, &tied, Sgd::new(0.1), initial);
    let name = "w".to_owned();
    assert_eq!(made.unwrap_err(), Error::DuplicateVariable { name });
    let mut strategy = MultiWorkerMirroredStrategy::mirrored(2).unwrap();
    let made = ShardedModel::new(&mut strategy, sharding, &tied[..1], Sgd::new(0.1), initial);
    assert_eq!(made.unwrap_err(), Error::SeveralReplicas { replicas: 2 });
}

#[test]
fn a_model_is_refused_among_other_workers_than_it_was_made_for() {
    let units = units(&[Shapes::new(&[&[4]], &[])]);
    let models = each(2, |mut strategy| {
        let sharding = Sharding::new(Shard::Parameters);
        let model = ShardedModel::new(&mut strategy, sharding, &units, Sgd::new(0.1), initial);
        strategy.leave().unwrap();
        model.unwrap()
    });
    let mut strategy = MultiWorkerMirroredStrategy::alone().unwrap();
    for mut model in models {
        let result = strategy.run(|replica| model.forward(replica, 0, |_| ()));
        assert_eq!(
            result.unwrap_err(),
            Error::WorkersChanged { sharded: 2, now: 1 }
        );
    }
}

#[test]
fn a_norm_that_gradients_cannot_have_is_refused_by_its_value() {
    let units = units(&[Shapes::new(&[&[4]], &[])]);
    for norm in [-1.0, 0.0, f32::NAN] {
        let mut strategy = MultiWorkerMirroredStrategy::alone().unwrap();
        let sharding = Sharding::new(Shard::Optimizer).with_max_norm(norm);
        let made = ShardedModel::new(&mut strategy, sharding, &units, Sgd::new(0.1), initial);
        let told = made.unwrap_err().to_string();
        assert!(told.contains(&format!("a norm of {norm}:")), "{told}");
    }
}

#[test]
fn an_infinite_norm_tells_that_of_the_gradients_and_leaves_them() {
    let units = units(&[Shapes::new(&[&[7, 3], &[3]], &[])]);
    let (mut run, optimizer) = (Run::new(Shard::Optimizer, 2), Sgd::new(0.1));
    let (unlimited, norms) = run.train(&units, &optimizer);
    assert_eq!(norms, [None::<f64>; 3]);
    run.sharding = run.sharding.with_max_norm(f32::INFINITY);
    let (trained, norms) = run.train(&units, &optimizer);
    assert_eq!(trained, unlimited);
    let is_told = |norm: &Option<f64>| norm.is_some_and(|norm| norm.is_finite() && norm > 0.0);
    assert!(norms.iter().all(is_told), "{norms:?}");
}

/// Other values than `initial` writes.
fn others(spec: &VariableSpec, elements: Range<usize>, rows: &mut [f32]) {
    initial(spec, elements, rows);
    rows.iter_mut().for_each(|value| *value += 1.0);
}

#[test]
fn a_model_that_is_initialized_in_the_midst_of_a_training_is_as_a_new_one() {
    let units = units(&[Shapes::new(&[&[7, 3], &[3]], &[&[5]])]);
    for shard in KINDS {
        let (run, optimizer) = (Run::new(shard, 2), AdamW::new(0.01));
        let sharding = run.sharding.with_neighbour_copies();
        for [again, new] in each(2, |mut strategy| {
            let again = ShardedModel::new(&mut strategy, sharding, &units, optimizer, initial);
            let new = ShardedModel::new(&mut strategy, sharding, &units, optimizer, others);
            let (mut again, mut new) = (again.unwrap(), new.unwrap());
            run.step(&mut strategy, &mut again, &units);
            let begun = strategy.run(|replica| {
                again.backward(replica, 0, |_, gradients| {
                    (0..2).for_each(|tensor| gradients[tensor].fill(1.0));
                })?;
                // Parameters of the last unit stay gathered.
                again.forward(replica, 0, |_| ())?;
                again.initialize(replica, others)
            });
            begun.unwrap();
            let trained = [&mut again, &mut new].map(|model| {
                let begun = (model.steps(), values(&mut strategy, model, &units));
                run.step(&mut strategy, model, &units);
                let stepped = (model.steps(), values(&mut strategy, model, &units));
                (begun, stepped)
            });
            strategy.leave().unwrap();
            trained
        }) {
            assert_eq!(again, new, "{shard:?}");
        }
    }
}

#[test]
fn a_model_whose_values_one_worker_cannot_make_has_none_on_any() {
    let units = units(&vec![Shapes::new(&[&[7, 3]], &[]); 2]);
    let ended = each(2, |mut strategy| {
        let is_last = strategy.rank() == Rank::new(1);
        let (sharding, optimizer) = (Sharding::new(Shard::Optimizer), AdamW::new(0.1));
        let mut model = ShardedModel::elastic(&strategy, sharding, &units, optimizer);
        assert_eq!(model.regroup(&mut strategy), Ok(Regrouped::New));
        let failed = strategy.run(|replica| {
            model.try_initialize(replica, |spec, elements, rows| {
                if is_last && spec.name() == "1.w0" {
                    return Err(Error::NoFiles);
                }
                initial(spec, elements, rows);
                Ok(())
            })
        });
        (failed.unwrap_err(), model.check_values())
    });
    assert_eq!(ended[0].0.rank_at_fault(), Some(Rank::new(1)));
    assert_eq!(ended[1].0, Error::NoFiles);
    assert!(
        ended
            .iter()
            .all(|(_, has)| *has == Err(StateError::NoValues))
    );
}

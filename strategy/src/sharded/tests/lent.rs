//! Variables of a library are trained as a model of the same parameters is, and their checkpoints
//! are the same.

mod regroup;

use std::sync::{Arc, Mutex};

use super::*;

/// A library's tensors.
#[derive(Clone, Debug)]
struct Library(Vec<Arc<Mutex<Vec<f32>>>>);

impl Lent for Library {
    fn with(&mut self, tensor: usize, act: &mut dyn FnMut(&mut [f32])) {
        act(&mut self.0[tensor].lock().unwrap());
    }
}

impl Library {
    fn new(tensors: impl IntoIterator<Item = Vec<f32>>) -> Self {
        let tensors = tensors.into_iter();
        Self(tensors.map(|values| Arc::new(Mutex::new(values))).collect())
    }

    /// Those of a unit, whose values on the chief are the model's, and others elsewhere.
    fn of(unit: &UnitSpec, worker: usize) -> Self {
        Self::new(unit.parameters().iter().map(|spec| {
            let mut values = vec![worker as f32; spec.len()];
            if worker == 0 {
                initial(spec, 0..spec.len(), &mut values);
            }
            values
        }))
    }

    fn values(&self) -> Vec<Vec<f32>> {
        self.0
            .iter()
            .map(|one| one.lock().unwrap().clone())
            .collect()
    }

    /// What a backward pass leaves.
    fn gradients(&self, unit: &UnitSpec, worker: usize, pass: u32) -> Self {
        let trained = self.0.iter().take(unit.trainable().len());
        Self::new(trained.map(|values| {
            let values = values.lock().unwrap();
            let slopes = values.iter().enumerate();
            slopes
                .map(|(at, value)| slope(*value, at, worker, pass))
                .collect()
        }))
    }
}

/// Values and norms after the steps of a run.
fn train(run: Run, unit: &UnitSpec) -> (Vec<Vec<f32>>, Vec<Option<f64>>) {
    let mut all = each(run.workers, |mut strategy| {
        let (worker, sharding) = (strategy.rank().index(), run.sharding);
        let library = Library::of(unit, worker);
        let lent = Box::new(library.clone());
        let optimizer = AdamW::new(0.01).with_epsilon(1e-3);
        let mut variables =
            ShardedVariables::new(&mut strategy, sharding, unit.clone(), lent, optimizer).unwrap();
        let norms = (0..run.steps).map(|_| {
            let norm = strategy.run(|replica| {
                for pass in 0..run.passes() {
                    let gradients = library.gradients(unit, worker, pass);
                    variables.add_gradients(replica, Box::new(gradients))?;
                }
                variables.step(replica)
            });
            norm.unwrap().into_first()
        });
        let norms: Vec<_> = norms.collect();
        assert_eq!(variables.steps(), run.steps);
        strategy.leave().unwrap();
        (library.values(), norms)
    });
    let first = all.remove(0);
    assert!(all.iter().all(|other| *other == first), "workers differ");
    first
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn lent_variables_have_the_values_and_norms_of_a_model(
        shapes in shapes(), workers in 1_u32..5, passes in 1_u32..4, is_said in any::<bool>(),
        max_norm in prop::option::of(0.1_f32..2.0),
    ) {
        // All parameters of a model of several units, in one.
        let of_units = units(&shapes);
        let trained = of_units.iter().flat_map(|unit| unit.trainable().to_vec());
        let frozen = of_units.iter().flat_map(|unit| {
            unit.parameters()[unit.trainable().len()..].to_vec()
        });
        let unit = UnitSpec::new("all", trained).with_frozen(frozen);
        for shard in [Shard::Nothing, Shard::Optimizer, Shard::Gradients] {
            let mut run = Run::new(shard, workers);
            let passes = NonZeroU32::new(passes).unwrap();
            run.sharding = run.sharding.with_accumulation(passes);
            run.sharding.max_norm = max_norm;
            let optimizer = AdamW::new(0.01).with_epsilon(1e-3);
            let (expected, norms) = run.train(&of_units, &optimizer);
            let mut lent = run;
            if !is_said && passes.get() == 1 {
                lent.sharding.passes = None;
            }
            let (found, found_norms) = train(lent, &unit);
            let trained = expected.iter().zip(&of_units);
            let trained = trained.flat_map(|(values, spec)| &values[..spec.trainable().len()]);
            for (expected, found) in trained.zip(&found) {
                prop_assert_eq!(expected, found, "{:?}", run);
            }
            prop_assert_eq!(norms, found_norms);
        }
    }
}

#[test]
fn copies_of_lent_variables_are_those_of_copies_of_a_model() {
    let unit = units(&[Shapes::new(&[&[7, 3], &[], &[2]], &[&[5]])]).remove(0);
    let two = NonZeroU32::new(2).unwrap();
    for shard in [Shard::Optimizer, Shard::Gradients] {
        let mut run = Run::new(shard, 4);
        run.sharding = run.sharding.with_group(ShardGroup::Workers(two));
        let optimizer = AdamW::new(0.01).with_epsilon(1e-3);
        let (expected, _) = run.train(std::slice::from_ref(&unit), &optimizer);
        assert_eq!(expected[0], train(run, &unit).0, "{shard:?}");
        // Of several passes, sums go between the copies.
        run.sharding = run.sharding.with_accumulation(two);
        let (expected, _) = run.train(std::slice::from_ref(&unit), &optimizer);
        for (found, expected) in train(run, &unit)
            .0
            .iter()
            .flatten()
            .zip(expected[0].iter().flatten())
        {
            assert!((found - expected).abs() < 1e-5, "{found} {expected}");
        }
    }
}

#[test]
fn passes_are_counted_only_where_their_number_is_said() {
    let unit = units(&[Shapes::new(&[&[3]], &[])]).remove(0);
    let mut strategy = MultiWorkerMirroredStrategy::alone().unwrap();
    let library = Library::of(&unit, 0);
    let lent = || Box::new(library.clone());
    let two = Sharding::new(Shard::Optimizer).with_accumulation(NonZeroU32::new(2).unwrap());
    let said = ShardedVariables::new(&mut strategy, two, unit.clone(), lent(), Sgd::new(0.1));
    let any = Sharding::new(Shard::Optimizer);
    let any = ShardedVariables::new(&mut strategy, any, unit.clone(), lent(), Sgd::new(0.1));
    let (mut said, mut any) = (said.unwrap(), any.unwrap());
    let mut refused = |variables: &mut ShardedVariables<Sgd>, passes| {
        let result = strategy.run(|replica| {
            for pass in 0..passes {
                let gradients = library.gradients(&unit, 0, pass);
                variables.add_gradients(replica, Box::new(gradients))?;
            }
            variables.step(replica)
        });
        match result {
            Ok(_) => None,
            Err(Error::UnitPasses { found, needed, .. }) => Some((found, needed)),
            Err(other) => panic!("{other}"),
        }
    };
    assert_eq!(refused(&mut any, 0), Some((0, 1)));
    assert_eq!(refused(&mut any, 3), None);
    assert_eq!(refused(&mut said, 1), Some((1, 2)));
    assert_eq!(refused(&mut said, 1), None);
    assert_eq!(refused(&mut said, 3), Some((3, 2)));
}

#[test]
fn variables_in_parts_are_refused() {
    let unit = units(&[Shapes::new(&[&[3]], &[])]).remove(0);
    let mut strategy = MultiWorkerMirroredStrategy::alone().unwrap();
    let lent = Box::new(Library::of(&unit, 0));
    let sharding = Sharding::new(Shard::Parameters);
    let made = ShardedVariables::new(&mut strategy, sharding, unit, lent, Sgd::new(0.1));
    assert_eq!(made.unwrap_err(), Error::VariablesAreWhole);
}

#[test]
fn a_model_loads_what_lent_variables_have_saved_and_the_reverse() {
    let unit = units(&[Shapes::new(&[&[7, 3], &[], &[2]], &[&[5]])]).remove(0);
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = ShardedCheckpoints::new(folder.path());
    let sharding = Sharding::new(Shard::Optimizer);
    let optimizer = AdamW::new(0.01);
    let saved = each(3, |mut strategy| {
        let worker = strategy.rank().index();
        let library = Library::of(&unit, worker);
        let lent = Box::new(library.clone());
        let mut variables =
            ShardedVariables::new(&mut strategy, sharding, unit.clone(), lent, optimizer).unwrap();
        let gradients = Box::new(library.gradients(&unit, worker, 0));
        let stepped = strategy.run(|replica| {
            variables.add_gradients(replica, gradients)?;
            variables.step(replica)?;
            variables.save(replica, &checkpoints)?;
            variables.finish_save(replica)
        });
        stepped.unwrap();
        library.values()
    });
    let run = Run::new(Shard::Parameters, 2);
    let by_model = each(2, |mut strategy| {
        let units = std::slice::from_ref(&unit);
        let mut model =
            ShardedModel::new(&mut strategy, run.sharding, units, optimizer, initial).unwrap();
        let read = strategy.run(|replica| {
            assert_eq!(model.load(replica, &checkpoints)?, Some(1));
            model.forward(replica, 0, |parameters| {
                let all = 0..unit.parameters().len();
                all.map(|at| parameters[at].to_vec()).collect::<Vec<_>>()
            })
        });
        let read = read.unwrap().into_first();
        run.step(&mut strategy, &mut model, units);
        save_whole(&mut strategy, &mut model, &checkpoints);
        read
    });
    assert!(by_model.iter().all(|values| *values == saved[0]));
    let mut strategy = MultiWorkerMirroredStrategy::alone().unwrap();
    let library = Library::of(&unit, 0);
    let lent = Box::new(library.clone());
    let variables = ShardedVariables::new(&mut strategy, sharding, unit, lent, optimizer);
    let mut variables = variables.unwrap();
    let step = strategy.run(|replica| variables.load(replica, &checkpoints));
    assert_eq!(step.unwrap().into_first(), Some(2));
    assert_ne!(library.values()[0], saved[0][0]);
    assert_eq!(library.values()[3], saved[0][3], "it is frozen");
}

//! Models that are kept once in each group of workers: as one whole model is trained, with equal
//! bits whatever is sharded; hosts; files; groups that do not fit.

use std::fs;

use meshwork_collectives::{GroupConfig, JobSecret};
use meshwork_testing::free_addresses;

use super::*;
use crate::ShardGroupError;

fn groups_of(size: u32) -> ShardGroup {
    ShardGroup::Workers(NonZeroU32::new(size).unwrap())
}

fn some_units() -> Vec<UnitSpec> {
    units(&[
        Shapes::new(&[&[7, 3], &[3], &[]], &[&[5, 2]]),
        Shapes::new(&[&[2, 0], &[1, 40]], &[]),
        Shapes::new(&[&[5]], &[]),
    ])
}

#[test]
fn copies_of_a_model_are_trained_as_one_whole_model() {
    let (units, optimizer) = (some_units(), AdamW::new(0.01).with_epsilon(1e-3));
    for (workers, size) in [(4, 2), (6, 2), (6, 3), (4, 1), (4, 4)] {
        for passes in [1, 2] {
            let mut bits = None;
            for shard in [Shard::Optimizer, Shard::Gradients, Shard::Parameters] {
                let mut run = Run::new(shard, workers);
                let passes = NonZeroU32::new(passes).unwrap();
                run.sharding = run.sharding.with_accumulation(passes);
                run.sharding = run.sharding.with_group(groups_of(size));
                run.sharding.max_norm = Some(0.5);
                let (found, norms) = run.train(&units, &optimizer);
                assert!(norms[0].is_some_and(|norm| norm > 0.5));
                let expected = run.oracle(&units, &optimizer);
                let pairs = found.iter().flatten().flatten();
                for (found, expected) in pairs.zip(expected.iter().flatten().flatten()) {
                    assert!(
                        (found - expected).abs() < 1e-4,
                        "{run:?}: {found} {expected}"
                    );
                }
                if passes.get() == 1 {
                    let first = bits.get_or_insert_with(|| (found.clone(), norms.clone()));
                    assert_eq!(*first, (found, norms), "{run:?}");
                }
            }
        }
    }
}

#[test]
fn a_worker_keeps_a_part_among_those_of_its_group() {
    let units = units(&vec![Shapes::new(&[&[40, 10], &[10]], &[]); 3]);
    for (workers, size) in [(4, 2), (6, 3), (2, 1)] {
        for shard in KINDS {
            let sharding = Sharding::new(shard)
                .with_prefetch(0)
                .with_group(groups_of(size));
            let mut run = Run::new(shard, workers);
            run.sharding = sharding;
            let bytes = each(workers, |mut strategy| {
                let optimizer = AdamW::new(0.1);
                let mut model =
                    ShardedModel::new(&mut strategy, sharding, &units, optimizer, initial).unwrap();
                run.step(&mut strategy, &mut model, &units);
                strategy.leave().unwrap();
                model.held_bytes()
            });
            let formula = sharding.bytes::<AdamW>(&units, size as usize);
            let most = bytes.into_iter().max().unwrap();
            assert!(
                most <= formula && most * 10 >= formula * 9,
                "{shard:?}: {most} of {formula}"
            );
        }
    }
}

#[test]
fn the_first_copy_is_saved_and_any_workers_load_it() {
    let (units, optimizer) = (some_units(), AdamW::new(0.01));
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = ShardedCheckpoints::new(folder.path());
    let two = |shard| Sharding::new(shard).with_group(groups_of(2));
    let mut run = Run::new(Shard::Parameters, 4);
    run.sharding = two(Shard::Parameters);
    let whole = |strategy: &mut MultiWorkerMirroredStrategy, model: &mut ShardedModel<AdamW>| {
        let values = strategy.run(|replica| {
            let unit = |unit| model.forward(replica, unit, |parameters| parameters[0].to_vec());
            (0..units.len())
                .map(unit)
                .collect::<Result<Vec<_>, Error>>()
        });
        values.unwrap().into_first()
    };
    let saved = each(4, |mut strategy| {
        let mut model =
            ShardedModel::new(&mut strategy, run.sharding, &units, optimizer, initial).unwrap();
        run.step(&mut strategy, &mut model, &units);
        save_whole(&mut strategy, &mut model, &checkpoints);
        let values = whole(&mut strategy, &mut model);
        strategy.leave().unwrap();
        values
    });
    let files = fs::read_dir(folder.path()).unwrap();
    let files = files.map(|entry| entry.unwrap().path().extension().unwrap().to_owned());
    assert_eq!(files.filter(|name| name == "safetensors").count(), 2);
    for (workers, sharding) in [
        (1, Sharding::new(Shard::Nothing)),
        (3, Sharding::new(Shard::Parameters)),
        (4, two(Shard::Optimizer)),
        (6, two(Shard::Parameters)),
    ] {
        let loaded = each(workers, |mut strategy| {
            let mut model =
                ShardedModel::new(&mut strategy, sharding, &units, optimizer, initial).unwrap();
            let step = strategy.run(|replica| model.load(replica, &checkpoints));
            assert_eq!(step.unwrap().into_first(), Some(1));
            let values = whole(&mut strategy, &mut model);
            strategy.leave().unwrap();
            values
        });
        assert!(
            loaded.iter().all(|values| *values == saved[0]),
            "{workers} {sharding:?}"
        );
    }
}

#[test]
fn the_workers_of_a_host_keep_a_model() {
    let (units, optimizer) = (some_units(), AdamW::new(0.01));
    let mut run = Run::new(Shard::Parameters, 4);
    run.sharding = run.sharding.with_group(ShardGroup::Host);
    let (secret, members) = (JobSecret::generate().unwrap(), free_addresses(4));
    let on_hosts = in_threads(Rank::all(4), |rank| {
        // Ranks 0 and 3 share a host.
        let host = if [0, 3].contains(&rank.index()) {
            "a"
        } else {
            "b"
        };
        let config = GroupConfig::new(members.clone(), rank, secret.clone());
        let group = Group::connect(&config.unwrap().with_host(host)).unwrap();
        let mut strategy = MultiWorkerMirroredStrategy::from_group(group).unwrap();
        let model = ShardedModel::new(&mut strategy, run.sharding, &units, optimizer, initial);
        let mut model = model.unwrap();
        for _ in 0..run.steps {
            run.step(&mut strategy, &mut model, &units);
        }
        let (place, replica) = (model.mesh.place, model.mesh.replica);
        let values =
            strategy.run(|replica| model.forward(replica, 0, |parameters| parameters[0].to_vec()));
        let values = values.unwrap().into_first();
        strategy.leave().unwrap();
        ((replica, place), values)
    });
    let places: Vec<_> = on_hosts.iter().map(|ended| ended.0).collect();
    assert_eq!(places, [(0, 0), (1, 0), (1, 1), (0, 1)]);
    let expected = run.oracle(&units, &AdamW::new(0.01));
    for (_, values) in on_hosts {
        for (found, expected) in values.iter().zip(&expected[0][0]) {
            assert!((found - expected).abs() < 1e-4, "{found} {expected}");
        }
    }
}

#[test]
fn groups_that_do_not_fit_are_refused_by_name() {
    let units = some_units();
    let errors = each(4, |mut strategy| {
        let sharding = Sharding::new(Shard::Parameters).with_group(groups_of(3));
        ShardedModel::new(&mut strategy, sharding, &units, Sgd::new(0.1), initial).unwrap_err()
    });
    let size = NonZeroU32::new(3).unwrap();
    let expected = ShardGroupError::NotDivided { size, workers: 4 };
    assert!(
        errors
            .iter()
            .all(|error| *error == Error::ShardGroup(expected.clone()))
    );
    let errors = each(4, |mut strategy| {
        let size = if strategy.rank() == Rank::new(3) {
            4
        } else {
            2
        };
        let sharding = Sharding::new(Shard::Parameters).with_group(groups_of(size));
        ShardedModel::new(&mut strategy, sharding, &units, Sgd::new(0.1), initial).unwrap_err()
    });
    for error in errors {
        assert_eq!(error.rank_at_fault(), Some(Rank::new(3)), "{error}");
        assert!(
            error.to_string().contains("group of workers that share"),
            "{error}"
        );
    }
}

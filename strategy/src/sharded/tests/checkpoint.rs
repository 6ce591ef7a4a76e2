//! Checkpoints of sharded models: any number of workers reads what any other has written, whole or
//! not at all, and a training goes on as if it had not stopped.

use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use meshwork_checkpoint::testing::{Fault, Survival, TestDisk};
use meshwork_checkpoint::{FileDamage, Series};

use super::*;

fn model<O: ElementWise>(
    strategy: &mut MultiWorkerMirroredStrategy,
    shard: Shard,
    units: &[UnitSpec],
    optimizer: O,
) -> ShardedModel<O> {
    ShardedModel::new(strategy, Sharding::new(shard), units, optimizer, initial).unwrap()
}

fn parameters<O: ElementWise>(
    strategy: &mut MultiWorkerMirroredStrategy,
    model: &mut ShardedModel<O>,
    units: &[UnitSpec],
) -> Vec<Vec<f32>> {
    let values = strategy.run(|replica| {
        let unit = |(number, spec): (usize, &UnitSpec)| {
            model.forward(replica, number, |parameters| {
                let all = 0..spec.parameters().len();
                all.flat_map(|at| parameters[at].to_vec()).collect()
            })
        };
        units
            .iter()
            .enumerate()
            .map(unit)
            .collect::<Result<_, Error>>()
    });
    values.unwrap().into_first()
}

fn some_units() -> Vec<UnitSpec> {
    units(&[
        Shapes::new(&[&[7, 3], &[3], &[]], &[&[5, 2]]),
        Shapes::new(&[&[2, 0], &[1, 40]], &[]),
    ])
}

#[test]
fn a_training_goes_on_from_files_as_if_it_had_not_stopped() {
    let units = some_units();
    let run = Run::new(Shard::Parameters, 3);
    for (saved, loaded) in KINDS.into_iter().zip(KINDS.into_iter().rev()) {
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = ShardedCheckpoints::new(folder.path());
        let went_on = each(3, |mut strategy| {
            let mut model = model(&mut strategy, saved, &units, AdamW::new(0.01));
            run.step(&mut strategy, &mut model, &units);
            strategy
                .run(|replica| model.save(replica, &checkpoints))
                .unwrap();
            run.step(&mut strategy, &mut model, &units);
            strategy.run(|replica| model.finish_save(replica)).unwrap();
            parameters(&mut strategy, &mut model, &units)
        });
        let restarted = each(3, |mut strategy| {
            let mut model = model(&mut strategy, loaded, &units, AdamW::new(0.01));
            run.step(&mut strategy, &mut model, &units);
            run.step(&mut strategy, &mut model, &units);
            let step = strategy.run(|replica| model.load(replica, &checkpoints));
            assert_eq!(step.unwrap().into_first(), Some(1));
            run.step(&mut strategy, &mut model, &units);
            assert_eq!(model.steps(), 2);
            parameters(&mut strategy, &mut model, &units)
        });
        assert_eq!(went_on, restarted, "{saved:?} {loaded:?}");
    }
}

#[test]
fn any_number_of_workers_loads_what_any_number_has_saved() {
    let units = some_units();
    for (saved, loaded) in [(4, 3), (4, 1), (1, 4), (3, 2)] {
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = ShardedCheckpoints::new(folder.path());
        let values = each(saved, |mut strategy| {
            let mut model = model(
                &mut strategy,
                Shard::Parameters,
                &units,
                Momentum::new(0.1, 0.9),
            );
            Run::new(Shard::Parameters, saved).step(&mut strategy, &mut model, &units);
            save_whole(&mut strategy, &mut model, &checkpoints);
            parameters(&mut strategy, &mut model, &units)
        });
        let read = each(loaded, |mut strategy| {
            let mut model = model(
                &mut strategy,
                Shard::Gradients,
                &units,
                Momentum::new(0.1, 0.9),
            );
            let step = strategy.run(|replica| model.load(replica, &checkpoints));
            assert_eq!(step.unwrap().into_first(), Some(1));
            parameters(&mut strategy, &mut model, &units)
        });
        assert!(
            read.iter().all(|read| *read == values[0]),
            "{saved} {loaded}"
        );
    }
}

#[test]
fn every_file_is_a_safetensors_file_of_rows_by_name() {
    let units = some_units();
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = ShardedCheckpoints::new(folder.path());
    each(2, |mut strategy| {
        let mut model = model(&mut strategy, Shard::Parameters, &units, AdamW::new(0.1));
        save_whole(&mut strategy, &mut model, &checkpoints);
    });
    let files = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files
        .filter(|path| path.extension().unwrap() == "safetensors")
        .collect();
    files.sort();
    let mut expected = [0.0; 21];
    initial(&units[0].parameters()[0], 0..21, &mut expected);
    let mut found = Vec::new();
    for (path, name) in files.iter().zip(["0.w0@0:4,0:3", "0.w0@4:7,0:3"]) {
        let bytes = fs::read(path).unwrap();
        let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let data = file.tensor(name).unwrap().data().to_vec();
        found.extend(
            data.chunks(4)
                .map(|four| f32::from_le_bytes(four.try_into().unwrap())),
        );
        assert_eq!(
            file.tensor(&name.replace('@', ".exp_avg@"))
                .unwrap()
                .data()
                .len(),
            data.len()
        );
    }
    assert_eq!(found, expected);
}

#[test]
fn as_many_as_are_asked_for_are_kept_and_older_ones_are_removed() {
    let units = some_units();
    let run = Run::new(Shard::Nothing, 1);
    for keep in [1, 3] {
        let folder = tempfile::tempdir().unwrap();
        let keep = NonZeroUsize::new(keep).unwrap();
        let checkpoints = ShardedCheckpoints::new(folder.path()).with_keep(keep);
        let generations = || Series::new(folder.path(), "model").generations().unwrap();
        let mut strategy = MultiWorkerMirroredStrategy::alone().unwrap();
        let mut model = model(&mut strategy, Shard::Nothing, &units, Sgd::new(0.1));
        let mut saved = Vec::new();
        for _ in 0..5 {
            run.step(&mut strategy, &mut model, &units);
            save_whole(&mut strategy, &mut model, &checkpoints);
            saved.insert(0, generations()[0]);
        }
        assert_eq!(generations(), saved[..keep.get()]);
        // Each is a file of rows and an index.
        let files = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(files, 2 * keep.get());
        let step = strategy.run(|replica| model.load(replica, &checkpoints));
        assert_eq!(step.unwrap().into_first(), Some(5));
    }
}

/// A unit with parameters of these shapes.
fn unit_of(shapes: &[&[usize]]) -> [UnitSpec; 1] {
    let specs = shapes.iter().enumerate();
    let spec = |(at, shape): (usize, &&[usize])| VariableSpec::new(format!("w{at}"), shape);
    [UnitSpec::new(
        "unit",
        specs.map(|named| spec(named).unwrap()),
    )]
}

#[test]
fn a_checkpoint_of_another_model_is_refused_with_all_that_differs() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = ShardedCheckpoints::new(folder.path());
    let mut strategy = MultiWorkerMirroredStrategy::alone().unwrap();
    let saved_units = unit_of(&[&[4, 2], &[3]]);
    let mut saved = model(&mut strategy, Shard::Nothing, &saved_units, Sgd::new(0.1));
    save_whole(&mut strategy, &mut saved, &checkpoints);
    let other = unit_of(&[&[4, 3], &[3], &[1]]);
    let mut other = model(&mut strategy, Shard::Nothing, &other, Sgd::new(0.1));
    let error = strategy
        .run(|replica| other.load(replica, &checkpoints))
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "the checkpoint is of another model: w0 [4, 3] is [4, 2] there, w2 [1] is not there"
    );
    let many: Vec<&[usize]> = vec![&[2]; 12];
    let mut other = model(
        &mut strategy,
        Shard::Nothing,
        &unit_of(&many),
        Sgd::new(0.1),
    );
    let error = strategy
        .run(|replica| other.load(replica, &checkpoints))
        .unwrap_err();
    assert!(error.to_string().ends_with(", and 4 more"), "{error}");
    let momentum = Momentum::new(0.1, 0.9);
    let mut other = model(&mut strategy, Shard::Nothing, &saved_units, momentum);
    let error = strategy
        .run(|replica| other.load(replica, &checkpoints))
        .unwrap_err();
    let told = error.to_string();
    assert!(
        told.contains("w0.momentum_buffer [4, 2] is not there"),
        "{told}"
    );
}

#[test]
fn bytes_that_were_not_saved_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = ShardedCheckpoints::new(folder.path());
    let mut strategy = MultiWorkerMirroredStrategy::alone().unwrap();
    let units = unit_of(&[&[4, 2], &[3]]);
    let mut saved = model(&mut strategy, Shard::Nothing, &units, Sgd::new(0.1));
    save_whole(&mut strategy, &mut saved, &checkpoints);
    let files = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let path = files
        .into_iter()
        .find(|path| path.extension().unwrap() == "safetensors")
        .unwrap();
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, bytes).unwrap();
    let block = "w1@0:3".to_owned();
    let error = strategy
        .run(|replica| saved.load(replica, &checkpoints))
        .unwrap_err();
    let Error::Checkpoint(damaged) = error else {
        panic!("{error}")
    };
    let index = Series::new(folder.path(), "model");
    let index = index.index_path(index.latest().unwrap().index().unwrap().generation());
    let file = path.clone();
    assert_eq!(
        damaged,
        meshwork_checkpoint::Error::BlockDamaged { path, block, index }
    );
    // Its own values are overwritten, which is not as if there never were any.
    let parts = Vec::new();
    let regrouped = saved.regroup(&mut strategy);
    assert_eq!(regrouped, Ok(Regrouped::Lost { parts }));
    let used = strategy.run(|replica| saved.forward(replica, 0, |_| ()));
    assert_eq!(used.unwrap_err(), StateError::NoValues.into());
    // There was a save: nobody is told to begin anew.
    fs::remove_file(&file).unwrap();
    let error = strategy
        .run(|replica| saved.load(replica, &checkpoints))
        .unwrap_err();
    let missing = meshwork_checkpoint::Error::Damaged {
        path: file,
        damage: FileDamage::Missing,
    };
    assert_eq!(error, Error::Checkpoint(missing));
}

#[test]
fn what_a_worker_cannot_write_ends_the_training_on_all_at_a_later_step() {
    let units = some_units();
    let folder = tempfile::tempdir().unwrap();
    let errors = each(2, |mut strategy| {
        let disk = TestDisk::new();
        let mut model = model(&mut strategy, Shard::Parameters, &units, Sgd::new(0.1));
        let is_chief = strategy.is_chief();
        let checkpoints = match is_chief {
            true => ShardedCheckpoints::new(folder.path()),
            // Has no such folder.
            false => ShardedCheckpoints::on(Series::on(Arc::new(disk), "/none", "model")),
        };
        strategy
            .run(|replica| model.save(replica, &checkpoints))
            .unwrap();
        let ended = strategy.run(|replica| {
            loop {
                for unit in [1, 0] {
                    model.backward(replica, unit, |_, gradients| {
                        (0..units[unit].trainable().len()).for_each(|at| gradients[at].fill(0.0));
                    })?;
                }
                if let Err(error) = model.step(replica) {
                    break Err::<(), _>(error);
                }
            }
        });
        ended.unwrap_err()
    });
    assert!(matches!(errors[1], Error::Checkpoint(_)), "{}", errors[1]);
    assert_eq!(
        errors[0].rank_at_fault(),
        Some(Rank::new(1)),
        "{}",
        errors[0]
    );
    assert!(errors[0].to_string().contains("/none"), "{}", errors[0]);
}

#[test]
fn at_every_call_and_after_every_crash_the_old_save_or_the_new_one_is_loaded() {
    let units = some_units();
    let on = |disk: &TestDisk| {
        ShardedCheckpoints::on(Series::on(Arc::new(disk.clone()), "/new/saved", "model"))
    };
    let survivals = [Survival::Everything, Survival::Synced].into_iter();
    let survivals = survivals.chain((0..4).map(Survival::Chance));
    for fault in [Fault::Refused, Fault::Unheard, Fault::Death] {
        for call in 0.. {
            let disk = TestDisk::new();
            let saved = each(2, |mut strategy| {
                let run = Run::new(Shard::Gradients, 2);
                let mut model = model(&mut strategy, Shard::Gradients, &units, Sgd::new(0.1));
                run.step(&mut strategy, &mut model, &units);
                save_whole(&mut strategy, &mut model, &on(&disk));
                if strategy.is_chief() {
                    disk.fail_at(call, fault);
                }
                strategy
                    .run(|replica| replica.all_reduce(crate::ReplicaReduceOp::Sum, &mut [0.0]))
                    .unwrap();
                run.step(&mut strategy, &mut model, &units);
                strategy.run(|replica| {
                    model.save(replica, &on(&disk))?;
                    model.finish_save(replica)
                })
            });
            let is_saved = saved.iter().all(Result::is_ok);
            for survival in survivals.clone() {
                let disk = disk.crashed(survival);
                let mut strategy = MultiWorkerMirroredStrategy::alone().unwrap();
                let mut model = model(&mut strategy, Shard::Nothing, &units, Sgd::new(0.1));
                let step = strategy.run(|replica| model.load(replica, &on(&disk)));
                let step = step.unwrap().into_first();
                let is_right = step == Some(2) || (step == Some(1) && !is_saved);
                assert!(is_right, "{fault:?} {call} {survival:?}: {step:?}");
            }
            if !disk.has_failed() {
                break;
            }
        }
    }
    assert!(!Path::new("/new/saved").exists());
}

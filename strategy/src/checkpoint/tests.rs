use std::thread;

use meshwork_collectives::Group;

use super::*;
use crate::{Cursor, VariableSpec};

fn at(step: u64) -> Snapshot {
    let spec = VariableSpec::new("w", &[2]).unwrap();
    let values = [step as f32, 0.5];
    Snapshot::new(step, Cursor::start())
        .with_array(&spec, &values)
        .unwrap()
}

#[test]
fn the_latest_few_are_kept_and_the_latest_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path().join("new"));
    assert_eq!(checkpoints.load().unwrap().snapshot(), None);
    for step in [1, 5, 1_000_000_000_000, 9] {
        checkpoints.save(&at(step)).unwrap();
    }
    let steps: Vec<_> = checkpoints
        .files()
        .unwrap()
        .iter()
        .filter_map(|path| step_of(path))
        .collect();
    assert_eq!(steps, [1_000_000_000_000, 9]);
    let restored = checkpoints.load().unwrap();
    assert_eq!(restored.snapshot(), Some(&at(1_000_000_000_000)));
    assert!(restored.damaged().is_empty());
}

#[test]
fn a_file_torn_or_changed_at_any_place_is_passed_over_for_the_one_before() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path());
    checkpoints.save(&at(1)).unwrap();
    let latest = checkpoints.save(&at(2)).unwrap();
    let whole = fs::read(&latest).unwrap();
    for length in 0..whole.len() {
        fs::write(&latest, &whole[..length]).unwrap();
        let restored = checkpoints.load().unwrap();
        assert_eq!(restored.snapshot(), Some(&at(1)), "torn at {length}");
        assert_eq!(restored.damaged()[0].0, latest);
    }
    let mut changed = whole.clone();
    *changed.last_mut().unwrap() ^= 0x10;
    fs::write(&latest, changed).unwrap();
    let restored = checkpoints.load().unwrap();
    assert_eq!(restored.snapshot(), Some(&at(1)));
    assert!(matches!(restored.damaged()[0].1, Damage::Hash { .. }));
}

#[test]
fn what_was_not_finished_is_no_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path());
    checkpoints.save(&at(1)).unwrap();
    let unfinished = folder.path().join(file_name(2)).with_extension(UNFINISHED);
    fs::write(unfinished, b"half").unwrap();
    fs::write(folder.path().join("notes.txt"), b"mine").unwrap();
    let restored = checkpoints.load().unwrap();
    assert_eq!(restored.snapshot(), Some(&at(1)));
    assert!(restored.damaged().is_empty());
}

#[test]
fn all_workers_get_what_the_chief_finds() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = tempfile::tempdir().unwrap();
    thread::scope(|scope| {
        for group in Group::local(3).unwrap() {
            let (folder, nowhere) = (folder.path(), nowhere.path());
            scope.spawn(move || {
                let mut strategy = MultiWorkerMirroredStrategy::over(group).unwrap();
                let own = if strategy.is_chief() { folder } else { nowhere };
                let checkpoints = Checkpoints::new(own);
                let nothing = strategy.restore_checkpoint(&checkpoints).unwrap();
                assert_eq!(nothing.snapshot(), None);
                strategy.save_checkpoint(&checkpoints, &at(3)).unwrap();
                let restored = strategy.restore_checkpoint(&checkpoints).unwrap();
                assert_eq!(restored.snapshot(), Some(&at(3)));
                strategy.leave().unwrap();
            });
        }
    });
    assert_eq!(fs::read_dir(nowhere.path()).unwrap().count(), 0);
}

#[test]
fn a_folder_that_cannot_be_written_ends_the_training_with_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, b"").unwrap();
    let mut strategy = MultiWorkerMirroredStrategy::alone().unwrap();
    let error = strategy
        .save_checkpoint(&Checkpoints::new(&file), &at(1))
        .unwrap_err();
    assert!(error.to_string().contains("file/step-"), "{error}");
}

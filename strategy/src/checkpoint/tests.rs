//! Checkpoints on disk: retention, torn and changed files, files of older versions without an
//! index, symlinks, and a simulated disk that crashes at every call.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use meshwork_checkpoint::testing::{Fault, Survival, TestDisk};
use twox_hash::XxHash3_64;

use super::*;
use crate::testing::each;
use crate::{Cursor, VariableSpec};

fn at(step: u64) -> Snapshot {
    let spec = VariableSpec::new("w", &[2]).unwrap();
    let values = [step as f32, 0.5];
    Snapshot::new(step, Cursor::start())
        .with_array(&spec, &values)
        .unwrap()
}

/// The names in the folder, in order.
fn files(checkpoints: &Checkpoints) -> Vec<String> {
    let entries = fs::read_dir(checkpoints.series.folder()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

#[test]
fn the_latest_few_are_kept_and_the_latest_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path().join("new"));
    assert_eq!(checkpoints.load().unwrap().snapshot(), None);
    for step in [1, 5, 1_000_000_000_000, 9] {
        checkpoints.save(&at(step)).unwrap();
    }
    let mut names = files(&checkpoints);
    names.retain(|name| name.ends_with(EXTENSION));
    assert_eq!(names.len(), 2);
    assert!(
        names[0].ends_with(".step-1000000000000.safetensors"),
        "{names:?}"
    );
    assert!(
        names[1].ends_with(".step-000000000009.safetensors"),
        "{names:?}"
    );
    let restored = checkpoints.load().unwrap();
    assert_eq!(restored.snapshot(), Some(&at(9)));
    assert!(restored.damaged().is_empty());
}

#[test]
fn as_many_as_are_asked_for_are_kept_and_older_ones_are_removed() {
    for keep in [1, 3] {
        let folder = tempfile::tempdir().unwrap();
        let keep = NonZeroUsize::new(keep).unwrap();
        let checkpoints = Checkpoints::new(folder.path()).with_keep(keep);
        let saved: Vec<PathBuf> = (1..=5)
            .map(|step| checkpoints.save(&at(step)).unwrap())
            .collect();
        let (removed, kept) = saved.split_at(5 - keep.get());
        assert!(removed.iter().all(|path| !path.exists()), "{keep}");
        assert!(kept.iter().all(|path| path.exists()), "{keep}");
        // Each has an index.
        assert_eq!(files(&checkpoints).len(), 2 * keep.get());
        assert_eq!(checkpoints.load().unwrap().snapshot(), Some(&at(5)));
    }
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
    fs::write(&latest, &whole).unwrap();
    change(&latest);
    let restored = checkpoints.load().unwrap();
    assert_eq!(restored.snapshot(), Some(&at(1)));
    let (path, damage) = &restored.damaged()[0];
    let is_found = matches!(damage, SnapshotDamage::File(crate::FileDamage::Hash { .. }));
    assert!(path == &latest && is_found, "{damage:?}");
}

/// Changes the last byte of a file.
fn change(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    *bytes.last_mut().unwrap() ^= 0x10;
    fs::write(path, bytes).unwrap();
}

#[test]
fn where_no_save_is_whole_the_latest_is_named_and_nobody_begins_anew() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path());
    let named = || match checkpoints.load() {
        Err(Error::NoWholeCheckpoint { path, damage }) => (path, damage),
        other => panic!("{other:?}"),
    };
    let bare = folder.path().join("step-000000000011.safetensors");
    fs::write(&bare, "damaged").unwrap();
    assert_eq!(named(), (bare, SnapshotDamage::Format));
    for step in [1, 2] {
        let latest = checkpoints.save(&at(step)).unwrap();
        assert_eq!(checkpoints.load().unwrap().snapshot(), Some(&at(step)));
        change(&latest);
        let (path, damage) = named();
        let is_found = matches!(damage, SnapshotDamage::File(crate::FileDamage::Hash { .. }));
        assert!(path == latest && is_found, "{path:?} {damage:?}");
    }
}

#[test]
fn a_save_of_another_format_is_an_error_at_once_and_is_never_removed() {
    for earlier in [None, Some(at(1))] {
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints::new(folder.path());
        if let Some(earlier) = &earlier {
            checkpoints.save(earlier).unwrap();
        }
        let file = checkpoints.save(&at(2)).unwrap();
        let generation = checkpoints.series.generations().unwrap()[0];
        let path = checkpoints.series.index_path(generation);
        let content = format!("meshwork checkpoint 3\n{generation}\nbody\n");
        let hash = XxHash3_64::oneshot(content.as_bytes());
        fs::write(&path, format!("{content}\nhash {hash:016x}\n")).unwrap();
        // As another process, which does not know it to be whole.
        let checkpoints = Checkpoints::new(folder.path());
        let refused = FileError::OtherFormat {
            path: path.clone(),
            found: 3,
            known: 2,
        };
        assert_eq!(checkpoints.load(), Err(refused.into()));
        for step in 3..6 {
            checkpoints.save(&at(step)).unwrap();
            assert_eq!(checkpoints.load().unwrap().snapshot(), Some(&at(step)));
        }
        assert!(path.exists() && file.exists(), "{earlier:?}");
    }
}

#[test]
fn all_workers_are_told_that_no_save_of_the_chief_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = tempfile::tempdir().unwrap();
    let file = Checkpoints::new(folder.path()).save(&at(1)).unwrap();
    change(&file);
    let errors = each(3, |mut strategy| {
        let is_chief = strategy.is_chief();
        let own = if is_chief { &folder } else { &nowhere };
        let restored = strategy.restore_checkpoint(&Checkpoints::new(own.path()));
        restored.unwrap_err()
    });
    let is_named = matches!(&errors[0], Error::NoWholeCheckpoint { path, .. } if *path == file);
    assert!(is_named, "{}", errors[0]);
    for error in &errors[1..] {
        assert_eq!(error.rank_at_fault(), Some(Rank::CHIEF), "{error}");
        let text = error.to_string();
        assert!(text.contains(file.to_str().unwrap()), "{text}");
    }
}

#[test]
fn what_was_not_finished_is_no_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path());
    checkpoints.save(&at(1)).unwrap();
    let generation = checkpoints.series.begin().unwrap();
    let bytes = at(2).to_bytes().unwrap();
    let name = "step-000000000002.safetensors";
    let written = checkpoints
        .series
        .write(generation, name, &bytes, bytes.len());
    drop(written.unwrap());
    fs::write(folder.path().join("notes.txt"), b"mine").unwrap();
    let restored = checkpoints.load().unwrap();
    assert_eq!(restored.snapshot(), Some(&at(1)));
    assert!(restored.damaged().is_empty());
}

#[test]
fn what_was_just_saved_is_there_and_restored_beside_files_of_later_steps() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path());
    checkpoints.save(&at(10)).unwrap();
    checkpoints.save(&at(11)).unwrap();
    for step in [1, 2, 3] {
        let path = checkpoints.save(&at(step)).unwrap();
        assert!(path.exists(), "step {step}");
        assert_eq!(checkpoints.load().unwrap().snapshot(), Some(&at(step)));
    }
}

#[test]
fn all_workers_get_what_the_chief_finds() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = tempfile::tempdir().unwrap();
    each(3, |mut strategy| {
        let is_chief = strategy.is_chief();
        let own = if is_chief { &folder } else { &nowhere };
        let checkpoints = Checkpoints::new(own.path());
        let nothing = strategy.restore_checkpoint(&checkpoints).unwrap();
        assert_eq!(nothing.snapshot(), None);
        strategy.save_checkpoint(&checkpoints, &at(3)).unwrap();
        let restored = strategy.restore_checkpoint(&checkpoints).unwrap();
        assert_eq!(restored.snapshot(), Some(&at(3)));
        strategy.leave().unwrap();
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
    let said = format!("{} cannot be listed: not a directory", file.display());
    assert_eq!(error.to_string(), said);
}

#[test]
fn a_step_saved_again_is_what_was_saved_last() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path());
    for text in ["first", "second", "third"] {
        let snapshot = at(7).with_text("turn", text);
        checkpoints.save(&snapshot).unwrap();
        let restored = checkpoints.load().unwrap();
        assert_eq!(restored.snapshot(), Some(&snapshot));
    }
    assert_eq!(files(&checkpoints).len(), 2 * 2);
}

#[test]
fn files_without_an_index_are_read_where_there_is_nothing_else_and_never_removed() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path());
    for step in [9, 10, 11] {
        let path = folder.path().join(format!("step-{step:012}.safetensors"));
        fs::write(path, at(step).to_bytes().unwrap()).unwrap();
    }
    let latest = folder.path().join("step-000000000011.safetensors");
    fs::write(&latest, "damaged").unwrap();
    let restored = checkpoints.load().unwrap();
    assert_eq!(restored.snapshot(), Some(&at(10)));
    assert_eq!(restored.damaged(), [(latest, SnapshotDamage::Format)]);
    for step in 1..=3 {
        checkpoints.save(&at(step)).unwrap();
        assert_eq!(checkpoints.load().unwrap().snapshot(), Some(&at(step)));
    }
    assert_eq!(files(&checkpoints).len(), 3 + 2 * 2);
}

#[test]
fn a_link_in_the_place_of_a_snapshot_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path().join("saved"));
    let path = checkpoints.save(&at(1)).unwrap();
    let moved = folder.path().join("moved");
    fs::rename(&path, &moved).unwrap();
    std::os::unix::fs::symlink(&moved, &path).unwrap();
    let refused = Error::Checkpoint(FileError::Link { path });
    assert_eq!(checkpoints.load(), Err(refused));
}

#[test]
fn at_every_call_and_after_every_crash_the_old_snapshot_or_the_new_one_is_loaded() {
    let on = |disk: &TestDisk| {
        let series = Series::on(Arc::new(disk.clone()), "/new/saved", STEM);
        Checkpoints::of(series)
    };
    let survivals = [Survival::Everything, Survival::Synced].into_iter();
    let survivals = survivals.chain((0..12).map(Survival::Chance));
    for earlier in [&[][..], &[at(8)], &[at(8), at(9), at(9)]] {
        for fault in [Fault::Refused, Fault::Unheard, Fault::Death] {
            for call in 0.. {
                let disk = TestDisk::new();
                for snapshot in earlier {
                    on(&disk).save(snapshot).unwrap();
                }
                disk.fail_at(call, fault);
                let saved = on(&disk).save(&at(3));
                for survival in survivals.clone() {
                    let disk = disk.crashed(survival);
                    let restored = on(&disk).load().unwrap();
                    let now = restored.snapshot();
                    let is_right = now == Some(&at(3)) || (now == earlier.last() && saved.is_err());
                    assert!(is_right, "{fault:?} {call} {survival:?}: {restored:?}");
                    assert!(restored.damaged().is_empty(), "{restored:?}");
                    on(&disk).save(&at(2)).unwrap();
                    on(&disk).save(&at(1)).unwrap();
                    assert_eq!(on(&disk).load().unwrap().snapshot(), Some(&at(1)));
                    let left = disk.list(Path::new("/new/saved"));
                    assert_eq!(left.len(), 2 * 2, "{left:?}");
                }
                if !disk.has_failed() {
                    break;
                }
            }
        }
    }
}

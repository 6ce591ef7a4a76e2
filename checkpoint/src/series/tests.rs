//! Crash consistency of a series of generations: on a simulated disk that fails at every call and
//! loses what was not synced, the old or the new generation is found whole. Also retention, damage,
//! symlinks and concurrent writers.

use std::fs;
use std::num::NonZeroUsize;
use std::os::unix::fs::symlink;

use super::*;
use crate::FileDamage;
use crate::index::last_line;
use crate::testing::{Fault, Survival, TestDisk};

const KEEP: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1);

/// Saves two files that say the same, in which it is seen what belongs together.
fn save(series: &Series, value: u8) -> Result<Generation, Error> {
    series.make_folder()?;
    let generation = series.begin()?;
    let written = ["a", "b"].map(|part| series.write(generation, part, &[value; 3], 2));
    let [a, b] = written;
    let (a, b) = (a?, b?);
    let entries = [a.entry().clone(), b.entry().clone()];
    series.finish(&Index::new(generation, entries, vec![value])?)?;
    series.retain(KEEP, generation)?;
    Ok(generation)
}

/// What is found, and that it fits together.
#[track_caller]
fn found(series: &Series) -> Option<u8> {
    let latest = series.latest().unwrap();
    assert!(latest.damaged().is_empty(), "{latest:?}");
    value(series, latest.index()?)
}

#[track_caller]
fn value(series: &Series, index: &Index) -> Option<u8> {
    let value = index.body()[0];
    for file in index.files() {
        let opened = series.open(index.generation(), file).unwrap();
        assert_eq!(opened.head(), [value; 2]);
        let mut last = [0];
        opened.read_at(2, &mut last).unwrap();
        assert_eq!(last, [value]);
    }
    Some(value)
}

fn in_folder() -> (tempfile::TempDir, Series) {
    let folder = tempfile::tempdir().unwrap();
    let series = Series::new(folder.path().join("new/ck"), "ck");
    (folder, series)
}

fn names(series: &Series) -> Vec<String> {
    let entries = fs::read_dir(series.folder()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

#[test]
fn the_latest_few_are_kept_and_the_latest_is_found() {
    let (_folder, series) = in_folder();
    assert_eq!(found(&series), None);
    for value in 1..=4 {
        save(&series, value).unwrap();
        assert_eq!(found(&series), Some(value));
    }
    let numbers: Vec<u64> = series
        .generations()
        .unwrap()
        .iter()
        .map(|g| g.number())
        .collect();
    assert_eq!(numbers, [4, 3]);
    assert_eq!(names(&series).len(), 2 * 3);
}

#[test]
fn another_series_in_the_folder_is_left_alone() {
    let (_folder, series) = in_folder();
    let other = |stem: &str| Series::new(series.folder(), stem);
    let generation = save(&series, 1).unwrap();
    let others = ["c", "ck-2", "ck.x", &format!("ck.{generation}")].map(other);
    for (other, value) in others.iter().zip(2..) {
        save(other, value).unwrap();
    }
    for value in 10..14 {
        save(&series, value).unwrap();
        assert_eq!(found(&series), Some(value));
    }
    for (other, value) in others.iter().zip(2..) {
        assert_eq!(found(other), Some(value));
    }
    fs::write(series.folder().join("notes.txt"), "mine").unwrap();
    assert_eq!(
        series.read_stranger(OsStr::new("notes.txt")).unwrap(),
        b"mine"
    );
    assert!(series.strangers().unwrap().contains(&"notes.txt".into()));
}

#[test]
fn only_whole_generations_count_and_the_last_whole_one_stays() {
    let (_folder, series) = in_folder();
    let old = save(&series, 1).unwrap();
    for number in 2..=4 {
        let generation = save(&series, number).unwrap();
        // Another process looks anew.
        fs::write(series.path(generation, "b"), "damaged").unwrap();
        series.whole.lock().unwrap().clear();
        let latest = series.latest().unwrap();
        let (path, damage) = &latest.damaged()[0];
        assert_eq!(path, &series.path(generation, "b"));
        assert_eq!(
            *damage,
            FileDamage::Length {
                stated: 3,
                found: 7
            }
        );
        assert_eq!(latest.index().map(Index::generation), Some(old));
        assert_eq!(value(&series, latest.index().unwrap()), Some(1));
    }
    save(&series, 5).unwrap();
    save(&series, 6).unwrap();
    assert_eq!(names(&series).len(), 2 * 3);
}

#[test]
fn every_kind_of_damage_is_named_and_passed_over() {
    let (_folder, series) = in_folder();
    let old = save(&series, 1).unwrap();
    let new = save(&series, 2).unwrap();
    let (file, index) = (series.path(new, "a"), series.index_path(new));
    let check = |path: &Path, content: Option<&[u8]>, expected: &dyn Fn(FileDamage) -> bool| {
        let whole = fs::read(path).unwrap();
        match content {
            Some(content) => fs::write(path, content).unwrap(),
            None => fs::remove_file(path).unwrap(),
        }
        let latest = series.latest().unwrap();
        assert_eq!(latest.index().map(Index::generation), Some(old));
        let [(named, damage)] = latest.damaged() else {
            panic!("{latest:?}")
        };
        assert!(named == path && expected(*damage), "{named:?} {damage:?}");
        fs::write(path, whole).unwrap();
        assert_eq!(found(&series), Some(2));
    };
    check(&file, None, &|damage| damage == FileDamage::Missing);
    check(&file, Some(&[2]), &|damage| {
        matches!(damage, FileDamage::Length { .. })
    });
    check(&file, Some(&[2, 3, 2]), &|damage| {
        matches!(damage, FileDamage::Hash { .. })
    });
    check(&index, Some(b""), &|damage| damage == FileDamage::Index);
    let other = fs::read(series.index_path(old)).unwrap();
    check(&index, Some(&other), &|damage| {
        damage == FileDamage::OtherGeneration
    });
}

#[test]
fn a_generation_of_another_format_is_an_error_at_once_and_is_never_removed() {
    let (_folder, series) = in_folder();
    save(&series, 1).unwrap();
    let newer = save(&series, 2).unwrap();
    let path = series.index_path(newer);
    let content = format!("meshwork checkpoint 3\n{newer}\nbody\n");
    fs::write(&path, content.clone() + &last_line(content.as_bytes())).unwrap();
    // Another process looks anew.
    series.whole.lock().unwrap().clear();
    let refused = Error::OtherFormat {
        path: path.clone(),
        found: 3,
        known: 2,
    };
    assert_eq!(series.latest(), Err(refused));
    for value in 3..6 {
        save(&series, value).unwrap();
        assert_eq!(found(&series), Some(value));
    }
    assert!(path.exists() && series.path(newer, "a").exists());
    assert_eq!(series.generations().unwrap().len(), 3);
}

#[test]
fn a_link_in_the_place_of_a_file_is_refused_by_name() {
    let (_folder, series) = in_folder();
    let generation = save(&series, 1).unwrap();
    for path in [series.path(generation, "a"), series.index_path(generation)] {
        let moved = path.with_extension("moved");
        fs::rename(&path, &moved).unwrap();
        symlink(&moved, &path).unwrap();
        let error = series.latest().unwrap_err();
        assert_eq!(error, Error::Link { path: path.clone() });
        fs::remove_file(&path).unwrap();
        fs::rename(&moved, &path).unwrap();
    }
    assert_eq!(found(&series), Some(1));
}

#[test]
fn what_a_dead_writer_left_goes_and_what_a_live_one_writes_stays() {
    let (_folder, series) = in_folder();
    save(&series, 1).unwrap();
    let dead = series.begin().unwrap();
    let left = series.write(dead, "a", &[2; 3], 3).unwrap();
    let live = series.begin().unwrap();
    let held = series.write(live, "a", &[3; 3], 3).unwrap();
    let paths = [left.path().to_owned(), held.path().to_owned()];
    drop(left);
    save(&series, 4).unwrap();
    assert_eq!(paths.each_ref().map(|path| path.exists()), [false, true]);
    // It may still be finished, and is an older one then.
    let index = Index::new(live, [held.entry().clone()], vec![3]).unwrap();
    series.finish(&index).unwrap();
    assert_eq!(found(&series), Some(4));
    held.discard();
    save(&series, 5).unwrap();
    save(&series, 6).unwrap();
    assert_eq!(names(&series).len(), 2 * 3);
}

#[test]
fn a_file_on_the_disk_of_another_host_is_named_and_the_save_before_stays() {
    let (_folder, series) = in_folder();
    let (_other_folder, other) = in_folder();
    save(&series, 1).unwrap();
    other.make_folder().unwrap();
    let generation = series.begin().unwrap();
    let own = series.write(generation, "a", &[2; 3], 3).unwrap();
    let elsewhere = other.write(generation, "b", &[2; 3], 3).unwrap();
    let files = [&own, &elsewhere].map(|written| written.entry().clone());
    let index = Index::new(generation, files, vec![2]).unwrap();
    let path = series.path(generation, "b");
    assert_eq!(series.finish(&index), Err(Error::NotShared { path }));
    assert_eq!(found(&series), Some(1));
}

#[test]
fn of_two_that_begin_in_the_same_moment_one_is_refused() {
    let (_folder, series) = in_folder();
    save(&series, 1).unwrap();
    let stopped = series.begin().unwrap();
    let other = save(&series, 2).unwrap();
    assert_eq!(stopped.number(), other.number());
    // It goes on, and does not come to be the later one.
    let refused = series.write(stopped, "a", &[3; 3], 3).unwrap_err();
    let folder = series.folder().to_owned();
    assert_eq!(refused, Error::Concurrent { folder });
    assert_eq!(found(&series), Some(2));
    assert_eq!(names(&series).len(), 2 * 3);
}

#[test]
fn a_file_that_could_not_be_written_is_not_left() {
    let disk = TestDisk::new();
    let series = Series::on(Arc::new(disk.clone()), "/", "ck");
    for call in 1..5 {
        disk.fail_at(call, Fault::Refused);
        let error = series
            .write(Generation::new(1, 1), "a", &[1; 4], 4)
            .unwrap_err();
        assert!(matches!(error, Error::Io { .. }), "{error:?}");
        assert!(disk.list(Path::new("/")).is_empty(), "{call}");
    }
}

#[test]
fn paths_that_end_with_no_name_are_refused() {
    for prefix in ["", "/", "a/.."] {
        let refused = Error::Prefix {
            prefix: prefix.into(),
        };
        assert_eq!(Series::at(Path::new(prefix)).unwrap_err(), refused);
    }
    assert_eq!(
        Series::at(Path::new("ck")).unwrap().folder(),
        Path::new(".")
    );
}

/// Every crash that is tried, and both without one.
fn survivals() -> impl Iterator<Item = Survival> {
    let chances = (0..12).map(Survival::Chance);
    [Survival::Everything, Survival::Synced]
        .into_iter()
        .chain(chances)
}

#[test]
fn at_every_call_and_after_every_crash_the_old_or_the_new_is_there_as_a_whole() {
    let on = |disk: &TestDisk| Series::on(Arc::new(disk.clone()), "/new/ck", "ck");
    for saves in [0, 1, 2, 5] {
        for fault in [Fault::Refused, Fault::Unheard, Fault::Death] {
            for call in 0.. {
                let disk = TestDisk::new();
                for value in 1..=saves {
                    save(&on(&disk), value).unwrap();
                }
                disk.fail_at(call, fault);
                let saved = save(&on(&disk), saves + 1);
                let has_failed = disk.has_failed();
                let old = (saves > 0).then_some(saves);
                for survival in survivals() {
                    let disk = disk.crashed(survival);
                    for generation in on(&disk).generations().unwrap() {
                        let whole = on(&disk).checked(generation);
                        assert!(whole.is_ok(), "{fault:?} {call} {survival:?}: {whole:?}");
                    }
                    let now = found(&on(&disk));
                    let is_right = now == Some(saves + 1) || (now == old && saved.is_err());
                    assert!(is_right, "{fault:?} {call} {survival:?}: {now:?} {saved:?}");
                    save(&on(&disk), 77).unwrap();
                    save(&on(&disk), 78).unwrap();
                    assert_eq!(found(&on(&disk)), Some(78));
                    let left = disk.list(Path::new("/new/ck"));
                    assert_eq!(left.len(), 2 * 3, "{fault:?} {call} {survival:?}: {left:?}");
                }
                // The machine goes on for another save.
                save(&on(&disk.another_process()), 77).unwrap();
                for survival in survivals() {
                    let now = found(&on(&disk.crashed(survival)));
                    assert_eq!(now, Some(77), "{fault:?} {call} {survival:?}");
                }
                if !has_failed {
                    break;
                }
            }
        }
    }
}

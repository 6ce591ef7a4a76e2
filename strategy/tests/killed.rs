//! A process that saves, killed before each of its calls.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail with them")]

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::process::Command;
use std::{env, fs};

use meshwork_checkpoint::testing::{killed_at_each_call, to_be_killed};
use meshwork_strategy::{Checkpoints, Cursor, Snapshot, VariableSpec};
use meshwork_testing::Need;

/// Says to the process that is killed where it saves.
const FOLDER: &str = "MESHWORK_TEST_SAVES_IN";

fn at(step: u64) -> Snapshot {
    let spec = VariableSpec::new("w", &[3000]).unwrap();
    let snapshot = Snapshot::new(step, Cursor::start());
    snapshot.with_array(&spec, &[step as f32; 3000]).unwrap()
}

#[test]
fn a_process_killed_at_any_call_leaves_the_old_snapshot_or_the_new_one() {
    if let Some(folder) = env::var_os(FOLDER) {
        return to_be_killed(|| {
            Checkpoints::new(folder).save(&at(1)).unwrap();
        });
    }
    let folder = tempfile::tempdir().unwrap();
    let saved = folder.path().join("saved");
    let checkpoints = || Checkpoints::new(&saved);
    let begin = || {
        let _ = fs::remove_dir_all(&saved);
        for step in [9, 7] {
            checkpoints().save(&at(step)).unwrap();
        }
    };
    begin();
    let (last, seen) = (Cell::new(0), RefCell::new(BTreeSet::new()));
    let program = || {
        let mut program = Command::new(env::current_exe().unwrap());
        let name = "a_process_killed_at_any_call_leaves_the_old_snapshot_or_the_new_one";
        program.args(["--exact", name, "--test-threads=1"]);
        program.env(FOLDER, &saved);
        program
    };
    let killed = killed_at_each_call(program, |ended| {
        let restored = checkpoints().load().unwrap();
        assert!(restored.damaged().is_empty(), "{ended}: {restored:?}");
        let found = restored.snapshot().map(Snapshot::step);
        let step = found.unwrap_or_else(|| panic!("{ended}: nothing is left"));
        assert!(step == 7 || step == 1, "{ended}: {step}");
        assert_eq!(restored.snapshot(), Some(&at(step)), "{ended}");
        last.set(step);
        seen.borrow_mut().insert(step);
        // Others go on, and nothing is left of it.
        for step in [3, 2] {
            checkpoints().save(&at(step)).unwrap();
            let restored = checkpoints().load().unwrap();
            assert_eq!(restored.snapshot(), Some(&at(step)), "{ended}");
        }
        assert_eq!(fs::read_dir(&saved).unwrap().count(), 4, "{ended}");
        begin();
    });
    if let Some(killed) = Need::Strace.or_skip(killed) {
        assert!(killed > 20, "{killed}");
        assert_eq!((last.get(), seen.into_inner()), (1, BTreeSet::from([1, 7])));
    }
}

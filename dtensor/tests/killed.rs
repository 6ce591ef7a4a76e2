//! A process that saves tensors, killed before each of its calls.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail with them")]

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use meshwork_checkpoint::testing::{killed_at_each_call, to_be_killed};
use meshwork_core::{Client, Mesh};
use meshwork_dtensor::Context;
use meshwork_layout::Layout;
use meshwork_testing::Need;

/// Says to the process that is killed where it saves.
const PREFIX: &str = "MESHWORK_TEST_SAVES_TO";

/// Two tensors of one number.
fn save(prefix: &Path, number: i32) {
    let (context, rows) = world();
    let tensors = [number, -number].map(|number| context.full(&[600, 5], &rows, number).unwrap());
    let tensors: [(&str, &dyn meshwork_dtensor::Save); 2] =
        [("t", &tensors[0]), ("u", &tensors[1])];
    context.save(prefix, &tensors).unwrap();
}

/// The number that both were saved with.
#[track_caller]
fn saved(prefix: &Path) -> i32 {
    let (context, rows) = world();
    let [t, u] = ["t", "u"].map(|name| {
        let read = context.restore::<i32>(prefix, name, &rows).unwrap();
        let all = read.to_host().unwrap();
        let first = all[[0, 0]];
        assert!(all.iter().all(|number| *number == first), "{name}");
        first
    });
    assert_eq!(t, -u);
    t
}

fn world() -> (Context, Layout) {
    let context = Context::alone(Client::new("localhost", 0, 1).unwrap());
    let mesh = Mesh::new([("x", 2)]).unwrap();
    (context, Layout::batch_sharded(&mesh, "x", 2).unwrap())
}

#[test]
fn a_process_killed_at_any_call_leaves_the_old_tensors_or_the_new_ones() {
    if let Some(prefix) = env::var_os(PREFIX) {
        return to_be_killed(|| {
            save(Path::new(&prefix), 2);
        });
    }
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("saved/ck");
    let parent = folder.path().join("saved");
    let begin = || {
        let _ = fs::remove_dir_all(&parent);
        fs::create_dir(&parent).unwrap();
        for number in [9, 1] {
            save(&prefix, number);
        }
    };
    begin();
    let (last, seen) = (Cell::new(0), RefCell::new(BTreeSet::new()));
    let program = || {
        let mut program = Command::new(env::current_exe().unwrap());
        let name = "a_process_killed_at_any_call_leaves_the_old_tensors_or_the_new_ones";
        program.args(["--exact", name, "--test-threads=1"]);
        program.env(PREFIX, &prefix);
        program
    };
    let killed = killed_at_each_call(program, |ended| {
        let number = saved(&prefix);
        assert!(number == 1 || number == 2, "{ended}: {number}");
        last.set(number);
        seen.borrow_mut().insert(number);
        // Others go on, and nothing is left of it.
        for number in [3, 4] {
            save(&prefix, number);
            assert_eq!(saved(&prefix), number, "{ended}");
        }
        assert_eq!(fs::read_dir(&parent).unwrap().count(), 4, "{ended}");
        begin();
    });
    if let Some(killed) = Need::Strace.or_skip(killed) {
        assert!(killed > 20, "{killed}");
        assert_eq!((last.get(), seen.into_inner()), (2, BTreeSet::from([1, 2])));
    }
}

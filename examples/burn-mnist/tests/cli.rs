//! The program as a user runs it: several workers with one summary, the same scores as one worker
//! with the batch of both, and data that is not there.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail with them")]

use std::path::Path;
use std::process::{Command, Output};

fn run(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_burn-mnist"))
        .args(["--limit", "48", "--folder"])
        .arg(folder)
        .args(args)
        .env_remove("TF_CONFIG")
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn two_workers_train_and_one_of_them_tells_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let two = run(folder.path(), &["--workers", "2", "--batch", "8"]);
    let (said, errors) = (text(&two.stdout), text(&two.stderr));
    assert!(two.status.success(), "{said}{errors}");
    assert_eq!(said.matches("Learner Summary").count(), 1, "{said}");
    assert!(said.contains("| Valid | Accuracy |"), "{said}");
    // The samples of both are counted.
    assert!(
        said.contains("items_processed: 48, items_total: 48"),
        "{said}"
    );
    let logged = folder.path().join("valid/epoch-1/Accuracy.log");
    // Three batches of 16, and their mean.
    assert_eq!(std::fs::read_to_string(logged).unwrap().lines().count(), 4);
}

#[test]
fn data_that_is_not_there_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("nowhere");
    let failed = run(folder.path(), &["--data", data.to_str().unwrap()]);
    let errors = text(&failed.stderr);
    assert_eq!(failed.status.code(), Some(1), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(
        errors.contains("nowhere/train-images-idx3-ubyte.gz cannot be read"),
        "{errors}"
    );
}

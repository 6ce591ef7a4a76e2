//! The program as a user runs it: several workers with one summary, a worker that is killed and all
//! that go on from the last checkpoint, and data that is not there.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail with them")]

use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn run(folder: &Path, args: &[&str]) -> Output {
    command(folder, args).output().unwrap()
}

fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_burn-mnist"));
    command
        .args(["--limit", "48", "--folder"])
        .arg(folder)
        .args(args)
        .env_remove("TF_CONFIG");
    command
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

/// Who looks for the worker to kill finds it in `/proc`.
#[cfg(target_os = "linux")]
#[test]
fn a_killed_worker_costs_what_came_behind_the_last_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let args = [
        "--workers",
        "2",
        "--batch",
        "8",
        "--epochs",
        "3",
        "--resume",
    ];
    let mut command = command(folder.path(), &args);
    let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut job = piped.spawn().unwrap();
    // The summary of what is read comes at the end.
    let mut said = BufReader::new(job.stdout.take().unwrap()).lines();
    let in_second = |line: &io::Result<String>| {
        line.as_ref()
            .unwrap()
            .contains("processed: 2, items_total: 3")
    };
    assert!(said.any(|line| in_second(&line)), "no second epoch");
    let children = format!("/proc/{0}/task/{0}/children", job.id());
    let children = std::fs::read_to_string(children).unwrap();
    let second = children.split_whitespace().nth(1).unwrap();
    let killed = Command::new("kill")
        .args(["-KILL", second])
        .status()
        .unwrap();
    assert!(killed.success());
    let summary: Vec<String> = said.map(Result::unwrap).collect();
    let ended = job.wait_with_output().unwrap();
    let errors = text(&ended.stderr);
    assert!(ended.status.success(), "{errors}");
    let behind = errors
        .lines()
        .filter_map(|line| line.split_once("goes on behind epoch "));
    let epochs: Vec<usize> = behind.map(|(_, epoch)| epoch.parse().unwrap()).collect();
    assert!(
        !epochs.is_empty() && epochs.iter().all(|epoch| (1..3).contains(epoch)),
        "{errors}"
    );
    assert!(errors.contains("killed by signal 9"), "{errors}");
    assert!(
        summary
            .iter()
            .any(|line| line.contains("| Valid | Accuracy |")),
        "{summary:?}"
    );
    assert!(folder.path().join("valid/epoch-3/Accuracy.log").exists());
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

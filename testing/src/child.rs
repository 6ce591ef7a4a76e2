//! Tests in a process of their own: for their environment, their memory, or the way they end.

use std::env;
use std::process::{Command, Output};

/// A command that runs the test of this name of the running program, and no other; to be prepared,
/// run, and held against [`passed`]. With the argument `--nocapture` the test's output is its own.
///
/// # Panics
/// Where the system does not say which program is running.
#[must_use]
pub fn child(test: &str) -> Command {
    let program = env::current_exe().expect("a test runs from a file");
    let mut command = Command::new(program);
    command.args(["--exact", test]);
    command
}

/// The standard output of a [`child`] that has ended.
///
/// # Panics
/// Where its test failed, and where no test bears its name: then it has run nothing.
#[must_use]
#[track_caller]
pub fn passed(ended: &Output) -> String {
    let said = String::from_utf8_lossy(&ended.stdout);
    let complaint = String::from_utf8_lossy(&ended.stderr);
    assert!(
        ended.status.success(),
        "{}\n{said}\n{complaint}",
        ended.status
    );
    assert!(
        said.contains("test result: ok. 1 passed;"),
        "the child has not run exactly one test\n{said}\n{complaint}"
    );
    said.into_owned()
}

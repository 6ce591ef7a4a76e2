//! The losses are the same whoever starts the workers.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use meshwork_strategy::JobSecret;
use meshwork_testing::{Need, installed};
use rustix::process::{Pid, Signal, kill_process};

use crate::{data_folder, logged, losses, losses_and_accuracy};

/// What two workers of other launchers are to do like two of the program's own, which it starts as
/// `meshwork run` does.
const ARGS: [&str; 8] = [
    "--epochs",
    "2",
    "--global-batch",
    "16",
    "--data",
    ".",
    "--json",
    "other.json",
];

#[test]
fn workers_of_mpirun_have_the_same_losses() {
    if let Some(mpirun) = Need::Mpirun.or_skip(installed("mpirun")) {
        let mut command = Command::new(mpirun);
        command.args(["--oversubscribe", "-np", "2"]);
        assert_same_losses(command);
    }
}

#[test]
fn workers_of_torchrun_have_the_same_losses() {
    if let Some(torchrun) = Need::Torchrun.or_skip(installed("torchrun")) {
        let mut command = Command::new(torchrun);
        command.args(["--standalone", "--nproc-per-node=2", "--no-python"]);
        assert_same_losses(command);
    }
}

#[track_caller]
fn assert_same_losses(launcher: Command) {
    let folder = data_folder();
    let own = losses_and_accuracy(folder.path(), &["--epochs", "2", "--workers", "2"]);
    let mut launcher = in_job(launcher, folder.path());
    launcher.arg(env!("CARGO_BIN_EXE_mnist")).args(ARGS);
    let output = launcher.output().expect("it is installed");
    assert!(output.status.success(), "{output:?}");
    let (steps, last) = logged(&folder.path().join("other.json"));
    assert_eq!(last["workers"], 2);
    assert_eq!((losses(&steps), last["test_accuracy"].clone()), own);
}

/// torchrun ends all workers when one has failed, and starts all of them again.
#[test]
fn workers_that_torchrun_starts_again_go_on_from_their_checkpoint() {
    // torchrun makes one dollar sign of two.
    const RUN: &str = r#"echo $$$$ >process-$RANK-$TORCHELASTIC_RESTART_COUNT
        exec "$0" --epochs 60 --global-batch 16 --data . --checkpoint saved \
            --json attempt-$TORCHELASTIC_RESTART_COUNT.json"#;
    let Some(torchrun) = Need::Torchrun.or_skip(installed("torchrun")) else {
        return;
    };
    let folder = data_folder();
    let (own, _) = losses_and_accuracy(folder.path(), &["--epochs", "60", "--workers", "2"]);
    let mut command = in_job(Command::new(torchrun), folder.path());
    command.args(["--standalone", "--nproc-per-node=2", "--max-restarts=1"]);
    command.args(["--no-python", "sh", "-c", RUN, env!("CARGO_BIN_EXE_mnist")]);
    let mut job = command
        .stderr(Stdio::piped())
        .spawn()
        .expect("it is installed");
    let mut said = BufReader::new(job.stderr.take().expect("a pipe")).lines();
    let underway = said.find(|line| line.as_ref().is_ok_and(|line| line.contains("step 25/")));
    assert!(underway.is_some(), "no step 25");
    let victim = fs::read_to_string(folder.path().join("process-1-0")).expect("a process");
    let victim = Pid::from_raw(victim.trim().parse().expect("a number"));
    kill_process(victim.expect("not 0"), Signal::KILL).expect("it is ours");
    let rest: Vec<String> = said.map_while(Result::ok).collect();
    assert!(job.wait().expect("it ends").success(), "{rest:?}");
    let (steps, last) = logged(&folder.path().join("attempt-1.json"));
    assert_eq!(last["workers"], 2);
    let first = steps[0]["step"].as_u64().expect("a number");
    assert!(first > 1, "the second attempt begins anew: {rest:?}");
    let behind = usize::try_from(first - 1).expect("a step");
    assert_eq!(losses(&steps), own[behind..]);
}

/// A launcher whose workers have a job secret and no list.
fn in_job(mut launcher: Command, folder: &Path) -> Command {
    let secret = JobSecret::generate().expect("random bytes");
    launcher
        .current_dir(folder)
        .env(JobSecret::ENV, secret.to_hex().as_str())
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .env_remove("TF_CONFIG");
    launcher
}

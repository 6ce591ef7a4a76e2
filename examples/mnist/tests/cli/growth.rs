//! A training that workers join, whom nobody has listed, and leave again.

use std::fs;
use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

use meshwork_strategy::JobSecret;
use meshwork_testing::{free_addresses, tf_config};
use serde_json::Value;

/// The digits that come with the example, of which each batch has another loss.
const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data");

/// A process that is killed when this is dropped.
struct Worker(Child);

impl Worker {
    fn start(command: &mut Command) -> Self {
        Self(command.spawn().expect("the program starts"))
    }

    fn said(&mut self) -> Lines<BufReader<ChildStderr>> {
        BufReader::new(self.0.stderr.take().expect("a pipe")).lines()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Whoever has ended needs nothing.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn mnist(folder: &Path, log: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mnist"));
    command
        .current_dir(folder)
        .args(["--workers", "1", "--data", DATA, "--model", "mlp"])
        .args(["--lr", "0.02", "--global-batch", "16", "--epochs", "100"])
        .args(["--json", log])
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

/// Reads until a line has this in it.
#[track_caller]
fn reach(said: &mut Lines<BufReader<ChildStderr>>, part: &str) {
    let mut before = Vec::new();
    for line in said.map_while(Result::ok) {
        if line.contains(part) {
            return;
        }
        before.push(line);
    }
    panic!("no {part:?} in {before:?}");
}

/// The steps in the log of a run that may have been killed in the midst of a line.
fn steps(log: &Path) -> Vec<(u64, f64)> {
    let log = fs::read_to_string(log).expect("a log");
    let whole = log.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let lines = whole.lines().map(serde_json::from_str::<Value>);
    let steps = lines.map(|line| {
        let line = line.expect("a line of JSON");
        Some((line["step"].as_u64()?, line["loss"].as_f64()?))
    });
    steps
        .map(|step| step.expect("a step and its loss"))
        .collect()
}

/// Batches are the same with any number of workers, so each sample is in one batch of an epoch as
/// long as every step has the loss that it has without them.
#[test]
fn two_workers_become_five_and_two_again_with_the_losses_of_one() {
    let folder = tempfile::tempdir().expect("a new folder");
    let secret = JobSecret::generate().expect("random bytes");
    let addresses = free_addresses(2);
    let worker = |log: &str, name: &str, value: &str| {
        let mut command = mnist(folder.path(), log);
        command
            .env("MESHWORK_WORKERS", "2:5")
            .env(JobSecret::ENV, secret.to_hex().as_str())
            .env(name, value);
        if log != "chief.json" {
            command.stderr(Stdio::null());
        }
        Worker::start(&mut command)
    };
    let founder = |log, index| worker(log, "TF_CONFIG", &tf_config(&addresses, index));
    let newcomer = || worker("other.json", "MESHWORK_SEEDS", &addresses[0]);

    let mut chief = founder("chief.json", 0);
    let mut others = vec![founder("other.json", 1)];
    let mut said = chief.said();
    reach(&mut said, "step 25/");
    others.push(newcomer());
    reach(&mut said, "3 workers train");
    others.extend([newcomer(), newcomer()]);
    reach(&mut said, "5 workers train");
    // One that was there from the beginning goes too.
    for (gone, left) in [(0, 4), (2, 3), (1, 2)] {
        drop(others.remove(gone));
        reach(&mut said, &format!("{left} workers go on"));
    }
    reach(&mut said, "step ");
    assert!(!folder.path().join("other.json").exists(), "others led");
    drop(chief);

    let steps = steps(&folder.path().join("chief.json"));
    let numbers = steps.iter().map(|(step, _)| *step);
    assert!(numbers.eq(1..=steps.len() as u64), "each step once");
    let mut alone = Worker::start(&mut mnist(folder.path(), "alone.json"));
    reach(
        &mut alone.said(),
        &format!("step {}/", steps.len().next_multiple_of(25)),
    );
    drop(alone);
    let expected = self::steps(&folder.path().join("alone.json"));
    for ((step, loss), (_, expected)) in steps.into_iter().zip(expected) {
        let off = (loss - expected).abs();
        assert!(
            off <= 1e-2 * expected.max(0.1),
            "step {step}: {loss}, {expected}"
        );
    }
}

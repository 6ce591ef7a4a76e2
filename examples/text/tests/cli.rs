//! The program as its user sees it, on a short text.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use meshwork_strategy::JobSecret;
use meshwork_testing::{free_addresses, tf_config};
use serde_json::Value;
use tempfile::TempDir;

/// The losses of all steps, and that of the validation.
struct Log {
    steps: Vec<f64>,
    validation: f64,
}

#[test]
fn a_run_shows_progress_and_its_result_and_writes_a_sample() {
    let folder = folder();
    let output = run(
        folder.path(),
        &["--steps", "30", "--sample", "40", "--json", "log.json"],
    );
    assert!(output.status.success(), "{output:?}");
    let stderr = String::from_utf8(output.stderr).unwrap();
    for part in ["parameters", "step 25/30", "step 30/30", "samples/s"] {
        assert!(stderr.contains(part), "`{part}` not in {stderr}");
    }
    let stdout = String::from_utf8(output.stdout).unwrap();
    let (result, sample) = stdout.split_once("\n\n").unwrap();
    assert!(
        result.starts_with("validation loss") && result.contains("1 worker,"),
        "{stdout}"
    );
    assert_eq!(
        sample.strip_suffix('\n').unwrap().chars().count(),
        40,
        "{stdout}"
    );
    let log = log(folder.path());
    assert_eq!(log.steps.len(), 30);
    assert!(
        log.validation < log.steps[0],
        "{} {:?}",
        log.validation,
        log.steps
    );
}

#[test]
fn workers_and_accumulated_batches_have_the_losses_of_one_worker_with_all_rows() {
    let folder = folder();
    let losses = |args: &[&str]| losses(&folder, args);
    let alone = losses(&["--batch", "12"]);
    for args in [
        ["--workers", "2", "--batch", "6", "--accumulate", "1"],
        ["--workers", "3", "--batch", "2", "--accumulate", "2"],
        ["--workers", "1", "--batch", "4", "--accumulate", "3"],
    ] {
        let other = losses(&args);
        assert_eq!(other.steps.len(), alone.steps.len());
        for (one, other) in alone.steps.iter().zip(&other.steps) {
            assert!((one - other).abs() < 1e-3 * one, "{args:?}: {one} {other}");
        }
        let difference = (alone.validation - other.validation).abs();
        assert!(
            difference < 1e-3 * alone.validation,
            "{args:?}: {difference}"
        );
    }
}

#[test]
fn whatever_is_sharded_gives_the_same_losses_to_the_last_digit() {
    let folder = folder();
    let losses = |args: &[&str]| losses(&folder, args);
    for (workers, batch, accumulate) in [("1", "4", "1"), ("2", "2", "1"), ("4", "1", "1")] {
        let common = ["--workers", workers, "--batch", batch];
        let common = [&common[..], &["--accumulate", accumulate, "--steps", "8"]].concat();
        let plain = losses(&common);
        let none = losses(&[&common[..], &["--shard", "none"]].concat());
        for (one, other) in plain.steps.iter().zip(&none.steps) {
            assert!((one - other).abs() < 1e-4 * one, "{workers}: {one} {other}");
        }
        for shard in ["optimizer", "gradients", "parameters"] {
            let sharded = losses(&[&common[..], &["--shard", shard]].concat());
            assert_eq!(none.steps, sharded.steps, "{shard} {workers}");
            assert_eq!(none.validation, sharded.validation, "{shard} {workers}");
        }
        if workers == "4" {
            let two = ["--shard", "parameters", "--shard-group", "2"];
            let copies = losses(&[&common[..], &two].concat());
            for (one, other) in none.steps.iter().zip(&copies.steps) {
                assert!((one - other).abs() < 1e-4 * one, "{one} {other}");
            }
        }
    }
}

#[test]
fn sharded_batches_add_up() {
    let folder = folder();
    let losses = |args: &[&str]| losses(&folder, args);
    let plain = losses(&["--batch", "6", "--steps", "6"]);
    for shard in ["none", "gradients", "parameters"] {
        let args = ["--workers", "2", "--batch", "1", "--accumulate", "3"];
        let sharded = losses(&[&args[..], &["--steps", "6", "--shard", shard]].concat());
        for (one, other) in plain.steps.iter().zip(&sharded.steps) {
            assert!((one - other).abs() < 1e-3 * one, "{shard}: {one} {other}");
        }
    }
}

#[test]
fn methods_for_slow_links_learn_with_few_bytes() {
    let folder = folder();
    for args in [
        &["--method", "local", "--inner-steps", "5"][..],
        &[
            "--method",
            "diloco",
            "--inner-steps",
            "5",
            "--compress",
            "int8",
        ],
        &[
            "--method",
            "streaming",
            "--inner-steps",
            "10",
            "--fragments",
            "2",
        ],
    ] {
        let common = ["--workers", "2", "--steps", "30", "--sample", "0"];
        let output = run(
            folder.path(),
            &[&common, args, &["--json", "log.json"]].concat(),
        );
        assert!(output.status.success(), "{args:?}: {output:?}");
        let stdout = String::from_utf8(output.stdout).unwrap();
        assert!(
            stdout.contains("times less than sums"),
            "{args:?}: {stdout}"
        );
        let log = log(folder.path());
        assert!(
            log.validation < log.steps[0],
            "{args:?}: {}",
            log.validation
        );
    }
}

#[test]
fn bytes_that_a_worker_sends_are_those_of_as_many_workers() {
    let folder = folder();
    for (workers, share) in [("3", 4.0 / 3.0), ("4", 1.5)] {
        let run = |args: &[&str]| {
            let common = ["--workers", workers, "--steps", "10", "--sample", "0"];
            let output = run(
                folder.path(),
                &[&common, args, &["--json", "log.json"]].concat(),
            );
            assert!(output.status.success(), "{args:?}: {output:?}");
            let log = fs::read_to_string(folder.path().join("log.json")).unwrap();
            let lines = log.lines().map(|line| serde_json::from_str(line).unwrap());
            let sent: Vec<f64> = lines
                .map(|line: Value| line["sent"].as_f64().unwrap())
                .collect();
            (sent, output)
        };
        let (sent, output) = run(&["--method", "ddp"]);
        let stderr = String::from_utf8(output.stderr).unwrap();
        let parameters = stderr.lines().find_map(|line| {
            let (parameters, _) = line.split_once(" parameters, ")?;
            parameters.parse::<f64>().ok()
        });
        let of_a_step = share * 4.0 * parameters.unwrap();
        let is = |sent: f64, steps: f64| (sent / (steps * of_a_step) - 1.0).abs() < 0.01;
        // In each step, and in the result.
        assert!(is(sent[0], 1.0) && is(sent[9], 10.0), "{sent:?}");
        assert_eq!(sent[9], sent[10]);
        let stdout = String::from_utf8(output.stdout).unwrap();
        assert!(!stdout.contains("times less"), "{stdout}");

        let (sent, output) = run(&["--method", "diloco", "--inner-steps", "5"]);
        assert!(sent[3] == 0.0 && is(sent[4], 1.0), "{sent:?}");
        assert!(is(sent[10], 2.0), "{sent:?}");
        let stdout = String::from_utf8(output.stdout).unwrap();
        let line = " MB sent a worker, 5.0 times less than sums of gradients";
        assert!(stdout.contains(line), "{stdout}");
    }
}

#[test]
fn an_option_that_the_method_has_no_use_for_is_refused_by_name() {
    let folder = folder();
    for (with, option) in [
        (&["--method", "ddp"][..], ["--inner-steps", "5"]),
        (&["--method", "ddp"], ["--compress", "int8"]),
        (&["--method", "ddp"], ["--elastic", "1:2"]),
        (&["--method", "ddp"], ["--not-finite", "exclude"]),
        (&["--method", "diloco"], ["--gradients", "bf16"]),
        (&["--method", "diloco"], ["--fragments", "2"]),
        (&["--method", "diloco"], ["--delay", "2"]),
        (&["--method", "diloco"], ["--power-sgd", "2"]),
        (&["--method", "diloco"], ["--shard", "optimizer"]),
        (&["--shard"], ["--gradients", "bf16"]),
        (&["--shard"], ["--power-sgd", "2"]),
        (&["--shard"], ["--device", "cuda"]),
    ] {
        let shard: &[&str] = if with.len() == 1 { &["none"] } else { &[] };
        let output = run(folder.path(), &[with, shard, &option[..]].concat());
        let stderr = String::from_utf8(output.stderr).unwrap();
        let line = format!("{} has no effect with {}", option[0], with.join(" "));
        assert!(stderr.contains(&line), "{stderr}");
        assert_eq!(output.status.code(), Some(1));
    }
}

#[test]
fn workers_with_other_text_or_other_options_are_named_on_all() {
    let folder = folder();
    let song = fs::read_to_string(folder.path().join("text/song.txt")).unwrap();
    let other = folder.path().join("other");
    fs::create_dir(&other).unwrap();
    // As long, and of the same characters.
    fs::write(other.join("song.txt"), song.replace("wall", "lawl")).unwrap();
    let text = format!(
        "rank 1 has {} characters of text with checksum",
        song.chars().count()
    );
    for (method, args, part) in [
        ("ddp", ["--data", "other"], &*text),
        ("diloco", ["--data", "other"], &text),
        (
            "local",
            ["--seed", "2"],
            "rank 1 has --seed 2, and the chief --seed 1:",
        ),
        (
            "streaming",
            ["--inner-steps", "10"],
            "rank 1 has --inner-steps 10, and the chief --inner-steps 30:",
        ),
        (
            "ddp",
            ["--shard", "optimizer"],
            "rank 1 has --shard optimizer, and the chief no --shard:",
        ),
    ] {
        let common = ["--method", method];
        let own = [&common[..], &args].concat();
        for output in two(folder.path(), [&common, &own]) {
            let stderr = String::from_utf8(output.stderr).unwrap();
            assert!(!output.status.success(), "{stderr}");
            assert!(
                stderr.contains(part) && stderr.lines().count() == 1,
                "{stderr}"
            );
        }
    }
}

#[test]
fn a_log_in_the_folder_of_the_text_is_no_text() {
    let folder = folder();
    let told = |output: &Output| {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let line = stderr.lines().find(|line| line.contains(" to learn from"));
        line.expect("what is read").to_owned()
    };
    let before = told(&run(folder.path(), &["--workers", "1"]));
    let log = folder.path().join("text/log.json");
    fs::write(log, "\u{20ac}".repeat(1000)).unwrap();
    let args = ["--json", "text/log.json"];
    let [chief, other] = two(folder.path(), [&args, &args]);
    assert!(chief.status.success(), "{chief:?}");
    assert!(other.status.success(), "{other:?}");
    assert_eq!(told(&chief), before);
}

#[test]
fn the_option_that_was_meant_is_named() {
    let output = run(folder().path(), &["--method-of", "ddp"]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.contains("'--method-of' found, but --method is known"),
        "{stderr}"
    );
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn where_no_worker_has_numbers_any_more_all_stop_also_where_such_are_excluded() {
    let folder = folder();
    for (not_finite, line) in [
        ("stop", "at step"),
        ("exclude", "the difference of rank 0 is not finite"),
    ] {
        let args = ["--workers", "2", "--method", "diloco", "--inner-steps", "5"];
        let more = ["--lr", "1e30", "--not-finite", not_finite];
        let output = run(folder.path(), &[&args[..], &more].concat());
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.contains(line), "{not_finite}: {stderr}");
        assert!(!output.status.success());
    }
}

#[test]
fn gradients_sent_as_bf16_change_little_but_something() {
    let folder = folder();
    let [exact, rounded] = ["f32", "bf16"]
        .map(|gradients| losses(&folder, &["--workers", "2", "--gradients", gradients]));
    // The loss is summed as it is, and the first is that of equal variables.
    assert_eq!(exact.steps[0], rounded.steps[0]);
    assert_ne!(exact.steps, rounded.steps);
    assert!((exact.validation - rounded.validation).abs() < 0.02 * exact.validation);
}

#[test]
fn bf16_halves_the_bytes_of_gradients() {
    let folder = folder();
    let output = run(folder.path(), &["--workers", "2", "--gradients", "bf16"]);
    let stdout = String::from_utf8(output.stdout).unwrap();
    let line = " MB sent a worker, 2.0 times less than sums of gradients";
    assert!(stdout.contains(line), "{stdout}");
}

#[test]
fn gradients_sent_as_products_of_low_rank_learn_too() {
    let folder = folder();
    let args = ["--workers", "2", "--steps", "60", "--power-sgd", "2"];
    let log = losses(&folder, &args);
    assert!(log.validation < 0.9 * log.steps[0], "{}", log.validation);
}

#[test]
fn the_same_seed_gives_the_same_losses() {
    let folder = folder();
    let losses = |seed| losses(&folder, &["--seed", seed]).steps;
    assert_eq!(losses("1"), losses("1"));
    assert_ne!(losses("1"), losses("2"));
}

#[cfg(target_os = "linux")]
mod killed {
    use std::io::{BufRead, BufReader, Lines};
    use std::process::{Child, ChildStderr};

    use super::*;

    /// A job whose last worker is killed behind step 25, and what it says from then on.
    fn job(folder: &Path, args: &[&str]) -> (Child, Lines<BufReader<ChildStderr>>) {
        let mut command = command(folder, args);
        let mut job = command
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("the program starts");
        let mut said = BufReader::new(job.stderr.take().expect("a pipe")).lines();
        assert!(said.any(|line| line.expect("text").contains("step 25/")));
        let children = format!("/proc/{0}/task/{0}/children", job.id());
        let children = fs::read_to_string(children).expect("a file of Linux");
        let last = children.split_whitespace().last().expect("two workers");
        let last = last.parse().expect("a number");
        let last = rustix::process::Pid::from_raw(last).expect("a process");
        let killed = rustix::process::kill_process(last, rustix::process::Signal::KILL);
        killed.expect("a process that runs");
        (job, said)
    }

    #[test]
    fn a_worker_that_is_killed_is_named() {
        let folder = folder();
        let (mut job, said) = job(folder.path(), &["--workers", "2", "--steps", "1000000"]);
        let rest: Vec<String> = said.map(Result::unwrap).collect();
        assert!(!job.wait().unwrap().success());
        let named = |line: &String| line.contains("rank 1") && line.contains("signal 9");
        assert!(rest.iter().any(named), "{rest:?}");
    }

    #[test]
    fn a_worker_that_is_killed_comes_back_where_workers_may_change() {
        let folder = folder();
        let args = "--method diloco --inner-steps 5 --elastic 2:3 --steps 3000 --json log.json";
        let args: Vec<&str> = args.split(' ').collect();
        let (mut job, mut said) = job(folder.path(), &args);
        assert!(said.any(|line| line.unwrap().contains("2 workers go on, where 3 were")));
        assert!(said.any(|line| line.unwrap().contains("3 workers go on, where 2 were")));
        said.for_each(|line| drop(line.unwrap()));
        assert!(job.wait().unwrap().success());
        let log = log(folder.path());
        assert_eq!(log.steps.len(), 3000);
        assert!(log.validation < log.steps[0], "{}", log.validation);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_result_that_standard_output_does_not_take_is_a_failure_and_in_the_log() {
    let folder = folder();
    let full = fs::File::create("/dev/full").unwrap();
    let mut command = command(folder.path(), &["--json", "log.json"]);
    let output = command.stdout(full).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let line = "text: error: cannot write the result to standard output; pass --json FILE";
    assert!(stderr.contains(line), "{stderr}");
    assert_eq!(log(folder.path()).steps.len(), 12);
}

#[test]
fn every_mistake_is_one_line_and_a_failure() {
    let folder = folder();
    for (name, bytes) in [("binary", &b"\xff\xfe"[..]), ("short", b"short")] {
        fs::create_dir(folder.path().join(name)).unwrap();
        fs::write(folder.path().join(name).join("file"), bytes).unwrap();
    }
    fs::create_dir(folder.path().join("empty")).unwrap();
    for (args, part) in [
        (["--data", "nowhere"], "cannot read nowhere"),
        (["--data", "empty"], "no text in empty"),
        (["--data", "binary"], "1 file is no UTF-8"),
        (["--data", "short"], "5 characters"),
        (["--workers", "0"], "--workers"),
        (["--steps", "many"], "--steps"),
        (["--lr", "0"], "finite number above 0"),
        (["--heads", "3"], "multiple of --heads"),
        (["--layers", "0"], "at least 1"),
        (["--gradients", "int3"], "--gradients"),
        (["--inner-steps", "0"], "--inner-steps"),
        (["--fragments", "0"], "--fragments"),
        (["--elastic", "3:2"], "MIN:MAX, such as 2:4"),
        (["--json", "no/such/folder/log.json"], "--json"),
        (["--shard-group", "2"], "no effect without --shard"),
        (["--device", "gpu"], "must be cpu, cuda, or"),
        (["--device", "cuda:99"], "cannot compute on GPU 99"),
        (["--frobnicate", "1"], "--help"),
    ] {
        let output = run(folder.path(), &args);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{args:?}: {stderr}");
        assert!(
            stderr.starts_with("text: error: ") && stderr.contains(part),
            "{args:?}: {stderr}"
        );
    }
}

fn run(folder: &Path, args: &[&str]) -> Output {
    command(folder, args).output().expect("the program starts")
}

/// Two workers that nobody has started together, each with its own arguments.
fn two(folder: &Path, args: [&[&str]; 2]) -> [Output; 2] {
    let secret = JobSecret::generate().expect("random bytes");
    let addresses = free_addresses(2);
    let started = [0, 1].map(|index| {
        command(folder, args[index])
            .env("TF_CONFIG", tf_config(&addresses, index))
            .env(JobSecret::ENV, secret.to_hex().as_str())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts")
    });
    started.map(|worker| worker.wait_with_output().expect("the program ends"))
}

/// The program in `folder`, a small model on the text there unless `args` say otherwise.
fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_text"));
    command.current_dir(folder).args(args);
    for default in [
        ["--data", "text"],
        ["--layers", "1"],
        ["--width", "16"],
        ["--heads", "2"],
        ["--context", "16"],
        ["--steps", "12"],
        ["--lr", "0.01"],
        ["--sample", "0"],
    ] {
        if !args.contains(&default[0]) {
            command.args(default);
        }
    }
    command
}

/// The losses of a run that succeeds.
#[track_caller]
fn losses(folder: &TempDir, args: &[&str]) -> Log {
    let output = run(folder.path(), &[args, &["--json", "log.json"]].concat());
    assert!(output.status.success(), "{args:?}: {output:?}");
    log(folder.path())
}

/// What the last run in `folder` has written to `log.json`.
fn log(folder: &Path) -> Log {
    let text = fs::read_to_string(folder.join("log.json")).expect("a log");
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("a JSON object"))
        .collect();
    let (last, steps) = lines.split_last().expect("a result");
    assert_eq!(last["final"], Value::Bool(true), "{last}");
    let losses = steps.iter().map(|step| step["loss"].as_f64());
    Log {
        steps: losses.collect::<Option<_>>().expect("a loss for each step"),
        validation: last["validation_loss"].as_f64().expect("a loss"),
    }
}

/// A folder with a text of some thousand characters in `text`.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a new folder");
    let text: String = (0..120)
        .map(|line| format!("{line} bottles of water stand on the wall, and {line} are full.\n"))
        .collect();
    fs::create_dir(folder.path().join("text")).expect("a new folder");
    fs::write(folder.path().join("text/song.txt"), text).expect("a new file");
    folder
}

//! The program as its user sees it, on a data set of a few made-up images.

#[path = "cli/digits.rs"]
mod digits;
#[path = "cli/growth.rs"]
mod growth;
#[path = "cli/last_save.rs"]
mod last_save;
#[path = "cli/launchers.rs"]
mod launchers;

use std::array;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use meshwork_strategy::JobSecret;
use meshwork_testing::{free_addresses, tf_config};
use serde_json::Value;

use digits::{data_folder, logged, losses};

#[test]
fn a_run_logs_every_step_and_its_result_and_draws_the_curve() {
    let folder = data_folder();
    let output = mnist(
        folder.path(),
        &["--json", "log.json", "--epochs", "2", "--lr", "0.05"],
    );
    assert!(output.status.success(), "{output:?}");
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(
        stdout.contains("test accuracy") && stdout.contains("mnist-loss.svg"),
        "{stdout}"
    );
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.contains("step 3/6") && stderr.contains("step 6/6"),
        "{stderr}"
    );

    let log = fs::read_to_string(folder.path().join("log.json")).unwrap();
    let mut lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let last = lines.pop().unwrap();
    assert_eq!(
        (&last["final"], &last["workers"]),
        (&Value::Bool(true), &Value::from(1))
    );
    assert!(
        (0.0..=1.0).contains(&last["test_accuracy"].as_f64().unwrap()),
        "{last}"
    );
    assert!(last["wall_s"].as_f64().unwrap() > 0.0, "{last}");
    assert!(
        lines
            .iter()
            .map(|line| line["step"].as_u64().unwrap())
            .eq(1..=6),
        "{log}"
    );
    for line in &lines {
        assert!(line["loss"].as_f64().unwrap() > 0.0, "{line}");
        assert!(line["samples_per_s"].as_f64().unwrap() > 0.0, "{line}");
        assert_eq!(line["allreduce_gbps"].as_f64(), Some(0.0), "{line}");
    }
    let curve = fs::read_to_string(folder.path().join("mnist-loss.svg")).unwrap();
    assert!(curve.starts_with("<svg") && curve.contains("cross entropy"));
}

#[test]
fn the_same_seed_gives_the_same_losses() {
    let folder = data_folder();
    let losses = |seed| {
        let output = mnist(
            folder.path(),
            &["--json", "log.json", "--epochs", "1", "--seed", seed],
        );
        assert!(output.status.success(), "{output:?}");
        let log = fs::read_to_string(folder.path().join("log.json")).unwrap();
        let line = |line| serde_json::from_str::<Value>(line).unwrap()["loss"].to_string();
        log.lines().map(line).collect::<Vec<_>>()
    };
    assert_eq!(losses("1"), losses("1"));
    assert_ne!(losses("1"), losses("2"));
}

/// The losses and the test accuracy of a run in `folder`, which ends well.
fn losses_and_accuracy(folder: &Path, args: &[&str]) -> (Vec<f64>, Value) {
    let output = mnist(folder, &[&["--json", "log.json"], args].concat());
    assert!(output.status.success(), "{output:?}");
    let (steps, last) = logged(&folder.join("log.json"));
    let started = args
        .last()
        .and_then(|workers| workers.split(':').next_back());
    assert_eq!(Some(&*last["workers"].to_string()), started, "{last}");
    (losses(&steps), last["test_accuracy"].clone())
}

#[test]
fn several_workers_have_the_losses_of_one() {
    let folder = data_folder();
    let losses =
        |how, workers| losses_and_accuracy(folder.path(), &["--epochs", "2", how, workers]);
    let (alone, accuracy) = losses("--workers", "1");
    assert_eq!(alone.len(), 6);
    // The last batch of each epoch has 8 images: with 3 workers parts of 3, 3 and 2.
    for (how, workers) in [("--workers", "2"), ("--workers", "3"), ("--elastic", "1:2")] {
        let (together, same_accuracy) = losses(how, workers);
        for (one, other) in alone.iter().zip(&together) {
            assert!((one - other).abs() <= 1e-4 * one, "{alone:?} {together:?}");
        }
        assert_eq!(same_accuracy, accuracy);
    }
}

#[test]
fn every_model_has_one_curve_where_batches_are_normalised_together() {
    let folder = data_folder();
    for model in [
        &["--model", "mlp"][..],
        &["--model", "resnet", "--sync-batch-norm"],
    ] {
        // The last batch of each epoch has one image, and all workers but one have none.
        let options = ["--epochs", "2", "--global-batch", "13", "--lr", "0.02"];
        let losses = |how, workers, more: &[&str]| {
            let args = [model, &options, more, &[how, workers]].concat();
            losses_and_accuracy(folder.path(), &args)
        };
        let (alone, accuracy) = losses("--workers", "1", &[]);
        assert_eq!(alone.len(), 8);
        for (how, workers, more) in [
            ("--workers", "2", &[][..]),
            ("--workers", "4", &["--bytes-per-bucket", "20000"]),
            ("--elastic", "1:2", &[]),
        ] {
            let (together, same_accuracy) = losses(how, workers, more);
            assert_eq!(together.len(), alone.len());
            for (one, other) in alone.iter().zip(&together) {
                assert!((one - other).abs() <= 1e-4 * one, "{alone:?} {together:?}");
            }
            assert_eq!(same_accuracy, accuracy);
        }
    }
}

#[test]
fn workers_that_normalise_their_own_batches_are_measured_by_the_chiefs_statistics() {
    let folder = data_folder();
    let options = ["--model", "resnet", "--epochs", "2", "--global-batch", "13"];
    let losses = |workers| {
        let args = [&options[..], &["--workers", workers]].concat();
        losses_and_accuracy(folder.path(), &args)
    };
    let [(alone, _), (together, accuracy)] = [losses("1"), losses("2")];
    // Each step compares the models, and the count of hits is the same on all workers.
    assert_eq!(together.len(), alone.len());
    assert_ne!(alone, together);
    assert_eq!(losses("2"), (together, accuracy));
}

#[test]
fn a_run_that_is_asked_to_end_goes_on_with_the_same_losses_bit_for_bit() {
    let apart = ["first.json", "second.json"];
    for (how, workers, logs) in [
        ("--workers", "1", apart),
        ("--workers", "2", ["both.json"; 2]),
        ("--elastic", "2:2", apart),
    ] {
        let folder = data_folder();
        let losses = |log: &str| -> Vec<String> {
            let log = fs::read_to_string(folder.path().join(log)).unwrap();
            let lines = log
                .lines()
                .map(|line| serde_json::from_str::<Value>(line).unwrap());
            lines
                .filter(|line| line["loss"].is_number())
                .map(|line| line["loss"].to_string())
                .collect()
        };
        let run = |log| {
            let saved = [
                "--epochs",
                "40",
                how,
                workers,
                "--json",
                log,
                "--checkpoint",
                "saved",
            ];
            let mut command = command(folder.path(), &saved);
            command.stderr(Stdio::piped()).stdout(Stdio::null());
            command
        };
        let whole = mnist(
            folder.path(),
            &["--epochs", "40", how, workers, "--json", "whole.json"],
        );
        assert!(whole.status.success(), "{whole:?}");

        let mut first = run(logs[0]).spawn().unwrap();
        let mut said = BufReader::new(first.stderr.take().unwrap()).lines();
        let underway = said.find(|line| line.as_ref().unwrap().contains("step 3/120"));
        assert!(underway.is_some());
        let process = rustix::process::Pid::from_child(&first);
        rustix::process::kill_process(process, rustix::process::Signal::TERM).unwrap();
        let rest: Vec<String> = said.map(Result::unwrap).collect();
        assert_eq!(first.wait().unwrap().code(), Some(75), "{rest:?}");
        assert!(
            rest.iter().any(|line| line.contains("run again to go on")),
            "{rest:?}"
        );

        let second = run(logs[1]).output().unwrap();
        assert!(second.status.success(), "{second:?}");
        let mut logs = logs.to_vec();
        logs.dedup();
        let parts: Vec<_> = logs.into_iter().map(losses).collect();
        assert!(parts.iter().all(|part| !part.is_empty()), "{parts:?}");
        assert_eq!(parts.concat(), losses("whole.json"));
    }
}

#[test]
fn a_run_that_is_asked_to_end_and_cannot_be_saved_does_not_say_that_it_was() {
    let folder = data_folder();
    // 20 steps an epoch: the checkpoint behind step 25 is the one that SIGTERM asks for.
    let sizes = ["--workers", "2", "--global-batch", "2", "--epochs", "40"];
    let args = [&sizes[..], &["--lr", "0.01", "--checkpoint", "saved"]].concat();
    let mut command = command(folder.path(), &args);
    command.stderr(Stdio::piped()).stdout(Stdio::null());
    let mut job = command.spawn().unwrap();
    let mut said = BufReader::new(job.stderr.take().unwrap()).lines();
    let underway = said.find(|line| line.as_ref().unwrap().contains("step 25/800"));
    assert!(underway.is_some());
    let saved = folder.path().join("saved");
    fs::rename(&saved, folder.path().join("away")).unwrap();
    fs::write(&saved, []).unwrap();
    let process = rustix::process::Pid::from_child(&job);
    rustix::process::kill_process(process, rustix::process::Signal::TERM).unwrap();
    let rest: Vec<String> = said.map(Result::unwrap).collect();
    let status = job.wait().unwrap().code();
    assert!(!matches!(status, Some(0 | 75)), "{status:?} {rest:?}");
    let claims = rest.iter().any(|line| line.contains("checkpoints are in"));
    assert!(!claims, "{rest:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_chief_that_is_killed_is_replaced_and_the_log_goes_on() {
    let folder = data_folder();
    let together = ["--model", "resnet", "--sync-batch-norm"];
    for (model, epochs, underway) in [(&[][..], "20", 6), (&together, "8", 6)] {
        let alone = [
            &["--lr", "0.02", "--epochs", epochs],
            model,
            &["--workers", "1"],
        ]
        .concat();
        let (expected, _) = losses_and_accuracy(folder.path(), &alone);
        let log = log_of_a_killed_chief(folder.path(), underway, &[&alone[..4], model].concat());
        let (last, steps) = log.split_last().unwrap();
        assert_eq!(last["final"], Value::Bool(true));
        // The step in which the chief died may be there twice, or not at all: all may have made it
        // before the chief had written its line.
        let number = |step: &Value| usize::try_from(step["step"].as_u64().unwrap()).unwrap();
        let mut numbers: Vec<usize> = steps.iter().map(number).collect();
        assert!(numbers.is_sorted(), "{numbers:?}");
        numbers.dedup();
        let all = 1..=expected.len();
        let missing: Vec<usize> = all.filter(|step| !numbers.contains(step)).collect();
        assert!(
            missing.len() <= 1 && numbers.len() + missing.len() == expected.len(),
            "{missing:?}"
        );
        for step in steps.iter().take(40) {
            let (loss, expected) = (step["loss"].as_f64().unwrap(), expected[number(step) - 1]);
            assert!(
                (loss - expected).abs() <= 1e-2 * expected.max(0.1),
                "{step} {expected}"
            );
        }
    }
}

/// The log of an elastic run whose chief is killed behind step `underway`.
#[cfg(target_os = "linux")]
fn log_of_a_killed_chief(folder: &Path, underway: usize, args: &[&str]) -> Vec<Value> {
    let elastic = ["--elastic", "2:3", "--json", "elastic.json"];
    let mut command = command(folder, &[args, &elastic].concat());
    let piped = command.stderr(Stdio::piped()).stdout(Stdio::piped());
    let mut job = piped.spawn().expect("the program starts");
    let mut said = BufReader::new(job.stderr.take().expect("a pipe")).lines();
    let step = format!("step {underway}/");
    let begun = said.find(|line| line.as_ref().is_ok_and(|line| line.contains(&step)));
    assert!(begun.is_some(), "no {step}");
    // The first that was started.
    let children = format!("/proc/{0}/task/{0}/children", job.id());
    let children = fs::read_to_string(children).expect("children");
    let chief = children
        .split_whitespace()
        .next()
        .and_then(|id| id.parse().ok());
    let chief = rustix::process::Pid::from_raw(chief.expect("a child")).expect("an id");
    rustix::process::kill_process(chief, rustix::process::Signal::KILL).expect("it is ours");
    let rest: Vec<String> = said.map_while(Result::ok).collect();
    let output = job.wait_with_output().expect("the program ends");
    assert!(output.status.success(), "{rest:?}");
    let says = |part: &str| rest.iter().any(|line| line.contains(part));
    assert!(
        says("rank 0 ended: killed by signal 9") && says("2 workers go on"),
        "{rest:?}"
    );
    let log = fs::read_to_string(folder.join("elastic.json")).expect("a log");
    let lines = log.lines().map(serde_json::from_str);
    lines.collect::<Result<_, _>>().expect("lines of JSON")
}

#[test]
fn a_checkpoint_of_a_run_with_other_settings_is_refused_with_both() {
    let folder = data_folder();
    let saved = mnist(folder.path(), &["--checkpoint", "saved"]);
    assert!(saved.status.success(), "{saved:?}");
    let other = mnist(folder.path(), &["--checkpoint", "saved", "--seed", "9"]);
    assert_eq!(other.status.code(), Some(1), "{other:?}");
    let stderr = String::from_utf8(other.stderr).unwrap();
    assert!(
        stderr.contains("--seed 1") && stderr.contains("--seed 9"),
        "{stderr}"
    );
}

#[test]
fn a_checkpoint_of_a_run_with_other_data_is_refused_with_both_checksums() {
    let folder = data_folder();
    let saved = mnist(folder.path(), &["--checkpoint", "saved"]);
    assert!(saved.status.success(), "{saved:?}");
    change_a_label(folder.path());
    let other = mnist(folder.path(), &["--checkpoint", "saved"]);
    assert_eq!(other.status.code(), Some(1), "{other:?}");
    let stderr = String::from_utf8(other.stderr).unwrap();
    let checksums = stderr.split("with checksums ").skip(1);
    let checksums: Vec<&str> = checksums.map(|behind| &behind[..8]).collect();
    assert!(
        checksums.len() == 2 && checksums[0] != checksums[1],
        "{stderr}"
    );
    assert!(
        stderr.lines().count() == 1 && stderr.contains("pass the same --data"),
        "{stderr}"
    );
}

#[test]
fn a_reader_that_leaves_does_not_stop_training() {
    let folder = data_folder();
    let mut child = command(folder.path(), &["--json", "log.json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop((child.stdout.take(), child.stderr.take()));
    assert!(child.wait().unwrap().success());
    let log = fs::read_to_string(folder.path().join("log.json")).unwrap();
    assert!(log.lines().last().unwrap().contains("final"), "{log}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_result_that_standard_output_does_not_take_is_a_failure_and_in_the_log() {
    let folder = data_folder();
    let full = fs::File::create("/dev/full").unwrap();
    let mut command = command(folder.path(), &["--json", "log.json"]);
    let output = command.stdout(full).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let line = "mnist: error: cannot write the result to standard output; pass --json FILE";
    assert!(stderr.contains(line), "{stderr}");
    let log = fs::read_to_string(folder.path().join("log.json")).unwrap();
    assert!(log.lines().last().unwrap().contains("final"), "{log}");
}

/// As in a container whose user may write nowhere.
#[test]
fn a_folder_that_takes_no_file_costs_the_loss_curve_alone() {
    let folder = data_folder();
    fs::create_dir(folder.path().join("mnist-loss.svg")).unwrap();
    let output = mnist(folder.path(), &[]);
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{stdout}");
    let line = "no loss curve: cannot write mnist-loss.svg; pass another name with --plot";
    assert!(stdout.contains(line), "{stdout}");
}

#[test]
fn every_mistake_is_one_line_and_a_failure() {
    let folder = data_folder();
    for (args, part) in [
        (["--workers", "0"], "at least 1"),
        (["--epochs", "many"], "whole number"),
        (["--lr", "0"], "finite number above 0"),
        (["--lr", "1e30"], "lower --lr"),
        (["--data", "nowhere"], "--data DIR"),
        (["--json", "no/such/folder/log.json"], "--json"),
        (["--plot", "no/such/folder/curve.svg"], "--plot"),
        (["--checkpoint", "/dev/null/folder"], "--checkpoint"),
        (["--frobnicate", "1"], "--help"),
        (
            ["--sync-batch-norm", "--model=mlp"],
            "mlp has no batch normalisation",
        ),
        (["--model", "lstm"], "one of cnn, mlp, resnet; see --help"),
        (
            ["--workers", "17"],
            "16 samples cannot be split among 17 workers",
        ),
    ] {
        let output = mnist(folder.path(), &args);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{args:?}: {stderr}");
        assert!(
            stderr.starts_with("mnist: error: ") && stderr.contains(part),
            "{args:?}: {stderr}"
        );
    }
}

#[test]
fn coloured_images_are_trained_on_and_a_cut_file_is_named_with_both_lengths() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
    let (train, test) = (records(20), records(10));
    write("data_batch_1.bin", &train[..10 * 3073]);
    write("data_batch_2.bin", &train[10 * 3073..]);
    write("test_batch.bin", &test);
    let args = ["--workers", "2", "--json", "log.json"];
    let trained = mnist(folder.path(), &args);
    assert!(trained.status.success(), "{trained:?}");
    let log = fs::read_to_string(folder.path().join("log.json")).unwrap();
    // 20 images in batches of 16, and the result.
    assert_eq!(log.lines().count(), 3, "{log}");

    write("data_batch_2.bin", &train[10 * 3073..20 * 3073 - 1]);
    let failed = mnist(folder.path(), &args);
    let stderr = String::from_utf8(failed.stderr).unwrap();
    assert_eq!(failed.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.lines().count() == 1 && stderr.contains("ends after 30729 of 30730 bytes"),
        "{stderr}"
    );
}

#[test]
fn workers_with_other_data_or_other_options_are_named_on_all() {
    let (folder, other) = (data_folder(), data_folder());
    change_a_label(other.path());
    let other = other.path().to_str().unwrap();
    let cut = data_folder();
    let labels = cut.path().join("train-labels-idx1-ubyte");
    fs::write(&labels, &fs::read(&labels).unwrap()[..47]).unwrap();
    let cut = cut.path().to_str().unwrap();
    for (args, part) in [
        (
            ["--data", other],
            "rank 1 has 40 training and 10 test images of 1x28x28",
        ),
        (
            ["--seed", "2"],
            "rank 1 has --model cnn --epochs 1 --global-batch 16 --seed 2",
        ),
        (["--model", "mlp"], "rank 1 has --model mlp"),
        (
            ["--checkpoint", "saved"],
            "rank 1 has --model cnn --epochs 1 --global-batch 16 --seed 1 --lr 0.1 --checkpoint,",
        ),
        (
            ["--bytes-per-bucket", "20000"],
            "--seed 1 --lr 0.1 --bytes-per-bucket 20000, and the chief",
        ),
        (
            ["--data", cut],
            "labels-idx1-ubyte ends after 47 of 48 bytes",
        ),
    ] {
        for output in apart(folder.path(), [&[], &args], &[]) {
            let stderr = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(1), "{stderr}");
            assert!(
                stderr.contains(part) && stderr.lines().count() == 1,
                "{stderr}"
            );
        }
    }
}

fn change_a_label(folder: &Path) {
    let labels = folder.join("train-labels-idx1-ubyte");
    let mut changed = fs::read(&labels).expect("labels");
    changed[8 + 17] ^= 1;
    fs::write(labels, changed).expect("a file that was there");
}

#[cfg(not(feature = "xla"))]
#[test]
fn an_engine_that_is_not_in_this_build_says_how_to_have_it() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mnist"));
    let output = command.args(["--engine", "xla"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let stderr = String::from_utf8(output.stderr).unwrap();
    let remedy = "cargo run --release -p mnist --features xla -- --engine xla";
    assert!(
        stderr.lines().count() == 1 && stderr.contains(remedy),
        "{stderr}"
    );
}

#[test]
fn help_is_no_mistake() {
    let output = mnist(Path::new("."), &["--help"]);
    assert!(output.status.success(), "{output:?}");
    assert!(
        String::from_utf8(output.stdout)
            .unwrap()
            .contains("--global-batch")
    );
}

/// Runs the program in `folder`, with batches of 16 out of the files there unless `args` say
/// otherwise.
fn mnist(folder: &Path, args: &[&str]) -> Output {
    command(folder, args).output().expect("the program starts")
}

/// Runs workers that nobody has started together, each with its own arguments.
fn apart<const N: usize>(
    folder: &Path,
    args: [&[&str]; N],
    variables: &[(&str, &str)],
) -> [Output; N] {
    let secret = JobSecret::generate().expect("random bytes");
    let addresses = free_addresses(N);
    let started: [Child; N] = array::from_fn(|index| {
        command(folder, args[index])
            .envs(variables.iter().copied())
            .env("TF_CONFIG", tf_config(&addresses, index))
            .env(JobSecret::ENV, secret.to_hex().as_str())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts")
    });
    started.map(|worker| worker.wait_with_output().expect("the program ends"))
}

fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mnist"));
    command.current_dir(folder).args(args);
    for default in [
        ["--workers", "1"],
        ["--global-batch", "16"],
        ["--epochs", "1"],
        ["--data", "."],
    ] {
        let elastic = default[0] == "--workers" && args.contains(&"--elastic");
        if !elastic && !args.contains(&default[0]) {
            command.args(default);
        }
    }
    command
}

/// Records of CIFAR-10, each with one bright channel.
fn records(count: u8) -> Vec<u8> {
    let record = |index: u8| {
        let pixels =
            (0..3).flat_map(move |channel| [if index % 3 == channel { 255 } else { 0 }; 1024]);
        std::iter::once(index % 10).chain(pixels)
    };
    (0..count).flat_map(record).collect()
}

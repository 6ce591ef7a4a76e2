//! The engine that compiles, on XLA's plugin for the CPU: the same training as by candle.

#[path = "cli/digits.rs"]
mod digits;
#[path = "../../../accel-tpu/tests/support/plugins.rs"]
mod plugins;

use std::path::Path;
use std::process::{Command, Output};

use digits::{data_folder, logged, losses};

/// Runs the program in `folder`, which knows no plugin but that of `PJRT_PLUGIN_PATH`.
fn mnist(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mnist"));
    command.current_dir(folder).args(args);
    for unset in [
        "PJRT_PLUGIN_PATH",
        "PYTHONPATH",
        "VIRTUAL_ENV",
        "CONDA_PREFIX",
        "TF_CONFIG",
    ] {
        command.env_remove(unset);
    }
    command.env("PATH", folder).env("HOME", folder);
    command
}

fn refused(command: &mut Command) -> String {
    let Output { status, stderr, .. } = command.output().expect("the program starts");
    let stderr = String::from_utf8(stderr).expect("a line of text");
    assert_eq!(
        (status.code(), stderr.lines().count()),
        (Some(1), 1),
        "{stderr}"
    );
    stderr
}

#[test]
fn one_and_several_devices_have_the_losses_of_candle() {
    let Some(plugin) = plugins::cpu_file() else {
        return;
    };
    let folder = data_folder();
    let run = |batch: &str, args: &[&str]| {
        let all = [
            "--data=.",
            "--epochs=2",
            "--json=log.json",
            "--global-batch",
            batch,
        ];
        let mut command = mnist(folder.path(), &[&all, args].concat());
        let output = command.env("PJRT_PLUGIN_PATH", &plugin).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let (steps, last) = logged(&folder.path().join("log.json"));
        (losses(&steps), last)
    };
    // Of 40 images in batches of 36 the last has 4: most of twelve devices have none of them.
    for (batch, devices) in [("20", "1"), ("20", "4"), ("36", "12")] {
        let (expected, candle) = run(batch, &["--workers=1"]);
        let (found, last) = run(batch, &["--engine=xla", "--devices", devices]);
        assert_eq!(
            (found.len(), last["devices"].to_string()),
            (4, devices.to_owned())
        );
        for (found, expected) in found.iter().zip(&expected) {
            let distance = (found - expected).abs();
            assert!(distance <= 1e-3 * expected, "{found} and not {expected}");
        }
        assert_eq!(last["test_accuracy"], candle["test_accuracy"]);
    }
}

#[test]
fn the_digits_that_come_along_are_learnt_on_four_devices() {
    let Some(plugin) = plugins::cpu_file() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let args = ["--engine=xla", "--devices=4", "--json=log.json"];
    let mut command = mnist(folder.path(), &args);
    let output = command.env("PJRT_PLUGIN_PATH", plugin).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        told.contains("after 375 steps") && told.contains("with 4 devices"),
        "{told}"
    );
    let (steps, last) = logged(&folder.path().join("log.json"));
    assert!(
        steps
            .iter()
            .all(|step| step["samples_per_s"].as_f64() > Some(0.0))
    );
    assert!(last["test_accuracy"].as_f64() >= Some(0.96), "{last}");
}

#[test]
fn without_a_plugin_the_remedy_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let told = refused(&mut mnist(folder.path(), &["--engine", "xla"]));
    let remedy = "no PJRT plugin for CPU was found: set PJRT_PLUGIN_PATH to its path, or install \
                  xla_cpu_pjrt with pip";
    assert!(told.contains(remedy), "{told}");
}

#[test]
fn what_the_program_cannot_be_is_refused_before_a_plugin_is_looked_for() {
    let folder = tempfile::tempdir().unwrap();
    for (flag, part) in [
        (
            "--devices=3",
            "64 images cannot be divided evenly among 3 devices",
        ),
        ("--model=mlp", "--engine xla has --model cnn only"),
        ("--workers=2", "--workers is not for --engine xla"),
    ] {
        let told = refused(&mut mnist(folder.path(), &["--engine=xla", flag]));
        assert!(told.contains(part), "{told}");
    }
    let cluster = r#"{"cluster":{"worker":["127.0.0.1:1"]},"task":{"type":"worker","index":0}}"#;
    let mut command = mnist(folder.path(), &["--engine=xla"]);
    let told = refused(command.env("TF_CONFIG", cluster));
    assert!(told.contains("start it alone"), "{told}");
}

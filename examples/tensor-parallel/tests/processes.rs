//! One, two and four processes are one and the same training.

use std::process::Command;

fn losses(processes: &str, optimizer: &str, engine: &str) -> Vec<String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tensor-parallel"));
    command.args(["--steps=25", "--batch=10", "--processes", processes]);
    command.args(["--optimizer", optimizer, "--engine", engine]);
    let ended = command
        .env_remove("TF_CONFIG")
        .output()
        .expect("the program");
    let told = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(ended.status.success(), "{told}");
    let printed = String::from_utf8_lossy(&ended.stdout).into_owned();
    let steps = printed.lines().filter(|line| line.contains("step "));
    steps
        .map(|line| line[line.find("step ").unwrap_or(0)..].to_owned())
        .collect()
}

fn loss(line: &str) -> f32 {
    let word = line.split(' ').nth(3).expect("a loss behind the step");
    word.parse().expect("a number")
}

#[test]
fn processes_train_to_the_same_bits_as_one_alone_and_the_network_learns() {
    for (optimizer, most) in [("sgd", 0.85), ("adam-w", 0.75)] {
        let alone = losses("1", optimizer, "tape");
        assert_eq!(alone.len(), 25);
        assert!(loss(&alone[24]) < most * loss(&alone[0]), "{alone:?}");
        for (processes, engine) in [
            ("2", "tape"),
            ("4", "tape"),
            ("1", "compiled"),
            ("4", "compiled"),
        ] {
            let others = losses(processes, optimizer, engine);
            assert_eq!(
                others, alone,
                "{optimizer}, {processes} processes, {engine}"
            );
        }
    }
}

#[test]
fn a_number_of_processes_that_does_not_fit_is_refused() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tensor-parallel"));
    let ended = command
        .args(["--processes=3"])
        .env_remove("TF_CONFIG")
        .output();
    let ended = ended.expect("the program");
    assert!(!ended.status.success());
    let told = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(
        told.contains("3 processes cannot share 4 devices evenly"),
        "{told}"
    );
}

#[test]
fn a_batch_that_no_memory_holds_is_refused() {
    for batch in ["0", "65537", "18446744073709551615"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tensor-parallel"));
        let ended = command
            .args(["--batch", batch, "--steps=1"])
            .env_remove("TF_CONFIG")
            .output();
        let ended = ended.expect("the program");
        let told = String::from_utf8_lossy(&ended.stderr).into_owned();
        let names = |line: &str| {
            let parts = [batch, "--batch", "1..=65536"];
            parts.iter().all(|part| line.contains(part))
        };
        assert!(!ended.status.success(), "{told}");
        assert_eq!(told.lines().filter(|line| names(line)).count(), 1, "{told}");
        assert!(!told.contains("panicked"), "{told}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn losses_that_standard_output_does_not_take_are_a_failure_that_says_so() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tensor-parallel"));
    let full = std::fs::File::create("/dev/full").expect("a device");
    let ended = command
        .args(["--steps=1"])
        .env_remove("TF_CONFIG")
        .stdout(full)
        .output();
    let ended = ended.expect("the program");
    let told = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(!ended.status.success(), "{told}");
    assert!(told.contains("standard output cannot be written"), "{told}");
}

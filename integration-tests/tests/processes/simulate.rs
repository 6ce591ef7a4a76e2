//! The simulator as a command: what it says by its exit status.

use std::process::{Command, Output};

fn simulate(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_simulate"));
    command.args(arguments).output().unwrap()
}

#[test]
fn a_listed_mistake_fails_the_simulation_and_none_does_not() {
    let listed = simulate(&["--plants"]);
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.starts_with("none\n"), "{listed}");
    assert!(listed.contains("early-return: TooEarly\n"), "{listed}");
    let run = |plant| simulate(&["--plant", plant, "--seeds", "20"]);
    let (planted, right) = (run("early-return"), run("none"));
    assert_eq!(planted.status.code(), Some(1), "{planted:?}");
    let said = String::from_utf8_lossy(&planted.stdout);
    assert!(said.contains("TooEarly: "), "{said}");
    assert!(right.status.success(), "{right:?}");
    let unknown = simulate(&["--plant", "no-such-mistake"]);
    assert_eq!(unknown.status.code(), Some(2), "{unknown:?}");
}

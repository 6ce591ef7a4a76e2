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

/// Checks that these options are refused, and that all of these words are in what is said.
#[track_caller]
fn refuses(arguments: &[&str], words: &[&str]) {
    let refused = simulate(arguments);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let said = String::from_utf8_lossy(&refused.stderr);
    let named = words.iter().all(|word| said.contains(word));
    assert!(named, "{arguments:?}, not {words:?}: {said}");
}

#[test]
fn seeds_end_where_numbers_do() {
    let last = u64::MAX.to_string();
    let beyond = ["--first-seed", &last, "--seeds", "10"];
    refuses(
        &beyond,
        &["--first-seed 18446744073709551615", "--seeds 10"],
    );
    refuses(&["--seeds", "0"], &["--seeds"]);
    let first = (u64::MAX - 2).to_string();
    let left = ["--first-seed", &first, "--seeds", "3", "--scenario", "calm"];
    let played = simulate(&left);
    assert!(played.status.success(), "{played:?}");
    let said = String::from_utf8_lossy(&played.stdout);
    assert!(said.contains("\n3 seeds, 0 failures\n"), "{said}");
}

#[test]
fn numbers_of_ranks_that_are_not_played_are_refused() {
    for ranks in ["0", "1", "17", "64"] {
        let given = format!("--ranks {ranks}");
        refuses(&["--seed", "0", "--ranks", ranks], &[&given, "2 to 16"]);
    }
    let several = ["--seed", "0", "--ranks", "4,8"];
    refuses(&several, &["--ranks has 2 numbers"]);
    let pair = ["--seed", "0", "--scenario", "pair", "--ranks", "5"];
    refuses(&pair, &["--ranks 5", "give 2"]);
    for few in ["0", "1", "8,1"] {
        let scale = ["--scenario", "scale", "--ranks", few];
        refuses(&scale, &["--ranks", "give 2 or more"]);
    }
    for few in ["0", "1", "2", "3"] {
        let growth = ["--scenario", "scale", "--csv", "--ranks", few];
        refuses(&growth, &[&format!("--ranks {few}"), "give 4 or more"]);
    }
}

#[test]
fn the_least_numbers_of_ranks_are_played() {
    for least in [
        &["--seed", "0", "--ranks", "2"][..],
        &["--seed", "0", "--scenario", "pair", "--ranks", "2"],
        &["--scenario", "scale", "--ranks", "2"],
        &["--scenario", "scale", "--csv", "--ranks", "4"],
    ] {
        let played = simulate(least);
        assert!(played.status.success(), "{least:?}: {played:?}");
    }
}

//! A short soak: the program that does long ones says what it must.

use std::process::Command;

#[track_caller]
fn soaks(transport: &str, faults: &str) {
    let output = Command::new(env!("CARGO_BIN_EXE_soak"))
        .args(["--transport", transport, "--kills", faults])
        .args(["--ranks=3", "--stop-every=5", "--cut-every=6"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    let last = text.lines().last().unwrap_or_default();
    let expected = format!("{faults} faults, 0 hangs, 0 wrong values, detection p50 ");
    assert!(last.starts_with(&expected), "{text}");
}

#[test]
fn jobs_through_memory_end_at_every_fault_with_the_right_name() {
    soaks("shm", "10");
}

#[test]
fn jobs_over_quic_end_at_every_fault_with_the_right_name() {
    soaks("quic", "12");
}

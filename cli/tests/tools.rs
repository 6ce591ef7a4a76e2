//! Commands that say something and end, from outside.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot set the scene has failed"
)]

#[path = "tools/checkpoint.rs"]
mod checkpoint;
#[path = "tools/devices.rs"]
mod devices;
#[path = "tools/draw.rs"]
mod draw;
#[path = "tools/plan.rs"]
mod plan;

use std::ffi::OsStr;
use std::process::Command;

/// What a command says on its two streams, and its exit status.
fn says(command: &str, args: &[impl AsRef<OsStr>]) -> (String, String, Option<i32>) {
    let mut meshwork = Command::new(env!("CARGO_BIN_EXE_meshwork"));
    let output = meshwork.arg(command).args(args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    (stdout, stderr, output.status.code())
}

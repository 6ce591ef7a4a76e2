//! Plugins for tests, or a word that a test was skipped.
#![allow(dead_code, reason = "each test file uses what it needs")]

#[path = "wheel.rs"]
mod wheel;

use std::io::Write;
use std::path::PathBuf;

use meshwork_accel_tpu::Plugin;

use wheel::Wheel;

/// The plugin for the CPU; `None` after saying that the test is skipped, and why.
pub(crate) fn cpu(test: &str) -> Option<Plugin> {
    let path = cpu_file(test)?;
    Some(Plugin::load(path).expect("the plugin loads where it can be fetched"))
}

/// Its file; as above.
pub(crate) fn cpu_file(test: &str) -> Option<PathBuf> {
    fetch(Wheel::CPU, test)
}

/// The file of libtpu; as above.
pub(crate) fn libtpu(test: &str) -> Option<PathBuf> {
    fetch(Wheel::LIBTPU, test)
}

fn fetch(wheel: Wheel, test: &str) -> Option<PathBuf> {
    match wheel.fetch(env!("CARGO_TARGET_TMPDIR")) {
        Ok(path) => Some(path),
        Err(absent) => {
            // Past the capture of output, so that it is seen when all else succeeds.
            let _ = writeln!(std::io::stderr(), "skipped: {test}: {absent}");
            None
        }
    }
}

//! Plugins for tests, or a word that a test was skipped.
#![allow(dead_code, reason = "each test file uses what it needs")]

#[path = "wheel.rs"]
mod wheel;

use std::path::PathBuf;

use meshwork_accel_tpu::Plugin;
use meshwork_testing::Need;

use wheel::Wheel;

/// The plugin for the CPU; `None` after a skip is said, where it cannot be had.
#[track_caller]
pub(crate) fn cpu() -> Option<Plugin> {
    let path = cpu_file()?;
    Some(Plugin::load(path).expect("the plugin loads where it can be fetched"))
}

/// Its file; as above.
#[track_caller]
pub(crate) fn cpu_file() -> Option<PathBuf> {
    fetch(Wheel::CPU)
}

/// The file of libtpu; as above.
#[track_caller]
pub(crate) fn libtpu() -> Option<PathBuf> {
    fetch(Wheel::LIBTPU)
}

#[track_caller]
fn fetch(wheel: Wheel) -> Option<PathBuf> {
    Need::Pjrt.or_skip(wheel.fetch(env!("CARGO_TARGET_TMPDIR")))
}

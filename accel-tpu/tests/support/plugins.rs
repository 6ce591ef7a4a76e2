//! Plugins for tests, or a word that a test was skipped.
#![allow(dead_code, reason = "each test file uses what it needs")]

#[path = "wheel.rs"]
mod wheel;

use std::path::PathBuf;

use meshwork_accel_tpu::{AttributeValue, PjrtAccelerator, PjrtClient, Plugin};

/// The plugin for the CPU; `None` after a skip is said, where it cannot be had.
#[track_caller]
pub(crate) fn cpu() -> Option<Plugin> {
    let path = cpu_file()?;
    Some(Plugin::load(path).expect("the plugin loads where it can be fetched"))
}

/// So many devices of it, whose programs are compiled in less than half of the time: most run once.
pub(crate) fn accelerator(plugin: &Plugin, devices: i64) -> PjrtAccelerator {
    let devices = [("cpu_device_count", AttributeValue::Int(devices))];
    let client = PjrtClient::new(plugin, &devices).expect("the plugin makes as many as it is told");
    PjrtAccelerator::new(client)
        .with_compiler_option("xla_backend_optimization_level", "0")
        .with_compiler_option("xla_cpu_use_fusion_emitters", "False")
}

/// Its file; as above.
#[track_caller]
pub(crate) fn cpu_file() -> Option<PathBuf> {
    wheel::CPU.file()
}

/// The file of libtpu; as above.
#[track_caller]
pub(crate) fn libtpu() -> Option<PathBuf> {
    wheel::LIBTPU.file()
}

//! The plugins that tests drive, of Python's package index.
#![allow(dead_code, reason = "each test file uses what it needs")]

use std::env;
use std::path::{Path, PathBuf};

use meshwork_testing::{Need, Wheel};

/// A release of a plugin, and the plugin's file in it.
pub(crate) struct PluginWheel {
    wheel: Wheel,
    plugin: &'static str,
}

/// XLA's plugin for the CPU.
pub(crate) const CPU: PluginWheel = PluginWheel {
    wheel: Wheel::new(
        "xla_cpu_pjrt==0.0.1",
        "55837b6b7b47daa717f2d9a5a03563ea0ceaa338d06a81a1e2d3f060d960decc",
    ),
    plugin: "xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so",
};

/// Google's plugin for TPUs. Its terms do not let others give it out.
pub(crate) const LIBTPU: PluginWheel = PluginWheel {
    wheel: Wheel::new(
        "libtpu==0.0.52",
        "f5e2e596eaea9357fbb5a6755a7a9007c6ab75bfde4a55191b03eff402971140",
    ),
    plugin: "libtpu/libtpu.so",
};

impl PluginWheel {
    /// The plugin's file; `None` after a skip is said, where it cannot be had.
    #[track_caller]
    pub(crate) fn file(&self) -> Option<PathBuf> {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let python = env::var_os("MESHWORK_PYTHON").unwrap_or_else(|| "python3".into());
        let unpacked = self.wheel.unpacked(folder, python);
        Need::Pjrt.or_skip(unpacked.map(|content| content.join(self.plugin)))
    }
}

//! The plugins that tests drive: fetched from Python's package index, checked against a hash, and
//! kept in a folder of the build.
#![allow(dead_code, reason = "each test file uses what it needs")]

use std::fmt::{self, Display};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A release of a plugin, and its hash.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wheel {
    requirement: &'static str,
    sha256: &'static str,
    plugin: &'static str,
}

impl Wheel {
    /// XLA's plugin for the CPU.
    pub(crate) const CPU: Self = Self {
        requirement: "xla_cpu_pjrt==0.0.1",
        sha256: "55837b6b7b47daa717f2d9a5a03563ea0ceaa338d06a81a1e2d3f060d960decc",
        plugin: "xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so",
    };

    /// Google's plugin for TPUs. Its terms do not let others give it out.
    pub(crate) const LIBTPU: Self = Self {
        requirement: "libtpu==0.0.52",
        sha256: "f5e2e596eaea9357fbb5a6755a7a9007c6ab75bfde4a55191b03eff402971140",
        plugin: "libtpu/libtpu.so",
    };

    /// The plugin's file, below `folder`, which is where `cargo` lets tests keep things
    /// (`CARGO_TARGET_TMPDIR`). Fetched when it is not there yet.
    ///
    /// # Errors
    /// [`Absent`] where there is no Python with pip, or it cannot fetch.
    pub(crate) fn fetch(self, folder: impl AsRef<Path>) -> Result<PathBuf, Absent> {
        let place = folder.as_ref().join(self.requirement);
        let plugin = place.join(self.plugin);
        if plugin.is_file() {
            return Ok(plugin);
        }
        let fetched = tempfile::tempdir_in(folder).map_err(|error| self.absent("mkdir", &error))?;
        self.download(fetched.path())?;
        self.unpack(fetched.path())?;
        // Whole or not at all: others may be fetching the same.
        match fs::rename(fetched.path().join("unpacked"), &place) {
            Err(error) if !plugin.is_file() => Err(self.absent("rename", &error)),
            _ => Ok(plugin),
        }
    }

    fn download(self, to: &Path) -> Result<(), Absent> {
        let wanted = to.join("wanted.txt");
        let line = format!("{} --hash=sha256:{}\n", self.requirement, self.sha256);
        fs::write(&wanted, line).map_err(|error| self.absent("write", &error))?;
        let mut pip = python();
        pip.args([
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--disable-pip-version-check",
        ])
        .args([
            "--only-binary=:all:",
            "--python-version=3.11",
            "--require-hashes",
        ])
        .args([
            "--platform=manylinux_2_31_x86_64",
            "--platform=manylinux_2_27_x86_64",
        ])
        .arg("--dest")
        .arg(to)
        .arg("--requirement")
        .arg(&wanted);
        self.check("pip", pip.output())
    }

    fn unpack(self, folder: &Path) -> Result<(), Absent> {
        let files = fs::read_dir(folder).map_err(|error| self.absent("read", &error))?;
        let mut files = files.filter_map(|entry| entry.ok().map(|entry| entry.path()));
        let wheel = files.find(|file| file.extension().is_some_and(|extension| extension == "whl"));
        let mut unzip = python();
        unzip
            .args(["-m", "zipfile", "-e"])
            .args(wheel)
            .arg(folder.join("unpacked"));
        self.check("zipfile", unzip.output())
    }

    fn check(self, step: &'static str, output: io::Result<Output>) -> Result<(), Absent> {
        let output = output.map_err(|error| self.absent(step, &error))?;
        if output.status.success() {
            return Ok(());
        }
        let complaint = String::from_utf8_lossy(&output.stderr);
        let last = complaint.lines().rfind(|line| !line.trim().is_empty());
        Err(self.absent(step, &last.unwrap_or("no output")))
    }

    fn absent(self, step: &'static str, why: &dyn Display) -> Absent {
        Absent {
            wheel: self.requirement,
            step,
            why: why.to_string(),
        }
    }
}

/// Why a plugin cannot be had here.
#[derive(Clone, Debug)]
pub(crate) struct Absent {
    wheel: &'static str,
    step: &'static str,
    why: String,
}

impl Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { wheel, step, why } = self;
        write!(f, "{wheel} cannot be fetched: {step}: {why}")
    }
}

fn python() -> Command {
    Command::new(std::env::var_os("MESHWORK_PYTHON").unwrap_or_else(|| "python3".into()))
}

//! NVIDIA's libraries as pip has them, fetched once into the target folder.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use meshwork_testing::Need;
use ring::digest::{SHA256, digest};

use super::cc::scratch;

/// One file of a package index.
pub(crate) struct Wheel {
    package: &'static str,
    version: &'static str,
    sha256: &'static str,
    need: Need,
}

#[allow(dead_code, reason = "each test file takes what it needs")]
pub(crate) const NVRTC: Wheel = Wheel {
    package: "nvidia-cuda-nvrtc",
    version: "13.0.88",
    sha256: "ad9b6d2ead2435f11cbb6868809d2adeeee302e9bb94bcf0539c7a40d80e8575",
    need: Need::CudaWheels,
};

/// Half a gigabyte, fetched where `MESHWORK_WHEELS=all`, of which the headers are needed, and that
/// it can be loaded.
#[allow(dead_code, reason = "each test file takes what it needs")]
pub(crate) const CUBLAS: Wheel = Wheel {
    package: "nvidia-cublas",
    version: "13.0.2.14",
    sha256: "0cf238ffdbe46c00cb9aa98e7bca745c223a5ca5a53e686ac8b3e5a08fe80d6c",
    need: Need::Cublas,
};

#[allow(dead_code, reason = "each test file takes what it needs")]
pub(crate) const NCCL: Wheel = Wheel {
    package: "nvidia-nccl-cu13",
    version: "2.30.7",
    sha256: "cefa7fdb9710efd0f39c5f1be1d61ff6fc9a996c451265bd7fbdcf9455ed4b50",
    need: Need::CudaWheels,
};

/// The headers of the driver.
#[allow(dead_code, reason = "each test file takes what it needs")]
pub(crate) const RUNTIME: Wheel = Wheel {
    package: "nvidia-cuda-runtime",
    version: "13.0.96",
    sha256: "7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548",
    need: Need::CudaWheels,
};

impl Wheel {
    /// The folder with what the wheel holds; `None` after a skip is said, where it cannot be had.
    #[track_caller]
    pub(crate) fn unpacked(&self) -> Option<PathBuf> {
        let absent = |reason| format!("{} {}: {reason}", self.package, self.version);
        self.need.or_skip(self.find().map_err(absent))
    }

    fn find(&self) -> Result<PathBuf, String> {
        if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
            return Err("this wheel is for Linux on x86-64".to_owned());
        }
        let name = format!("{}-{}", self.package, self.version);
        let folder = scratch().join("wheels").join(name);
        fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
        // Tests that want the same wheel wait for the one that fetches it.
        let lock = File::create(folder.join("lock")).map_err(|error| error.to_string())?;
        lock.lock().map_err(|error| error.to_string())?;
        let content = folder.join("content");
        if !content.exists() {
            let all = std::env::var_os("MESHWORK_WHEELS").is_some_and(|value| value == "all");
            if self.need == Need::Cublas && !all {
                return Err("it is large".to_owned());
            }
            self.fetch(&folder, &content)?;
        }
        Ok(content)
    }

    fn fetch(&self, folder: &Path, content: &Path) -> Result<(), String> {
        let wanted = format!("{}=={}", self.package, self.version);
        let pip = [
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--only-binary=:all:",
        ];
        let timeout = ["--retries", "1", "--timeout", "20", "--no-cache-dir"];
        let mut command = Command::new("python3");
        command
            .args(pip)
            .args(timeout)
            .arg("--dest")
            .arg(folder)
            .arg(wanted);
        run(&mut command)?;
        let entries = fs::read_dir(folder).map_err(|error| error.to_string())?;
        let mut paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let wheel = paths.find(|path| path.extension().is_some_and(|end| end == "whl"));
        let wheel = wheel.ok_or("pip left no wheel")?;
        let bytes = fs::read(&wheel).map_err(|error| error.to_string())?;
        let hash: String = digest(&SHA256, &bytes)
            .as_ref()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        // Not skipped: another file than the one that was looked at must not be loaded, or pass.
        assert_eq!(hash, self.sha256, "{}", wheel.display());
        let beside = folder.join("unpacking");
        let mut unzip = Command::new("python3");
        run(unzip.args(["-m", "zipfile", "-e"]).arg(&wheel).arg(&beside))?;
        fs::rename(&beside, content).map_err(|error| error.to_string())?;
        fs::remove_file(&wheel).map_err(|error| error.to_string())
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let ended = command
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .status();
    match ended {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{:?} ended with {status}", command.get_program())),
        Err(error) => Err(format!(
            "{:?} does not start: {error}",
            command.get_program()
        )),
    }
}

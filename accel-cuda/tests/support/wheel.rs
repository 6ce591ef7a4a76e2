//! NVIDIA's libraries as pip has them, fetched once into the target folder.

use std::env;
use std::path::PathBuf;

use meshwork_testing::{Need, Wheel};

use super::cc::scratch;

/// A wheel, and the need that its absence leaves.
pub(crate) struct CudaWheel {
    wheel: Wheel,
    need: Need,
}

#[allow(dead_code, reason = "each test file takes what it needs")]
pub(crate) const NVRTC: CudaWheel = CudaWheel {
    wheel: Wheel::new(
        "nvidia-cuda-nvrtc==13.0.88",
        "ad9b6d2ead2435f11cbb6868809d2adeeee302e9bb94bcf0539c7a40d80e8575",
    ),
    need: Need::CudaWheels,
};

/// Half a gigabyte, fetched where `MESHWORK_WHEELS=all`, of which the headers are needed, and that
/// it can be loaded.
#[allow(dead_code, reason = "each test file takes what it needs")]
pub(crate) const CUBLAS: CudaWheel = CudaWheel {
    wheel: Wheel::new(
        "nvidia-cublas==13.0.2.14",
        "0cf238ffdbe46c00cb9aa98e7bca745c223a5ca5a53e686ac8b3e5a08fe80d6c",
    ),
    need: Need::Cublas,
};

#[allow(dead_code, reason = "each test file takes what it needs")]
pub(crate) const NCCL: CudaWheel = CudaWheel {
    wheel: Wheel::new(
        "nvidia-nccl-cu13==2.30.7",
        "cefa7fdb9710efd0f39c5f1be1d61ff6fc9a996c451265bd7fbdcf9455ed4b50",
    ),
    need: Need::CudaWheels,
};

/// The headers of the driver.
#[allow(dead_code, reason = "each test file takes what it needs")]
pub(crate) const RUNTIME: CudaWheel = CudaWheel {
    wheel: Wheel::new(
        "nvidia-cuda-runtime==13.0.96",
        "7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548",
    ),
    need: Need::CudaWheels,
};

impl CudaWheel {
    /// The folder with what the wheel holds; `None` after a skip is said, where it cannot be had.
    #[track_caller]
    pub(crate) fn unpacked(&self) -> Option<PathBuf> {
        let unpacked = self.find();
        if let Err(why) = &unpacked {
            // Not skipped: another file than the one that was looked at must not pass.
            assert!(!why.contains(Wheel::OTHER_HASH), "{why}");
        }
        self.need.or_skip(unpacked)
    }

    fn find(&self) -> Result<PathBuf, String> {
        let folder = scratch();
        let all = env::var_os("MESHWORK_WHEELS").is_some_and(|value| value == "all");
        if self.need == Need::Cublas && !all && !self.wheel.content(&folder).exists() {
            return Err("its wheel is large".to_owned());
        }
        self.wheel.unpacked(&folder, "python3")
    }
}

//! Accelerators of this machine, of the backends that are compiled in.

use super::Backend;
use crate::{DeviceType, Error};

/// The accelerator for a type of device.
pub(super) fn open(device_type: DeviceType) -> Result<Backend, Error> {
    match device_type {
        DeviceType::Tpu => tpus(),
        DeviceType::Gpu => gpus(),
        DeviceType::Cpu => Err(Error::NoDevices { device_type }),
    }
}

#[cfg(feature = "tpu")]
fn tpus() -> Result<Backend, Error> {
    let tpus = meshwork_accel_tpu::open(meshwork_accel_tpu::Platform::Tpu)?;
    let tpus = Backend::of(&std::sync::Arc::new(tpus)).arithmetic();
    Ok(tpus.arrangement().collectives().graphs().into())
}

#[cfg(not(feature = "tpu"))]
fn tpus() -> Result<Backend, Error> {
    Err(Error::NotCompiledIn {
        device_type: DeviceType::Tpu,
        feature: "tpu",
    })
}

#[cfg(feature = "cuda")]
fn gpus() -> Result<Backend, Error> {
    let gpus = meshwork_accel_cuda::CudaAccelerator::new().map_err(meshwork_accel::Error::from)?;
    let gpus = Backend::of(&std::sync::Arc::new(gpus));
    Ok(gpus.arithmetic().arrangement().collectives().into())
}

#[cfg(not(feature = "cuda"))]
fn gpus() -> Result<Backend, Error> {
    Err(Error::NotCompiledIn {
        device_type: DeviceType::Gpu,
        feature: "cuda",
    })
}

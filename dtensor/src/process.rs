//! The accelerator system of this process, by TensorFlow's names.

use std::sync::{Mutex, MutexGuard, PoisonError};

use meshwork_core::{CreateMesh, DeviceSpec, Mesh};

use crate::{Config, Context, DeviceType, Environment, Error, Initialize, System};

static SYSTEM: Mutex<System> = Mutex::new(System::of_machine());

/// [`System::initialize`] for this process and its environment.
///
/// # Errors
/// Those of [`System::initialize`].
#[track_caller]
pub fn initialize_accelerator_system(asked: Initialize) -> Result<DeviceType, Error> {
    system().initialize(&Environment::of_process(), asked)
}

/// [`System::shutdown`] for this process.
///
/// # Errors
/// Those of [`System::shutdown`].
#[track_caller]
pub fn shutdown_accelerator_system() -> Result<(), Error> {
    system().shutdown()
}

/// Whether this process's accelerator system is initialised.
#[must_use]
pub fn is_initialized() -> bool {
    system().is_initialized()
}

/// The context of this process, see [`System::context`].
///
/// # Errors
/// Those of [`System::context`].
pub fn context() -> Result<Context, Error> {
    system().context(&Environment::of_process())
}

/// The configuration of this process: its environment at this moment, and its devices as far as
/// they have been looked for: [`preferred_device_type`], [`num_local_devices`] and
/// [`local_devices`] do so first.
#[must_use]
pub fn config() -> Config {
    system().config(&Environment::of_process())
}

/// [`Config::preferred_device_type`] of this process.
#[must_use]
pub fn preferred_device_type() -> DeviceType {
    system().preferred_device_type(&Environment::of_process())
}

/// [`Config::client_id`] of this process.
///
/// # Errors
/// Those of [`Config::client_id`].
pub fn client_id() -> Result<u32, Error> {
    config().client_id()
}

/// [`Config::num_clients`] of this process.
///
/// # Errors
/// Those of [`Config::num_clients`].
pub fn num_clients() -> Result<u32, Error> {
    config().num_clients()
}

/// [`Config::jobs`] of this process.
///
/// # Errors
/// Those of [`Config::jobs`].
pub fn jobs() -> Result<Vec<String>, Error> {
    config().jobs()
}

/// [`Config::job_name`] of this process.
///
/// # Errors
/// Those of [`Config::job_name`].
pub fn job_name() -> Result<String, Error> {
    config().job_name()
}

/// [`Config::full_job_name`] of this process.
///
/// # Errors
/// Those of [`Config::full_job_name`].
pub fn full_job_name() -> Result<String, Error> {
    config().full_job_name()
}

/// [`Config::heartbeat_enabled`] of this process.
#[must_use]
pub fn heartbeat_enabled() -> bool {
    config().heartbeat_enabled()
}

/// [`Config::num_local_devices`] of this process.
#[must_use]
pub fn num_local_devices(device_type: DeviceType) -> u32 {
    config_with(device_type).num_local_devices(device_type)
}

/// [`Config::num_global_devices`] of this process.
///
/// # Errors
/// Those of [`Config::num_global_devices`].
pub fn num_global_devices(device_type: DeviceType) -> Result<u32, Error> {
    config_with(device_type).num_global_devices(device_type)
}

/// [`Config::local_devices`] of this process.
///
/// # Errors
/// Those of [`Config::local_devices`].
pub fn local_devices(device_type: DeviceType) -> Result<Vec<DeviceSpec>, Error> {
    config_with(device_type).local_devices(device_type)
}

/// The mesh of this process's devices alone; it need not be initialised.
///
/// # Errors
/// Those of [`CreateMesh::create`] and [`Config::client`].
pub fn create_mesh(mesh: CreateMesh) -> Result<Mesh, Error> {
    Ok(mesh.create(&config().client()?)?)
}

/// [`Context::create_distributed_mesh`] for this process.
///
/// # Errors
/// [`Error::NotInitialized`], and those of [`Context::create_distributed_mesh`].
#[track_caller]
pub fn create_distributed_mesh(mesh: CreateMesh) -> Result<Mesh, Error> {
    let context = system().initialized()?;
    context.create_distributed_mesh(mesh)
}

/// The configuration after a look for devices of a type.
fn config_with(device_type: DeviceType) -> Config {
    system().config_with(&Environment::of_process(), device_type)
}

fn system() -> MutexGuard<'static, System> {
    // Every change is made at once, after all that can fail.
    SYSTEM.lock().unwrap_or_else(PoisonError::into_inner)
}

//! Slices of TPUs: their names, and what libtpu needs on a machine that has none.
//!
//! libtpu compiles for any slice on any machine, with three habits to know of:
//!
//! - It asks the cloud's metadata server who it is, for minutes where there is none. A machine
//!   without a TPU needs `TPU_SKIP_MDS_QUERY=1`, and [`Plugin::load`](crate::Plugin::load) refuses
//!   to load libtpu without it.
//! - It takes a lock, so a second process at the same time finds "no TPU platforms";
//!   `ALLOW_MULTIPLE_LIBTPU_LOAD=1` lets both.
//! - It logs to a folder of its own and to standard error, unless told not to.
//!
//! It reads the environment when it is loaded, and a process cannot change its own safely once it
//! has threads. So this crate never does: [`ENVIRONMENT`] has what is needed, for whoever starts
//! the process. The command `meshwork tpu` starts itself anew with it.

mod name;
mod slice;

use std::env;
use std::path::Path;

use meshwork_core::tpu::TpuCore;

use crate::{DeviceInfo, Error, Plugin, Topology, Value};

pub use name::TopologyName;
pub use slice::Slice;

pub(crate) use name::generations;

/// Environment variables that let libtpu compile on a machine without a TPU, quietly and beside
/// other processes.
pub const ENVIRONMENT: [(&str, &str); 8] = [
    SKIP_METADATA,
    ("ALLOW_MULTIPLE_LIBTPU_LOAD", "1"),
    ("TPU_LOG_DIR", "disabled"),
    ("TPU_MIN_LOG_LEVEL", "3"),
    ("TPU_STDERR_LOG_LEVEL", "3"),
    // Without these it complains that nobody told it where it runs; topologies do not depend on
    // them.
    ("TPU_ACCELERATOR_TYPE", "v5litepod-8"),
    ("TPU_WORKER_HOSTNAMES", "localhost"),
    ("TPU_WORKER_ID", "0"),
];

const SKIP_METADATA: (&str, &str) = ("TPU_SKIP_MDS_QUERY", "1");

/// The slice of that name, which need not be there; `options` are libtpu's own, such as
/// `num_slices`.
///
/// # Errors
/// [`Error::Plugin`] for unknown options, or from plugins that know no TPUs.
pub fn topology(
    plugin: &Plugin,
    name: &TopologyName,
    options: &[(&str, Value)],
) -> Result<Topology, Error> {
    Topology::new(plugin, &name.to_string(), options)
}

/// Where in its slice a device is.
///
/// # Errors
/// [`Error::NoCoordinates`] for a device that is no core of a TPU.
pub fn core_of(device: &DeviceInfo) -> Result<TpuCore, Error> {
    let missing = |attribute| {
        let device = device.id();
        move || Error::NoCoordinates { device, attribute }
    };
    let place = |number: i64| usize::try_from(number).ok();
    let attributes = device.attributes();
    let coords = attributes.get("coords").and_then(Value::as_ints);
    let coords: Option<Vec<usize>> =
        coords.and_then(|coords| coords.iter().copied().map(place).collect());
    let Some([x, y, z]) = coords.as_deref() else {
        return Err(missing("coords")());
    };
    let core = attributes
        .get("core_on_chip")
        .and_then(Value::as_int)
        .and_then(place);
    let core = core.ok_or_else(missing("core_on_chip"))?;
    Ok(TpuCore::new([*x, *y, *z, core]))
}

/// Whether the environment of this process is good for libtpu: either there is a TPU, or
/// [`ENVIRONMENT`] is set.
#[must_use]
pub fn is_environment_set() -> bool {
    has_tpu()
        || ENVIRONMENT
            .iter()
            .all(|(variable, _)| env::var_os(variable).is_some())
}

/// Refuses to load libtpu where it would ask a metadata server that is not there.
pub(crate) fn check_environment(plugin: &Path) -> Result<(), Error> {
    let name = plugin.file_name().unwrap_or_default().to_string_lossy();
    let (variable, value) = SKIP_METADATA;
    if !name.contains("libtpu") || env::var_os(variable).is_some() || has_tpu() {
        return Ok(());
    }
    Err(Error::Environment { variable, value })
}

/// Whether the kernel shows a TPU, by either of its drivers.
fn has_tpu() -> bool {
    ["/dev/accel0", "/dev/vfio/0"]
        .into_iter()
        .any(|device| Path::new(device).exists())
}

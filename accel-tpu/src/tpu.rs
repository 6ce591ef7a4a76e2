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

use meshwork_core::tpu::TpuCore;

use crate::{AttributeValue, DeviceInfo, Error, Plugin, Topology};

pub use crate::environment::{ENVIRONMENT, is_environment_set};
pub use name::TopologyName;
pub use slice::Slice;

/// The slice of that name, which need not be there; `options` are libtpu's own, such as
/// `num_slices`.
///
/// # Errors
/// [`Error::Plugin`] for unknown options, or from plugins that know no TPUs.
pub fn topology(
    plugin: &Plugin,
    name: &TopologyName,
    options: &[(&str, AttributeValue)],
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
    let coords = attributes.get("coords").and_then(AttributeValue::as_ints);
    let coords: Option<Vec<usize>> =
        coords.and_then(|coords| coords.iter().copied().map(place).collect());
    let Some([x, y, z]) = coords.as_deref() else {
        return Err(missing("coords")());
    };
    let core = attributes
        .get("core_on_chip")
        .and_then(AttributeValue::as_int)
        .and_then(place);
    let core = core.ok_or_else(missing("core_on_chip"))?;
    Ok(TpuCore::new([*x, *y, *z, core]))
}

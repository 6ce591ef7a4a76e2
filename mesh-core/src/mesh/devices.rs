//! Which lists of devices a mesh accepts.

use std::collections::HashMap;

use crate::{DeviceSpec, Error, Rank};

/// Checks a list in rank order for a mesh of `size` ranks.
pub(super) fn check(devices: &[DeviceSpec], size: usize) -> Result<(), Error> {
    if devices.len() != size {
        return Err(Error::DeviceCount {
            found: devices.len(),
            expected: size,
        });
    }
    check_types(devices)?;
    check_distinct(devices)
}

fn check_types(devices: &[DeviceSpec]) -> Result<(), Error> {
    let mut first = None;
    for (device, rank) in devices.iter().zip((0..).map(Rank::new)) {
        let Some(other) = device.device_type() else {
            let device = device.clone();
            return Err(Error::DeviceWithoutType { device, rank });
        };
        let first = *first.get_or_insert(other);
        if first != other {
            let (first, other) = (first.to_owned(), other.to_owned());
            return Err(Error::MixedDeviceTypes { first, other, rank });
        }
    }
    Ok(())
}

fn check_distinct(devices: &[DeviceSpec]) -> Result<(), Error> {
    let one_cpu =
        |device: &DeviceSpec| *device == devices[0] && device.device_type() == Some("CPU");
    if devices.iter().all(one_cpu) {
        return Ok(());
    }
    let mut owners = HashMap::with_capacity(devices.len());
    for (device, second) in devices.iter().zip((0..).map(Rank::new)) {
        if let Some(first) = owners.insert(device, second) {
            let device = device.clone();
            return Err(Error::DuplicateDevice {
                device,
                first,
                second,
            });
        }
    }
    Ok(())
}

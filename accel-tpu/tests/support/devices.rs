//! An accelerator over the CPU, and what its buffers hold.

use meshwork_accel::{Accelerator, DeviceBuffer, DeviceId, Element};
use meshwork_accel_tpu::{AttributeValue, PjrtAccelerator, PjrtBuffer, PjrtClient, Plugin};

/// So many devices of the CPU.
pub(crate) fn accelerator(plugin: &Plugin, devices: i64) -> PjrtAccelerator {
    let devices = [("cpu_device_count", AttributeValue::Int(devices))];
    PjrtAccelerator::new(PjrtClient::new(plugin, &devices).unwrap())
}

/// A buffer on `device` with these elements.
pub(crate) fn with<T: Element>(
    accelerator: &PjrtAccelerator,
    device: usize,
    values: &[T],
) -> PjrtBuffer {
    let mut buffer = accelerator
        .allocate(DeviceId::new(device), T::TYPE, values.len())
        .unwrap();
    accelerator.upload(values, &mut buffer, 0).unwrap();
    buffer
}

/// What the buffer holds.
pub(crate) fn read<T: Element>(accelerator: &PjrtAccelerator, buffer: &PjrtBuffer) -> Vec<T> {
    let mut values = vec![T::default(); buffer.len()];
    accelerator.download(buffer, 0, &mut values).unwrap();
    values
}

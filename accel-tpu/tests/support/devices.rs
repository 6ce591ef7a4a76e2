//! An accelerator over the CPU, and what its buffers hold.

use std::path::Path;

use meshwork_accel::{Accelerator, DeviceBuffer, DeviceId, Element, LiveBuffers};
use meshwork_accel_tpu::{Live, PjrtAccelerator, PjrtBuffer, Plugin};
use meshwork_testing::in_threads;

use crate::plugins::accelerator;

/// Each check passes on so many devices, and leaves nothing behind. Each has a plugin of its own,
/// as all compile at the same time.
pub(crate) fn hold(file: &Path, devices: i64, checks: &[fn(&PjrtAccelerator)]) {
    in_threads(checks, |check| {
        let plugin = Plugin::load(file).unwrap();
        let all = accelerator(&plugin, devices);
        check(&all);
        assert_eq!((all.live_buffers(), plugin.live().buffers), (0, 0));
        drop(all);
        assert_eq!(plugin.live(), Live::default());
    });
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

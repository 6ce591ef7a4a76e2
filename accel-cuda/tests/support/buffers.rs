//! Buffers with values, and the values of buffers.

use meshwork_accel::{Accelerator, DeviceId, Element};
use meshwork_accel_cuda::{CudaAccelerator, CudaBuffer};

/// A buffer of a device, with these values.
pub(crate) fn with<T: Element>(
    accelerator: &CudaAccelerator,
    at: usize,
    values: &[T],
) -> CudaBuffer {
    let buffer = accelerator.allocate(DeviceId::new(at), T::TYPE, values.len());
    let mut buffer = buffer.expect("there is room");
    let uploaded = accelerator.upload(values, &mut buffer, 0);
    uploaded.expect("equal lengths");
    buffer
}

/// The first values of a buffer.
pub(crate) fn read<T: Element>(
    accelerator: &CudaAccelerator,
    buffer: &CudaBuffer,
    len: usize,
) -> Vec<T> {
    let mut values = vec![T::default(); len];
    let downloaded = accelerator.download(buffer, 0, &mut values);
    downloaded.expect("equal lengths");
    values
}

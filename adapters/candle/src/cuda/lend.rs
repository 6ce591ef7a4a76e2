//! Where a tensor of candle lies on its GPU.
#![expect(
    unsafe_code,
    reason = "an owner promises what no type says: who works on memory, and until when it is there"
)]

use candle_core::cuda_backend::cudarc::driver::DevicePtr;
use candle_core::{Storage, Tensor};
use meshwork_accel_cuda::ExternalMemory;
use meshwork_strategy::ElementType;

use crate::Error;

/// The memory of a tensor that shares it with no other, in the order of the stream by which candle
/// works on it.
pub(super) fn memory(tensor: &Tensor, element: ElementType) -> Result<ExternalMemory, Error> {
    let (storage, layout) = tensor.storage_and_layout();
    let Storage::Cuda(storage) = &*storage else {
        return Err(Error::NotOnGpu {
            name: "of a gradient".to_owned(),
            found: tensor.device().location(),
        });
    };
    let whole = layout.contiguous_offsets();
    let Some((0, len)) = whole else {
        return Err(candle_core::Error::RequiresContiguous { op: "lend" }.into());
    };
    let slice = storage.as_cuda_slice::<f32>()?;
    let stream = slice.stream().clone();
    let (address, recorded) = slice.device_ptr(&stream);
    drop(recorded);
    // SAFETY: candle has so many elements of four bytes there, works on them by that stream, which
    // the tensor keeps as it keeps the memory, and frees them in its order; nobody works on them
    // while the buffer lives, as this tensor is the only one and `DeviceGradients` holds it.
    let memory =
        unsafe { ExternalMemory::from_raw(address, element, len, stream.cu_stream().cast()) };
    Ok(memory.owned_by(tensor.clone()))
}

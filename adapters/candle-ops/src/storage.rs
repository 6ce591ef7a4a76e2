//! The values of tensors in host memory.

use std::ops::Deref;

use candle_core::{CpuStorage, DType, Error, Layout, Result, Storage, Tensor};

/// Whether the operations of this crate take `tensor`, or leave it to candle's.
pub(crate) fn is_ours(tensor: &Tensor) -> bool {
    tensor.device().is_cpu() && tensor.dtype() == DType::F32
}

/// The values of an argument in a forward pass.
pub(crate) fn values<'a>(storage: &'a CpuStorage, layout: &Layout) -> Result<&'a [f32]> {
    let (start, end) = layout
        .contiguous_offsets()
        .ok_or(Error::RequiresContiguous { op: OP })?;
    Ok(&storage.as_slice::<f32>()?[start..end])
}

/// A tensor that is read in a backward pass.
pub(crate) struct Read<'a, S> {
    storage: S,
    layout: &'a Layout,
}

/// Keeps `tensor` from being written.
pub(crate) fn read(tensor: &Tensor) -> Read<'_, impl Deref<Target = Storage>> {
    let (storage, layout) = tensor.storage_and_layout();
    Read { storage, layout }
}

impl<S: Deref<Target = Storage>> Read<'_, S> {
    pub(crate) fn values(&self) -> Result<&[f32]> {
        match &*self.storage {
            Storage::Cpu(storage) => values(storage, self.layout),
            Storage::Cuda(_) | Storage::Metal(_) => Err(Error::RequiresContiguous { op: OP }),
        }
    }
}

const OP: &str = "meshwork-candle-ops";

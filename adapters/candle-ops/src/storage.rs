//! The values of tensors in host memory.

use std::ops::{Deref, Range};

use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, DType, Error, Layout, Result, Storage, Tensor};

/// Whether the operations of this crate take `tensor`, or leave it to candle's.
pub(crate) fn is_ours(tensor: &Tensor) -> bool {
    tensor.device().is_cpu() && tensor.dtype() == DType::F32
}

/// The values of an argument in a forward pass.
pub(crate) fn values<'a>(storage: &'a CpuStorage, layout: &Layout) -> Result<&'a [f32]> {
    Ok(&storage.as_slice::<f32>()?[range(layout)?])
}

/// The values of a variable that is written.
pub(crate) fn values_mut<'a>(
    storage: &'a mut CpuStorage,
    layout: &Layout,
) -> Result<&'a mut [f32]> {
    match storage {
        CpuStorage::F32(values) => Ok(&mut values[range(layout)?]),
        other => Err(Error::UnexpectedDType {
            msg: OP,
            expected: DType::F32,
            got: other.dtype(),
        }),
    }
}

/// Where the values are. What has none may begin behind the end of its storage.
fn range(layout: &Layout) -> Result<Range<usize>> {
    let (start, end) = layout
        .contiguous_offsets()
        .ok_or(Error::RequiresContiguous { op: OP })?;
    Ok(if start == end { 0..0 } else { start..end })
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

//! The numbers of candle's tensors, out of and into their memory.

use candle_core::{CpuStorage, InplaceOp1, Layout, Storage, Tensor};

use crate::Error;

/// Copies the values of `tensor`, row-major, without an allocation where it is contiguous in host
/// memory.
pub(crate) fn read(tensor: &Tensor, into: &mut [f32]) -> Result<(), Error> {
    let (storage, layout) = tensor.storage_and_layout();
    if let (Storage::Cpu(values), Some((start, end))) = (&*storage, layout.contiguous_offsets()) {
        into.copy_from_slice(&values.as_slice::<f32>()?[start..end]);
        return Ok(());
    }
    drop(storage);
    into.copy_from_slice(&tensor.flatten_all()?.to_vec1::<f32>()?);
    Ok(())
}

/// Replaces the values of `tensor` where they are, if it is contiguous in host memory, and has all
/// of its storage; says whether it was.
pub(crate) fn write(values: &[f32], tensor: &Tensor) -> Result<bool, Error> {
    let (storage, layout) = tensor.storage_and_layout();
    let is_whole = matches!(
        (&*storage, layout.contiguous_offsets()),
        (Storage::Cpu(CpuStorage::F32(all)), Some(offsets)) if offsets == (0, all.len())
    );
    drop(storage);
    if is_whole {
        tensor.inplace_op1(&Replace(values))?;
    }
    Ok(is_whole)
}

/// All values of a tensor.
struct Replace<'a>(&'a [f32]);

impl InplaceOp1 for Replace<'_> {
    fn name(&self) -> &'static str {
        "meshwork-replace"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, _: &Layout) -> candle_core::Result<()> {
        let CpuStorage::F32(values) = storage else {
            candle_core::bail!("{} is for tensors of f32", self.name());
        };
        values.copy_from_slice(self.0);
        Ok(())
    }
}

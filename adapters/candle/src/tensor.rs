//! The numbers of candle's tensors, out of and into their memory.

use candle_core::{CpuStorage, InplaceOp1, Layout, Storage, Tensor};

use crate::Error;

/// Gives `act` the values of `tensor`, row-major: where they are, without an allocation, if it is
/// contiguous in host memory.
pub(crate) fn with_values<R>(tensor: &Tensor, act: impl FnOnce(&[f32]) -> R) -> Result<R, Error> {
    let (storage, layout) = tensor.storage_and_layout();
    if let (Storage::Cpu(values), Some((start, end))) = (&*storage, layout.contiguous_offsets()) {
        return Ok(act(&values.as_slice::<f32>()?[start..end]));
    }
    drop(storage);
    Ok(act(&tensor.flatten_all()?.to_vec1::<f32>()?))
}

/// Copies the values of `tensor`, row-major.
pub(crate) fn read(tensor: &Tensor, into: &mut [f32]) -> Result<(), Error> {
    with_values(tensor, |values| into.copy_from_slice(values))
}

/// Copies the values of `tensor`, row-major, each times `weight`.
///
/// # Panics
/// When there are not as many as `into` takes.
pub(crate) fn read_times(weight: f32, tensor: &Tensor, into: &mut [f32]) -> Result<(), Error> {
    with_values(tensor, |values| {
        assert_eq!(
            values.len(),
            into.len(),
            "a gradient is as long as its variable"
        );
        for (into, value) in into.iter_mut().zip(values) {
            *into = value * weight;
        }
    })
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

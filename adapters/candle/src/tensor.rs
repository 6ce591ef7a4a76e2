use candle_core::{Storage, Tensor};

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

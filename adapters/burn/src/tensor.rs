//! Numbers out of burn's tensors, where they are as far as the backend allows.

use burn_core::tensor::{DType, Tensor, TensorData, TensorReadError};

use crate::Error;

/// Lets `read` see the values of `tensor`, row-major.
pub(crate) fn with_values<const D: usize>(
    tensor: Tensor<D>,
    name: impl Fn() -> String,
    read: impl FnOnce(&[f32]),
) -> Result<(), Error> {
    let tensor = tensor.without_autodiff();
    #[cfg(feature = "flex")]
    if tensor.dtype() == DType::F32
        && let Ok(here) = tensor
            .clone()
            .try_into_primitive::<burn_core::backend::Flex>()
        && let Some((start, end)) = here.layout().contiguous_offsets()
    {
        read(&here.storage::<f32>()[start..end]);
        return Ok(());
    }
    read(slice(&into_data(tensor, &name)?, &name)?);
    Ok(())
}

/// The values of a tensor of `f32` in host memory: in its own, where nothing else has that.
pub(crate) fn into_data<const D: usize>(
    tensor: Tensor<D>,
    name: impl Fn() -> String,
) -> Result<TensorData, Error> {
    if tensor.dtype() != DType::F32 {
        return Err(Error::ElementType {
            name: name(),
            found: tensor.dtype(),
        });
    }
    tensor.try_into_data().map_err(|source| Error::Read {
        name: name(),
        source: source.into(),
    })
}

pub(crate) fn slice(data: &TensorData, name: impl Fn() -> String) -> Result<&[f32], Error> {
    data.as_slice().map_err(|source| Error::Read {
        name: name(),
        source: TensorReadError::Data(source),
    })
}

pub(crate) fn slice_mut(
    data: &mut TensorData,
    name: impl Fn() -> String,
) -> Result<&mut [f32], Error> {
    data.as_mut_slice().map_err(|source| Error::Read {
        name: name(),
        source: TensorReadError::Data(source),
    })
}

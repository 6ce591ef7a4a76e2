//! Where a tensor of burn lies on its GPU.
#![expect(
    unsafe_code,
    reason = "an owner promises what no type says: who works on memory, and until when it is there"
)]

use std::ptr;
use std::sync::Mutex;

use burn_core::backend::Cube;
use burn_core::tensor::Tensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::cubecl::Device as CubeDevice;
use burn_cubecl::cubecl::cuda::CudaRuntime;
use burn_cubecl::cubecl::future::block_on;
use burn_cubecl::tensor::CubeTensor;
use cubecl_runtime::runtime::Runtime;
use meshwork_accel_cuda::ExternalMemory;
use meshwork_strategy::ElementType;

use crate::Error;

/// Whether a tensor lies on a GPU that is used by CUDA.
pub(super) fn is_on_cuda<const D: usize>(tensor: Tensor<D>) -> bool {
    match tensor.try_into_primitive::<Cube>() {
        Ok(primitive) => matches!(resolved(primitive).device, CubeDevice::Cuda(_)),
        Err(_) => false,
    }
}

/// The memory of a tensor that shares it with no other, when all that burn has queued is done.
///
/// burn does not show its streams, so they are waited for here, and for whoever borrows the memory
/// before it is given back.
pub(super) fn memory(tensor: Tensor<1>, element: ElementType) -> Result<ExternalMemory, Error> {
    let [len] = tensor.dims();
    let device = tensor.device();
    let elsewhere = || Error::NotOnGpu {
        found: format!("{device:?}"),
    };
    let primitive = tensor.try_into_primitive::<Cube>();
    let cube = resolved(primitive.map_err(|_| elsewhere())?);
    if !matches!(cube.device, CubeDevice::Cuda(_)) {
        return Err(elsewhere());
    }
    let resource = cube
        .client
        .get_resource::<<CudaRuntime as Runtime>::Server>(cube.handle.clone())
        .map_err(Error::Lend)?;
    block_on(cube.client.sync()).map_err(Error::Lend)?;
    let address = resource.resource().ptr;
    // SAFETY: burn has so many elements of four bytes there and keeps them in place as long as the
    // resource is held; all it has queued is done, and it works on them again only after the buffer
    // was given back, which `DeviceGradients` does when all work on it is done. So any stream will
    // do, and the default one exists always.
    let memory = unsafe { ExternalMemory::from_raw(address, element, len, ptr::null_mut()) };
    Ok(memory.owned_by((Mutex::new(resource), cube.handle)))
}

/// The tensor of cubecl, computed if it has yet to be.
fn resolved(
    primitive: <Cube as burn_core::backend::BackendTypes>::FloatTensorPrimitive,
) -> CubeTensor {
    let client = primitive.client.clone();
    client.resolve_tensor_float::<CubeBackend>(primitive)
}

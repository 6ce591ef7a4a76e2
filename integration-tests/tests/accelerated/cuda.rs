//! The CUDA backend over a driver in host memory: its kernels as host code.

use std::num::NonZeroUsize;
use std::sync::Arc;

use meshwork_accel_cuda::CudaAccelerator;
use meshwork_dtensor::{Backend, DeviceType, bf16, f16};

use crate::fake::Fake;
use crate::{agrees_with_the_host, eight, exact};

/// Four devices on each of two GPUs.
pub(crate) fn eight_devices(fake: &Fake) -> Arc<CudaAccelerator> {
    let four = NonZeroUsize::new(4).unwrap();
    let config = fake.config().with_logical_devices(four);
    Arc::new(CudaAccelerator::open(&config).unwrap())
}

#[test]
fn a_program_on_gpus_has_the_results_of_the_host() {
    let fake = Fake::new();
    agrees_with_the_host(&eight_devices(&fake));
    fake.is_clean();
}

#[test]
fn a_program_on_gpus_has_the_results_of_the_host_by_products_of_columns_too() {
    let fake = Fake::with_cublas_and(&[]);
    agrees_with_the_host(&eight_devices(&fake));
    assert!(fake.products().1 > 0, "no product went by the library");
    fake.is_clean();
}

#[test]
fn short_floats_are_computed_with_on_gpus() {
    let fake = Fake::new();
    let cuda = eight_devices(&fake);
    let (host, mesh) = eight();
    let (context, same) = eight();
    let backend = Backend::from(Backend::of(&cuda).arithmetic());
    context
        .compute_on(DeviceType::Tpu, backend.clone())
        .unwrap();
    assert_eq!(exact::<bf16>(&context, &same), exact::<bf16>(&host, &mesh));
    assert_eq!(exact::<f16>(&context, &same), exact::<f16>(&host, &mesh));
    assert!(backend.bytes_uploaded() > 0, "nothing went to a GPU");
}

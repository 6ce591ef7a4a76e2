//! The CUDA backend over a driver in host memory: its kernels as host code.

use std::num::NonZeroUsize;
use std::sync::Arc;

use meshwork_accel_cuda::CudaAccelerator;
use meshwork_core::Mesh;
use meshwork_dtensor::{Backend, Context, DTensor, DeviceType, ReduceAxes, bf16, f16};
use meshwork_layout::Layout;

use crate::fake::{Count, Fake};
use crate::residence::{assert_chosen, chosen};
use crate::{agrees_with_the_host, eight, exact, numbers};

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
fn ops_that_look_at_indices_bring_nothing_to_the_host() {
    let fake = Fake::new();
    let cuda = eight_devices(&fake);
    let (context, mesh) = eight();
    let all = Backend::of(&cuda).arithmetic().arrangement().collectives();
    let backend = Backend::from(all);
    let devices = context.compute_on(DeviceType::Tpu, backend.clone());
    devices.unwrap();
    let before = fake.count(Count::ToHost);
    let found = chosen(&context, &mesh);
    assert_eq!(fake.count(Count::ToHost), before);
    assert_chosen(&found);
    drop(found);
    assert_eq!(backend.bytes_held(), 0);
}

/// Means whose sums are exact in `f32` and beyond 65,504, along an axis in parts and another.
fn means(context: &Context, mesh: &Mesh) -> Vec<DTensor<f16>> {
    let parts = Layout::from_names(["x", "y"], mesh).unwrap();
    let wide = numbers::<f16>(&[8, 512], 1).mapv(|number| number * f16::from_f32(150.0));
    let wide = context.copy_to_mesh(wide, &parts).unwrap().neg().unwrap();
    let kept = ReduceAxes::axes([1]).keep_dims();
    vec![
        wide.mean(&ReduceAxes::axes([1])).unwrap(),
        wide.relu().unwrap().mean(&kept).unwrap(),
        wide.mean(&ReduceAxes::axes([0])).unwrap(),
        wide.relu().unwrap().mean_all().unwrap(),
    ]
}

#[test]
fn means_of_short_floats_are_made_on_gpus_with_the_bits_of_the_host() {
    let fake = Fake::new();
    let cuda = eight_devices(&fake);
    let (context, mesh) = eight();
    let all = Backend::of(&cuda).arithmetic().arrangement();
    context.compute_on(DeviceType::Tpu, all).unwrap();
    let before = fake.count(Count::ToHost);
    let found = means(&context, &mesh);
    assert_eq!(fake.count(Count::ToHost), before);
    let (host, same) = eight();
    for (found, expected) in found.iter().zip(means(&host, &same)) {
        assert_eq!(found.to_host().unwrap(), expected.to_host().unwrap());
    }
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

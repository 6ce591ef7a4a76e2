//! What only a GPU can show: tensors and a strategy on devices of one. Each test skips, and says so,
//! where there is none; see accel-cuda/VERIFIED.md.

use std::num::NonZeroUsize;
use std::sync::Arc;

use meshwork_accel::LiveBuffers;
use meshwork_accel_cuda::{CudaAccelerator, CudaConfig, Libraries, gpus};
use meshwork_dtensor::{Backend, DeviceType, bf16, f16};
use meshwork_testing::Need;

use crate::moves::all_pairs_agree;
use crate::residence::attention;
use crate::training::{agree, trained};
use crate::{agrees_with_the_host, cpus, eight, exact};

/// So many devices on the first GPU; `None` after a skip is said, where there is none.
#[track_caller]
fn devices(each: usize) -> Option<Arc<CudaAccelerator>> {
    Need::Gpu.or_skip(gpus(&Libraries::from_env()))?;
    let config = CudaConfig::from_env()
        .with_gpus([0])
        .with_logical_devices(NonZeroUsize::new(each).unwrap());
    Some(Arc::new(CudaAccelerator::open(&config).unwrap()))
}

#[test]
fn on_real_gpus_a_program_has_the_results_of_the_host() {
    let Some(cuda) = devices(8) else {
        return;
    };
    agrees_with_the_host(&cuda);
    let (host, mesh) = eight();
    let (context, same) = eight();
    let arithmetic = Backend::of(&cuda).arithmetic();
    context.compute_on(DeviceType::Tpu, arithmetic).unwrap();
    assert_eq!(exact::<bf16>(&context, &same), exact::<bf16>(&host, &mesh));
    assert_eq!(exact::<f16>(&context, &same), exact::<f16>(&host, &mesh));
}

#[test]
fn on_real_gpus_a_layer_of_a_transformer_has_the_results_of_the_host() {
    let Some(cuda) = devices(8) else {
        return;
    };
    let (context, mesh) = eight();
    let all = Backend::of(&cuda).arithmetic().arrangement().collectives();
    context.compute_on(DeviceType::Tpu, all).unwrap();
    let (host, same) = eight();
    let found = attention(&context, &mesh).to_host().unwrap();
    let expected = attention(&host, &same).to_host().unwrap();
    for (found, expected) in found.iter().zip(&expected) {
        assert!((found - expected).abs() <= 1e-5, "{found}, not {expected}");
    }
    assert_eq!(cuda.live_buffers(), 0);
}

#[test]
fn on_real_gpus_relayouts_leave_what_they_leave_on_the_host() {
    let Some(cuda) = devices(8) else {
        return;
    };
    for shape in [[5, 4], [1, 2]] {
        all_pairs_agree(&cuda, &shape);
    }
}

#[test]
fn on_real_gpus_a_strategy_trains_to_the_weights_of_the_cpu() {
    let Some(cuda) = devices(4) else {
        return;
    };
    agree(&trained(&*cuda), &trained(&*cpus(4)));
}

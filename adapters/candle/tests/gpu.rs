//! What only a GPU can show: gradients of candle summed where they lie. Each test skips, and says
//! so, where there is none.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot set the scene has failed"
)]

use std::sync::Arc;
use std::thread;

use candle_core::backprop::GradStore;
use candle_core::{DType, Device, Tensor};
use candle_nn::{Init, VarBuilder, VarMap};
use meshwork_accel_cuda::{CudaAccelerator, CudaDevice, Libraries, gpus};
use meshwork_candle::{CudaVars, Error, MirroredVars};
use meshwork_collectives::Group;
use meshwork_strategy::{
    CommunicationOptions, CommunicatorScope, FallbackReason, MultiWorkerMirroredStrategy, Route,
};
use meshwork_testing::{Need, this_test};

const VARIABLES: [(&str, usize); 5] = [
    ("aside", 40),
    ("bias", 70),
    ("first", 21_000),
    ("second", 630),
    ("unused", 50),
];

/// Variables that begin with another value on each worker.
fn model(rank: usize, device: &Device) -> candle_core::Result<VarMap> {
    let model = VarMap::new();
    let builder = VarBuilder::from_varmap(&model, DType::F32, device);
    for (name, len) in VARIABLES {
        builder.get_with_hints(len, name, Init::Const(rank as f64 + 0.5))?;
    }
    Ok(model)
}

/// A loss whose gradients are these numbers: of no two workers the same, and no sum is exact. One
/// variable has a gradient on one worker alone, and one on none.
fn loss(vars: &VarBuilder<'_>, rank: usize, device: &Device) -> candle_core::Result<Tensor> {
    let mut loss = Tensor::zeros((), DType::F32, device)?;
    for (name, len) in VARIABLES {
        if name == "unused" || (name == "aside" && rank == 0) {
            continue;
        }
        let at = |at: usize| ((at * 37 + rank * 11) % 101) as f32 * 0.137 - 6.3;
        let slopes = Tensor::from_iter((0..len).map(at), device)?;
        loss = (loss + (vars.get(len, name)? * slopes)?.sum_all()?)?;
    }
    Ok(loss)
}

fn bits(model: &VarMap, gradients: &GradStore) -> candle_core::Result<Vec<Vec<u32>>> {
    let vars = model.data().lock().unwrap();
    let read = |(name, _): (&str, usize)| {
        let gradient = gradients.get(&vars[name]);
        assert_eq!(gradient.is_none(), name == "unused", "{name}");
        let values = gradient.map_or(Ok(Vec::new()), Tensor::to_vec1::<f32>)?;
        Ok(values.into_iter().map(f32::to_bits).collect())
    };
    VARIABLES.map(read).into_iter().collect()
}

/// Compares host memory and the GPU, after and during the backward pass; by which way it went.
fn step(group: Group, gpu: usize) -> Result<Route, Error> {
    let options = CommunicationOptions::new().with_bytes_per_bucket(1 << 12);
    let mut strategy = MultiWorkerMirroredStrategy::from_group(group)?.with_options(options);
    let (rank, device) = (strategy.rank().index(), Device::new_cuda(gpu)?);
    let model = model(rank, &device)?;
    let cuda = CudaDevice::new(Arc::new(CudaAccelerator::new()?), gpu)?;
    let mut on_gpu = CudaVars::new(&mut strategy, &model, cuda, CommunicatorScope::OneHost)?;
    for var in model.all_vars() {
        let begun: Vec<f32> = var.to_vec1()?;
        assert!(begun.iter().all(|value| *value == 0.5), "that of rank 0");
    }
    let mut by_host = MirroredVars::new(&mut strategy, &model)?;
    let plain = VarBuilder::from_varmap(&model, DType::F32, &device);
    for weight in [1.0, 0.3, 0.0] {
        let mut expected = loss(&plain, rank, &device)?.backward()?;
        strategy.run(|replica| by_host.all_reduce(replica, &mut expected, weight))?;
        let mut after = loss(&plain, rank, &device)?.backward()?;
        strategy.run(|replica| on_gpu.all_reduce(replica, &mut after, weight))?;
        let during = strategy.run(|replica| {
            let loss = loss(&on_gpu.hooked()?, rank, &device)?;
            on_gpu.backward(replica, &loss, weight)
        })?;
        let expected = bits(&model, &expected)?;
        assert_eq!(bits(&model, &after)?, expected, "after, {weight}");
        assert_eq!(
            bits(&model, &during.into_first())?,
            expected,
            "during, {weight}"
        );
    }
    on_gpu.verify(&mut strategy)?;
    let route = on_gpu.route();
    on_gpu.close(&mut strategy)?;
    strategy.leave()?;
    Ok(route)
}

#[test]
fn gradients_are_summed_where_they_lie_with_the_bits_of_the_host() {
    let Some(found) = Need::Gpu.or_skip(gpus(&Libraries::from_env())) else {
        return;
    };
    let count = found.len();
    let routes: Vec<Route> = thread::scope(|threads| {
        let groups = Group::local(2).unwrap().into_iter().enumerate();
        let ranks: Vec<_> = groups
            .map(|(rank, group)| threads.spawn(move || step(group, rank % count).unwrap()))
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    println!("{}: on {count} GPUs, {}", this_test(), routes[0]);
    let is_right = |route: &Route| match route {
        Route::Direct { .. } => count > 1,
        Route::Staged(FallbackReason::DeviceShared { .. }) => count == 1,
        Route::Staged(_) => false,
    };
    assert!(routes.iter().all(is_right), "{routes:?}");
}

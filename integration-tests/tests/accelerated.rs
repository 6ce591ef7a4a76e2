//! Tensors whose devices an accelerator computes for: one program on the host, on the CPU as a
//! backend, on eight devices of XLA's CPU plugin that stand for TPUs or GPUs, and on GPUs that the
//! host stands in for.
#![allow(
    clippy::unwrap_used,
    reason = "clippy.toml allows it in tests, and clippy does not take helpers for tests"
)]

#[path = "../../accel-cuda/tests/support/cc.rs"]
mod cc;
#[path = "accelerated/compiled.rs"]
mod compiled;
#[path = "accelerated/counting.rs"]
mod counting;
#[path = "accelerated/cuda.rs"]
mod cuda;
#[path = "../../accel-cuda/tests/support/fake.rs"]
mod fake;
#[path = "accelerated/found.rs"]
mod found;
#[path = "accelerated/moves.rs"]
mod moves;
#[path = "../../accel-tpu/tests/support/plugins.rs"]
mod plugins;
#[path = "accelerated/real_gpus.rs"]
mod real_gpus;
#[path = "accelerated/residence.rs"]
mod residence;
#[path = "accelerated/training.rs"]
mod training;

use std::num::NonZeroUsize;
use std::sync::Arc;

use meshwork_accel::{Arrange, Elementwise, Fold, LiveBuffers, Matmul};
use meshwork_accel_cpu::CpuAccelerator;
use meshwork_accel_tpu::{PjrtAccelerator, Plugin};
use meshwork_collectives::Group;
use meshwork_core::{Client, CreateMesh, Mesh};
use meshwork_dtensor::{Backend, Context, DTensor, DeviceType, Float, bf16};
use meshwork_layout::Layout;
use meshwork_testing::in_threads;
use ndarray::{ArrayD, IxDyn};

fn pjrt(plugin: &Plugin, devices: i64) -> Arc<PjrtAccelerator> {
    Arc::new(plugins::accelerator(plugin, devices))
}

fn cpus(count: usize) -> Arc<CpuAccelerator> {
    let count = NonZeroUsize::new(count).unwrap();
    Arc::new(CpuAccelerator::with_logical_devices(count))
}

/// A process with eight TPUs, whoever computes for them, and a mesh of two by four of them.
fn eight() -> (Context, Mesh) {
    let client = Client::new("localhost", 0, 1).unwrap();
    let context = Context::alone(client.with_devices("TPU", 8).unwrap());
    let mesh = CreateMesh::new()
        .device_type("TPU")
        .dims([("x", 2), ("y", 4)]);
    let mesh = context.create_mesh(mesh).unwrap();
    (context, mesh)
}

fn numbers<T: Float>(shape: &[usize], seed: usize) -> ArrayD<T> {
    let mut next = seed;
    ArrayD::from_shape_simple_fn(IxDyn(shape), || {
        next += 7;
        T::from_f64(((next * 13) % 37) as f64 * 0.125 - 2.25)
    })
}

/// What has one result wherever it is computed, as numbers.
fn exact<T: Float>(context: &Context, mesh: &Mesh) -> Vec<ArrayD<f64>> {
    let place = |shape: &[usize], seed, names: &[&str]| {
        let layout = Layout::from_names(names.iter().copied(), mesh).unwrap();
        context
            .copy_to_mesh(numbers::<T>(shape, seed), &layout)
            .unwrap()
    };
    let a = place(&[6, 8], 1, &["x", "y"]);
    let b = place(&[6, 8], 2, &["unsharded", "x"]);
    let row = place(&[8], 3, &["y"]);
    let odd = place(&[5, 3], 4, &["y", "unsharded"]);
    let one = place(&[1, 3], 5, &["unsharded", "unsharded"]);
    let left = place(&[2, 6, 8], 6, &["unsharded", "x", "y"]);
    let right = place(&[8, 4], 7, &["y", "unsharded"]);
    let results = [
        a.add(&b).unwrap(),
        a.sub(&row).unwrap(),
        a.mul(&b.transpose(&[1, 0]).unwrap().transpose(&[1, 0]).unwrap())
            .unwrap(),
        a.div(&b.mul(&b).unwrap().add_scalar(T::from_f64(1.0)).unwrap())
            .unwrap(),
        a.bias_add(&row).unwrap(),
        odd.add(&one).unwrap(),
        a.neg().unwrap(),
        odd.relu().unwrap(),
        // Multiples of 1/64 below 2^17: no sum of them is rounded.
        left.matmul(&right).unwrap(),
    ];
    let whole = |tensor: &DTensor<T>| tensor.cast::<f64>().unwrap().to_host().unwrap();
    results.iter().map(whole).collect()
}

/// What differs in the last places.
fn rounded(context: &Context, mesh: &Mesh) -> Vec<f32> {
    let layout = Layout::from_names(["x", "y"], mesh).unwrap();
    let a = context
        .copy_to_mesh(numbers::<f32>(&[6, 8], 1), &layout)
        .unwrap();
    let exp = a.exp().unwrap();
    let ln = exp.add_scalar(1.0).unwrap().ln().unwrap();
    [exp, ln]
        .iter()
        .flat_map(|tensor| tensor.to_host().unwrap())
        .collect()
}

fn agrees_with_the_host<A>(accelerator: &Arc<A>)
where
    A: Elementwise<Buffer: Sync> + Matmul + Arrange + Fold + LiveBuffers + 'static,
{
    let arithmetic = Backend::of(accelerator).arithmetic();
    agrees(arithmetic.into());
    let arithmetic = Backend::of(accelerator).arithmetic();
    agrees(arithmetic.arrangement().into());
    assert_eq!(accelerator.live_buffers(), 0);
}

fn agrees(backend: Backend) {
    let (host, mesh) = eight();
    let (context, same) = eight();
    context.compute_on(DeviceType::Tpu, backend).unwrap();
    assert_eq!(exact::<f32>(&context, &same), exact::<f32>(&host, &mesh));
    assert_eq!(exact::<f64>(&context, &same), exact::<f64>(&host, &mesh));
    let pairs = rounded(&context, &same)
        .into_iter()
        .zip(rounded(&host, &mesh));
    for (found, expected) in pairs {
        assert!(
            (found - expected).abs() <= expected.abs() * 1e-6,
            "{found}, not {expected}"
        );
    }
}

#[test]
fn a_program_on_the_cpu_as_a_backend_has_the_results_of_the_host() {
    agrees_with_the_host(&cpus(8));
}

#[test]
fn a_program_on_pjrt_devices_has_the_results_of_the_host() {
    let Some(plugin) = plugins::cpu() else {
        return;
    };
    let eight_devices = pjrt(&plugin, 8);
    let before = plugin.live().executables;
    agrees_with_the_host(&eight_devices);
    let compiled = plugin.live().executables - before;
    assert!(compiled > 10, "{compiled} programs: the plugin computed");
    let (host, mesh) = eight();
    let (context, same) = eight();
    let backend = Backend::of(&eight_devices).arithmetic();
    context.compute_on(DeviceType::Tpu, backend).unwrap();
    assert_eq!(exact::<bf16>(&context, &same), exact::<bf16>(&host, &mesh));
}

#[test]
fn two_clients_compute_on_devices_of_their_own_and_reduce_between_them() {
    let Some(plugin) = plugins::cpu() else {
        return;
    };
    let product = |group: Group, plugin: &Plugin, device_type: DeviceType| {
        let client = Client::new("worker", group.rank().number(), 2).unwrap();
        let client = client.with_devices(device_type.name(), 2).unwrap();
        let context = Context::from_group(client, group).unwrap();
        let backend = Backend::of(&pjrt(plugin, 2)).arithmetic();
        context.compute_on(device_type, backend).unwrap();
        let mesh = CreateMesh::new()
            .device_type(device_type.name())
            .dims([("x", 2), ("y", 2)]);
        let mesh = context.create_distributed_mesh(mesh).unwrap();
        // Terms of each sum lie on both clients.
        let left = Layout::from_names(["y", "x"], &mesh).unwrap();
        let right = Layout::from_names(["x", "unsharded"], &mesh).unwrap();
        let left = context
            .copy_to_mesh(numbers::<f32>(&[4, 6], 1), &left)
            .unwrap();
        let right = context
            .copy_to_mesh(numbers::<f32>(&[6, 3], 2), &right)
            .unwrap();
        let product = left.matmul(&right).unwrap().to_host().unwrap();
        context.leave().unwrap();
        product
    };
    let (a, b) = (numbers(&[4, 6], 1), numbers(&[6, 3], 2));
    let matrix = |whole: ArrayD<f32>| whole.into_dimensionality::<ndarray::Ix2>().unwrap();
    let expected = matrix(a).dot(&matrix(b)).into_dyn();
    for device_type in [DeviceType::Gpu, DeviceType::Tpu] {
        let clients = Group::local(2).unwrap();
        for found in in_threads(clients, |group| product(group, &plugin, device_type)) {
            assert_eq!(found, expected);
        }
    }
}

#[test]
fn elements_that_an_accelerator_refuses_are_left_to_the_host() {
    let (host, mesh) = eight();
    let (context, same) = eight();
    let backend = Backend::from(Backend::of(&cpus(8)).arithmetic());
    context
        .compute_on(DeviceType::Tpu, backend.clone())
        .unwrap();
    // The CPU as a backend has no arithmetic of bf16.
    assert_eq!(exact::<bf16>(&context, &same), exact::<bf16>(&host, &mesh));
    assert_eq!(backend.bytes_held(), 0);
    let before = backend.bytes_uploaded();
    let layout = Layout::from_names(["x"], &same).unwrap();
    let whole = context.full::<i32>(&[4], &layout, 21).unwrap();
    let sum = whole.add(&whole).unwrap().to_host().unwrap();
    assert_eq!(sum, ArrayD::from_elem(IxDyn(&[4]), 42));
    assert_eq!(backend.bytes_uploaded(), before, "whole numbers stay here");
}

#[test]
fn devices_of_another_type_are_left_to_the_host() {
    let (context, mesh) = eight();
    let backend = Backend::from(Backend::of(&cpus(8)).arithmetic());
    context
        .compute_on(DeviceType::Gpu, backend.clone())
        .unwrap();
    exact::<f32>(&context, &mesh);
    assert_eq!(backend.bytes_uploaded(), 0);
}

#[test]
fn an_accelerator_of_too_few_devices_is_refused() {
    let (context, _) = eight();
    let refused = context
        .compute_on(DeviceType::Tpu, Backend::of(&cpus(7)))
        .unwrap_err();
    assert_eq!(
        refused.to_string(),
        "8 devices of type TPU cannot be computed for by an accelerator of 7: open it with as many"
    );
}

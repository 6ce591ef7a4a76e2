//! Relayouts among the devices of one process: what they leave, and that nothing passes the host.

use std::sync::Arc;

use meshwork_accel::{Arrange, Elementwise, Fold, Matmul, NativeCollectives};
use meshwork_core::{Client, CreateMesh, Mesh};
use meshwork_dtensor::{Backend, Context, DeviceType};
use meshwork_layout::{Layout, PartialReduction};

use crate::cuda::eight_devices;
use crate::fake::Fake;
use crate::{cpus, numbers, pjrt, plugins};

/// A process with eight TPUs, and a mesh of two by two by two of them.
fn cube() -> (Context, Mesh) {
    let client = Client::new("localhost", 0, 1).unwrap();
    let context = Context::alone(client.with_devices("TPU", 8).unwrap());
    let mesh = CreateMesh::new()
        .device_type("TPU")
        .dims([("x", 2), ("y", 2), ("z", 2)]);
    let mesh = context.create_mesh(mesh).unwrap();
    (context, mesh)
}

/// Every layout of a matrix whose axes are cut by one mesh dimension each, or not at all; with a
/// sum over z where z cuts nothing.
fn layouts(mesh: &Mesh) -> Vec<Layout> {
    let mut all = Vec::new();
    for first in ["unsharded", "x", "y", "z"] {
        for second in ["unsharded", "x", "y", "z"] {
            let Ok(layout) = Layout::from_names([first, second], mesh) else {
                continue;
            };
            all.extend(
                layout
                    .clone()
                    .with_partial(["z"], PartialReduction::Sum)
                    .ok(),
            );
            all.push(layout);
        }
    }
    all
}

/// Relayouts between all pairs of layouts leave what they leave on the host, and bring nothing
/// there.
pub(crate) fn all_pairs_agree<A>(accelerator: &Arc<A>, shape: &[usize])
where
    A: Elementwise<Buffer: Sync> + Matmul + Arrange + Fold + NativeCollectives + 'static,
{
    let (host, mesh) = cube();
    let (context, same) = cube();
    let offer = Backend::of(accelerator).arithmetic();
    let backend = Backend::from(offer.arrangement().collectives());
    let there = backend.clone();
    context.compute_on(DeviceType::Tpu, there).unwrap();
    for (from, lies) in layouts(&mesh).iter().zip(&layouts(&same)) {
        let whole = numbers::<f32>(shape, 3);
        let expected = host.copy_to_mesh(whole.clone(), from).unwrap();
        let tensor = context.copy_to_mesh(whole, lies).unwrap();
        let settled = lies.reduction().is_none();
        // An op brings it to the devices; terms that are to be summed go there as they are.
        let (expected, tensor) = match settled {
            true => (expected.neg().unwrap(), tensor.neg().unwrap()),
            false => (expected, tensor),
        };
        for (to, target) in layouts(&mesh).iter().zip(&layouts(&same)) {
            let before = backend.bytes_downloaded();
            let moved = tensor.relayout(target).unwrap();
            assert_eq!(backend.bytes_downloaded(), before, "{lies} to {target}");
            let expected = expected.relayout(to).unwrap();
            let (found, expected) = (moved.unpack().unwrap(), expected.unpack().unwrap());
            assert_eq!(found, expected, "{shape:?}, {lies} to {target}");
        }
    }
    assert_eq!(backend.bytes_held(), 0);
}

#[test]
fn relayouts_on_the_cpu_as_a_backend_leave_what_they_leave_on_the_host() {
    for shape in [[4, 6], [5, 3], [1, 2]] {
        all_pairs_agree(&cpus(8), &shape);
    }
}

#[test]
fn relayouts_on_pjrt_devices_leave_what_they_leave_on_the_host() {
    let Some(plugin) = plugins::cpu() else {
        return;
    };
    all_pairs_agree(&pjrt(&plugin, 8), &[5, 4]);
}

#[test]
fn relayouts_on_gpus_leave_what_they_leave_on_the_host() {
    let fake = Fake::new();
    all_pairs_agree(&eight_devices(&fake), &[5, 4]);
    fake.is_clean();
}

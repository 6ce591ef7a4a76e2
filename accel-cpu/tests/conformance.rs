//! The suite of every backend, on the CPU.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot set the scene has failed"
)]

use std::num::NonZeroUsize;

use meshwork_accel::conformance;
use meshwork_accel_cpu::CpuAccelerator;

fn devices(count: usize) -> CpuAccelerator {
    CpuAccelerator::with_logical_devices(NonZeroUsize::new(count).unwrap())
}

#[test]
fn one_device_conforms() {
    conformance::check(&CpuAccelerator::new());
}

#[test]
fn three_logical_devices_conform_and_leak_nothing() {
    conformance::check_live_buffers(&devices(3));
}

#[test]
fn devices_with_a_limit_conform_and_leak_nothing() {
    conformance::check_live_buffers(&devices(2).with_memory_limit(3 << 20));
}

#[test]
fn five_devices_reduce_and_share_among_themselves() {
    conformance::check_collectives(&devices(5));
}

#[test]
fn devices_on_numa_nodes_conform() {
    conformance::check(&CpuAccelerator::on_numa_nodes());
}

#[test]
fn tensors_are_computed_with_on_every_device() {
    conformance::check_compute(&devices(2));
}

#[test]
fn blocks_are_arranged_and_folded() {
    conformance::check_arrangement(&devices(1));
}

#[test]
fn elements_are_chosen_scanned_and_converted() {
    conformance::check_choices(&devices(2));
    conformance::check_conversions(&devices(1));
}

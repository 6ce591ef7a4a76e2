//! What a program of XLA's CPU plugin costs, beside the same calls to the CPU as a backend of its
//! own; says why, where there is no plugin.
//!
//! Every call waits for its devices, so that next to nothing as work is what dispatch costs.
#![expect(clippy::print_stdout, reason = "a benchmark tells what it ran on")]

use std::num::NonZeroUsize;
use std::time::Duration;

use criterion::{BenchmarkGroup, Criterion, Throughput, measurement::WallTime};
use meshwork_accel::{
    Accelerator, DeviceId, ElementType, Elementwise, Matmul, NativeCollectives, Pairwise,
    ProductShape, ReduceOp,
};
use meshwork_accel_cpu::CpuAccelerator;
use meshwork_accel_tpu::{AttributeValue, Error, PjrtAccelerator, PjrtClient, Platform, Plugin};

const DEVICES: usize = 8;

/// Bytes of one device.
const SIZES: [(&str, usize); 3] = [("4 B", 4), ("1 MiB", 1 << 20), ("16 MiB", 16 << 20)];

/// Rows and columns of the matrices.
const SIDE: usize = 1024;

fn main() {
    let pjrt = match plugin() {
        Ok(pjrt) => pjrt,
        Err(reason) => return println!("skipped: {reason}"),
    };
    println!("on {}", pjrt.devices()[0]);
    let cpu =
        CpuAccelerator::with_logical_devices(NonZeroUsize::new(DEVICES).expect("there are eight"));
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    for (name, bytes) in SIZES {
        let mut group = criterion.benchmark_group(format!("pjrt, {name}"));
        group.throughput(Throughput::Bytes(bytes as u64));
        add(&mut group, "plugin", &pjrt, bytes);
        add(&mut group, "CPU", &cpu, bytes);
        all_reduce(&mut group, "plugin", &pjrt, bytes);
        all_reduce(&mut group, "CPU", &cpu, bytes);
        group.finish();
    }
    let mut group = criterion.benchmark_group(format!("pjrt, product of {SIDE}²"));
    product(&mut group, "plugin", &pjrt);
    product(&mut group, "CPU", &cpu);
    group.finish();
    criterion.final_summary();
}

/// The plugin that is found, with as many devices as are wanted.
fn plugin() -> Result<PjrtAccelerator, Error> {
    let plugin = Plugin::load(Platform::Cpu.find()?)?;
    let devices = AttributeValue::Int(DEVICES as i64);
    let client = PjrtClient::new(&plugin, &[("cpu_device_count", devices)])?;
    Ok(PjrtAccelerator::new(client))
}

fn zeros<A: Accelerator>(accelerator: &A, device: usize, bytes: usize) -> A::Buffer {
    let element = ElementType::F32;
    let len = bytes / element.size();
    let buffer = accelerator.allocate(DeviceId::new(device), element, len);
    buffer.expect("a benchmark has the memory that it asks for")
}

fn wait<A: Accelerator>(accelerator: &A, devices: usize) {
    for device in 0..devices {
        let done = accelerator.synchronize(DeviceId::new(device));
        done.expect("what was asked for works");
    }
}

fn add<A: Elementwise>(
    group: &mut BenchmarkGroup<'_, WallTime>,
    backend: &str,
    accelerator: &A,
    bytes: usize,
) {
    let [mut into, by] = [(); 2].map(|()| zeros(accelerator, 0, bytes));
    group.bench_function(format!("addition, {backend}"), |bencher| {
        bencher.iter(|| {
            let added = accelerator.pairwise(Pairwise::Add, &mut into, &by);
            added.expect("shapes agree");
            wait(accelerator, 1);
        });
    });
}

fn all_reduce<A: NativeCollectives>(
    group: &mut BenchmarkGroup<'_, WallTime>,
    backend: &str,
    accelerator: &A,
    bytes: usize,
) {
    let buffers = (0..DEVICES).map(|device| zeros(accelerator, device, bytes));
    let mut buffers: Vec<_> = buffers.collect();
    group.bench_function(format!("all-reduce of {DEVICES}, {backend}"), |bencher| {
        bencher.iter(|| {
            let mut all: Vec<_> = buffers.iter_mut().collect();
            let reduced = accelerator.all_reduce(ReduceOp::Sum, &mut all);
            reduced.expect("shapes agree");
            wait(accelerator, DEVICES);
        });
    });
}

fn product<A: Matmul>(group: &mut BenchmarkGroup<'_, WallTime>, backend: &str, accelerator: &A) {
    let shape = ProductShape::new(SIDE, SIDE, SIDE).expect("it can be counted");
    let bytes = SIDE * SIDE * ElementType::F32.size();
    let [left, right, mut into] = [(); 3].map(|()| zeros(accelerator, 0, bytes));
    group.bench_function(backend, |bencher| {
        bencher.iter(|| {
            let multiplied = accelerator.matmul(shape, &left, &right, &mut into);
            multiplied.expect("shapes agree");
            wait(accelerator, 1);
        });
    });
}

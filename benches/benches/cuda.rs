//! Reductions on a GPU, beside what copying its memory takes, and between GPUs; says why, where there is
//! none.
//!
//! A copy moves a buffer's bytes once in and once out, a reduction twice in and once out. Throughput
//! counts the bytes that move, so that rates compare: a reduction should reach 0.85 of the copy's.
#![expect(clippy::print_stdout, reason = "a benchmark tells what it ran on")]

use std::num::NonZeroUsize;
use std::thread;
use std::time::{Duration, Instant};

use criterion::{BenchmarkGroup, Criterion, SamplingMode, Throughput, measurement::WallTime};
use meshwork_accel::{Accelerator, DeviceId, ElementType, NativeCollectives, ReduceOp};
use meshwork_accel_cuda::{CudaAccelerator, CudaBuffer, CudaConfig, Libraries, gpus};
use meshwork_collectives::{Group, Reach};

const BYTES: usize = 256 << 20;

/// Calls between two looks at the clock: what waiting costs is lost among them.
const CALLS: usize = 10;

/// Devices that reduce among themselves.
const DEVICES: usize = 4;

fn main() {
    let each = NonZeroUsize::new(DEVICES).expect("not zero");
    let config = CudaConfig::from_env()
        .with_gpus([0])
        .with_logical_devices(each);
    let accelerator = match CudaAccelerator::open(&config) {
        Ok(accelerator) => accelerator,
        Err(reason) => return println!("skipped: {reason}"),
    };
    println!("on {}", accelerator.devices()[0]);
    let mut criterion = Criterion::default()
        .sample_size(20)
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    let mut group = criterion.benchmark_group("cuda, 256 MiB");
    group.sampling_mode(SamplingMode::Flat);
    copy(&mut group, &accelerator);
    for element in [
        ElementType::F32,
        ElementType::F64,
        ElementType::F16,
        ElementType::Bf16,
        ElementType::U8,
    ] {
        reduce(&mut group, &accelerator, element);
    }
    all_reduce(&mut group, &accelerator);
    drop(accelerator);
    between_gpus(&mut group);
    group.finish();
    criterion.final_summary();
}

fn zeros(accelerator: &CudaAccelerator, device: usize, element: ElementType) -> CudaBuffer {
    let len = BYTES / element.size();
    let buffer = accelerator.allocate(DeviceId::new(device), element, len);
    buffer.expect("a GPU has 2 GiB")
}

fn copy(group: &mut BenchmarkGroup<'_, WallTime>, accelerator: &CudaAccelerator) {
    let from = zeros(accelerator, 0, ElementType::U8);
    let mut into = zeros(accelerator, 0, ElementType::U8);
    group.throughput(Throughput::Bytes((2 * BYTES * CALLS) as u64));
    group.bench_function("copy", |bencher| {
        bencher.iter(|| {
            for _ in 0..CALLS {
                accelerator
                    .copy(&from, 0..BYTES, &mut into, 0)
                    .expect("it fits");
            }
            accelerator.synchronize(DeviceId::new(0)).expect("it works");
        });
    });
}

fn reduce(
    group: &mut BenchmarkGroup<'_, WallTime>,
    accelerator: &CudaAccelerator,
    element: ElementType,
) {
    let from = zeros(accelerator, 0, element);
    let mut into = zeros(accelerator, 0, element);
    group.throughput(Throughput::Bytes((3 * BYTES * CALLS) as u64));
    group.bench_function(format!("max of {element}"), |bencher| {
        bencher.iter(|| {
            for _ in 0..CALLS {
                accelerator
                    .reduce(ReduceOp::Max, &mut into, &from)
                    .expect("equal lengths");
            }
            accelerator.synchronize(DeviceId::new(0)).expect("it works");
        });
    });
}

fn all_reduce(group: &mut BenchmarkGroup<'_, WallTime>, accelerator: &CudaAccelerator) {
    let mut buffers: Vec<_> = (0..DEVICES)
        .map(|device| zeros(accelerator, device, ElementType::F32))
        .collect();
    group.throughput(Throughput::Bytes((2 * DEVICES * BYTES * CALLS) as u64));
    group.bench_function(format!("all-reduce of {DEVICES} devices"), |bencher| {
        bencher.iter(|| {
            for _ in 0..CALLS {
                let mut all: Vec<_> = buffers.iter_mut().collect();
                accelerator
                    .all_reduce(ReduceOp::Sum, &mut all)
                    .expect("shapes agree");
            }
            accelerator.synchronize(DeviceId::new(0)).expect("it works");
        });
    });
}

/// By which way buffers go between ranks.
#[derive(Clone, Copy, Debug)]
enum Way {
    Direct,
    Staged,
}

/// An all-reduce of a buffer of each GPU, each with a rank of its own.
fn between_gpus(group: &mut BenchmarkGroup<'_, WallTime>) {
    let ranks = gpus(&Libraries::from_env()).map_or(0, |gpus| gpus.len());
    if ranks < 2 {
        return println!("skipped: an all-reduce between GPUs takes two of them");
    }
    group.throughput(Throughput::Bytes(BYTES as u64));
    for way in [Way::Direct, Way::Staged] {
        group.bench_function(format!("all-reduce of {ranks} GPUs, {way:?}"), |bencher| {
            bencher.iter_custom(|calls| slowest(way, ranks, calls));
        });
    }
}

/// What so many calls take the slowest rank.
fn slowest(way: Way, ranks: usize, calls: u64) -> Duration {
    let world = u32::try_from(ranks).expect("a machine has a few");
    let groups = Group::local(world).expect("threads can be started");
    thread::scope(|scope| {
        let started: Vec<_> = groups
            .into_iter()
            .map(|group| scope.spawn(move || one_rank(group, way, calls)))
            .collect();
        let took = started
            .into_iter()
            .map(|rank| rank.join().expect("no rank panics"));
        took.max().unwrap_or_default()
    })
}

fn one_rank(mut group: Group, way: Way, calls: u64) -> Duration {
    let config = CudaConfig::from_env().with_gpus([group.rank().index()]);
    let cuda = CudaAccelerator::open(&config).expect("the driver shows it");
    let mut buffer = zeros(&cuda, 0, ElementType::F32);
    let mut devices = match way {
        Way::Direct => group
            .over(&cuda, DeviceId::new(0), Reach::OneHost)
            .expect("all ranks call it"),
        Way::Staged => group.on(&cuda),
    };
    let mut reduce = || {
        let reduced = devices.all_reduce(&mut buffer, ReduceOp::Max);
        reduced.expect("all ranks call it");
    };
    // The first one registers memory, or connects.
    reduce();
    let begun = Instant::now();
    for _ in 0..calls {
        reduce();
    }
    cuda.synchronize(DeviceId::new(0)).expect("it works");
    let took = begun.elapsed();
    println!("{way:?} means {}", devices.route());
    devices.close().expect("all ranks call it");
    group.leave().expect("all ranks call it");
    took
}

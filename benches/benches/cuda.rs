//! Reductions and tensors on a GPU, beside what copying its memory takes, and between GPUs; says
//! why, where there is none.
//!
//! A copy moves a buffer's bytes once in and once out, a reduction twice in and once out.
//! Throughput counts the bytes that move, so that rates compare: a reduction should reach 0.85 of
//! the copy's. What it reaches is printed, of the best of several turns of each in one run.
#![expect(clippy::print_stdout, reason = "a benchmark tells what it ran on")]

#[path = "cuda/tensors.rs"]
mod tensors;

use std::num::NonZeroUsize;
use std::thread;
use std::time::{Duration, Instant};

use criterion::{BenchmarkGroup, Criterion, SamplingMode, Throughput, measurement::WallTime};
use meshwork_accel::{Accelerator, DeviceId, ElementType, NativeCollectives, ReduceOp};
use meshwork_accel_cuda::{CudaAccelerator, CudaBuffer, CudaConfig, Libraries, gpus};
use meshwork_collectives::{CommunicatorScope, Group};

const BYTES: usize = 256 << 20;

/// Calls between two looks at the clock: what waiting costs is lost among them.
const CALLS: usize = 10;

/// Looks at the clock, of which the best counts.
const TURNS: usize = 20;

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
    tensors::all(&mut group, &accelerator);
    shares_of_the_copy(&accelerator);
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

/// Which share of the rate of copies reductions reach: the figure that is asked for.
fn shares_of_the_copy(accelerator: &CudaAccelerator) {
    let device = DeviceId::new(0);
    let bytes = zeros(accelerator, 0, ElementType::U8);
    let mut copied = zeros(accelerator, 0, ElementType::U8);
    let copies = best(|| {
        for _ in 0..CALLS {
            let copied = accelerator.copy(&bytes, 0..BYTES, &mut copied, 0);
            copied.expect("it fits");
        }
        accelerator.synchronize(device).expect("it works");
    });
    drop((bytes, copied));
    let rate = (2 * BYTES * CALLS) as f64 / copies.as_secs_f64();
    println!("copies of 256 MiB: {:.1} GB/s", rate / 1e9);
    for element in ElementType::ALL {
        let from = zeros(accelerator, 0, element);
        let mut into = zeros(accelerator, 0, element);
        let reductions = best(|| {
            for _ in 0..CALLS {
                let reduced = accelerator.reduce(ReduceOp::Max, &mut into, &from);
                reduced.expect("equal lengths");
            }
            accelerator.synchronize(device).expect("it works");
        });
        let reached = (3 * BYTES * CALLS) as f64 / reductions.as_secs_f64();
        let (rated, share) = (reached / 1e9, reached / rate);
        println!("max of {element}: {rated:.1} GB/s, {share:.2} of copies (0.85 is asked for)");
    }
}

/// The least that one of many turns takes.
fn best(mut turn: impl FnMut()) -> Duration {
    let time = |_| {
        let begun = Instant::now();
        turn();
        begun.elapsed()
    };
    (0..TURNS).map(time).min().unwrap_or_default()
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
        // As nccl-tests have it: what each GPU would send in a ring, whatever the algorithm.
        let bus = 2.0 * (ranks - 1) as f64 / ranks as f64;
        let took = slowest(way, ranks, CALLS as u64).as_secs_f64();
        let rate = (BYTES * CALLS) as f64 * bus / took / 1e9;
        println!("all-reduce of {ranks} GPUs, {way:?}: {rate:.1} GB/s of bus bandwidth");
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
            .direct_on(&cuda, DeviceId::new(0), CommunicatorScope::OneHost)
            .expect("all ranks call it"),
        Way::Staged => group.staged_on(&cuda),
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

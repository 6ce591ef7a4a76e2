//! Reductions of host memory, beside what the memory itself allows.
//!
//! `memcpy` moves a buffer's bytes once in and once out, `a = b + c` twice in and once out. A
//! reduction `a = a + b` lies between them: twice in, once out, of memory that is already there.
//! Throughput counts the bytes of one buffer, so that times and rates compare alike.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkGroup, Criterion, SamplingMode, Throughput, measurement::WallTime};
use meshwork_accel::{
    Accelerator, DeviceId, Element, ElementType, ReduceOp, Reduction, bf16, f16, reduce_slice,
};
use meshwork_accel_cpu::CpuAccelerator;

const SIZES: [(&str, usize); 4] = [
    ("16 KiB", 16 << 10),
    ("256 KiB", 256 << 10),
    ("1 MiB", 1 << 20),
    ("64 MiB", 64 << 20),
];

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(800))
        .configure_from_args();
    for (name, bytes) in SIZES {
        let mut group = criterion.benchmark_group(format!("kernels, {name}"));
        group.throughput(Throughput::Bytes(bytes as u64));
        group.sampling_mode(SamplingMode::Flat);
        bench_memcpy(&mut group, bytes);
        bench_add_loop(&mut group, bytes);
        bench_sum(&mut group, bytes, 1.0_f32);
        bench_sum(&mut group, bytes, 1.0_f64);
        bench_sum(&mut group, bytes, 1_i32);
        bench_sum(&mut group, bytes, f16::ONE);
        bench_sum(&mut group, bytes, bf16::ONE);
        bench_naive_sum(&mut group, bytes, f16::ONE, |a, b| {
            f16::from_f32(a.to_f32() + b.to_f32())
        });
        bench_naive_sum(&mut group, bytes, bf16::ONE, |a, b| {
            bf16::from_f32(a.to_f32() + b.to_f32())
        });
        bench_device_sum(&mut group, bytes);
        for sources in [2, 4, 8] {
            bench_fold(&mut group, bytes, sources, 1.0_f32);
            bench_fold(&mut group, bytes, sources, bf16::ONE);
        }
        group.finish();
    }
    criterion.final_summary();
}

fn bench_memcpy(group: &mut BenchmarkGroup<'_, WallTime>, bytes: usize) {
    let from = vec![1_u8; bytes];
    let mut into = vec![2_u8; bytes];
    group.bench_function("memcpy", |bencher| {
        bencher.iter(|| black_box(&mut into).copy_from_slice(black_box(&from)));
    });
}

/// The add kernel of STREAM (McCalpin, 1995): what a compiler makes of a plain loop.
fn bench_add_loop(group: &mut BenchmarkGroup<'_, WallTime>, bytes: usize) {
    let left = vec![1.0_f32; bytes / size_of::<f32>()];
    let right = vec![2.0_f32; left.len()];
    let mut into = vec![3.0_f32; left.len()];
    group.bench_function("a = b + c, f32", |bencher| {
        bencher.iter(|| {
            let pairs = black_box(&left).iter().zip(black_box(&right));
            for (into, (left, right)) in black_box(&mut into).iter_mut().zip(pairs) {
                *into = left + right;
            }
        });
    });
}

fn bench_sum<T: Element>(group: &mut BenchmarkGroup<'_, WallTime>, bytes: usize, one: T) {
    let from = vec![one; bytes / size_of::<T>()];
    let mut into = from.clone();
    group.bench_function(format!("reduce_slice sum, {}", T::TYPE), |bencher| {
        bencher.iter(|| reduce_slice(ReduceOp::Sum, black_box(&mut into), black_box(&from)));
    });
}

/// What one writes with the conversions of `half`, which ask for the processor's features each
/// time.
fn bench_naive_sum<T: Element>(
    group: &mut BenchmarkGroup<'_, WallTime>,
    bytes: usize,
    one: T,
    add: impl Fn(T, T) -> T,
) {
    let from = vec![one; bytes / size_of::<T>()];
    let mut into = from.clone();
    group.bench_function(format!("plain loop by half, sum, {}", T::TYPE), |bencher| {
        bencher.iter(|| {
            for (into, from) in black_box(&mut into).iter_mut().zip(black_box(&from)) {
                *into = add(*into, *from);
            }
        });
    });
}

/// A device of the CPU, whose threads share large buffers.
fn bench_device_sum(group: &mut BenchmarkGroup<'_, WallTime>, bytes: usize) {
    let (cpu, device) = (CpuAccelerator::new(), DeviceId::new(0));
    let buffer = || cpu.allocate(device, ElementType::F32, bytes / size_of::<f32>());
    let mut into = buffer().expect("a benchmark has the memory that it asks for");
    let from = buffer().expect("a benchmark has the memory that it asks for");
    group.bench_function("CpuAccelerator sum, f32", |bencher| {
        bencher.iter(|| cpu.reduce(ReduceOp::Sum, black_box(&mut into), black_box(&from)));
    });
}

/// Many buffers in one pass, into another: reads each once, where repeated sums read the total too.
fn bench_fold<T: Element>(
    group: &mut BenchmarkGroup<'_, WallTime>,
    bytes: usize,
    count: usize,
    one: T,
) {
    let from = vec![one; bytes / size_of::<T>()];
    let sources = vec![from.clone(); count];
    let slices: Vec<&[T]> = sources.iter().map(Vec::as_slice).collect();
    let mut into = from;
    let sum = Reduction::new(ReduceOp::Sum).expect("numbers have sums");
    group.bench_function(format!("fold sum of {count}, {}", T::TYPE), |bencher| {
        bencher.iter(|| sum.fold(black_box(&mut into), black_box(&slices)));
    });
}

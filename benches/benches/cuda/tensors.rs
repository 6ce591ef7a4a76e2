//! What tensors ask of a GPU: elements in other places, sums along axes, and products of matrices.

use std::hint::black_box;

use criterion::{BenchmarkGroup, Throughput, measurement::WallTime};
use meshwork_accel::{
    Accelerator, Arrange, Arrangement, DeviceId, ElementType, Elementwise, Fold, Matmul, Pairwise,
    ProductShape, ReduceOp, Region,
};
use meshwork_accel_cuda::{
    CudaAccelerator, CudaBuffer, CudaConfig, KernelCache, Libraries, Library,
};

use super::{BYTES, CALLS, best, zeros};

const DEVICE: DeviceId = DeviceId::new(0);

/// Ops between two looks at the clock.
const SHORT_OPS: usize = 1000;

/// Rows and columns of 256 MiB of `f32`.
const SIDE: usize = 1 << 13;

pub(super) fn all(group: &mut BenchmarkGroup<'_, WallTime>, accelerator: &CudaAccelerator) {
    places(group, accelerator);
    sums(group, accelerator);
    products(group, accelerator);
    short_ops(accelerator);
}

/// What an op costs whose work takes no time: each makes a buffer and frees one.
fn short_ops(accelerator: &CudaAccelerator) {
    let zeros = accelerator.allocate(DEVICE, ElementType::F32, 1 << 10);
    let zeros = zeros.expect("a GPU has 4 KiB");
    let took = best(|| {
        let mut last = accelerator.duplicate(&zeros).expect("it fits");
        for _ in 0..SHORT_OPS {
            let mut next = accelerator.duplicate(&last).expect("it fits");
            let added = accelerator.pairwise(Pairwise::Add, &mut next, &zeros);
            added.expect("floats");
            last = next;
        }
        accelerator.synchronize(DEVICE).expect("it works");
    });
    let each = took.as_secs_f64() * 1e6 / SHORT_OPS as f64;
    println!("sum of 1,024 elements into a new buffer: {each:.1} us, one after the other");
}

/// Each element moves once in and once out.
fn places(group: &mut BenchmarkGroup<'_, WallTime>, accelerator: &CudaAccelerator) {
    let from = zeros(accelerator, 0, ElementType::F32);
    let sizes = [SIDE, SIDE];
    let turned = Arrangement::new(&sizes, &[1, 0], &sizes).expect("it fits");
    group.throughput(Throughput::Bytes((2 * BYTES * CALLS) as u64));
    measure(group, accelerator, "transposition of f32", || {
        accelerator.arrange(&from, &turned).expect("it fits")
    });
    let half = Region::new(&sizes, &[0..SIDE, 64..64 + SIDE / 2]).expect("inside");
    group.throughput(Throughput::Bytes((BYTES * CALLS) as u64));
    measure(group, accelerator, "half of the columns of f32", || {
        accelerator.cut(&from, &half).expect("it fits")
    });
}

/// Each element moves once in.
fn sums(group: &mut BenchmarkGroup<'_, WallTime>, accelerator: &CudaAccelerator) {
    let from = zeros(accelerator, 0, ElementType::F32);
    group.throughput(Throughput::Bytes((BYTES * CALLS) as u64));
    for sizes in [[1, SIDE * SIDE, 1], [SIDE, SIDE, 1], [1, SIDE, SIDE]] {
        let name = format!("sums of f32 in {sizes:?}");
        measure(group, accelerator, &name, || {
            let made = accelerator.fold(ReduceOp::Sum, sizes, &from);
            made.expect("numbers")
        });
    }
}

/// An op that makes a buffer, [`CALLS`] times between two looks at the clock.
fn measure(
    group: &mut BenchmarkGroup<'_, WallTime>,
    accelerator: &CudaAccelerator,
    name: &str,
    op: impl Fn() -> CudaBuffer,
) {
    group.bench_function(name, |bencher| {
        bencher.iter(|| {
            for _ in 0..CALLS {
                black_box(op());
            }
            accelerator.synchronize(DEVICE).expect("it works");
        });
    });
}

/// By cuBLAS where it is, and by the kernel of the backend; throughput counts multiplications and
/// additions.
fn products(group: &mut BenchmarkGroup<'_, WallTime>, accelerator: &CudaAccelerator) {
    let without = Libraries::from_env().without(Library::Cublas);
    let config = CudaConfig::new(without, KernelCache::from_env()).with_gpus([0]);
    let own = CudaAccelerator::open(&config).expect("it was opened before");
    let library = accelerator.matmul_library();
    for element in [ElementType::F32, ElementType::Bf16] {
        match &library {
            Ok(library) => product(group, accelerator, element, library),
            Err(absent) => println!("skipped: products by cuBLAS: {absent}"),
        }
        product(group, &own, element, "the kernel");
    }
}

fn product(
    group: &mut BenchmarkGroup<'_, WallTime>,
    accelerator: &CudaAccelerator,
    element: ElementType,
    by: &str,
) {
    let side = 4096;
    let shape = ProductShape::new(side, side, side).expect("it fits");
    let matrix = || accelerator.allocate(DEVICE, element, side * side);
    let made = [matrix(), matrix(), matrix()];
    let [left, right, mut into] = made.map(|made| made.expect("a GPU has 200 MiB"));
    group.throughput(Throughput::Elements(2 * (side * side * side) as u64));
    group.bench_function(
        format!("products of {element}, 4096 by 4096, by {by}"),
        |bencher| {
            bencher.iter(|| {
                let done = accelerator.matmul(shape, &left, &right, &mut into);
                done.expect("floats");
                accelerator.synchronize(DEVICE).expect("it works");
            });
        },
    );
}

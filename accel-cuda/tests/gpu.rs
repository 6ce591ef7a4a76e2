//! What only a GPU can show. Each test skips, and says so, where there is none.

#[path = "support/buffers.rs"]
mod buffers;

use std::num::NonZeroUsize;
use std::thread;
use std::time::Duration;

use buffers::{read, with};
use meshwork_accel::{
    Accelerator, Arrange, DeviceCommunicators, DeviceId, Element, ElementTask, ElementType, Error,
    Fold, LiveBuffers, Matmul, NativeCollectives, ProductShape, ReduceOp, Reduction, Region, bf16,
    conformance, f16,
};
use meshwork_accel_cuda::{
    Communicator, CudaAccelerator, CudaConfig, KernelCache, Libraries, Library, Nccl, NcclRank,
    gpus,
};
use meshwork_testing::{Need, this_test};

/// So many devices on each GPU; `None` after a skip is said, where there is none.
#[track_caller]
#[expect(clippy::print_stdout, reason = "what a test ran on is told")]
fn devices(each: usize) -> Option<CudaAccelerator> {
    let each = NonZeroUsize::new(each).expect("not 0");
    let opened = CudaAccelerator::open(&CudaConfig::from_env().with_logical_devices(each));
    if let Err(reason) = &opened {
        // A GPU without the rest is no reason to skip.
        assert!(gpus(&Libraries::from_env()).is_err(), "{reason}");
    }
    let accelerator = Need::Gpu.or_skip(opened)?;
    let found: Vec<_> = accelerator
        .devices()
        .iter()
        .map(ToString::to_string)
        .collect();
    println!("{}: on {}", this_test(), found.join(", "));
    Some(accelerator)
}

/// Elements of any bits.
fn any<T: Element>(len: usize, seed: u64) -> Vec<T> {
    let mut state = seed;
    let mut values = vec![T::default(); len];
    for value in &mut values {
        // Knuth's MMIX; the upper bits are the better ones.
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let mask = if T::TYPE == ElementType::Bool {
            1
        } else {
            u64::MAX
        };
        let bytes = ((state >> 11 ^ state << 40) & mask).to_le_bytes();
        *value = bytemuck::checked::pod_read_unaligned(&bytes[..size_of::<T>()]);
    }
    values
}

#[test]
fn the_suite_passes_with_one_device_for_each_gpu() {
    let Some(accelerator) = devices(1) else {
        return;
    };
    conformance::check_live_buffers(&accelerator);
}

#[test]
fn the_suite_passes_with_four_devices_on_each_gpu() {
    let Some(accelerator) = devices(4) else {
        return;
    };
    conformance::check_live_buffers(&accelerator);
}

#[test]
fn the_suite_of_collectives_passes_on_four_devices_of_each_gpu() {
    let Some(accelerator) = devices(4) else {
        return;
    };
    conformance::check_collectives(&accelerator);
}

#[test]
fn arithmetic_and_arrangement_pass_by_cublas_where_it_is_and_by_the_kernels_of_this_crate() {
    let Some(accelerator) = devices(1) else {
        return;
    };
    if let Some(library) = Need::Gpu.or_skip(accelerator.matmul_library()) {
        println!("products by {library}");
    }
    conformance::check_compute(&accelerator);
    conformance::check_arrangement(&accelerator);
    conformance::check_choices(&accelerator);
    conformance::check_conversions(&accelerator);
    let without = Libraries::from_env().without(Library::Cublas);
    let own = CudaAccelerator::open(&CudaConfig::new(without, KernelCache::from_env()));
    conformance::check_compute(&own.expect("it was opened before"));
    assert_eq!(accelerator.live_buffers(), 0);
}

/// A product of every float by both ways, of sizes that are no multiple of anything.
fn both_ways<T: Element>(cublas: &CudaAccelerator, own: &CudaAccelerator, one: T, two: T) {
    let shape = ProductShape::stacked(3, [130, 257, 67]).expect("small");
    let pick = |at: usize| if (at * 7).is_multiple_of(3) { two } else { one };
    let left: Vec<T> = (0..shape.left()).map(pick).collect();
    let right: Vec<T> = (1..=shape.right()).map(pick).collect();
    let product = |cuda: &CudaAccelerator| {
        let mut into = with(cuda, 0, &vec![T::default(); shape.product()]);
        let (left, right) = (with(cuda, 0, &left), with(cuda, 0, &right));
        cuda.matmul(shape, &left, &right, &mut into)
            .expect("floats");
        read::<T>(cuda, &into, shape.product())
    };
    // Sums of such terms are exact, or rounded once.
    assert_eq!(product(cublas), product(own), "{}", T::TYPE);
}

#[test]
fn products_of_every_float_are_the_same_by_cublas_and_by_the_kernel_of_this_crate() {
    let Some(cublas) = devices(1) else {
        return;
    };
    if Need::Gpu.or_skip(cublas.matmul_library()).is_none() {
        return;
    }
    let without = Libraries::from_env().without(Library::Cublas);
    let own = CudaAccelerator::open(&CudaConfig::new(without, KernelCache::from_env()));
    let own = own.expect("it was opened before");
    both_ways(&cublas, &own, f16::ONE, f16::from_f32(-2.0));
    both_ways(&cublas, &own, bf16::ONE, bf16::from_f32(-2.0));
    both_ways(&cublas, &own, 1.0_f32, -2.0);
    both_ways(&cublas, &own, 1.0_f64, -2.0);
}

/// Where numbers of elements do not fit in 32 bits, and neither do the threads of a grid.
#[test]
fn buffers_of_more_than_four_gibibytes_are_worked_on_to_their_end() {
    let Some(accelerator) = devices(1) else {
        return;
    };
    let (device, len) = (DeviceId::new(0), (1_usize << 32) + 77);
    let memory = accelerator.memory(device).expect("the device exists");
    let room = memory.free().filter(|free| *free >= 14 << 30);
    if Need::Gpu
        .or_skip(room.ok_or("14 GiB of free memory"))
        .is_none()
    {
        return;
    }
    let buffer = || accelerator.allocate(device, ElementType::U8, len);
    let (mut one, mut two) = (buffer().expect("room"), buffer().expect("room"));
    accelerator.fill(&mut one, 0..len, 3_u8).expect("inside");
    accelerator
        .fill(&mut two, len - 5..len, 4_u8)
        .expect("inside");
    accelerator
        .reduce(ReduceOp::Sum, &mut two, &one)
        .expect("equal lengths");
    let mut end = [0_u8; 8];
    accelerator
        .download(&two, len - 8, &mut end)
        .expect("inside");
    assert_eq!(end, [3, 3, 3, 7, 7, 7, 7, 7]);
    // Every other element, so that no row moves as a whole.
    let halves = Region::new(&[len / 2, 2], &[0..len / 2, 1..2]).expect("inside");
    let even = accelerator.allocate(device, ElementType::U8, len / 2 * 2);
    let mut even = even.expect("room");
    accelerator
        .copy(&two, 0..len / 2 * 2, &mut even, 0)
        .expect("it fits");
    drop((one, two));
    let odd = accelerator.cut(&even, &halves).expect("it fits");
    let mut end = [0_u8; 4];
    accelerator
        .download(&odd, len / 2 - 4, &mut end)
        .expect("inside");
    assert_eq!(end, [3, 3, 7, 7]);
    let sum = accelerator.fold(ReduceOp::Max, [1, len / 2, 1], &odd);
    assert_eq!(read::<u8>(&accelerator, &sum.expect("numbers"), 1), [7]);
}

/// Every op that a type has, on a million elements of any bits.
struct Everything<'a>(&'a CudaAccelerator);

impl ElementTask for Everything<'_> {
    type Output = ();

    fn run<T: Element>(self) {
        let sources: Vec<Vec<T>> = (0..3).map(|seed| any(1_000_003, seed)).collect();
        let slices: Vec<&[T]> = sources.iter().map(Vec::as_slice).collect();
        for op in ReduceOp::ALL.into_iter().filter(|op| op.supports(T::TYPE)) {
            let reduction = Reduction::<T>::new(op).expect("it is supported");
            let mut expected = sources[0].clone();
            reduction
                .reduce(&mut expected, &sources[1])
                .expect("equal lengths");
            let mut into = with(self.0, 0, &sources[0]);
            self.0
                .reduce(op, &mut into, &with(self.0, 0, &sources[1]))
                .expect("equal lengths");
            same(op, &read(self.0, &into, expected.len()), &expected);
            reduction
                .complete(&mut expected, &slices)
                .expect("equal lengths");
            let mut buffers: Vec<_> = (0..3).map(|at| with(self.0, at, &sources[at])).collect();
            let mut all: Vec<_> = buffers.iter_mut().collect();
            self.0.all_reduce(op, &mut all).expect("shapes agree");
            for buffer in &buffers {
                same(op, &read(self.0, buffer, expected.len()), &expected);
            }
        }
    }
}

#[track_caller]
fn same<T: Element>(op: ReduceOp, found: &[T], expected: &[T]) {
    let bytes = |value: &T| bytemuck::bytes_of(value).to_vec();
    let wrong = found
        .iter()
        .zip(expected)
        .position(|(a, b)| bytes(a) != bytes(b));
    if let Some(at) = wrong {
        panic!(
            "{op} of {} at {at}: {:?} for {:?}",
            T::TYPE,
            found[at],
            expected[at]
        );
    }
}

#[test]
fn reductions_and_collectives_have_the_bits_of_the_host_for_every_type_and_op() {
    let Some(accelerator) = devices(3) else {
        return;
    };
    for element in ElementType::ALL {
        element.run(Everything(&accelerator));
    }
}

#[test]
fn memory_comes_back_and_more_than_there_is_is_refused() {
    let Some(accelerator) = devices(1) else {
        return;
    };
    let device = DeviceId::new(0);
    let free = || {
        accelerator
            .memory(device)
            .expect("the device exists")
            .free()
    };
    // The first transfer makes the slots.
    drop(with(&accelerator, 0, &[1.0_f32; 1000]));
    let before = free().expect("the driver knows");
    for _ in 0..100 {
        let mut one = with(&accelerator, 0, &vec![1.0_f32; 1 << 20]);
        let two = with(&accelerator, 0, &vec![2.0_f32; 1 << 20]);
        accelerator
            .reduce(ReduceOp::Sum, &mut one, &two)
            .expect("equal lengths");
    }
    let len = usize::try_from(before).expect("64 bits") / 4;
    let refused = accelerator.allocate(device, ElementType::F64, len).err();
    assert!(
        matches!(refused, Some(Error::OutOfMemory { free: Some(_), .. })),
        "{refused:?}"
    );
    accelerator.synchronize(device).expect("the device works");
    // Others may use the GPU too, but not for what would be lost here.
    let lost = before.saturating_sub(free().expect("the driver knows"));
    assert!(lost < 100 << 20, "{lost} of 800 MiB are gone");
}

/// A communicator of one rank on each GPU.
fn communicate(accelerator: &CudaAccelerator, nccl: &Nccl) {
    let world = accelerator.devices().len();
    let id = nccl.unique_id().expect("there is a network interface");
    let rank = |rank: usize| {
        let nccl_rank = NcclRank::new(id, rank, world).expect("one of the ranks");
        let timeout = Duration::from_secs(60);
        let joined = Communicator::join(nccl, accelerator, DeviceId::new(rank), nccl_rank, timeout);
        let mut communicator = joined.expect("all join");
        let mut values = with(accelerator, rank, &[rank as f32, 1.0]);
        communicator
            .all_reduce(ReduceOp::Mean, &mut values)
            .expect("all call it");
        communicator.wait().expect("all take part");
        let mean = (world - 1) as f32 / 2.0;
        assert_eq!(read::<f32>(accelerator, &values, 2), [mean, 1.0]);
        communicator
            .broadcast(world - 1, &mut values)
            .expect("all call it");
        let mut all = with(accelerator, rank, &vec![0.0_f32; 2 * world]);
        communicator
            .all_gather(&values, &mut all)
            .expect("all call it");
        communicator
            .reduce_scatter(ReduceOp::Sum, &all, &mut values)
            .expect("all call it");
        communicator.wait().expect("all take part");
        assert_eq!(
            read::<f32>(accelerator, &values, 2),
            [world as f32 * mean, world as f32]
        );
        communicator.leave().expect("all leave");
    };
    let rank = &rank;
    thread::scope(|scope| {
        for number in 0..world {
            scope.spawn(move || rank(number));
        }
    });
}

#[test]
fn nccl_joins_a_rank_on_each_gpu_and_all_operations_work() {
    let Some(accelerator) = devices(1) else {
        return;
    };
    if let Some(nccl) = Need::Gpu.or_skip(Nccl::open(&Libraries::from_env())) {
        communicate(&accelerator, &nccl);
    }
}

#[test]
fn the_suite_of_communicators_passes_with_a_rank_on_each_gpu() {
    let Some(accelerator) = devices(1) else {
        return;
    };
    if Need::Gpu.or_skip(accelerator.library()).is_none() {
        return;
    }
    let ids = accelerator.devices().iter().map(|device| device.id());
    let ranks: Vec<_> = ids.map(|id| (&accelerator, id)).collect();
    conformance::check_communicators(&ranks);
}

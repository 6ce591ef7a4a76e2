//! The backend over a driver without a GPU: host memory and host code behind the driver's
//! functions.

#[path = "support/cc.rs"]
mod cc;
#[path = "support/fake.rs"]
mod fake;

use std::num::{NonZeroIsize, NonZeroUsize};
use std::thread;

use fake::{Count, Fake};
use meshwork_accel::{
    Accelerator, Arrange, Arrangement, DeviceBuffer, DeviceId, ElementType, Elementwise, Error,
    Fold, LiveBuffers, NativeCollectives, ReduceOp, Region, StridedRange, StridedSlice,
    conformance,
};
use meshwork_accel_cuda::{self as cuda, CudaAccelerator, CudaBuffer};

fn device(index: usize) -> DeviceId {
    DeviceId::new(index)
}

fn logical(fake: &Fake, each: usize) -> CudaAccelerator {
    let each = NonZeroUsize::new(each).expect("not 0");
    CudaAccelerator::open(&fake.config().with_logical_devices(each)).expect("a fake driver begins")
}

fn with(accelerator: &CudaAccelerator, at: usize, values: &[f32]) -> CudaBuffer {
    let mut buffer = accelerator
        .allocate(device(at), ElementType::F32, values.len())
        .expect("there is room");
    accelerator
        .upload(values, &mut buffer, 0)
        .expect("equal lengths");
    buffer
}

fn read(accelerator: &CudaAccelerator, buffer: &CudaBuffer, len: usize) -> Vec<f32> {
    let mut values = vec![0.0; len];
    accelerator
        .download(buffer, 0, &mut values)
        .expect("equal lengths");
    values
}

#[test]
fn one_device_for_each_gpu_conforms_and_leaves_nothing() {
    let fake = Fake::new();
    let accelerator = fake.open();
    assert_eq!(accelerator.devices().len(), 2);
    conformance::check_live_buffers(&accelerator);
    drop(accelerator);
    fake.is_clean();
}

#[test]
fn gpus_without_pools_conform_and_leave_nothing() {
    let fake = Fake::new().set("cuda", "fake_pools", 0);
    let accelerator = fake.open();
    conformance::check_live_buffers(&accelerator);
    conformance::check_arrangement(&accelerator);
    let buffer = with(&accelerator, 0, &[1.0; 1000]);
    drop(buffer);
    assert_eq!(fake.count(Count::Memories), 0, "freed at once");
    drop(accelerator);
    fake.is_clean();
}

#[test]
fn freeing_waits_for_nothing_and_what_is_still_to_be_freed_is_room() {
    let fake = Fake::new();
    let accelerator = fake.open();
    let most = || accelerator.allocate(device(0), ElementType::U8, 40 << 20);
    let first = most().expect("64 MiB");
    drop(first);
    assert_eq!(fake.count(Count::Memories), 1, "the GPU has not got there");
    let second = most().expect("what the GPU is to free is room");
    assert!(most().is_err(), "only 64 MiB");
    drop((second, accelerator));
    fake.is_clean();
}

#[test]
fn pools_keep_what_is_freed_until_the_last_who_has_opened_them_is_gone() {
    let fake = Fake::new();
    let first = fake.open();
    assert_eq!(fake.count(Count::Keeping), 2);
    let second = fake.open();
    drop(first);
    assert_eq!(fake.count(Count::Keeping), 2);
    drop(second);
    assert_eq!(fake.count(Count::Keeping), 0);
    // Nor does a driver that fails meanwhile leave a pool open.
    for function in ["cuMemPoolGetAttribute", "cuMemPoolSetAttribute"] {
        fake.fail(function, 1, 700);
        assert!(CudaAccelerator::open(&fake.config()).is_err(), "{function}");
        assert_eq!(fake.count(Count::Keeping), 0, "{function}");
    }
    drop(fake.open());
    assert_eq!(fake.count(Count::Keeping), 0);
    fake.is_clean();
}

#[test]
fn arithmetic_and_arrangement_conform_and_leave_nothing() {
    let fake = Fake::new();
    let accelerator = fake.open();
    conformance::check_compute(&accelerator);
    conformance::check_arrangement(&accelerator);
    assert_eq!(accelerator.live_buffers(), 0);
    drop(accelerator);
    fake.is_clean();
}

#[test]
fn logical_devices_with_a_limit_conform() {
    let fake = Fake::new();
    let three = NonZeroUsize::new(3).expect("not 0");
    let config = fake
        .config()
        .with_logical_devices(three)
        .with_memory_limit(3 << 20);
    let accelerator = CudaAccelerator::open(&config).expect("a fake driver begins");
    conformance::check_live_buffers(&accelerator);
    drop(accelerator);
    fake.is_clean();
}

#[test]
fn transfers_of_many_pieces_arrive_whole_and_may_begin_anywhere() {
    let fake = Fake::new();
    let accelerator = fake.open();
    let values: Vec<f32> = (0..5_000_003).map(|i| (i % 8191) as f32).collect();
    let mut buffer = accelerator
        .allocate(device(1), ElementType::F32, values.len() + 7)
        .expect("there is room");
    accelerator
        .upload(&values, &mut buffer, 7)
        .expect("it fits");
    let mut back = vec![0.0; values.len() + 7];
    accelerator
        .download(&buffer, 0, &mut back)
        .expect("it fits");
    assert_eq!(back[..7], [0.0; 7]);
    assert!(back[7..] == values);
    drop((buffer, accelerator));
    fake.is_clean();
}

#[test]
fn a_buffer_that_was_uploaded_is_reduced_before_it_is_overwritten() {
    let fake = Fake::new();
    let accelerator = fake.open();
    let mut total = with(&accelerator, 0, &[0.0; 1000]);
    let mut part = with(&accelerator, 0, &[0.0; 1000]);
    for turn in 0..20 {
        accelerator
            .upload(&[turn as f32; 1000], &mut part, 0)
            .expect("equal lengths");
        accelerator
            .reduce(ReduceOp::Sum, &mut total, &part)
            .expect("equal lengths");
    }
    assert_eq!(read(&accelerator, &total, 1000), [190.0; 1000]);
}

#[test]
fn copies_between_devices_wait_for_both_sides() {
    let fake = Fake::new();
    let accelerator = logical(&fake, 2);
    let ends = [(0, 1), (0, 2), (3, 1)];
    for (left, right) in ends {
        let mut from = with(&accelerator, left, &[1.0; 100]);
        let mut to = with(&accelerator, right, &[2.0; 100]);
        accelerator.copy(&from, 0..50, &mut to, 25).expect("inside");
        // Must not reach what is copied.
        accelerator
            .fill(&mut from, 0..100, 9.0_f32)
            .expect("inside");
        let expected = [[2.0; 25], [1.0; 25], [1.0; 25], [2.0; 25]].concat();
        assert_eq!(read(&accelerator, &to, 100), expected);
        assert_eq!(read(&accelerator, &from, 100), [9.0; 100]);
    }
}

#[test]
fn a_source_may_be_dropped_while_it_is_copied_and_reduced() {
    let fake = Fake::new();
    let accelerator = logical(&fake, 2);
    for at in [0, 1, 2] {
        let from = with(&accelerator, at, &[3.0; 100]);
        let mut to = with(&accelerator, 0, &[0.0; 100]);
        accelerator.copy(&from, 0..100, &mut to, 0).expect("inside");
        drop(from);
        let more = with(&accelerator, 0, &[1.0; 100]);
        accelerator
            .reduce(ReduceOp::Sum, &mut to, &more)
            .expect("equal lengths");
        drop(more);
        assert_eq!(read(&accelerator, &to, 100), [4.0; 100]);
    }
    drop(accelerator);
    fake.is_clean();
}

/// Makes a buffer of four floats and three indices.
type Make = fn(&CudaAccelerator, [&CudaBuffer; 2]) -> Result<CudaBuffer, Error>;

/// All that makes a buffer, and the function that is told to write it.
const MAKERS: [(&str, Make); 12] = [
    ("cuMemsetD8Async", |cuda, _| {
        cuda.allocate(device(0), ElementType::F32, 4)
    }),
    ("cuMemcpyDtoDAsync_v2", |cuda, [four, _]| {
        cuda.duplicate(four)
    }),
    ("cuLaunchKernel", |cuda, [four, _]| {
        cuda.cut(four, &Region::new(&[2, 2], &[0..2, 1..2])?)
    }),
    ("cuLaunchKernel", |cuda, [four, _]| {
        cuda.arrange(four, &Arrangement::new(&[2, 2], &[1, 0], &[2, 2])?)
    }),
    ("cuLaunchKernel", |cuda, [four, _]| {
        let back = StridedRange {
            first: 3,
            step: NonZeroIsize::new(-1).expect("not 0"),
            count: 4,
        };
        cuda.step(four, &StridedSlice::new(&[4], &[back])?)
    }),
    ("cuLaunchKernel", |cuda, [four, three]| {
        cuda.take(four, [1, 4, 1], three)
    }),
    ("cuLaunchKernel", |cuda, [_, three]| {
        cuda.one_hot(three, 0..4, ElementType::F32)
    }),
    ("cuLaunchKernel", |cuda, [four, _]| {
        cuda.convert(four, ElementType::F64)
    }),
    ("cuLaunchKernel", |cuda, [four, _]| {
        cuda.select(four, four, four)
    }),
    ("cuLaunchKernel", |cuda, [four, _]| {
        cuda.fold(ReduceOp::Sum, [2, 2, 1], four)
    }),
    ("cuLaunchKernel", |cuda, [four, _]| {
        cuda.scan(ReduceOp::Sum, [1, 4, 1], four)
    }),
    ("cuLaunchKernel", |cuda, [four, _]| {
        cuda.arg_reduce(ReduceOp::Max, [2, 2, 1], four)
    }),
];

#[test]
fn transfers_wait_for_what_makes_a_buffer_also_where_others_catch_up_meanwhile() {
    let fake = Fake::new();
    let cuda = fake.open();
    let four = with(&cuda, 0, &[1.0, 2.0, 3.0, 4.0]);
    let mut three = cuda
        .allocate(device(0), ElementType::I64, 3)
        .expect("there is room");
    cuda.upload(&[2_i64, 0, 3], &mut three, 0)
        .expect("equal lengths");
    let memory = Box::new(vec![0_u8; 4096]);
    let mut pinned = cuda.pin(device(0), memory).expect("it can be pinned");
    for (number, (function, make)) in MAKERS.into_iter().enumerate() {
        fake.hold(function);
        let made = thread::scope(|scope| {
            let making = scope.spawn(|| make(&cuda, [&four, &three]));
            let is_held = fake.is_held();
            let caught_up = pinned.catch_up();
            fake.hold("");
            assert!(is_held && caught_up.is_ok(), "{number}: {caught_up:?}");
            making.join().expect("it does not panic")
        });
        let made = made.expect("all fits");
        let bytes = 0..made.len() * made.element_type().size();
        let mut read = || {
            let begun = pinned.download(&made, 0, bytes.clone());
            begun.and_then(|()| Ok(pinned.memory()?[bytes.clone()].to_vec()))
        };
        let found = read().expect("it is there");
        cuda.synchronize(device(0)).expect("nothing fails");
        assert_eq!(found, read().expect("it is there"), "{number}");
    }
    drop((pinned, four, three, cuda));
    fake.is_clean();
}

#[test]
fn buffers_outlive_their_accelerator() {
    let fake = Fake::new();
    let accelerator = fake.open();
    let buffer = with(&accelerator, 1, &[5.0; 10]);
    drop(accelerator);
    let other = fake.open();
    assert_eq!(read(&other, &buffer, 10), [5.0; 10]);
    drop((buffer, other));
    fake.is_clean();
}

#[test]
fn devices_of_two_backends_are_not_mixed_even_where_their_numbers_agree() {
    let fake = Fake::new();
    let (all, second) = (
        fake.open(),
        CudaAccelerator::open(&fake.config().with_gpus([1])),
    );
    let second = second.expect("a fake driver begins");
    let mut left = with(&all, 0, &[1.0]);
    let right = with(&second, 0, &[1.0]);
    let mixed = Error::DeviceMismatch {
        left: device(0),
        right: device(0),
    };
    assert_eq!(all.reduce(ReduceOp::Sum, &mut left, &right), Err(mixed));
    all.copy(&right, 0..1, &mut left, 0)
        .expect("copies may cross");
}

#[test]
fn memory_is_what_is_left_of_the_limit_and_comes_back() {
    let fake = Fake::new();
    let two = NonZeroUsize::new(2).expect("not 0");
    let config = fake
        .config()
        .with_logical_devices(two)
        .with_memory_limit(1000);
    let accelerator = CudaAccelerator::open(&config).expect("a fake driver begins");
    let first = accelerator
        .allocate(device(0), ElementType::F32, 150)
        .expect("600 of 1000");
    let memory = accelerator.memory(device(0)).expect("the device exists");
    assert_eq!((memory.total(), memory.free()), (Some(1000), Some(400)));
    let refused = Error::OutOfMemory {
        device: device(0),
        element: ElementType::F32,
        len: 101,
        free: Some(400),
    };
    let asked = accelerator.allocate(device(0), ElementType::F32, 101);
    assert_eq!(asked.err(), Some(refused));
    let neighbour = accelerator.allocate(device(1), ElementType::F32, 250);
    assert!(neighbour.is_ok(), "the other device has its own limit");
    assert_eq!(accelerator.live_buffers(), 2);
    drop((first, neighbour));
    assert_eq!(accelerator.live_buffers(), 0);
    let again = accelerator.allocate(device(0), ElementType::U8, 1000);
    assert!(again.is_ok());
}

#[test]
fn a_gpu_that_is_full_is_out_of_memory_and_not_broken() {
    let fake = Fake::new();
    let accelerator = fake.open();
    let most = 1 << 24;
    let full = accelerator.allocate(device(0), ElementType::F32, most);
    let refused = accelerator.allocate(device(0), ElementType::U8, 1).err();
    let expected = Error::OutOfMemory {
        device: device(0),
        element: ElementType::U8,
        len: 1,
        free: Some(0),
    };
    assert_eq!(refused, Some(expected));
    assert!(accelerator.allocate(device(1), ElementType::U8, 1).is_ok());
    drop(full);
    assert!(accelerator.allocate(device(0), ElementType::U8, 1).is_ok());
}

#[test]
fn every_call_of_the_driver_may_fail_and_nothing_is_left() {
    let functions = [
        "cuInit",
        "cuDriverGetVersion",
        "cuDeviceGetCount",
        "cuDeviceGet",
        "cuDeviceGetName",
        "cuDeviceGetPCIBusId",
        "cuDeviceGetAttribute",
        "cuDeviceTotalMem_v2",
        "cuDevicePrimaryCtxRetain",
        "cuDeviceGetDefaultMemPool",
        "cuMemPoolSetAttribute",
        "cuMemPoolGetAttribute",
        "cuMemAllocAsync",
        "cuMemHostAlloc",
        "cuMemsetD8Async",
        "cuMemcpyHtoDAsync_v2",
        "cuMemcpyDtoHAsync_v2",
        "cuMemcpyDtoDAsync_v2",
        "cuMemcpyPeerAsync",
        "cuStreamCreate",
        "cuStreamWaitEvent",
        "cuEventCreate",
        "cuEventRecord",
        "cuEventSynchronize",
        "cuModuleLoadData",
        "cuModuleGetFunction",
        "cuLaunchKernel",
    ];
    let fake = Fake::new();
    for function in functions {
        let mut failures = 0;
        for after in 0..200 {
            fake.fail(function, after, 700);
            match everything(&fake) {
                Ok(()) => break,
                Err(error) => {
                    failures += 1;
                    let text = error.to_string();
                    assert!(text.contains("700"), "{function}: {text}");
                    assert!(text.contains("illegal memory access"), "{function}: {text}");
                }
            }
            assert_eq!(fake.count(Count::Memories), 0, "{function} after {after}");
            assert_eq!(fake.count(Count::Pushed), 0, "{function} after {after}");
        }
        assert!(failures > 0, "{function} is called");
        fake.fail("", 0, 0);
        fake.is_clean();
    }
}

/// One of each thing that the backend does.
fn everything(fake: &Fake) -> Result<(), cuda::Error> {
    let two = NonZeroUsize::new(2).expect("not 0");
    let accelerator = CudaAccelerator::open(&fake.config().with_logical_devices(two))?;
    accelerator.memory(device(0))?;
    let values = [1.0_f32, 2.0, 3.0];
    let mut buffers = Vec::new();
    for at in 0..4 {
        let mut buffer = accelerator.allocate(device(at), ElementType::F32, 3)?;
        accelerator.upload(&values, &mut buffer, 0)?;
        buffers.push(buffer);
    }
    let mut all: Vec<_> = buffers.iter_mut().collect();
    accelerator.all_reduce(ReduceOp::Mean, &mut all)?;
    accelerator.broadcast(1, &mut all)?;
    let other = accelerator.allocate(device(0), ElementType::F32, 3)?;
    accelerator.reduce(ReduceOp::Max, &mut buffers[0], &other)?;
    accelerator.fill(&mut buffers[0], 1..2, 5.0_f32)?;
    let mut host = [0.0_f32; 3];
    accelerator.download(&buffers[0], 0, &mut host)?;
    assert_eq!(host, [1.0, 5.0, 3.0]);
    Ok(accelerator.synchronize(device(0))?)
}

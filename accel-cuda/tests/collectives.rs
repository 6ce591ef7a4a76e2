//! Collectives among the devices of one process, over a driver without a GPU.

#[path = "support/buffers.rs"]
mod buffers;
#[path = "support/cc.rs"]
mod cc;
#[path = "support/fake.rs"]
mod fake;

use std::num::NonZeroUsize;

use buffers::{read, with};
use fake::Fake;
use meshwork_accel::{
    DeviceId, Element, ElementType, Error, NativeCollectives, ReduceOp, Reduction, bf16,
    conformance, f16,
};
use meshwork_accel_cuda::{CudaAccelerator, CudaBuffer};

fn open(fake: &Fake, each: usize) -> CudaAccelerator {
    let each = NonZeroUsize::new(each).expect("not 0");
    CudaAccelerator::open(&fake.config().with_logical_devices(each)).expect("a fake driver begins")
}

/// What the host makes of all contributions.
fn combined<T: Element>(op: ReduceOp, sources: &[Vec<T>]) -> Vec<T> {
    let reduction = Reduction::<T>::new(op).expect("the pair is supported");
    let slices: Vec<&[T]> = sources.iter().map(Vec::as_slice).collect();
    let mut total = sources[0].clone();
    reduction
        .complete(&mut total, &slices)
        .expect("equal lengths");
    total
}

/// Numbers of which sums depend on the order.
fn rough<T: Element>(places: usize, len: usize, of: impl Fn(f32) -> T) -> Vec<Vec<T>> {
    let value = |place: usize, i: usize| ((place * 37 + i * 101) % 997) as f32 * 0.37 - 99.0;
    let source = |place| (0..len).map(|i| of(value(place, i))).collect();
    (0..places).map(source).collect()
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "what is cut off is of no use here"
)]
fn whole(value: f32) -> i32 {
    value as i32
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "what is cut off is of no use here"
)]
fn short(value: f32) -> u8 {
    (value + 100.0) as u8
}

#[track_caller]
fn all_reduces<T: Element>(accelerator: &CudaAccelerator, op: ReduceOp, sources: &[Vec<T>]) {
    let mut buffers: Vec<_> = sources
        .iter()
        .enumerate()
        .map(|(at, values)| with(accelerator, at, values))
        .collect();
    let mut all: Vec<_> = buffers.iter_mut().collect();
    accelerator.all_reduce(op, &mut all).expect("shapes agree");
    let expected = combined(op, sources);
    for buffer in &buffers {
        let result = read::<T>(accelerator, buffer, expected.len());
        assert_eq!(
            bytemuck::cast_slice::<T, u8>(&result),
            bytemuck::cast_slice::<T, u8>(&expected)
        );
    }
}

#[test]
fn all_reduce_has_the_bits_of_the_host_for_any_number_of_devices_on_one_gpu_and_two() {
    let fake = Fake::new();
    for each in 1..=6 {
        let accelerator = open(&fake, each);
        for places in 1..=2 * each {
            for op in [ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Min] {
                all_reduces(&accelerator, op, &rough(places, 333, |x| x));
                all_reduces(&accelerator, op, &rough(places, 17, f16::from_f32));
                all_reduces(&accelerator, op, &rough(places, 17, bf16::from_f32));
                all_reduces(&accelerator, op, &rough(places, 5, whole));
                all_reduces(&accelerator, op, &rough(places, 5, short));
            }
            all_reduces(&accelerator, ReduceOp::Xor, &rough(places, 5, |x| x > 0.0));
            all_reduces(&accelerator, ReduceOp::Sum, &rough(places, 0, |x| x));
        }
    }
    fake.is_clean();
}

#[test]
fn the_suite_of_collectives_passes_on_six_devices_of_two_gpus() {
    let fake = Fake::new();
    conformance::check_collectives(&open(&fake, 3));
    fake.is_clean();
}

#[test]
fn thirty_two_devices_are_the_most() {
    let fake = Fake::new();
    let accelerator = open(&fake, 16);
    all_reduces(&accelerator, ReduceOp::Sum, &rough(32, 100, |x| x));
    let each = NonZeroUsize::new(17).expect("not 0");
    let refused = CudaAccelerator::open(&fake.config().with_logical_devices(each)).err();
    let expected = meshwork_accel_cuda::Error::TooManyDevices {
        asked: 34,
        most: 32,
    };
    assert_eq!(refused, Some(expected));
}

#[test]
fn broadcast_and_all_gather_move_and_reduce_scatter_leaves_each_its_block() {
    let fake = Fake::new();
    let accelerator = open(&fake, 2);
    let sources = rough(4, 8, |x| x);
    for root in 0..4 {
        let mut buffers: Vec<_> = (0..4)
            .map(|at| with(&accelerator, at, &sources[at]))
            .collect();
        let mut all: Vec<_> = buffers.iter_mut().collect();
        accelerator.broadcast(root, &mut all).expect("shapes agree");
        for buffer in &buffers {
            assert_eq!(read::<f32>(&accelerator, buffer, 8), sources[root]);
        }
    }
    let inputs: Vec<_> = (0..4)
        .map(|at| with(&accelerator, at, &sources[at]))
        .collect();
    let inputs: Vec<_> = inputs.iter().collect();
    let mut wide: Vec<_> = (0..4)
        .map(|at| with(&accelerator, at, &[0.0_f32; 32]))
        .collect();
    let mut outputs: Vec<_> = wide.iter_mut().collect();
    accelerator
        .all_gather(&inputs, &mut outputs)
        .expect("shapes agree");
    for buffer in &wide {
        assert_eq!(read::<f32>(&accelerator, buffer, 32), sources.concat());
    }
    let mut narrow: Vec<_> = (0..4)
        .map(|at| with(&accelerator, at, &[0.0_f32; 2]))
        .collect();
    let mut outputs: Vec<_> = narrow.iter_mut().collect();
    accelerator
        .reduce_scatter(ReduceOp::Mean, &inputs, &mut outputs)
        .expect("shapes agree");
    let mean = combined(ReduceOp::Mean, &sources);
    for (at, buffer) in narrow.iter().enumerate() {
        assert_eq!(
            read::<f32>(&accelerator, buffer, 2),
            mean[2 * at..2 * at + 2]
        );
    }
    drop((narrow, wide, inputs));
}

#[test]
fn shapes_that_disagree_are_refused_and_nothing_is_changed() {
    let fake = Fake::new();
    let accelerator = open(&fake, 2);
    let mut buffers: Vec<_> = (0..3)
        .map(|at| with(&accelerator, at, &[at as f32; 4]))
        .collect();
    let mut twin = with(&accelerator, 0, &[0.0_f32; 4]);
    let mut short = with(&accelerator, 3, &[0.0_f32; 3]);
    let mut whole = with(&accelerator, 3, &[0_i32; 4]);
    let [a, b, c] = buffers.as_mut_slice() else {
        unreachable!("three were made")
    };
    let refused = |with: &mut [&mut CudaBuffer]| accelerator.all_reduce(ReduceOp::Sum, with);
    let repeated = Error::DeviceRepeated {
        device: DeviceId::new(0),
    };
    assert_eq!(refused(&mut [a, b, &mut twin]), Err(repeated));
    let unequal = Error::LengthMismatch { left: 4, right: 3 };
    assert_eq!(refused(&mut [a, &mut short]), Err(unequal));
    let mixed = Error::ElementMismatch {
        buffer: ElementType::F32,
        other: ElementType::I32,
    };
    assert_eq!(refused(&mut [a, &mut whole]), Err(mixed));
    let (op, element) = (ReduceOp::And, ElementType::F32);
    let undefined = Error::UnsupportedOp { op, element };
    assert_eq!(accelerator.all_reduce(op, &mut [a, b]), Err(undefined));
    let outside = Error::RootOutside {
        root: 2,
        buffers: 2,
    };
    assert_eq!(accelerator.broadcast(2, &mut [a, b]), Err(outside));
    let unpaired = Error::CountMismatch {
        inputs: 1,
        outputs: 2,
    };
    assert_eq!(accelerator.all_gather(&[c], &mut [a, b]), Err(unpaired));
    let apart = Error::DeviceMismatch {
        left: DeviceId::new(0),
        right: DeviceId::new(2),
    };
    assert_eq!(accelerator.all_gather(&[c], &mut [a]), Err(apart));
    for (at, buffer) in buffers.iter().enumerate() {
        assert_eq!(read::<f32>(&accelerator, buffer, 4), [at as f32; 4]);
    }
    accelerator
        .all_reduce(ReduceOp::Sum, &mut [])
        .expect("nothing is a legal number of buffers");
}

//! The accelerator over XLA's CPU plugin with eight devices, held to what every backend is held to,
//! and its collectives to the definition of the ops.
#![allow(
    clippy::unwrap_used,
    reason = "clippy.toml allows it in tests, and clippy does not take helpers for tests"
)]

#[path = "support/devices.rs"]
mod devices;
#[path = "support/plugins.rs"]
mod plugins;

use meshwork_accel::{
    Accelerator, DeviceId, Element, ElementTask, ElementType, Error, LiveBuffers,
    NativeCollectives, ReduceOp, Reduction, bf16,
};
use meshwork_accel_tpu::{PjrtAccelerator, PjrtBuffer};

use devices::{read, with};
use plugins::accelerator;

#[test]
fn eight_devices_conform_and_nothing_is_left_behind() {
    let Some(file) = plugins::cpu_file() else {
        return;
    };
    let checks = [
        meshwork_accel::conformance::check_live_buffers,
        meshwork_accel::conformance::check_collectives,
    ];
    devices::hold(&file, 8, &checks);
}

/// Small whole numbers as elements: no order of a sum of them is rounded.
fn small<T: Element>(seed: usize, len: usize) -> Vec<T> {
    let byte = |index: usize| {
        u8::try_from((seed * 5 + index * 3) % 4 + usize::from(T::TYPE == ElementType::Bool))
            .unwrap()
    };
    (0..len)
        .map(|index| of_byte(byte(index) % if T::TYPE == ElementType::Bool { 2 } else { 4 }))
        .collect()
}

/// The element that is this number, by the bits that each type has for it.
fn of_byte<T: Element>(number: u8) -> T {
    let bits: Vec<u8> = match T::TYPE {
        ElementType::F16 => meshwork_accel::f16::from_f32(f32::from(number))
            .to_le_bytes()
            .to_vec(),
        ElementType::Bf16 => bf16::from_f32(f32::from(number)).to_le_bytes().to_vec(),
        ElementType::F32 => f32::from(number).to_le_bytes().to_vec(),
        ElementType::F64 => f64::from(number).to_le_bytes().to_vec(),
        other => [number]
            .into_iter()
            .chain([0; 7])
            .take(other.size())
            .collect(),
    };
    bytemuck::checked::pod_read_unaligned(&bits)
}

/// What the op makes of these inputs, by its definition.
fn expected<T: Element>(op: ReduceOp, inputs: &[Vec<T>]) -> Result<Vec<T>, Error> {
    let reduction = Reduction::<T>::new(op)?;
    let mut total = vec![T::default(); inputs[0].len()];
    let sources: Vec<&[T]> = inputs.iter().map(Vec::as_slice).collect();
    reduction.complete(&mut total, &sources)?;
    Ok(total)
}

struct Reductions<'a>(&'a PjrtAccelerator);

impl ElementTask for Reductions<'_> {
    type Output = ();

    fn run<T: Element>(self) {
        let accelerator = self.0;
        // Not all of them, and not in order.
        let devices = [3, 0, 2];
        let inputs: Vec<Vec<T>> = devices.map(|device| small(device, 6)).to_vec();
        for op in ReduceOp::ALL {
            let expected = expected(op, &inputs);
            let mut buffers: Vec<_> = devices
                .iter()
                .zip(&inputs)
                .map(|(&device, input)| with(accelerator, device, input))
                .collect();
            let verdict = accelerator.all_reduce(op, &mut buffers.iter_mut().collect::<Vec<_>>());
            assert_eq!(verdict, expected.clone().map(drop), "{op} of {}", T::TYPE);
            let Ok(expected) = expected else { continue };
            for buffer in &buffers {
                assert_eq!(
                    read::<T>(accelerator, buffer),
                    expected,
                    "{op} of {}",
                    T::TYPE
                );
            }
            let sources: Vec<_> = devices
                .iter()
                .zip(&inputs)
                .map(|(&device, input)| with(accelerator, device, input))
                .collect();
            let mut shares: Vec<_> = devices
                .iter()
                .map(|&device| with(accelerator, device, &[T::default(); 2]))
                .collect();
            accelerator
                .reduce_scatter(
                    op,
                    &sources.iter().collect::<Vec<_>>(),
                    &mut shares.iter_mut().collect::<Vec<_>>(),
                )
                .unwrap();
            for (share, expected) in shares.iter().zip(expected.chunks(2)) {
                assert_eq!(
                    read::<T>(accelerator, share),
                    expected,
                    "{op} of {}",
                    T::TYPE
                );
            }
            for (source, input) in sources.iter().zip(&inputs) {
                assert_eq!(read::<T>(accelerator, source), *input, "inputs stay");
            }
        }
    }
}

#[test]
fn reductions_of_every_type_and_op_are_what_is_defined() {
    let Some(plugin) = plugins::cpu() else {
        return;
    };
    let four = accelerator(&plugin, 4);
    for element in ElementType::ALL {
        element.run(Reductions(&four));
    }
    assert_eq!(four.live_buffers(), 0);
}

#[test]
fn blocks_go_where_they_belong() {
    let Some(plugin) = plugins::cpu() else {
        return;
    };
    let four = accelerator(&plugin, 4);
    let mut blocks: Vec<_> = (0..4_i32)
        .map(|d| {
            with(
                &four,
                usize::try_from(d).unwrap(),
                &[d * 10, d * 10 + 1, d * 10 + 2, d * 10 + 3],
            )
        })
        .collect();
    let inputs: Vec<&PjrtBuffer> = blocks.iter().collect();
    let mut gathered: Vec<_> = (0..4)
        .map(|device| with(&four, device, &[0_i32; 16]))
        .collect();
    four.all_gather(&inputs, &mut gathered.iter_mut().collect::<Vec<_>>())
        .unwrap();
    let all: Vec<i32> = (0..4)
        .flat_map(|d| (0..4).map(move |i| d * 10 + i))
        .collect();
    assert!(
        gathered
            .iter()
            .all(|buffer| read::<i32>(&four, buffer) == all)
    );
    four.broadcast(3, &mut blocks.iter_mut().collect::<Vec<_>>())
        .unwrap();
    assert!(
        blocks
            .iter()
            .all(|buffer| read::<i32>(&four, buffer) == [30, 31, 32, 33])
    );
}

#[test]
fn collectives_refuse_what_does_not_fit_together() {
    let Some(plugin) = plugins::cpu() else {
        return;
    };
    let two = accelerator(&plugin, 2);
    let [mut a, mut b, mut c] = [
        with(&two, 0, &[1_i32; 3]),
        with(&two, 0, &[1_i32; 3]),
        with(&two, 1, &[1_i32; 2]),
    ];
    let device = DeviceId::new(0);
    assert_eq!(
        two.all_reduce(ReduceOp::Sum, &mut [&mut a, &mut b]),
        Err(Error::DeviceRepeated { device })
    );
    let unequal = Err(Error::LengthMismatch { left: 3, right: 2 });
    assert_eq!(
        two.all_reduce(ReduceOp::Sum, &mut [&mut a, &mut c]),
        unequal
    );
    let unpaired = Err(Error::CountMismatch {
        inputs: 1,
        outputs: 0,
    });
    assert_eq!(two.all_gather(&[&a], &mut []), unpaired);
    let outside = Err(Error::RootOutside {
        root: 1,
        buffers: 1,
    });
    assert_eq!(two.broadcast(1, &mut [&mut a]), outside);
    assert_eq!(two.all_reduce(ReduceOp::Sum, &mut []), Ok(()));
    assert_eq!(
        (read::<i32>(&two, &a), read::<i32>(&two, &c)),
        (vec![1; 3], vec![1; 2])
    );
}

#[test]
fn a_copy_of_a_whole_buffer_does_not_change_with_it() {
    let Some(plugin) = plugins::cpu() else {
        return;
    };
    let one = accelerator(&plugin, 1);
    let (mut a, mut b) = (with(&one, 0, &[1.0_f32, 2.0]), with(&one, 0, &[0.0_f32; 2]));
    one.copy(&a, 0..2, &mut b, 0).unwrap();
    one.reduce(ReduceOp::Sum, &mut a, &b).unwrap();
    one.fill(&mut b, 1..2, 9.0_f32).unwrap();
    assert_eq!(
        (read::<f32>(&one, &a), read::<f32>(&one, &b)),
        (vec![2.0, 4.0], vec![1.0, 9.0])
    );
}

#[test]
fn what_no_device_can_hold_is_refused_and_the_next_request_served() {
    let Some(plugin) = plugins::cpu() else {
        return;
    };
    let one = accelerator(&plugin, 1);
    let len = 1 << 55;
    let refused = one
        .allocate(DeviceId::new(0), ElementType::U8, len)
        .err()
        .unwrap();
    assert!(
        matches!(
            refused,
            Error::OutOfMemory {
                len: 36_028_797_018_963_968,
                ..
            }
        ),
        "{refused}"
    );
    assert_eq!(read::<i8>(&one, &with(&one, 0, &[7_i8])), [7]);
}

#[test]
fn nan_and_signed_zeros_come_out_as_defined() {
    let Some(plugin) = plugins::cpu() else {
        return;
    };
    let one = accelerator(&plugin, 1);
    let odd = [
        f32::NAN,
        -f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        0.0,
        -0.0,
        1.5,
    ];
    let pairs = || odd.iter().flat_map(|&a| odd.iter().map(move |&b| (a, b)));
    let (left, right): (Vec<f32>, Vec<f32>) = pairs().unzip();
    for op in [
        ReduceOp::Sum,
        ReduceOp::Product,
        ReduceOp::Min,
        ReduceOp::Max,
    ] {
        let mut expected = left.clone();
        meshwork_accel::reduce_slice(op, &mut expected, &right).unwrap();
        let mut into = with(&one, 0, &left);
        one.reduce(op, &mut into, &with(&one, 0, &right)).unwrap();
        let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect::<Vec<_>>();
        assert_eq!(bits(read(&one, &into)), bits(expected), "{op}");
    }
}

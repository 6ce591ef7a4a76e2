//! What groups do with device buffers: what they refuse, what is left when a device fails, and from
//! device to device on GPUs that the host stands in for.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot set the scene has failed"
)]

#[path = "../../accel-cuda/tests/support/cc.rs"]
mod cc;
#[path = "device_groups/cuda.rs"]
mod cuda;
#[path = "device_groups/failing.rs"]
mod failing;
#[path = "../../accel-cuda/tests/support/fake.rs"]
mod fake;
#[path = "device_groups/gradients.rs"]
mod gradients;
#[path = "../../accel-cuda/tests/support/other.rs"]
mod other;
#[path = "device_groups/sharded_tensors.rs"]
mod sharded_tensors;

use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::sync::mpsc::channel;

use meshwork_accel::{Accelerator, DeviceId, ElementType};
use meshwork_accel_cpu::{CpuAccelerator, CpuBuffer};
use meshwork_collectives::{Group, OperationError, Rank, ReduceOp};
use meshwork_testing::in_threads;

const DEVICE: DeviceId = DeviceId::new(0);

/// Does the same on two ranks, which are threads, and returns what came of it by rank.
fn two<R: Send>(program: impl Fn(Group) -> R + Sync) -> Vec<R> {
    in_threads(Group::local(2).unwrap(), program)
}

fn ones(cpu: &CpuAccelerator, len: usize) -> CpuBuffer {
    let mut buffer = cpu.allocate(DEVICE, ElementType::F32, len).unwrap();
    cpu.fill(&mut buffer, 0..len, 1.0_f32).unwrap();
    buffer
}

fn read(cpu: &CpuAccelerator, buffer: &CpuBuffer, len: usize) -> Vec<f32> {
    let mut values = vec![0.0; len];
    cpu.download(buffer, 0, &mut values).unwrap();
    values
}

fn portions_of(bytes: usize) -> NonZeroUsize {
    NonZeroUsize::new(bytes).unwrap()
}

#[test]
fn calls_that_mean_nothing_are_refused_and_the_group_goes_on() {
    two(|mut group| {
        let cpu = CpuAccelerator::new();
        let (mut two, mut three) = (ones(&cpu, 2), ones(&cpu, 3));
        let mut whole = cpu.allocate(DEVICE, ElementType::I32, 4).unwrap();
        let mut devices = group.staged_on(&cpu);
        let xor = devices.all_reduce(&mut two, ReduceOp::Xor);
        assert!(
            matches!(xor, Err(OperationError::Unsupported(_))),
            "{xor:?}"
        );
        let longer = devices.all_gather(&two, &mut three);
        assert!(
            matches!(
                longer,
                Err(OperationError::Length {
                    found: 3,
                    expected: 4,
                    ..
                })
            ),
            "{longer:?}"
        );
        let other = devices.all_gather(&two, &mut whole);
        assert!(
            matches!(other, Err(OperationError::Unsupported(_))),
            "{other:?}"
        );
        let nobody = devices.broadcast(&mut two, Rank::new(2));
        assert!(
            matches!(nobody, Err(OperationError::RankOutside { .. })),
            "{nobody:?}"
        );
        devices.all_reduce(&mut two, ReduceOp::Sum).unwrap();
        assert_eq!(read(&cpu, &two, 2), [2.0; 2]);
        group.leave().unwrap();
    });
}

#[test]
fn ranks_whose_buffers_differ_are_told_both_lengths_before_a_chunk_has_passed() {
    let told = two(|mut group| {
        let cpu = CpuAccelerator::new();
        // The same chunks, but for the last.
        let len = 1000 + group.rank().number() as usize;
        let mut buffer = ones(&cpu, len);
        let mut devices = group.staged_on(&cpu);
        devices.set_chunk(portions_of(400));
        let error = devices.all_reduce(&mut buffer, ReduceOp::Sum).unwrap_err();
        assert_eq!(read(&cpu, &buffer, len), vec![1.0; len]);
        error
    });
    for error in told {
        assert!(
            matches!(error, OperationError::Disagreement { .. }),
            "{error:?}"
        );
        let text = error.to_string();
        for part in ["1000 f32", "1001 f32", "device_groups.rs:"] {
            assert!(text.contains(part), "{part} is not in: {text}");
        }
    }
}

#[test]
fn ranks_that_cut_into_other_portions_disagree() {
    let told = two(|mut group| {
        let cpu = CpuAccelerator::new();
        let mut buffer = ones(&cpu, 1000);
        let bytes = 400 << group.rank().number();
        let mut devices = group.staged_on(&cpu);
        devices.set_chunk(portions_of(bytes));
        devices.all_reduce(&mut buffer, ReduceOp::Sum).unwrap_err()
    });
    for error in told {
        assert!(
            matches!(error, OperationError::Disagreement { .. }),
            "{error:?}"
        );
    }
}

#[test]
fn a_rank_without_a_device_takes_part_in_what_is_one_portion() {
    let sums = two(|mut group| {
        let cpu = CpuAccelerator::new();
        let sum = if group.rank() == Rank::new(0) {
            let mut buffer = ones(&cpu, 100);
            group
                .staged_on(&cpu)
                .all_reduce(&mut buffer, ReduceOp::Sum)
                .unwrap();
            read(&cpu, &buffer, 100)
        } else {
            let mut buffer = vec![2.0; 100];
            group.all_reduce(&mut buffer, ReduceOp::Sum).unwrap();
            buffer
        };
        group.leave().unwrap();
        sum
    });
    assert_eq!(sums, [vec![3.0; 100], vec![3.0; 100]]);
}

#[test]
fn a_device_that_fails_between_portions_ends_the_group_by_name_and_leaves_its_buffers() {
    for calls in [0, 1, 5, 12] {
        let told = two(|mut group| {
            let mut buffer = ones(&CpuAccelerator::new(), 1000);
            let fails = group.rank() == Rank::new(1);
            let accelerator = failing::breaks_down_after(if fails { calls } else { usize::MAX });
            let mut devices = group.staged_on(&accelerator);
            devices.set_chunk(portions_of(400));
            let error = devices.all_reduce(&mut buffer, ReduceOp::Sum).unwrap_err();
            // Whatever it holds, it can be read and written.
            let cpu = CpuAccelerator::new();
            assert_eq!(read(&cpu, &buffer, 1000).len(), 1000);
            cpu.fill(&mut buffer, 0..1000, 5.0_f32).unwrap();
            let later = group.all_reduce(&mut [1.0_f32], ReduceOp::Sum).unwrap_err();
            (error, later)
        });
        let [(seen, _), (own, later)] = told.as_slice() else {
            panic!("two ranks");
        };
        assert!(matches!(own, OperationError::Device { .. }), "{own:?}");
        for error in [seen, later] {
            assert!(matches!(error, OperationError::Aborted { .. }), "{error:?}");
            assert!(error.to_string().contains("its device failed"), "{error}");
        }
    }
}

/// As many devices of one process, and a buffer of these numbers on each.
fn on_each(
    count: usize,
    len: usize,
    number: impl Fn(usize) -> i32,
) -> (CpuAccelerator, Vec<CpuBuffer>) {
    let cpu = CpuAccelerator::with_logical_devices(NonZeroUsize::new(count).unwrap());
    let buffer = |place: usize| {
        let device = DeviceId::new(place);
        let mut buffer = cpu.allocate(device, ElementType::I32, len).unwrap();
        cpu.fill(&mut buffer, 0..len, number(place)).unwrap();
        buffer
    };
    let buffers = (0..count).map(buffer).collect();
    (cpu, buffers)
}

#[test]
fn all_devices_of_all_ranks_have_the_reduction_of_all() {
    for (op, result) in [
        (ReduceOp::Sum, 1 + 2 + 5 + 12 + 13 + 16),
        (ReduceOp::Max, 16),
        // What is left of a division is dropped once: the mean of the ranks' whole means is 7.
        (ReduceOp::Mean, 49 / 6),
    ] {
        for len in [0, 1, 1000] {
            two(|mut group| {
                let own = 11 * i32::try_from(group.rank().number()).unwrap();
                let number = |place: usize| own + [1, 2, 5][place];
                let (cpu, mut buffers) = on_each(3, len, number);
                let mut devices = group.staged_on(&cpu);
                devices.set_chunk(portions_of(400));
                let mut all: Vec<&mut CpuBuffer> = buffers.iter_mut().collect();
                devices.all_reduce_each(&mut all, op).unwrap();
                for buffer in &buffers {
                    let mut values = vec![0_i32; len];
                    cpu.download(buffer, 0, &mut values).unwrap();
                    assert_eq!(values, vec![result; len], "{op}");
                }
                group.leave().unwrap();
            });
        }
    }
}

#[test]
fn ranks_with_unlike_numbers_of_devices_disagree_before_any_has_begun() {
    let told = two(|mut group| {
        // The same number of elements in all.
        let ranks = group.rank().number() as usize + 1;
        let (cpu, mut buffers) = on_each(ranks, 12 / ranks, |_| 5);
        let mut all: Vec<&mut CpuBuffer> = buffers.iter_mut().collect();
        let error = group
            .staged_on(&cpu)
            .all_reduce_each(&mut all, ReduceOp::Sum);
        let mut values = vec![0_i32; 12 / ranks];
        cpu.download(&buffers[0], 0, &mut values).unwrap();
        assert!(values.iter().all(|value| *value == 5));
        error.unwrap_err()
    });
    for error in told {
        assert!(
            matches!(error, OperationError::Disagreement { .. }),
            "{error:?}"
        );
    }
}

#[test]
fn buffers_that_one_collective_cannot_take_are_refused_and_the_group_goes_on() {
    two(|mut group| {
        let (cpu, mut buffers) = on_each(2, 4, |_| 1);
        let mut twin = cpu.allocate(DEVICE, ElementType::I32, 4).unwrap();
        let mut devices = group.staged_on(&cpu);
        let none = devices.all_reduce_each(&mut [], ReduceOp::Sum);
        assert!(
            matches!(none, Err(OperationError::Length { found: 0, .. })),
            "{none:?}"
        );
        let twins = devices.all_reduce_each(&mut [&mut buffers[0], &mut twin], ReduceOp::Sum);
        assert!(
            matches!(twins, Err(OperationError::Unsupported(_))),
            "{twins:?}"
        );
        devices
            .all_reduce_each(&mut [&mut buffers[1]], ReduceOp::Sum)
            .unwrap();
        group.leave().unwrap();
    });
}

#[test]
fn host_memory_is_registered_once_for_many_operations() {
    two(|mut group| {
        let cpu = CpuAccelerator::new();
        let mut buffer = ones(&cpu, 1000);
        let mut devices = group.staged_on(&cpu);
        devices.set_chunk(portions_of(400));
        for round in 1..=100_u16 {
            devices.all_reduce(&mut buffer, ReduceOp::Max).unwrap();
            // 64 buffers can be registered at a time: more than that would show as plain memory.
            devices.all_reduce(&mut buffer, ReduceOp::Mean).unwrap();
            assert_eq!(read(&cpu, &buffer, 1000), [1.0; 1000], "round {round}");
        }
        devices.group().barrier().unwrap();
        group.leave().unwrap();
    });
}

/// Between hosts nothing is in clear, so buffers go through host memory: chunk by chunk, of which
/// one comes from the device while the one before is encrypted and on its way.
#[test]
fn a_chunk_comes_from_the_device_while_the_one_before_is_on_its_way_to_another_host() {
    const CHUNK: usize = 1000;
    let (second_is_loaded, loaded) = channel();
    let loaded = Mutex::new(loaded);
    let mut watched = [
        // The last rank gives its first chunk when the first rank has loaded its second.
        failing::watched(move |at| {
            if at == 0 {
                loaded.lock().unwrap().recv_timeout(cuda::PATIENCE).unwrap();
            }
        }),
        failing::watched(move |at| {
            if at == CHUNK {
                second_is_loaded.send(()).unwrap();
            }
        }),
    ]
    .into_iter();
    let last = Mutex::new(watched.next());
    let first = Mutex::new(watched.next());
    let values = |rank: usize| -> Vec<f32> {
        let value = |at: usize| ((at * 37 + rank * 11) % 101) as f32 * 0.137 - 6.3;
        (0..5 * CHUNK).map(value).collect()
    };
    let run = |mut group: Group| {
        let rank = group.rank().index();
        let watched = if rank == 0 { &first } else { &last };
        let watched = watched.lock().unwrap().take().unwrap();
        let cpu = CpuAccelerator::new();
        let mut host = values(rank);
        let mut buffer = cpu.allocate(DEVICE, ElementType::F32, host.len()).unwrap();
        cpu.upload(&host, &mut buffer, 0).unwrap();
        let mut devices = group.staged_on(&watched);
        devices.set_chunk(portions_of(CHUNK * size_of::<f32>()));
        devices.all_reduce(&mut buffer, ReduceOp::Sum).unwrap();
        group.all_reduce(&mut host, ReduceOp::Sum).unwrap();
        let bits = |values: &[f32]| values.iter().map(|one| one.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&read(&cpu, &buffer, host.len())), bits(&host));
        group.leave().unwrap();
    };
    in_threads(cuda::Over::Hosts.groups(2), run);
}

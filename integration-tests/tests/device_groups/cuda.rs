//! Groups whose ranks, each a thread here, have a GPU each: a driver in host memory, and a library
//! that does between threads what NCCL does between processes.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use meshwork_accel::{
    Accelerator, DeviceId, Element, ElementTask, ElementType, Error as Refusal, ReduceOp,
};
use meshwork_accel_cuda::{
    CudaAccelerator, CudaBuffer, CudaConfig, Error as Absent, KernelCache, Library,
};
use meshwork_collectives::{
    CommunicatorScope, DeviceGroup, FallbackReason, Group, GroupConfig, JobSecret, OperationError,
    Pinning, Rank, Route, Timeouts, Transport,
};
use meshwork_strategy::{MultiWorkerMirroredStrategy, ReplicaReduceOp::Mean};
use meshwork_testing::{Need, free_addresses, in_threads};

use crate::fake::{Count, Fake};

pub(crate) const DEVICE: DeviceId = DeviceId::new(0);

/// Longer than any test takes that does not hang.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// How the ranks reach each other besides.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Over {
    Threads,
    Memory,
    Quic,
    /// The last rank is on a host of its own.
    Hosts,
}

impl Over {
    pub(crate) fn groups(self, world: u32) -> Vec<Group> {
        match self {
            Self::Threads => Group::local(world).unwrap(),
            Self::Memory => connected(world, |config| config),
            Self::Quic => connected(world, |config| config.with_transport(Transport::Quic)),
            Self::Hosts => connected(world, |config| {
                let last = config.rank().number() == world - 1;
                config.with_host(if last { "b" } else { "a" })
            }),
        }
    }
}

fn connected(world: u32, with: impl Fn(GroupConfig) -> GroupConfig + Sync) -> Vec<Group> {
    let (secret, members) = (
        JobSecret::generate().unwrap(),
        free_addresses(world as usize),
    );
    in_threads((0..world).map(Rank::new), |rank| {
        let timeouts = Timeouts::default()
            .with_join(PATIENCE)
            .with_silence(Duration::from_secs(5));
        let config = GroupConfig::new(members.clone(), rank, secret.clone()).unwrap();
        Group::connect(&with(config.with_timeouts(timeouts))).unwrap()
    })
}

/// A GPU for each of four ranks.
pub(crate) fn four_gpus() -> Fake {
    Fake::with_collectives().set("cuda", "fake_gpus", 4)
}

/// The same where only the group tells that a rank has gone.
fn four_quiet_gpus() -> Fake {
    four_gpus().set("nccl", "fake_quiet", 1)
}

/// Runs every rank with a backend of its own, which sees the GPU of its number.
pub(crate) fn run<R: Send>(
    fake: &Fake,
    over: Over,
    world: u32,
    program: impl Fn(Group, CudaAccelerator) -> R + Sync,
) -> Vec<R> {
    in_threads(over.groups(world), |mut group| {
        group.set_operation_timeout(PATIENCE);
        let gpu = group.rank().index();
        let cuda = CudaAccelerator::open(&fake.config().with_gpus([gpu])).unwrap();
        program(group, cuda)
    })
}

fn with<T: Element>(cuda: &CudaAccelerator, values: &[T]) -> CudaBuffer {
    let mut buffer = cuda.allocate(DEVICE, T::TYPE, values.len()).unwrap();
    cuda.upload(values, &mut buffer, 0).unwrap();
    buffer
}

#[track_caller]
fn holds<T: Element>(cuda: &CudaAccelerator, buffer: &CudaBuffer, expected: &[T]) {
    let mut found = vec![T::default(); expected.len()];
    cuda.download(buffer, 0, &mut found).unwrap();
    let bytes = |values: &[T]| bytemuck::cast_slice::<T, u8>(values).to_vec();
    assert_eq!(bytes(&found), bytes(expected), "{}", T::TYPE);
}

/// Any bits of whole numbers; of floats 0 and 1, whose combinations are exact in any order.
fn values<T: Element>(rank: usize, len: usize) -> Vec<T> {
    let one: u64 = match T::TYPE {
        ElementType::F16 => 0x3c00,
        ElementType::Bf16 => 0x3f80,
        ElementType::F32 => 0x3f80_0000,
        ElementType::F64 => 0x3ff0_0000_0000_0000,
        _ => 1,
    };
    let value = |at: usize| {
        let whole = !T::TYPE.is_float() && T::TYPE != ElementType::Bool;
        let bits = match whole {
            true => 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul((at * 7 + rank + 1) as u64),
            false => one * u64::from((at + rank).is_multiple_of(2)),
        };
        bytemuck::checked::pod_read_unaligned(&bits.to_le_bytes()[..size_of::<T>()])
    };
    (0..len).map(value).collect()
}

struct Everything<'a, 'b> {
    devices: &'a mut DeviceGroup<'b, CudaAccelerator>,
    cuda: &'a CudaAccelerator,
    len: usize,
}

impl ElementTask for Everything<'_, '_> {
    /// How many collectives NCCL has.
    type Output = i64;

    fn run<T: Element>(self) -> i64 {
        let Self { devices, cuda, len } = self;
        let (world, rank) = (devices.group().world(), devices.group().rank());
        let last = Rank::new(world - 1);
        let own = values::<T>(rank.index(), len);
        let all = values::<T>(rank.index(), len * world as usize);
        let mut direct = 0;
        for op in ReduceOp::ALL.into_iter().filter(|op| op.supports(T::TYPE)) {
            let (mut host, mut buffer) = (own.clone(), with(cuda, &own));
            devices.group().all_reduce(&mut host, op).unwrap();
            devices.all_reduce(&mut buffer, op).unwrap();
            holds(cuda, &buffer, &host);
            let (mut host, mut buffer) = (own.clone(), with(cuda, &own));
            devices.group().reduce(&mut host, op, last).unwrap();
            devices.reduce(&mut buffer, op, last).unwrap();
            holds(cuda, &buffer, &host);
            let (mut host, input, mut output) = (own.clone(), with(cuda, &all), with(cuda, &own));
            devices.group().reduce_scatter(&all, &mut host, op).unwrap();
            devices.reduce_scatter(&input, &mut output, op).unwrap();
            holds(cuda, &output, &host);
            let bits = matches!(op, ReduceOp::And | ReduceOp::Or | ReduceOp::Xor);
            let truth = T::TYPE == ElementType::Bool && op != ReduceOp::Xor;
            let short = matches!(T::TYPE, ElementType::I16 | ElementType::U16);
            let loses_nan = matches!(op, ReduceOp::Min | ReduceOp::Max) && T::TYPE.is_float();
            direct += 3 * i64::from(!short && !loses_nan && (!bits || truth));
        }
        let (mut host, mut buffer) = (own.clone(), with(cuda, &own));
        devices.group().broadcast(&mut host, last).unwrap();
        devices.broadcast(&mut buffer, last).unwrap();
        holds(cuda, &buffer, &host);
        let (mut host, input, mut output) = (all.clone(), with(cuda, &own), with(cuda, &all));
        devices.group().all_gather(&own, &mut host).unwrap();
        devices.all_gather(&input, &mut output).unwrap();
        holds(cuda, &output, &host);
        // Nothing is no call of NCCL.
        (direct + 2) * i64::from(len > 0)
    }
}

#[test]
fn all_operations_have_the_values_of_host_memory_by_nccl_where_it_has_them_and_staged_where_not() {
    let fake = four_gpus();
    for (over, world) in [
        (Over::Threads, 4),
        (Over::Memory, 2),
        (Over::Quic, 3),
        (Over::Hosts, 3),
    ] {
        let before = fake.performed();
        let direct = run(&fake, over, world, |mut group, cuda| {
            let reach = CommunicatorScope::ClearTextBetweenHosts;
            let mut devices = group.direct_on(&cuda, DEVICE, reach).unwrap();
            assert_eq!(
                devices.route().to_string(),
                "from device to device by NCCL 2.30.7"
            );
            let mut direct = 0;
            for element in ElementType::ALL {
                for len in [0, 1, 500] {
                    direct += element.run(Everything {
                        devices: &mut devices,
                        cuda: &cuda,
                        len,
                    });
                }
            }
            devices.close().unwrap();
            group.leave().unwrap();
            direct
        });
        assert_eq!(fake.performed() - before, direct[0], "{over:?}");
    }
    assert_eq!(fake.communicators().0, 0);
    fake.is_clean();
}

/// What `over` and `reach` come to, and that the operations go on either way.
fn route(
    mut group: Group,
    cuda: &CudaAccelerator,
    device: DeviceId,
    reach: CommunicatorScope,
) -> (String, Route) {
    let world = group.world() as f32;
    let mut devices = group.direct_on(cuda, device, reach).unwrap();
    let route = devices.route().clone();
    let mut buffer = cuda.allocate(device, f32::TYPE, 3).unwrap();
    cuda.fill(&mut buffer, 0..3, 1.0_f32).unwrap();
    devices.all_reduce(&mut buffer, ReduceOp::Sum).unwrap();
    holds(cuda, &buffer, &[world; 3]);
    devices.close().unwrap();
    group.leave().unwrap();
    (route.to_string(), route)
}

#[test]
fn where_one_rank_has_no_nccl_or_another_all_go_through_host_memory_and_say_who() {
    let fake = four_gpus();
    let other = four_gpus().set("nccl", "fake_version", 22_803);
    let without = |gpu| {
        let nowhere = fake
            .libraries()
            .with_file(Library::Nccl, fake.file("nothing"));
        CudaConfig::new(nowhere, KernelCache::none()).with_gpus([gpu])
    };
    for (second, told) in [
        (
            without(1),
            "through host memory, as rank 1 has no library for communicators",
        ),
        (
            other.config().with_gpus([1]),
            "through host memory, as rank 0 has NCCL 2.30.7 and rank 1 has NCCL 2.28.3",
        ),
    ] {
        let routes = in_threads(Over::Threads.groups(2), |group| {
            let config = match group.rank().number() {
                0 => fake.config().with_gpus([0]),
                _ => second.clone(),
            };
            let cuda = CudaAccelerator::open(&config).unwrap();
            route(group, &cuda, DEVICE, CommunicatorScope::OneHost).0
        });
        assert_eq!(routes[0], told);
        // Whoever lacks it knows more.
        assert!(routes[1].starts_with(told), "{}", routes[1]);
    }
    assert_eq!((fake.performed(), fake.communicators()), (0, (0, 0)));
    fake.is_clean();
}

#[test]
fn two_ranks_on_one_gpu_and_hosts_between_which_nothing_may_be_in_clear_go_through_host_memory() {
    let fake = four_gpus();
    let shared = in_threads(Over::Threads.groups(2), |group| {
        let cuda = CudaAccelerator::open(&fake.config()).unwrap();
        let device = DeviceId::new(2);
        route(
            group,
            &cuda,
            device,
            CommunicatorScope::ClearTextBetweenHosts,
        )
        .1
    });
    let (rank, peer) = (Rank::new(0), Rank::new(1));
    let expected = Route::Staged(FallbackReason::DeviceShared { rank, peer });
    assert_eq!(shared, [expected.clone(), expected]);
    let apart = run(&fake, Over::Hosts, 2, |group, cuda| {
        let reach = match group.rank().number() {
            0 => CommunicatorScope::ClearTextBetweenHosts,
            _ => CommunicatorScope::OneHost,
        };
        route(group, &cuda, DEVICE, reach).1
    });
    let (rank, peer) = (peer, rank);
    let expected = Route::Staged(FallbackReason::SeveralHosts { rank, peer });
    assert_eq!(apart, [expected.clone(), expected]);
    assert_eq!(fake.performed(), 0);
    fake.is_clean();
}

#[test]
fn where_one_rank_is_refused_all_give_the_communicator_up_and_name_it() {
    let fake = four_gpus();
    fake.refuse(1, 5);
    let begun = Instant::now();
    // Each of them would wait for as long as it waits for a group.
    let routes = in_threads(connected(3, |config| config), |group| {
        let gpu = group.rank().index();
        let cuda = CudaAccelerator::open(&fake.config().with_gpus([gpu])).unwrap();
        route(group, &cuda, DEVICE, CommunicatorScope::OneHost).0
    });
    let told = "through host memory, as rank 1 could not join the communicator";
    assert!(begun.elapsed() < PATIENCE, "the others are told at once");
    assert_eq!([routes[0].as_str(), &routes[2]], [told, told]);
    assert!(routes[1].starts_with(told), "{}", routes[1]);
    assert!(
        routes[1].contains("ncclCommInitRankConfig"),
        "{}",
        routes[1]
    );
    assert_eq!(fake.communicators().0, 0);
    fake.is_clean();
}

/// What a rank does instead of what the others do.
type Culprit = fn(&mut DeviceGroup<'_, CudaAccelerator>, &CudaAccelerator);

#[test]
fn a_rank_that_dies_or_does_something_else_while_others_are_in_the_communicator_is_named() {
    let fake = four_quiet_gpus();
    // Over QUIC rank 1 hears of rank 0 alone, and so begins, whatever rank 2 does.
    let culprits: [(&str, Culprit); 4] = [
        ("rank 2", |_, _| {}),
        ("broadcast", |devices, cuda| {
            let mut other = with(cuda, &[1.0_f32; 10]);
            devices.broadcast(&mut other, Rank::new(0)).unwrap_err();
        }),
        ("11 f32", |devices, cuda| {
            let mut longer = with(cuda, &[1.0_f32; 11]);
            devices.all_reduce(&mut longer, ReduceOp::Sum).unwrap_err();
        }),
        ("all_reduce", |devices, _| {
            let mut host = [1.0_f32; 10];
            let group = devices.group();
            group.all_reduce(&mut host, ReduceOp::Sum).unwrap_err();
        }),
    ];
    for over in [Over::Threads, Over::Memory, Over::Quic, Over::Hosts] {
        for (named, culprit) in culprits {
            let (begun, all_are_in) = (Instant::now(), Barrier::new(3));
            let told = run(&fake, over, 3, |mut group, cuda| {
                let reach = CommunicatorScope::ClearTextBetweenHosts;
                let last = group.rank().number() == 2;
                let mut devices = group.direct_on(&cuda, DEVICE, reach).unwrap();
                all_are_in.wait();
                let mut buffer = with(&cuda, &[1.0_f32; 10]);
                if last {
                    culprit(&mut devices, &cuda);
                    return String::new();
                }
                let error = devices.all_reduce(&mut buffer, ReduceOp::Sum).unwrap_err();
                // The device is free, and the group stays what it is.
                cuda.synchronize(DEVICE).unwrap();
                let later = devices.all_reduce(&mut buffer, ReduceOp::Sum);
                assert_eq!(later, Err(error.clone()));
                let lost = matches!(error, OperationError::RankLost { .. });
                let parted = matches!(error, OperationError::Disagreement { .. });
                assert!(lost == (named == "rank 2"), "{over:?}: {error}");
                assert!(lost || parted, "{over:?}: {error}");
                error.to_string()
            });
            for error in &told[..2] {
                assert!(error.contains("rank 2") || named != "rank 2", "{error}");
                assert!(error.contains(named), "{over:?}, {named}: {error}");
            }
            assert!(begun.elapsed() < PATIENCE, "{over:?}, {named}");
        }
    }
    assert_eq!(fake.communicators().0, 0);
    fake.is_clean();
}

#[test]
fn a_rank_that_never_calls_is_named_when_the_time_is_up() {
    let (fake, begun) = (four_quiet_gpus(), Instant::now());
    let told = run(&fake, Over::Quic, 3, |mut group, cuda| {
        let mut devices = group
            .direct_on(&cuda, DEVICE, CommunicatorScope::OneHost)
            .unwrap();
        let mut buffer = with(&cuda, &[1.0_f32; 10]);
        match devices.group().rank().number() {
            // It waits for rank 2, and rank 1 for both in the communicator.
            0 => devices
                .group()
                .set_operation_timeout(Duration::from_secs(1)),
            2 => {
                while devices.group().failure().is_none() {
                    assert!(begun.elapsed() < PATIENCE, "a failure is told to all");
                    std::thread::yield_now();
                }
            }
            _ => {}
        }
        let error = devices.all_reduce(&mut buffer, ReduceOp::Sum);
        error.unwrap_err().to_string()
    });
    for error in told {
        assert!(error.contains("rank 0 waits for rank 2"), "{error}");
    }
    assert!(begun.elapsed() < PATIENCE, "rank 1 is told at once");
    fake.is_clean();
}

#[test]
fn a_device_that_fails_in_the_communicator_ends_the_group_by_name() {
    let fake = four_gpus();
    let told = run(&fake, Over::Memory, 2, |mut group, cuda| {
        let mut devices = group
            .direct_on(&cuda, DEVICE, CommunicatorScope::OneHost)
            .unwrap();
        let mut buffer = with(&cuda, &[1.0_f32; 10]);
        devices.all_reduce(&mut buffer, ReduceOp::Sum).unwrap();
        let completed = devices.group().completed();
        devices.group().barrier().unwrap();
        if devices.group().rank().number() == 1 {
            fake.refuse(1, 4);
        }
        devices.group().barrier().unwrap();
        let error = devices.all_reduce(&mut buffer, ReduceOp::Sum).unwrap_err();
        assert_eq!(devices.group().completed(), completed + 2);
        error
    });
    let [seen, own] = told.as_slice() else {
        panic!("two ranks");
    };
    assert!(matches!(own, OperationError::Device { .. }), "{own:?}");
    assert!(matches!(seen, OperationError::Aborted { .. }), "{seen:?}");
    let text = seen.to_string();
    assert!(
        text.contains("rank 1") && text.contains("its device failed"),
        "{text}"
    );
    assert_eq!(fake.communicators().0, 0);
    fake.is_clean();
}

#[test]
fn a_strategy_reduces_by_a_communicator_that_it_keeps_between_steps() {
    let fake = four_gpus();
    let before = fake.performed();
    run(&fake, Over::Memory, 3, |group, cuda| {
        let mut strategy = MultiWorkerMirroredStrategy::from_group(group).unwrap();
        let devices = strategy
            .direct_on(&cuda, DEVICE, CommunicatorScope::OneHost)
            .unwrap();
        assert!(matches!(devices.route(), Route::Direct { .. }));
        for step in 0..5 {
            let own = [strategy.rank().number() as f32, step as f32];
            let mut gradient = with(&cuda, &own);
            strategy
                .run(|replica| devices.all_reduce(replica, Mean, &mut gradient))
                .unwrap();
            holds(&cuda, &gradient, &[1.0, step as f32]);
            // Host memory in between goes by the same group.
            let mut host = [1.0_f32];
            strategy
                .run(|replica| replica.all_reduce(Mean, &mut host))
                .unwrap();
        }
        devices.close(&mut strategy).unwrap();
        strategy.leave().unwrap();
    });
    assert_eq!(fake.performed() - before, 5);
    assert_eq!(fake.communicators().0, 0);
    fake.is_clean();
}

#[test]
fn a_route_is_of_the_group_that_found_it() {
    let fake = four_gpus();
    run(&fake, Over::Threads, 2, |mut group, cuda| {
        let mut route = group
            .device_route(&cuda, DEVICE, CommunicatorScope::OneHost)
            .unwrap();
        let mut other = group.split(Some(0), 0).unwrap().unwrap();
        let mut buffer = with(&cuda, &[1.0_f32; 10]);
        let mut lent = other.with_route(&cuda, &mut route);
        let refused = lent.all_reduce(&mut buffer, ReduceOp::Sum);
        assert_eq!(refused, Err(OperationError::CommunicatorOfOtherGroup));
        let mut devices = group.with_route(&cuda, &mut route);
        devices.all_reduce(&mut buffer, ReduceOp::Sum).unwrap();
        holds(&cuda, &buffer, &[2.0_f32; 10]);
        route.close(&mut group).unwrap();
        other.leave().unwrap();
        group.leave().unwrap();
    });
    assert_eq!(fake.communicators().0, 0);
    fake.is_clean();
}

#[test]
fn a_group_that_has_shrunk_makes_another_communicator() {
    let fake = four_gpus();
    let all_are_in = Barrier::new(3);
    run(&fake, Over::Memory, 3, |mut group, cuda| {
        let last = group.rank().number() == 2;
        let mut devices = group
            .direct_on(&cuda, DEVICE, CommunicatorScope::OneHost)
            .unwrap();
        all_are_in.wait();
        if last {
            return;
        }
        let mut buffer = with(&cuda, &[1.0_f32; 10]);
        let lost = devices.all_reduce(&mut buffer, ReduceOp::Sum);
        assert!(
            matches!(lost, Err(OperationError::RankLost { .. })),
            "{lost:?}"
        );
        devices.group().shrink().unwrap();
        let outdated = devices.all_reduce(&mut buffer, ReduceOp::Sum);
        let (made, now) = (1, 2);
        assert_eq!(
            outdated,
            Err(OperationError::CommunicatorOutdated { made, now })
        );
        let mut devices = group
            .direct_on(&cuda, DEVICE, CommunicatorScope::OneHost)
            .unwrap();
        assert!(matches!(devices.route(), Route::Direct { .. }));
        let mut buffer = with(&cuda, &[1.0_f32; 10]);
        devices.all_reduce(&mut buffer, ReduceOp::Sum).unwrap();
        holds(&cuda, &buffer, &[2.0_f32; 10]);
        devices.close().unwrap();
        group.leave().unwrap();
    });
    assert_eq!(fake.communicators().0, 0);
    fake.is_clean();
}

#[test]
fn staged_buffers_pass_through_pinned_memory_with_the_values_of_host_memory() {
    let fake = four_gpus();
    for (over, world) in [(Over::Threads, 3), (Over::Memory, 2), (Over::Quic, 2)] {
        run(&fake, over, world, |mut group, cuda| {
            let mut devices = group.staged_on(&cuda);
            assert_eq!(devices.pinning(), &Pinning::Unused);
            devices.set_chunk(crate::portions_of(800));
            for element in ElementType::ALL {
                for len in [0, 1, 500] {
                    element.run(Everything {
                        devices: &mut devices,
                        cuda: &cuda,
                        len,
                    });
                }
            }
            assert_eq!(devices.pinning(), &Pinning::Pinned);
            assert!(fake.count(Count::Registered) > 0);
            group.leave().unwrap();
        });
    }
    assert_eq!(fake.performed(), 0);
    fake.is_clean();
}

#[test]
fn where_locked_memory_is_limited_buffers_pass_unpinned_and_the_group_says_why() {
    let fake = four_gpus();
    for slot in 0..3 {
        run(&fake, Over::Threads, 1, |mut group, cuda| {
            fake.fail("cuMemHostRegister_v2", slot, 2);
            let mut buffer = with(&cuda, &[1.0_f32; 1000]);
            let mut devices = group.staged_on(&cuda);
            devices.set_chunk(crate::portions_of(400));
            devices.all_reduce(&mut buffer, ReduceOp::Mean).unwrap();
            let Pinning::Refused(reason) = devices.pinning() else {
                panic!("{:?}", devices.pinning());
            };
            assert!(reason.to_string().contains("out of memory"), "{reason}");
            holds(&cuda, &buffer, &[1.0_f32; 1000]);
            group.leave().unwrap();
        });
    }
    fake.is_clean();
}

#[test]
fn any_call_of_the_driver_may_fail_while_buffers_are_staged_and_nothing_is_left() {
    let fake = four_gpus();
    for function in [
        "cuMemcpyDtoHAsync_v2",
        "cuMemcpyHtoDAsync_v2",
        "cuStreamCreate",
        "cuStreamWaitEvent",
        "cuEventCreate",
        "cuEventRecord",
        "cuEventSynchronize",
    ] {
        let mut failures = 0;
        for after in 0..60 {
            let failed = run(&fake, Over::Threads, 1, |mut group, cuda| {
                let mut buffer = with(&cuda, &[1.0_f32; 500]);
                fake.fail(function, after, 700);
                let mut devices = group.staged_on(&cuda);
                devices.set_chunk(crate::portions_of(400));
                let done = devices.all_reduce(&mut buffer, ReduceOp::Max);
                let refused = matches!(devices.pinning(), Pinning::Refused(_));
                fake.fail("", 0, 0);
                let told = matches!(done, Err(OperationError::Device { .. }));
                assert!(done.is_ok() || told, "{function}: {done:?}");
                u32::from(told || refused)
            });
            failures += failed[0];
            fake.is_clean();
        }
        assert!(failures > 0, "{function} is called");
    }
}

#[test]
fn buffers_of_other_devices_are_refused_before_anything_is_announced() {
    let fake = four_gpus();
    in_threads(Over::Threads.groups(2), |mut group| {
        let cuda = CudaAccelerator::open(&fake.config()).unwrap();
        let own = DeviceId::new(group.rank().index());
        let far = DeviceId::new(3);
        let nowhere = group.direct_on(&cuda, DeviceId::new(4), CommunicatorScope::OneHost);
        assert!(matches!(
            nowhere.map(drop),
            Err(OperationError::Unsupported(Refusal::UnknownDevice { .. }))
        ));
        let mut devices = group
            .direct_on(&cuda, own, CommunicatorScope::OneHost)
            .unwrap();
        let mut there = cuda.allocate(far, f32::TYPE, 3).unwrap();
        let refused = devices.all_reduce(&mut there, ReduceOp::Sum);
        let mismatch = Refusal::DeviceMismatch {
            left: own,
            right: far,
        };
        assert_eq!(refused, Err(OperationError::Unsupported(mismatch)));
        let xor = devices.all_reduce(&mut there, ReduceOp::Xor);
        assert!(
            matches!(xor, Err(OperationError::Unsupported(_))),
            "{xor:?}"
        );
        let mut here = cuda.allocate(own, f32::TYPE, 3).unwrap();
        let mut all = [&mut here, &mut there];
        devices.all_reduce_each(&mut all, ReduceOp::Sum).unwrap();
        devices.close().unwrap();
        group.leave().unwrap();
    });
    fake.is_clean();
}

/// All operations on so many GPUs, a rank each: from device to device, and through host memory.
/// Each way is the one that was asked for.
fn have_the_values_of_host_memory(config: &CudaConfig, gpus: u32) {
    for direct in [true, false] {
        let routes = in_threads(Over::Threads.groups(gpus), |mut group| {
            let gpu = group.rank().index();
            let cuda = CudaAccelerator::open(&config.clone().with_gpus([gpu])).unwrap();
            let mut devices = match direct {
                true => group
                    .direct_on(&cuda, DEVICE, CommunicatorScope::OneHost)
                    .unwrap(),
                false => group.staged_on(&cuda),
            };
            for element in ElementType::ALL {
                element.run(Everything {
                    devices: &mut devices,
                    cuda: &cuda,
                    len: 100_003,
                });
            }
            let route = devices.route().clone();
            devices.close().unwrap();
            group.leave().unwrap();
            route
        });
        for route in routes {
            assert_eq!(matches!(route, Route::Direct { .. }), direct, "{route}");
        }
    }
}

#[test]
#[should_panic = "through host memory, as rank 0 has no library for communicators"]
fn what_was_to_go_from_device_to_device_and_did_not_is_a_failure() {
    let fake = four_gpus();
    let nowhere = fake
        .libraries()
        .with_file(Library::Nccl, fake.file("nothing"));
    have_the_values_of_host_memory(&CudaConfig::new(nowhere, KernelCache::none()), 2);
}

/// How many of this machine's GPUs can be used; none, for a reason, only where there are none: a
/// GPU that its driver shows is to open.
fn usable(config: &CudaConfig) -> Result<u32, String> {
    match CudaAccelerator::open(config) {
        Ok(cuda) => Ok(u32::try_from(cuda.devices().len()).unwrap()),
        Err(
            absent @ (Absent::NotLoadable {
                library: Library::Driver,
                ..
            }
            | Absent::NoDevices),
        ) => Err(absent.to_string()),
        Err(broken) => panic!("there is a driver, and no GPU can be used: {broken}"),
    }
}

#[test]
#[should_panic = "there is a driver, and no GPU can be used"]
fn a_machine_whose_driver_shows_gpus_that_do_not_open_is_not_skipped() {
    let fake = four_gpus();
    fake.fail("cuModuleLoadData", 0, 222);
    let _ = usable(&fake.config());
}

#[test]
fn a_machine_without_a_driver_is_skipped() {
    let fake = four_gpus();
    let libraries = fake.libraries();
    let nowhere = libraries.with_file(Library::Driver, fake.file("nothing"));
    let config = CudaConfig::new(nowhere, KernelCache::none());
    assert!(usable(&config).is_err());
    assert_eq!(usable(&fake.config()), Ok(4));
}

/// Ready for a machine with GPUs; see accel-cuda/VERIFIED.md.
#[test]
fn on_real_gpus_all_operations_have_the_values_of_host_memory() {
    let config = CudaConfig::from_env();
    if let Some(gpus) = Need::Gpu.or_skip(usable(&config)) {
        have_the_values_of_host_memory(&config, gpus.min(4));
    }
}

//! Communicators over a library that does between threads what NCCL does between GPUs.

#[path = "support/cc.rs"]
mod cc;
#[path = "support/fake.rs"]
mod fake;

use std::ops::ControlFlow;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use fake::{Count, Fake};
use meshwork_accel::{
    self as accel, Accelerator, CommunicatorId, CommunicatorRank, DeviceCommunicators, DeviceId,
    Element, ReduceOp, conformance, f16,
};
use meshwork_accel_cuda::{
    Communicator, CudaAccelerator, CudaBuffer, CudaConfig, Error, KernelCache, Library, Nccl,
    NcclRank, UniqueId,
};

/// Longer than any machine of ours is busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// One rank of a world of two, each on a GPU of its own.
struct Rank<'a> {
    accelerator: &'a CudaAccelerator,
    communicator: Communicator,
}

impl Rank<'_> {
    fn with<T: Element>(&self, values: &[T]) -> CudaBuffer {
        let device = DeviceId::new(self.communicator.rank());
        let buffer = self.accelerator.allocate(device, T::TYPE, values.len());
        let mut buffer = buffer.expect("there is room");
        self.accelerator
            .upload(values, &mut buffer, 0)
            .expect("equal lengths");
        buffer
    }

    fn read<T: Element>(&mut self, buffer: &CudaBuffer, len: usize) -> Vec<T> {
        self.communicator.wait().expect("all ranks take part");
        let mut values = vec![T::default(); len];
        self.accelerator
            .download(buffer, 0, &mut values)
            .expect("equal lengths");
        values
    }
}

/// Runs both ranks as threads.
fn two<R: Send>(fake: &Fake, run: impl Fn(Rank<'_>) -> R + Sync) -> Vec<R> {
    let accelerator = fake.open();
    let nccl = Nccl::open(&fake.libraries()).expect("it was just compiled");
    let id = nccl.unique_id().expect("the fake counts");
    let rank = |rank: usize| {
        let nccl_rank = NcclRank::new(id, rank, 2).expect("two ranks");
        let device = DeviceId::new(rank);
        let joined = Communicator::join(&nccl, &accelerator, device, nccl_rank, PATIENCE);
        run(Rank {
            accelerator: &accelerator,
            communicator: joined.expect("both join"),
        })
    };
    thread::scope(|scope| {
        let ranks = [0, 1].map(|number| scope.spawn(move || rank(number)));
        ranks
            .map(|rank| rank.join().expect("no rank panics"))
            .into()
    })
}

#[test]
fn both_ranks_get_the_results_of_all_operations() {
    let fake = Fake::with_collectives();
    two(&fake, |mut at| {
        let rank = at.communicator.rank();
        assert_eq!(at.communicator.world(), 2);
        let mine = [1.0_f32 + rank as f32, 10.0];
        for (op, expected) in [(ReduceOp::Sum, [3.0, 20.0]), (ReduceOp::Mean, [1.5, 10.0])] {
            let mut values = at.with(&mine);
            at.communicator
                .all_reduce(op, &mut values)
                .expect("both call it");
            assert_eq!(at.read::<f32>(&values, 2), expected);
        }
        // The sum is beyond what such numbers can be.
        let large = [f16::from_f32(60_000.0), f16::from_f32(1.0 + rank as f32)];
        let means = [large[0], f16::from_f32(1.5)];
        for _ in 0..2 {
            let mut values = at.with(&large);
            at.communicator
                .all_reduce(ReduceOp::Mean, &mut values)
                .expect("both call it");
            assert_eq!(at.read::<f16>(&values, 2), means);
        }
        let (mut values, mut block) = (at.with(&large), at.with(&[f16::ZERO]));
        at.communicator
            .reduce_scatter(ReduceOp::Mean, &values, &mut block)
            .expect("both call it");
        assert_eq!(at.read::<f16>(&block, 1), [means[rank]]);
        at.communicator
            .reduce(ReduceOp::Mean, 1, &mut values)
            .expect("both call it");
        assert_eq!(at.read::<f16>(&values, 2), [large, means][rank]);
        let mut truths = at.with(&[rank == 0, false]);
        at.communicator
            .all_reduce(ReduceOp::Or, &mut truths)
            .expect("both call it");
        assert_eq!(at.read::<bool>(&truths, 2), [true, false]);
        let mut values = at.with(&mine);
        at.communicator
            .broadcast(1, &mut values)
            .expect("both call it");
        assert_eq!(at.read::<f32>(&values, 2), [2.0, 10.0]);
        let mut values = at.with(&mine);
        at.communicator
            .reduce(ReduceOp::Mean, 1, &mut values)
            .expect("both call it");
        let expected = [mine, [1.5, 10.0]][rank];
        assert_eq!(at.read::<f32>(&values, 2), expected);
        let (input, mut output) = (at.with(&mine), at.with(&[0.0_f32; 4]));
        at.communicator
            .all_gather(&input, &mut output)
            .expect("both call it");
        assert_eq!(at.read::<f32>(&output, 4), [1.0, 10.0, 2.0, 10.0]);
        let mut block = at.with(&[0.0_f32]);
        at.communicator
            .reduce_scatter(ReduceOp::Mean, &input, &mut block)
            .expect("both call it");
        assert_eq!(at.read::<f32>(&block, 1), [[1.5], [10.0]][rank]);
        at.communicator.leave().expect("both leave");
    });
    assert_eq!(fake.communicators(), (0, 0));
    fake.is_clean();
}

#[test]
fn who_is_left_is_told_of_a_lost_rank_once_and_has_a_broken_communicator() {
    let fake = Fake::with_collectives();
    let (joined, lost) = (Barrier::new(2), Barrier::new(2));
    two(&fake, |mut at| {
        joined.wait();
        if at.communicator.rank() == 0 {
            drop(at);
            lost.wait();
            return;
        }
        lost.wait();
        let mut values = at.with(&[1.0_f32]);
        let failed = at.communicator.all_reduce(ReduceOp::Sum, &mut values);
        assert!(
            matches!(failed, Err(Error::Call { code: 6, .. })),
            "{failed:?}"
        );
        let again = at.communicator.all_reduce(ReduceOp::Sum, &mut values);
        assert_eq!(again, Err(Error::Broken));
    });
    assert_eq!(fake.communicators(), (0, 2));
    fake.is_clean();
}

#[test]
fn a_rank_that_never_comes_is_a_missed_deadline_and_the_communicator_is_aborted() {
    let fake = Fake::with_collectives();
    let accelerator = fake.open();
    let nccl = Nccl::open(&fake.libraries()).expect("it was just compiled");
    let id = nccl.unique_id().expect("the fake counts");
    let nccl_rank = NcclRank::new(id, 0, 2).expect("two ranks");
    let short = Duration::from_millis(20);
    let begun = Instant::now();
    let alone = Communicator::join(&nccl, &accelerator, DeviceId::new(0), nccl_rank, short);
    let Some(Error::Deadline { operation, waited }) = alone.err() else {
        panic!("the other never comes");
    };
    assert_eq!(operation, "joining a communicator");
    // What is done before the wait counts for the deadline too.
    assert!(begun.elapsed() >= short && waited <= begun.elapsed());
    assert_eq!(fake.communicators(), (0, 1));
    drop((accelerator, nccl));
    fake.is_clean();
}

#[test]
fn arguments_are_refused_before_anything_is_sent_and_break_nothing() {
    let fake = Fake::with_collectives();
    let both = Barrier::new(2);
    two(&fake, |mut at| {
        let mut values = at.with(&[1.0_f32, 2.0]);
        let mut short = at.with(&[1_i16]);
        let other = DeviceId::new(1 - at.communicator.rank());
        let mut elsewhere = at
            .accelerator
            .allocate(other, f32::TYPE, 1)
            .expect("there is room");
        let one = &mut at.communicator;
        let outside = Err(Error::RankOutside { rank: 2, world: 2 });
        assert_eq!(one.broadcast(2, &mut values), outside);
        assert_eq!(one.reduce(ReduceOp::Sum, 2, &mut values), outside);
        let apart = accel::Error::DeviceMismatch {
            left: DeviceId::new(one.rank()),
            right: other,
        };
        assert_eq!(
            one.all_reduce(ReduceOp::Sum, &mut elsewhere),
            Err(apart.into())
        );
        let element = i16::TYPE;
        let unknown = accel::Error::UnsupportedElement { element };
        assert_eq!(
            one.all_reduce(ReduceOp::Sum, &mut short),
            Err(unknown.into())
        );
        let unequal = accel::Error::LengthMismatch { left: 2, right: 4 };
        let mut same = at
            .accelerator
            .allocate(DeviceId::new(one.rank()), f32::TYPE, 2)
            .expect("room");
        assert_eq!(one.all_gather(&values, &mut same), Err(unequal.into()));
        one.all_reduce(ReduceOp::Sum, &mut values)
            .expect("both call it");
        assert_eq!(at.read::<f32>(&values, 2), [2.0, 4.0]);
        // A rank that is dropped is lost to the others.
        both.wait();
    });
    fake.is_clean();
}

#[test]
fn the_suite_of_communicators_passes_on_two_and_on_four_gpus() {
    for gpus in [2_u8, 4] {
        let fake = Fake::with_collectives().set("cuda", "fake_gpus", gpus.into());
        let accelerator = fake.open();
        let ranks: Vec<_> = (0..gpus)
            .map(|gpu| (&accelerator, DeviceId::new(gpu.into())))
            .collect();
        conformance::check_communicators(&ranks);
        assert_eq!(fake.communicators(), (0, gpus.into()));
        drop(accelerator);
        fake.is_clean();
    }
}

#[test]
fn the_suite_of_communicators_names_what_a_library_does_wrong() {
    for (wrong, claim) in [
        (1, "an all-reduce leaves the reduction on every rank"),
        (2, "an all-gather leaves all inputs on every rank, in order"),
        (3, "a reduce-scatter leaves each rank its block"),
        (4, "a broadcast leaves the root's values on every rank"),
        (
            8,
            "a reduce leaves the reduction on its root, and the others as they were",
        ),
    ] {
        let fake = Fake::with_collectives().set("nccl", "fake_wrong", wrong);
        let accelerator = fake.open();
        let ranks = [0, 1].map(|gpu| (&accelerator, DeviceId::new(gpu)));
        let violation = conformance::verify_communicators(&ranks).expect_err("it is done wrong");
        assert_eq!(violation.claim(), claim);
    }
}

#[test]
fn a_backend_without_nccl_says_what_is_missing_and_one_that_has_it_which() {
    let fake = Fake::with_collectives();
    assert_eq!(fake.open().library(), Ok("NCCL 2.30.7".to_owned()));
    let nowhere = fake
        .libraries()
        .with_file(Library::Nccl, fake.file("nothing"));
    let config = CudaConfig::new(nowhere, KernelCache::none());
    let without = CudaAccelerator::open(&config).expect("the driver is there");
    for refused in [without.library(), without.name().map(|_| String::new())] {
        let text = refused.expect_err("there is no NCCL").to_string();
        assert!(
            text.contains("libnccl") && text.contains("install NCCL"),
            "{text}"
        );
    }
}

#[test]
fn whoever_loses_another_rank_is_told_so_and_not_that_its_own_device_failed() {
    let fake = Fake::with_collectives();
    let accelerator = fake.open();
    let name = accelerator.name().expect("the fake counts");
    let join = |rank: usize| {
        let place = CommunicatorRank::new(rank, 2).expect("two ranks");
        let mut patient = || ControlFlow::Continue(());
        let joined = accelerator.join(DeviceId::new(rank), &name, place, &mut patient);
        joined.expect("both join")
    };
    let (mut left, right) = thread::scope(|scope| {
        let other = scope.spawn(|| join(1));
        (join(0), other.join().expect("no rank panics"))
    });
    drop(right);
    let mut buffer = accelerator
        .allocate(DeviceId::new(0), f32::TYPE, 3)
        .expect("there is room");
    let (op, values) = (ReduceOp::Sum, &mut buffer);
    let lost = left.carry_out(
        accel::DeviceCollective::AllReduce { op, values },
        &mut || ControlFlow::Continue(()),
    );
    assert!(
        matches!(lost, Err(accel::Error::PeerLost { .. })),
        "{lost:?}"
    );
    // Also of names nothing is told.
    assert_eq!(format!("{name:?}"), "CommunicatorId(..)");
    assert_eq!(CommunicatorId::BYTES, UniqueId::BYTES);
}

#[test]
fn a_code_of_a_newer_nccl_reaches_the_program_as_the_number_that_it_is() {
    let fake = Fake::with_collectives();
    let accelerator = fake.open();
    let nccl = Nccl::open(&fake.libraries()).expect("it was just compiled");
    let id = nccl.unique_id().expect("the fake counts");
    let alone = NcclRank::new(id, 0, 1).expect("one rank");
    fake.refuse(0, 8000);
    let device = DeviceId::new(0);
    let refused = Communicator::join(&nccl, &accelerator, device, alone, PATIENCE).err();
    assert!(
        matches!(refused, Some(Error::Call { code: 8000, .. })),
        "{refused:?}"
    );
}

/// The only rank of a communicator.
fn alone(fake: &Fake, accelerator: &CudaAccelerator) -> Communicator {
    let nccl = Nccl::open(&fake.libraries()).expect("it was just compiled");
    let id = nccl.unique_id().expect("the fake counts");
    let alone = NcclRank::new(id, 0, 1).expect("one rank");
    let joined = Communicator::join(&nccl, accelerator, DeviceId::new(0), alone, PATIENCE);
    joined.expect("nobody else has to")
}

#[test]
fn a_mean_without_the_memory_for_its_sums_breaks_the_communicator_as_others_wait_for_it() {
    let fake = Fake::with_collectives();
    // Room for the values, and not for as many of 32 bits besides.
    let config = fake.config().with_memory_limit(3000);
    let accelerator = CudaAccelerator::open(&config).expect("a fake driver begins");
    let mut communicator = alone(&fake, &accelerator);
    let mut values = accelerator
        .allocate(DeviceId::new(0), f16::TYPE, 1000)
        .expect("2000 of 3000 bytes");
    let full = communicator.all_reduce(ReduceOp::Mean, &mut values);
    assert!(
        matches!(
            full,
            Err(Error::Device(accel::Error::OutOfMemory { len: 1000, .. }))
        ),
        "{full:?}"
    );
    let again = communicator.all_reduce(ReduceOp::Sum, &mut values);
    assert_eq!(again, Err(Error::Broken));
    drop((values, communicator, accelerator));
    fake.is_clean();
}

#[test]
fn memory_that_was_dropped_after_a_failure_stays_until_the_communicator_is_aborted() {
    let fake = Fake::with_collectives();
    let accelerator = fake.open();
    let mut communicator = alone(&fake, &accelerator);
    let mut values = accelerator
        .allocate(DeviceId::new(0), f32::TYPE, 1000)
        .expect("there is room");
    fake.refuse(0, 3);
    let refused = communicator.all_reduce(ReduceOp::Sum, &mut values);
    assert!(
        matches!(refused, Err(Error::Call { code: 3, .. })),
        "{refused:?}"
    );
    let freed = |left: i64| {
        let done = accelerator.synchronize(DeviceId::new(0));
        done.expect("the fake waits");
        assert_eq!(fake.count(Count::Memories), left);
    };
    drop(values);
    freed(1);
    drop(communicator);
    freed(0);
    drop(accelerator);
    fake.is_clean();
}

#[test]
fn without_pools_dropping_a_buffer_does_not_wait_for_the_operation_on_it() {
    let fake = Fake::with_collectives().set("cuda", "fake_pools", 0);
    let accelerator = fake.open();
    let mut communicator = alone(&fake, &accelerator);
    for _ in 0..2 {
        let mut values = accelerator
            .allocate(DeviceId::new(0), f32::TYPE, 1000)
            .expect("there is room");
        communicator
            .all_reduce(ReduceOp::Sum, &mut values)
            .expect("nobody else has to");
        drop(values);
        assert_eq!(fake.count(Count::Memories), 1);
        communicator.wait().expect("nobody else has to");
        assert_eq!(fake.count(Count::Memories), 0);
    }
    drop((communicator, accelerator));
    fake.is_clean();
}

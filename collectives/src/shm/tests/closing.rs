//! What is left of a rank's memory to others once it has given an operation up.

#![expect(
    unsafe_code,
    reason = "a rank that was stopped writes when it goes on, to see where that ends up"
)]

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use meshwork_accel::{Element, ReduceOp, Reduction};

use crate::Rank;
use crate::contract::{Contract, Kind};
use crate::failure::Failure;
use crate::operation::{OnArrival, ReceiveBlock, Request, SendBlocks, Transfer};
use crate::shm::ShmCommunicator;
use crate::shm::access::DataPath;
use crate::shm::control_block::{ControlBlock, Shape};
use crate::shm::descriptor::BufferLocation;
use crate::shm::mapping::{Mapping, PAGE, Population};
use crate::shm::reduce::{Receiver, ReducePlan};
use crate::shm::wait::WaitObserver;

pub(super) struct Alone;

impl WaitObserver for Alone {
    fn over(&self) -> bool {
        false
    }

    fn waits(&self, _: usize) {}
}

/// Says that the group is over once this is set.
struct Once<'a>(&'a AtomicBool);

impl WaitObserver for Once<'_> {
    fn over(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    fn waits(&self, _: usize) {}
}

/// Two ranks that reach each other's registered memory as two processes do.
pub(super) fn processes() -> io::Result<[ShmCommunicator; 2]> {
    let shape = Shape::for_ranks(2);
    let control_block = || {
        let (memory, _) = Mapping::segment(shape.bytes())?;
        ControlBlock::new(Arc::new(memory), shape)
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
    };
    let control_blocks: Vec<ControlBlock> = vec![control_block()?, control_block()?];
    let ids = vec![std::process::id(); 2];
    Ok([0, 1].map(|me| ShmCommunicator::processes(me, control_blocks.clone(), ids.clone(), 2)))
}

pub(super) fn request(count: usize) -> Request {
    let contract = Contract {
        epoch: 1,
        group: 0,
        sequence: 1,
        kind: Kind::AllReduce,
        algorithm: None,
        element: f32::TYPE,
        count: count as u64,
        op: Some(ReduceOp::Sum),
        root: None,
    };
    Request::unrecorded(contract)
}

/// As a process does that is stopped between two stores of a reduction, and goes on when the others
/// have long given it up.
#[test]
fn a_rank_that_was_stopped_inside_does_not_write_to_memory_that_was_given_up() {
    const LEN: usize = 100_000;
    let [mut first, mut stopped] = processes().unwrap();
    let theirs = first.registry().clone().allocate(LEN * 4).unwrap();
    let own = stopped.registry().clone().allocate(LEN * 4).unwrap();
    // SAFETY: zeroed memory that nobody else knows of yet.
    let buffer: &mut [f32] = unsafe { theirs.bytes().write() };
    buffer.fill(1.0);

    let outgoing_blocks = stopped.registry().find(own.bytes()).unwrap();
    let (whole, waiter) = (request(LEN), stopped.waiter(Duration::MAX, &Alone));
    let told = stopped.post_call(&whole, outgoing_blocks, 1);
    let sum = Reduction::new(ReduceOp::Sum).unwrap();
    let sum = ReducePlan::new(sum, Receiver::All);
    let inside = AtomicBool::new(false);
    let observer = Once(&inside);
    let over = std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            let waiter = first.waiter(Duration::MAX, &observer);
            let given_up = first.reduce(&request(LEN), &waiter, buffer, &sum);
            first.close();
            buffer.fill(7.0);
            given_up
        });
        let DataPath::Direct(buffer_descriptors) =
            stopped.await_peers(&waiter, &told, || ()).unwrap()
        else {
            panic!("both buffers are registered");
        };
        let span = stopped
            .reach::<f32>(0, buffer_descriptors[0].place, LEN * 4)
            .unwrap();
        stopped.with_peer_memory(&waiter, |_| {
            inside.store(true, Ordering::Release);
            let given_up = first.join().unwrap();
            assert!(matches!(given_up, Err(Failure::GroupOver)));
            // SAFETY: the rank is inside, as far as it knows.
            unsafe { span.write::<f32>() }.fill(9.0);
            Ok(())
        })
    });
    assert!(matches!(over, Err(Failure::Closed(peer)) if peer == Rank::new(0)));
    assert!(buffer.iter().all(|element| *element == 7.0));
}

#[test]
fn a_long_segment_in_huge_pages_is_the_same_memory_for_all_who_map_it() {
    const LEN: usize = (5 << 20) + PAGE + 12;
    let (own, name) = Mapping::segment(LEN).unwrap();
    own.make_pages_huge();
    let theirs = name.map(Population::Lazy).unwrap();
    assert_ne!(own.start(), theirs.start());
    let places = (0..LEN).step_by(PAGE - 1).chain([LEN - 1]);
    for (value, at) in (1_u8..=250).cycle().zip(places) {
        // SAFETY: inside the memory.
        let here = unsafe { own.start().add(at) };
        // SAFETY: as above.
        let there = unsafe { theirs.start().add(at) };
        // SAFETY: nobody else touches it.
        unsafe { here.write_volatile(value) };
        // SAFETY: as above.
        assert_eq!(unsafe { there.read_volatile() }, value, "{at}");
    }
}

#[test]
fn other_parts_of_a_segment_keep_what_is_written_while_it_is_taken_back() {
    const LEN: usize = 1 << 20;
    let [first, _] = processes().unwrap();
    let segment = first.registry().clone().allocate(LEN).unwrap();
    let whole = segment.bytes();
    let (given, kept) = (
        whole.part(0..LEN / 2).unwrap(),
        whole.part(LEN / 2..LEN).unwrap(),
    );
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let done = &done;
        let writer = scope.spawn(move || {
            let mut rounds = 0_u8;
            while !done.load(Ordering::Relaxed) || rounds == 0 {
                rounds = rounds.wrapping_add(1).max(1);
                // SAFETY: this half is this thread's alone.
                let kept = unsafe { kept.write() };
                kept.fill(rounds);
                assert!(kept.iter().all(|byte| *byte == rounds));
            }
        });
        assert!(first.registry().withdraw(given));
        assert!(
            first.registry().find(given).is_none(),
            "others are not sent there again"
        );
        done.store(true, Ordering::Relaxed);
        writer.join().unwrap();
    });
}

#[test]
fn a_rank_that_parts_from_one_that_has_closed_is_inside_no_longer() {
    let mut communicators = ShmCommunicator::threads(2, 2).unwrap();
    let (second, first) = (communicators.pop().unwrap(), communicators.pop().unwrap());
    let waiter = second.waiter(Duration::MAX, &Alone);
    let mut second = second;
    let over = std::thread::scope(|scope| {
        second.with_peer_memory(&waiter, |second| {
            scope.spawn(move || first.close());
            while !second.has_closed(0) {
                std::thread::yield_now();
            }
            Ok(())
        })
        // The scope ends when `close` has returned.
    });
    assert!(matches!(over, Err(Failure::Closed(peer)) if peer == Rank::new(0)));
}

/// Three ranks, of which two have said that their bytes for the last are further away than memory
/// reaches.
#[test]
fn false_counts_in_a_control_block_are_an_error() {
    let mut communicators = ShmCommunicator::threads(3, 3).unwrap();
    let mut last = communicators.pop().unwrap();
    let counts = [u64::MAX, 5, 1];
    for communicator in &mut communicators {
        for (other, count) in counts.into_iter().enumerate() {
            communicator.own_peer_channel(other).counts[1].store(count, Ordering::Relaxed);
        }
        let _ = communicator.post_call(&request(3), BufferLocation::Small, 0);
    }
    let (blocks, take) = ([0..1, 1..2, 2..3], |from| ReceiveBlock {
        from,
        block: 2,
        start: 0,
        into: from..from + 1,
    });
    let transfer = Transfer {
        outgoing_blocks: SendBlocks {
            counts: Some(&[1, 1, 1]),
            ..SendBlocks::each(&[1.0_f32, 2.0, 3.0], &blocks)
        },
        receives: &[take(0), take(1)],
        output: &mut [0.0; 3],
        then: OnArrival::Copy,
    };
    let waiter = last.waiter(Duration::MAX, &Alone);
    let refused = last.exchange(&request(3), &waiter, transfer);
    assert!(matches!(refused, Err(Failure::Unreachable(peer, _)) if peer == Rank::new(0)));
}

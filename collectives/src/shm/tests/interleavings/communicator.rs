//! Whole operations, in every interleaving of the ranks' looks at each other's flags.
//!
//! Everything but the atomic numbers in the flags is the product's: posts, buffers, slots,
//! entering, leaving and closing. The bytes that ranks work on are plain memory, so what is found
//! here are wrong values and ranks that wait for ever; accesses that nothing keeps apart are found
//! above.

use std::time::Duration;

use loom::model::Builder;
use loom::thread;
use meshwork_accel::{Element, ReduceOp, Reduction};

use super::Checked;
use crate::contract::{Contract, Kind};
use crate::failure::Failure;
use crate::operation::Request;
use crate::shm::ShmCommunicator;
use crate::shm::access::MemoryAccess;
use crate::shm::control_block::{ControlBlock, Shape};
#[cfg(all(target_os = "linux", not(meshwork_portable)))]
use crate::shm::fetch;
use crate::shm::mapping::Population;
use crate::shm::reduce::{Receiver, ReducePlan};
use crate::shm::registry::{PeerProcess, Registry};
use crate::shm::wait::{SpinPolicy, WaitObserver, Waiter};

/// Elements of a buffer that is worked on where it is, and of one that takes three slots.
const DIRECT: usize = (8 << 10) + 1;
const SLOTS: usize = DIRECT;
/// Elements of one that is copied.
const SMALL: usize = 3;
/// Elements of one that the kernel fetches.
#[cfg(all(target_os = "linux", not(meshwork_portable)))]
const FETCHED: usize = *fetch::TAKEN.start();

/// Whether the group has failed, for a rank that looks.
#[derive(Clone, Copy)]
enum Group {
    Live,
    Failed,
}

impl WaitObserver for Group {
    fn over(&self) -> bool {
        matches!(self, Self::Failed)
    }

    fn waits(&self, _: usize) {}
}

/// Orders of three ranks that a test tries.
const PERMUTATIONS: usize = 1_000;

type Communicator = Vec<ShmCommunicator<Checked>>;

/// Domains whose ranks have made so many operations before.
fn communicators(ranks: usize, before: u32, reach: impl Fn() -> MemoryAccess) -> Communicator {
    communicators_of(Shape::with_short_slots(ranks), before, reach)
}

/// Ranks that gather along a tree, as many do.
fn gathering(ranks: usize, before: u32) -> Communicator {
    communicators_of(Shape::with_short_slots(ranks).gathering(), before, threads)
}

fn communicators_of(shape: Shape, before: u32, reach: impl Fn() -> MemoryAccess) -> Communicator {
    let ranks = shape.ranks();
    let control_blocks: Vec<_> = (0..ranks)
        .map(|_| ControlBlock::with_new_flags(shape))
        .collect();
    let communicator = |me| {
        let mut communicator =
            ShmCommunicator::new(me, control_blocks.clone(), reach(), SpinPolicy::NONE);
        communicator.begin_after(before);
        communicator
    };
    (0..ranks).map(communicator).collect()
}

fn threads() -> MemoryAccess {
    MemoryAccess::Threads(Registry::private())
}

/// Processes that map nothing of each other: this one, seen from outside.
fn processes(process: u32, ranks: usize) -> MemoryAccess {
    MemoryAccess::Processes {
        registry: Registry::private(),
        peer_processes: (0..ranks)
            .map(|_| PeerProcess::new(process, Population::among(ranks)))
            .collect(),
        fetches: true,
    }
}

/// Runs all ranks, each on a thread of its own, in every order of their steps.
fn in_every_order(
    preemptions: usize,
    ranks: impl Fn() -> Communicator + Send + Sync + 'static,
    rank: impl Fn(usize, &mut ShmCommunicator<Checked>) + Send + Sync + Copy + 'static,
) {
    in_orders(&model(preemptions), ranks, rank);
}

/// The same in the first of very many orders; `LOOM_MAX_PERMUTATIONS` asks for more of them.
fn in_many_orders(
    ranks: impl Fn() -> Communicator + Send + Sync + 'static,
    rank: impl Fn(usize, &mut ShmCommunicator<Checked>) + Send + Sync + Copy + 'static,
) {
    let mut model = model(1);
    model.max_permutations = model.max_permutations.or(Some(PERMUTATIONS));
    // The checker looks at the limit this often.
    model.checkpoint_interval = PERMUTATIONS;
    in_orders(&model, ranks, rank);
}

fn model(preemptions: usize) -> Builder {
    let mut model = Builder::new();
    model.preemption_bound = Some(preemptions);
    model.max_branches = 100_000;
    model
}

fn in_orders(
    model: &Builder,
    ranks: impl Fn() -> Communicator + Send + Sync + 'static,
    rank: impl Fn(usize, &mut ShmCommunicator<Checked>) + Send + Sync + Copy + 'static,
) {
    model.check(move || {
        let start = |(me, mut communicator): (usize, ShmCommunicator<Checked>)| {
            let run = move || rank(me, &mut communicator);
            let thread = thread::Builder::new().stack_size(1 << 20);
            thread.spawn(run).unwrap()
        };
        let threads: Vec<_> = ranks().into_iter().enumerate().map(start).collect();
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

fn contract(kind: Kind, count: usize) -> Contract {
    Contract {
        epoch: 0,
        group: 0,
        sequence: 1,
        kind,
        algorithm: None,
        element: u8::TYPE,
        count: count as u64,
        op: None,
        root: None,
    }
}

/// An operation as groups make it.
fn carry_out(
    communicator: &mut ShmCommunicator<Checked>,
    group: Group,
    contract: Contract,
    operation: impl FnOnce(&mut ShmCommunicator<Checked>, &Request, &Waiter<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let waiter = communicator.waiter(Duration::MAX, &group);
    let request = Request::unrecorded(contract);
    let done = operation(communicator, &request, &waiter);
    communicator.wake_sleepers();
    if done.is_err() {
        communicator.close();
    }
    done
}

fn sum(
    communicator: &mut ShmCommunicator<Checked>,
    group: Group,
    buffer: &mut [u8],
) -> Result<(), Failure> {
    let contract = contract(Kind::AllReduce, buffer.len());
    carry_out(
        communicator,
        group,
        contract,
        |communicator, request, waiter| {
            let sum = Reduction::new(ReduceOp::Sum).unwrap();
            let sum = ReducePlan::new(sum, Receiver::All);
            communicator.reduce(request, waiter, buffer, &sum)
        },
    )
}

fn sums_are_right(communicator: &mut ShmCommunicator<Checked>, me: usize, elements: &[usize]) {
    for (round, elements) in elements.iter().enumerate() {
        let own = |rank: usize| u8::try_from(1 + rank + 10 * round).unwrap();
        let mut buffer = vec![own(me); *elements];
        sum(communicator, Group::Live, &mut buffer).unwrap();
        let total: u8 = (0..communicator.len()).map(own).sum();
        assert!(buffer == vec![total; *elements], "{round}");
    }
}

#[test]
fn operations_of_every_kind_follow_each_other() {
    in_every_order(
        2,
        || communicators(2, 0, threads),
        |me, communicator| {
            sums_are_right(communicator, me, &[SMALL, DIRECT, SMALL]);
        },
    );
    let slots = || processes(std::process::id(), 2);
    in_every_order(
        1,
        move || communicators(2, 0, slots),
        |me, communicator| {
            sums_are_right(communicator, me, &[SLOTS, SMALL]);
        },
    );
}

#[test]
fn three_ranks_reduce_directly_one_after_the_other() {
    in_many_orders(
        || communicators(3, 0, threads),
        |me, communicator| {
            sums_are_right(communicator, me, &[DIRECT, DIRECT]);
        },
    );
}

#[test]
fn ranks_that_gather_along_a_tree_meet_and_part_in_every_order() {
    in_every_order(
        2,
        || gathering(2, 0),
        |me, communicator| {
            sums_are_right(communicator, me, &[SMALL, DIRECT, SMALL]);
        },
    );
    for before in [0, (1 << 31) - 2, u32::MAX] {
        in_many_orders(
            move || gathering(3, before),
            |me, communicator| {
                sums_are_right(communicator, me, &[SMALL, DIRECT, SMALL]);
            },
        );
    }
}

/// What a rank said it had finished long ago is not what it has finished now.
#[test]
fn direct_operations_are_right_after_billions_of_small_ones() {
    for before in [
        (1 << 31) - 2,
        1 << 31,
        (1 << 31) + 5,
        u32::MAX - 1,
        u32::MAX,
    ] {
        in_every_order(
            1,
            move || communicators(2, before, threads),
            |me, communicator| {
                sums_are_right(communicator, me, &[DIRECT, SMALL]);
            },
        );
    }
}

#[test]
fn a_rank_that_closes_has_its_buffer_to_itself() {
    in_every_order(
        2,
        || communicators(2, 0, threads),
        |me, communicator| {
            let group = [Group::Failed, Group::Live][me];
            let mut buffer = vec![1; DIRECT];
            match sum(communicator, group, &mut buffer) {
                // It never had to wait.
                Ok(()) => assert!(buffer.iter().all(|element| *element == 2)),
                Err(_) => {
                    buffer.fill(7);
                    // Others may run between any two looks at a flag.
                    communicator.wake_sleepers();
                    assert!(buffer.iter().all(|element| *element == 7));
                }
            }
        },
    );
}

#[test]
fn when_one_of_three_closes_the_two_others_wait_for_nobody() {
    for ranks in [|| communicators(3, 0, threads), || gathering(3, 0)] {
        in_many_orders(ranks, |me, communicator| {
            let group = [Group::Failed, Group::Live, Group::Live][me];
            let mut buffer = vec![1; DIRECT];
            if sum(communicator, group, &mut buffer).is_ok() {
                assert!(buffer.iter().all(|element| *element == 3));
            }
        });
        in_many_orders(ranks, |me, communicator| {
            let group = [Group::Live, Group::Live, Group::Failed][me];
            let mut buffer = vec![1; SMALL];
            if sum(communicator, group, &mut buffer).is_ok() {
                assert!(buffer.iter().all(|element| *element == 3));
            }
        });
    }
}

/// Nobody has this number.
#[cfg(all(target_os = "linux", not(meshwork_portable)))]
const NO_PROCESS: u32 = i32::MAX as u32;

#[cfg(all(target_os = "linux", not(meshwork_portable)))]
#[test]
fn a_rank_whose_bytes_cannot_be_fetched_ends_the_operation_for_all() {
    let reach = || processes(NO_PROCESS, 3);
    in_many_orders(
        move || communicators(3, 0, reach),
        |_, communicator| {
            let mut buffer = vec![1; FETCHED];
            let contract = contract(Kind::Broadcast, FETCHED);
            carry_out(
                communicator,
                Group::Live,
                contract,
                |communicator, request, waiter| {
                    communicator.broadcast(request, waiter, &mut buffer, 0)
                },
            )
            .unwrap_err();
        },
    );
}

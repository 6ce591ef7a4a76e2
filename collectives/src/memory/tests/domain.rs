//! Whole operations, in every interleaving of the ranks' looks at each other's flags.
//!
//! Everything but the atomic numbers in the flags is the product's: posts, buffers, slots, entering,
//! leaving and closing. The bytes that ranks work on are plain memory, so what is found here are
//! wrong values and ranks that wait for ever; accesses that nothing keeps apart are found above.

use std::panic::Location;
use std::time::Duration;

use loom::model::Builder;
use loom::thread;
use meshwork_accel::{Element, ReduceOp, Reduction};

use super::Checked;
use crate::Rank;
use crate::contract::{Contract, Kind};
use crate::memory::board::{Board, Shape};
use crate::memory::domain::{Domain, Halt, Task};
use crate::memory::fetch;
use crate::memory::reach::Reach;
use crate::memory::reduce::Receiver;
use crate::memory::registry::{Neighbour, Registry};
use crate::memory::wait::{Eagerness, Watch};

/// Elements of a buffer that is worked on where it is, and of one that takes three slots.
const DIRECT: usize = (8 << 10) + 1;
const SLOTS: usize = DIRECT;
/// Elements of one that is copied.
const SMALL: usize = 3;
/// Elements of one that the kernel fetches.
const FETCHED: usize = *fetch::TAKEN.start();

/// Whether the group has failed, for a rank that looks.
#[derive(Clone, Copy)]
enum Group {
    Live,
    Failed,
}

impl Watch for Group {
    fn over(&self) -> bool {
        matches!(self, Self::Failed)
    }

    fn waits(&self, _: usize) {}
}

/// Orders of three ranks that a test tries.
const PERMUTATIONS: usize = 1_000;

type Ranks = Vec<Domain<Checked>>;

/// Domains whose ranks have made so many operations before.
fn domains(ranks: usize, before: u32, reach: impl Fn() -> Reach) -> Ranks {
    let shape = Shape::with_short_slots(ranks);
    let boards: Vec<_> = (0..ranks).map(|_| Board::with_new_flags(shape)).collect();
    let names: Vec<Rank> = Rank::all(u32::try_from(ranks).unwrap()).collect();
    let domain = |me| {
        let mut domain = Domain::new(me, boards.clone(), names.clone(), reach(), Eagerness::NONE);
        domain.begin_after(before);
        domain
    };
    (0..ranks).map(domain).collect()
}

fn threads() -> Reach {
    Reach::Threads(Registry::private())
}

/// Processes that map nothing of each other: this one, seen from outside.
fn processes(process: u32, ranks: usize) -> Reach {
    Reach::Processes {
        registry: Registry::private(),
        neighbours: (0..ranks).map(|_| Neighbour::new(process)).collect(),
        fetches: true,
    }
}

/// Runs all ranks, each on a thread of its own, in every order of their steps.
fn in_every_order(
    preemptions: usize,
    ranks: impl Fn() -> Ranks + Send + Sync + 'static,
    rank: impl Fn(usize, &mut Domain<Checked>) + Send + Sync + Copy + 'static,
) {
    in_orders(&model(preemptions), ranks, rank);
}

/// The same in the first of very many orders; `LOOM_MAX_PERMUTATIONS` asks for more of them.
fn in_many_orders(
    ranks: impl Fn() -> Ranks + Send + Sync + 'static,
    rank: impl Fn(usize, &mut Domain<Checked>) + Send + Sync + Copy + 'static,
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
    ranks: impl Fn() -> Ranks + Send + Sync + 'static,
    rank: impl Fn(usize, &mut Domain<Checked>) + Send + Sync + Copy + 'static,
) {
    model.check(move || {
        let start = |(me, mut domain): (usize, Domain<Checked>)| {
            let run = move || rank(me, &mut domain);
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
    domain: &mut Domain<Checked>,
    group: Group,
    contract: Contract,
    operation: impl FnOnce(&mut Domain<Checked>, &Task<'_>) -> Result<(), Halt>,
) -> Result<(), Halt> {
    let patience = domain.patience(Duration::MAX, &group);
    let task = Task::new(contract, 0, Location::caller(), patience);
    let done = operation(domain, &task);
    domain.settle();
    if done.is_err() {
        domain.close();
    }
    done
}

fn sum(domain: &mut Domain<Checked>, group: Group, buffer: &mut [u8]) -> Result<(), Halt> {
    let contract = contract(Kind::AllReduce, buffer.len());
    carry_out(domain, group, contract, |domain, task| {
        let sum = Reduction::new(ReduceOp::Sum).unwrap();
        domain.reduce(task, buffer, sum, Receiver::All)
    })
}

fn sums_are_right(domain: &mut Domain<Checked>, me: usize, elements: &[usize]) {
    for (round, elements) in elements.iter().enumerate() {
        let own = |rank: usize| u8::try_from(1 + rank + 10 * round).unwrap();
        let mut buffer = vec![own(me); *elements];
        sum(domain, Group::Live, &mut buffer).unwrap();
        let total: u8 = (0..domain.len()).map(own).sum();
        assert!(buffer.iter().all(|element| *element == total), "{round}");
    }
}

#[test]
fn operations_of_every_kind_follow_each_other() {
    in_every_order(
        2,
        || domains(2, 0, threads),
        |me, domain| {
            sums_are_right(domain, me, &[SMALL, DIRECT, SMALL]);
        },
    );
    let slots = || processes(std::process::id(), 2);
    in_every_order(
        1,
        move || domains(2, 0, slots),
        |me, domain| {
            sums_are_right(domain, me, &[SLOTS, SMALL]);
        },
    );
}

#[test]
fn three_ranks_reduce_directly_one_after_the_other() {
    in_many_orders(
        || domains(3, 0, threads),
        |me, domain| {
            sums_are_right(domain, me, &[DIRECT, DIRECT]);
        },
    );
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
            move || domains(2, before, threads),
            |me, domain| {
                sums_are_right(domain, me, &[DIRECT, SMALL]);
            },
        );
    }
}

#[test]
fn a_rank_that_closes_has_its_buffer_to_itself() {
    in_every_order(
        2,
        || domains(2, 0, threads),
        |me, domain| {
            let group = [Group::Failed, Group::Live][me];
            let mut buffer = vec![1; DIRECT];
            match sum(domain, group, &mut buffer) {
                // It never had to wait.
                Ok(()) => assert!(buffer.iter().all(|element| *element == 2)),
                Err(_) => {
                    buffer.fill(7);
                    // Others may run between any two looks at a flag.
                    domain.settle();
                    assert!(buffer.iter().all(|element| *element == 7));
                }
            }
        },
    );
}

#[test]
fn when_one_of_three_closes_the_two_others_wait_for_nobody() {
    in_many_orders(
        || domains(3, 0, threads),
        |me, domain| {
            let group = [Group::Failed, Group::Live, Group::Live][me];
            let mut buffer = vec![1; DIRECT];
            if sum(domain, group, &mut buffer).is_ok() {
                assert!(buffer.iter().all(|element| *element == 3));
            }
        },
    );
}

/// Nobody has this number.
const NO_PROCESS: u32 = i32::MAX as u32;

#[test]
fn a_rank_whose_bytes_cannot_be_fetched_ends_the_operation_for_all() {
    let reach = || processes(NO_PROCESS, 3);
    in_many_orders(
        move || domains(3, 0, reach),
        |_, domain| {
            let mut buffer = vec![1; FETCHED];
            let contract = contract(Kind::Broadcast, FETCHED);
            carry_out(domain, Group::Live, contract, |domain, task| {
                domain.broadcast(task, &mut buffer, 0)
            })
            .unwrap_err();
        },
    );
}

//! Schedules walked over pipes that hold next to nothing: nobody waits in a circle, and nothing is
//! sent before it is there, or replaced before it is out.

mod collectives;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::time::Duration;

use bytemuck::Pod;
use futures_util::future::{join_all, try_join_all};
use meshwork_accel::{ElementType, ReduceOp};
use tokio::io::simplex;
use tokio::runtime::Runtime;

use super::{CallGraph, LinkOperation, PIECE_BYTES, Scratch, WaitState};
use crate::Rank;
use crate::contract::{Contract, Kind};
use crate::failure::Failure;
use crate::links::{Incoming, Links, Outgoing};
use crate::operation::Request;
use crate::schedule::{Algorithm, Collective, Hosts, Schedule};
use crate::wire::WireError;

/// Links among so many ranks, which hold so many bytes on the way to a higher rank, and to a lower
/// one.
fn links(world: usize, [up, down]: [usize; 2]) -> Vec<Links> {
    let mut ends: Vec<Vec<Incoming>> = (0..world).map(|_| Vec::new()).collect();
    let mut outgoing: Vec<Vec<Option<Outgoing>>> = Vec::new();
    for from in 0..world {
        let way = |to: usize| (to != from).then(|| simplex(if to > from { up } else { down }));
        let ways = (0..world).map(way).zip(&mut ends);
        let writers = ways.map(|(way, end)| {
            let (read, write) = way?;
            end.push(Box::new(read));
            Some(Box::new(write) as Outgoing)
        });
        outgoing.push(writers.collect());
    }
    let ranks = outgoing.into_iter().zip(ends);
    let streams = ranks.map(|(writers, readers)| {
        let mut readers = readers.into_iter();
        let pair = |writer: Option<Outgoing>| Some((writer?, readers.next()?));
        Links::new(writers.into_iter().map(pair).collect::<Vec<_>>())
    });
    streams.collect()
}

/// How to walk, and what is reduced.
#[derive(Clone, Copy, Debug)]
struct Plan {
    collective: Collective,
    algorithm: Algorithm,
    call_graph: CallGraph,
    element: ElementType,
    op: ReduceOp,
}

impl Plan {
    /// Of sums of numbers.
    fn new(collective: Collective, algorithm: Algorithm, call_graph: CallGraph) -> Self {
        Self {
            collective,
            algorithm,
            call_graph,
            element: ElementType::I64,
            op: ReduceOp::Sum,
        }
    }
}

const CALL_GRAPHS: [CallGraph; 2] = [CallGraph::Ring, CallGraph::Tree];

async fn walk<T: Pod>(
    me: Rank,
    world: u32,
    plan: Plan,
    links: &mut Links,
    buffer: &mut [T],
) -> Result<(), Failure> {
    let Plan {
        collective,
        algorithm,
        call_graph,
        element,
        op,
    } = plan;
    let request = Request::unrecorded(all_reduce(element, Some(algorithm), buffer.len(), op));
    let operation = LinkOperation {
        me,
        world,
        request: &request,
        call_graph,
        ring: None,
        wait: &WaitState::new(me),
    };
    let schedule = Schedule::new(collective, algorithm, &Hosts::apart(world), me);
    operation
        .walk(
            schedule,
            links,
            &mut Scratch::new(),
            bytemuck::cast_slice_mut(buffer),
        )
        .await
}

/// The contract of an all-reduce of so many elements.
fn all_reduce(
    element: ElementType,
    algorithm: Option<Algorithm>,
    count: usize,
    op: ReduceOp,
) -> Contract {
    Contract {
        epoch: 0,
        group: 0,
        sequence: 1,
        kind: Kind::AllReduce,
        algorithm,
        element,
        count: count as u64,
        op: Some(op),
        root: None,
    }
}

thread_local! {
    /// Of a test, which has a thread of its own, for all its operations.
    static RUNTIME: Runtime = {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().build().unwrap()
    };
}

/// All ranks in turn, on one thread; a circle of waits becomes a failure.
fn together<T>(ranks: impl IntoIterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let all = async { tokio::time::timeout(Duration::from_secs(60), join_all(ranks)).await };
    let ended = RUNTIME.with(|runtime| runtime.block_on(all));
    ended.expect("nobody waits in a circle")
}

#[test]
fn every_algorithm_reduces_buffers_of_several_pieces_through_pipes_of_a_few_bytes() {
    // With a remainder, so that blocks and pieces end at different places.
    let len = 5 * PIECE_BYTES / size_of::<i64>() / 2 + 3;
    for world in 2..=5_u32 {
        let sum = |index: usize| {
            let world = i64::from(world);
            world * (world - 1) / 2 + world * i64::try_from(index).unwrap()
        };
        let plan = |algorithm, calls| Plan::new(Collective::AllReduce, algorithm, calls);
        let algorithms = Algorithm::ALL.into_iter();
        let plans =
            algorithms.flat_map(|algorithm| CALL_GRAPHS.map(|calls| plan(algorithm, calls)));
        for plan in plans {
            // What comes fast must not replace what goes slowly.
            for room in [[61, 61], [61, 4 * PIECE_BYTES], [4 * PIECE_BYTES, 61]] {
                let mut links = links(world as usize, room);
                let ranks = Rank::all(world).zip(&mut links);
                let ended = together(ranks.map(async |(me, links)| {
                    let mine = i64::from(me.number());
                    let mut buffer: Vec<i64> = (mine..).take(len).collect();
                    let done = walk(me, world, plan, links, &mut buffer).await;
                    (done.is_ok(), buffer)
                }));
                for (is_well, buffer) in ended {
                    assert!(is_well);
                    let right = |(index, value): (usize, &i64)| *value == sum(index);
                    let all = buffer.iter().enumerate().all(right);
                    assert!(all, "{plan:?}, {world} ranks, {room:?} bytes");
                }
            }
        }
    }
}

/// Any byte may come from another process, and only two are truth values.
#[test]
fn whoever_contributes_what_is_no_truth_value_is_named_by_who_hears_it_first() {
    const LIAR: Rank = Rank::new(1);
    let value = WireError::Value {
        element: ElementType::Bool,
    };
    let cases = (2..=5_u32).flat_map(|world| Algorithm::ALL.map(|algorithm| (world, algorithm)));
    for (world, algorithm) in cases {
        let plan = Plan {
            element: ElementType::Bool,
            op: ReduceOp::And,
            ..Plan::new(Collective::AllReduce, algorithm, CallGraph::Ring)
        };
        let mut links = links(world as usize, [4096; 2]);
        let ranks = Rank::all(world).zip(&mut links);
        let walks = ranks.map(async |(me, links)| {
            let byte: u8 = if me == LIAR { 2 } else { 1 };
            walk(me, world, plan, links, &mut vec![byte; PIECE_BYTES + 3]).await
        });
        let first = together([try_join_all(walks)]).remove(0).unwrap_err();
        assert!(
            matches!(&first, Failure::Protocol(LIAR, error) if *error == value),
            "{algorithm:?}, {world} ranks: {first:?}"
        );
    }
}

/// A digest is of whatever bytes, also where the call that it stands for is one of truth values.
#[test]
fn calls_of_whatever_elements_are_agreed_upon() {
    for (element, call_graph) in ElementType::ALL
        .into_iter()
        .flat_map(|element| CALL_GRAPHS.map(|call_graph| (element, call_graph)))
    {
        for world in 2..=5 {
            let mut links = links(world as usize, [4096; 2]);
            let ranks = Rank::all(world).zip(&mut links);
            let ended = together(ranks.map(async |(me, links)| {
                let request = Request {
                    digest: 0x0123_4567_89AB_CDEF,
                    ..Request::unrecorded(all_reduce(element, None, 1, ReduceOp::Max))
                };
                let operation = LinkOperation {
                    me,
                    world,
                    request: &request,
                    call_graph,
                    ring: None,
                    wait: &WaitState::new(me),
                };
                operation.agree(links, &mut Scratch::new()).await
            }));
            assert!(
                ended.iter().all(Result::is_ok),
                "{element}, {call_graph:?}, {world} ranks: {ended:?}"
            );
        }
    }
}

#[test]
fn nobody_leaves_a_barrier_before_all_have_come() {
    let plan = |algorithm, calls| Plan::new(Collective::Barrier, algorithm, calls);
    for world in 2..=9_u32 {
        for last in Rank::all(world) {
            for calls in CALL_GRAPHS {
                barrier_with_a_last_rank(world, last, plan(Algorithm::Direct, calls));
                barrier_with_a_last_rank(world, last, plan(Algorithm::Tree, calls));
            }
        }
    }
}

fn barrier_with_a_last_rank(world: u32, last: Rank, plan: Plan) {
    let mut links = links(world as usize, [4096; 2]);
    let left = Cell::new(0);
    let left = &left;
    let ranks = Rank::all(world).zip(&mut links);
    together(ranks.map(async |(me, links)| {
        if me == last {
            // The others go as far as they can: each turn of this thread is one of theirs.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            assert_eq!(left.get(), 0, "{world} ranks, {last} is last, {plan:?}");
        }
        let done = walk::<i64>(me, world, plan, links, &mut []).await;
        left.set(left.get() + 1);
        assert!(done.is_ok());
    }));
    assert_eq!(left.get(), world);
}

/// Rank 3 sends its chunk to rank 2, and to rank 0 no more than its call.
#[test]
fn whose_call_comes_alone_holds_up_no_chunk() {
    const LATE: Rank = Rank::new(3);
    let plan = Plan::new(Collective::AllReduce, Algorithm::Tree, CallGraph::Tree);
    let mut links = links(4, [1 << 16; 2]);
    let of_chief = links[0].traffic().clone();
    let ended = together(Rank::all(4).zip(&mut links).map(async |(me, links)| {
        let mut buffer = [1_i64; 1000];
        if me == LATE {
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            let chunk = size_of_val(&buffer) as u64;
            assert!(of_chief.bytes() > chunk, "{} bytes", of_chief.bytes());
        }
        walk(me, 4, plan, links, &mut buffer).await
    }));
    assert!(ended.iter().all(Result::is_ok), "{ended:?}");
}

#[test]
fn every_byte_that_moves_is_counted_on_both_ends() {
    let mut ends = links(2, [4; 2]);
    let (one, other) = (Rank::CHIEF, Rank::new(1));
    let ended = together(Rank::all(2).zip(&mut ends).map(async |(me, links)| {
        let mut bytes = [7; 60];
        let buffer = RefCell::new(&mut bytes[..]);
        if me == one {
            links.outgoing.send(other, &[7; 40]).await?;
            return links.outgoing.send_part(other, &buffer, 0..60).await;
        }
        links.incoming.receive(one, &mut [0; 40]).await?;
        links.incoming.receive_part(one, &buffer, 0..60).await
    }));
    assert!(ended.iter().all(Result::is_ok), "{ended:?}");
    for links in ends {
        assert_eq!(links.traffic().bytes(), 100);
    }
}

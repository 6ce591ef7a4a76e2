//! Three ranks, of which the first two share a host, and a slow link to the other host.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, ready};
use std::thread;
use std::time::Instant;

use tokio::io::{AsyncWrite, simplex};
use tokio::time::{Sleep, sleep};

use super::*;
use crate::driver::Driver;
use crate::flight_recorder::FlightRecorder;
use crate::links::{Incoming, LinkMedium, Links, Outgoing};
use crate::local::{self, Hub};
use crate::medium::Medium;
use crate::quic::testing::in_time;
use crate::session::{ControlPlane, GroupId, SessionContext};
use crate::shm::ShmCommunicator;
use crate::{Communication, CostModel};

/// The one that carries nothing.
const WAITING: Rank = Rank::new(1);
/// Elements of each rank, which go over the slow link in 16 parts.
const LEN: usize = 256;
/// Bytes that the slow link takes at a time.
const PART: usize = 64;
/// Bytes that may be on their way.
const ROOM: usize = 1 << 16;
/// Longer than any of these takes on a busy machine, besides the pauses of the slow link.
const LONG: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(86_400);

/// Takes no more than a part at a time, and pauses after each.
struct Slow {
    stream: Outgoing,
    pause: Duration,
    rest: Option<Pin<Box<Sleep>>>,
}

impl AsyncWrite for Slow {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let slow = self.get_mut();
        if let Some(rest) = &mut slow.rest {
            ready!(rest.as_mut().poll(context));
        }
        let part = &bytes[..bytes.len().min(PART)];
        let written = ready!(Pin::new(&mut slow.stream).poll_write(context, part));
        slow.rest = Some(Box::pin(sleep(slow.pause)));
        Poll::Ready(written)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

/// Links among so many ranks, each way by what is made of a stream.
fn links(world: usize, made_of: impl Fn(Outgoing) -> Outgoing) -> Vec<Links> {
    type Ends = (Option<Outgoing>, Option<Incoming>);
    let none = || (0..world).map(|_| (None, None)).collect();
    let mut ends: Vec<Vec<Ends>> = (0..world).map(|_| none()).collect();
    for (from, to) in (0..world).flat_map(|from| (0..world).map(move |to| (from, to))) {
        if from != to {
            let (incoming, outgoing) = simplex(ROOM);
            ends[from][to].0 = Some(made_of(Box::new(outgoing)));
            ends[to][from].1 = Some(Box::new(incoming));
        }
    }
    let pairs = |of_rank: Vec<Ends>| of_rank.into_iter().map(|(out, into)| out.zip(into));
    ends.into_iter().map(pairs).map(Links::new).collect()
}

fn over_links(world: u32, links: Links) -> LinkMedium {
    LinkMedium::new(links, world, CostModel::QUIC)
}

/// Whose operations may take so long without a byte, over a link with such pauses.
fn sessions(limit: Duration, pause: Duration) -> Vec<Session> {
    let slow = |stream| -> Outgoing {
        Box::new(Slow {
            stream,
            pause,
            rest: None,
        })
    };
    let (hub, members) = (Hub::new(), local::members(3));
    let (links_of_all, mut across) = (links(3, |stream| stream), links(2, slow).into_iter());
    let mut memory = ShmCommunicator::threads(2, 2).unwrap().into_iter();
    let session = |(rank, links): (Rank, Links)| {
        let driver = Arc::new(Driver::alone().unwrap());
        let recorder = FlightRecorder::new(rank, members.clone(), None);
        let control = ControlPlane::Local(hub.clone());
        let context = SessionContext::new(control, driver, recorder);
        let session = |number, ranks: &[usize], medium| {
            let me = ranks.iter().position(|other| *other == rank.index());
            let ranks = ranks.iter().map(|rank| members[*rank].clone()).collect();
            let id = GroupId { epoch: 0, number };
            Session::new(id, Rank::at(me.unwrap()), ranks, medium, context.clone())
        };
        let local = match memory.next() {
            Some(memory) => session(1, &[0, 1], Medium::Shm(memory)),
            None => session(1, &[2], Medium::Shm(ShmCommunicator::alone().unwrap())),
        };
        let across = (rank != WAITING).then(|| {
            let medium = Box::new(over_links(2, across.next().unwrap()));
            session(2, &[0, 2], Medium::Links(medium))
        });
        for part in [Some(&local), across.as_ref()].into_iter().flatten() {
            part.log.is_part_of(0);
        }
        let mut medium = over_links(3, links);
        medium.set_hierarchy(Hierarchy::new(rank, Hosts::of([0, 0, 1]), local, across));
        let mut whole = session(0, &[0, 1, 2], Medium::Links(Box::new(medium)));
        whole.communication = Communication::Hierarchical;
        whole.set_operation_timeout(limit);
        whole
    };
    Rank::all(3).zip(links_of_all).map(session).collect()
}

type Outcome = Result<(), OperationError>;
type Operation = fn(&mut Session) -> Outcome;

/// What an operation comes to on all ranks, of which none leaves before the last is done, with
/// such a limit and such pauses.
fn outcomes(limit: Duration, pause: Duration, operation: Operation) -> Vec<Outcome> {
    let sessions = sessions(limit, pause);
    let ranks = sessions.len();
    let (done, all_done) = mpsc::channel();
    for mut session in sessions {
        let done = done.clone();
        thread::spawn(move || {
            let outcome = operation(&mut session);
            // Nobody listens where another rank takes too long.
            let _ = done.send((outcome, session));
        });
    }
    drop(done);
    // The pauses are an eighth of the limit, and fewer than 64; or the limit ends it.
    let long = LONG + 8 * limit;
    let wait = || all_done.recv_timeout(long).expect("an end in time");
    let ended: Vec<_> = (0..ranks).map(|_| wait()).collect();
    ended.into_iter().map(|(outcome, _)| outcome).collect()
}

fn all_reduce(session: &mut Session) -> Outcome {
    let mut buffer = [session.rank.number(); LEN];
    let spec = OperationSpec::new(Kind::AllReduce, LEN).with_op(ReduceOp::Sum);
    let work = Work::Reduce {
        buffer: &mut buffer,
        reduction: Reduction::new(ReduceOp::Sum)?,
        root: None,
    };
    session.perform(spec, work)?;
    assert_eq!(buffer, [3; LEN]);
    Ok(())
}

fn broadcast(session: &mut Session) -> Outcome {
    let mut buffer = [session.rank.number(); LEN];
    let root = Rank::new(2);
    let spec = OperationSpec::new(Kind::Broadcast, LEN).with_root(root);
    let work = Work::Broadcast {
        buffer: &mut buffer,
        root,
    };
    session.perform(spec, work)?;
    assert_eq!(buffer, [2; LEN]);
    Ok(())
}

fn all_gather(session: &mut Session) -> Outcome {
    let (me, own) = (session.rank.index(), [session.rank.number(); LEN]);
    let place = |rank: usize| rank * LEN..(rank + 1) * LEN;
    let mut output = [0; 3 * LEN];
    output[place(me)].copy_from_slice(&own);
    let others = (0..3).filter(|rank| *rank != me);
    let receives: Vec<_> = others
        .map(|from| ReceiveBlock::new(from, 0, 0, place(from)))
        .collect();
    let whole = 0..LEN;
    let transfer = Transfer {
        outgoing_blocks: SendBlocks::whole(&own, std::slice::from_ref(&whole)),
        receives: &receives,
        output: &mut output,
        then: OnArrival::Copy,
    };
    let spec = OperationSpec::new(Kind::AllGather, 3 * LEN);
    session.perform(spec, Work::Exchange(transfer))?;
    let all: Vec<u32> = [0, 1, 2].into_iter().flat_map(|rank| [rank; LEN]).collect();
    assert_eq!(output[..], all);
    Ok(())
}

/// Who carries nothing waits in memory for a rank that does.
#[test]
fn an_operation_may_take_as_long_as_bytes_go_from_host_to_host() {
    let operations: [Operation; 3] = [all_reduce, broadcast, all_gather];
    for operation in operations {
        let attempt = |limit: Duration| {
            let began = Instant::now();
            let outcomes = outcomes(limit, limit / 8, operation);
            (outcomes, began.elapsed() > limit)
        };
        let are_done = |outcomes: &[Outcome]| outcomes.iter().all(Result::is_ok);
        let (outcomes, is_long) = in_time(attempt, |(outcomes, _)| are_done(outcomes));
        assert!(are_done(&outcomes) && is_long, "{is_long}: {outcomes:?}");
    }
}

/// With it end the waits in memory, and none of those who wait there is named.
#[test]
fn an_operation_ends_when_no_bytes_go_from_host_to_host() {
    let is_told = |outcome: &Outcome| match outcome {
        Err(OperationError::TimedOut { rank, peer, .. }) => ![*rank, *peer].contains(&WAITING),
        _ => false,
    };
    let are_told = |outcomes: &Vec<Outcome>| outcomes.iter().all(is_told);
    let attempt = |limit| outcomes(limit, DAY, all_reduce);
    let outcomes = in_time(attempt, are_told);
    assert!(are_told(&outcomes), "{outcomes:?}");
}

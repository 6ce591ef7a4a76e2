//! Every operation by every algorithm, in every small world: with the right values, and with the
//! peers that were told before.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::{io, iter};

use meshwork_accel::{ElementType, ReduceOp, Reduction};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{CALL_GRAPHS, CallGraph, LinkOperation, Scratch, WaitState, links, together};
use crate::Rank;
use crate::contract::{Contract, Kind};
use crate::links::operation::Route;
use crate::links::{Incoming, Links, Outgoing};
use crate::operation::{OnArrival, ReceiveBlock, Request, SendBlocks, Transfer, Work};
use crate::schedule::Algorithm;

/// The others that a rank has sent bytes to, or taken bytes from.
type Touched = Arc<Mutex<BTreeSet<Rank>>>;

/// One end of a stream, which notes whose it is once bytes go through it.
struct Watched<S> {
    stream: S,
    peer: Rank,
    touched: Touched,
}

impl<S> Watched<S> {
    fn all(
        streams: impl IntoIterator<Item = Option<S>>,
        touched: &Touched,
    ) -> impl Iterator<Item = Option<Self>> {
        let watched = move |(place, stream): (usize, Option<S>)| {
            Some(Self {
                stream: stream?,
                peer: Rank::at(place),
                touched: touched.clone(),
            })
        };
        streams.into_iter().enumerate().map(watched)
    }

    fn touch(&self) {
        self.touched.lock().unwrap().insert(self.peer);
    }
}

impl AsyncWrite for Watched<Outgoing> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.touch();
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl AsyncRead for Watched<Incoming> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.touch();
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

fn watched(links: Links, touched: &Touched) -> Links {
    let outgoing = Watched::all(links.outgoing.streams, touched);
    let outgoing = outgoing.map(|end| Some(Box::new(end?) as Outgoing));
    let incoming = links.incoming.streams.into_iter().map(RefCell::into_inner);
    let incoming = Watched::all(incoming, touched);
    let incoming = incoming.map(|end| Some(Box::new(end?) as Incoming));
    Links::new(outgoing.zip(incoming).map(|(to, from)| to.zip(from)))
}

/// One operation, and the length of each rank's block.
#[derive(Clone, Debug)]
struct Case {
    kind: Kind,
    algorithm: Option<Algorithm>,
    root: Option<Rank>,
    lengths: Vec<usize>,
}

/// The blocks that a rank offers and takes.
#[derive(Default)]
struct Exchange {
    input: Vec<i64>,
    offered: Vec<Range<usize>>,
    parts: usize,
    taker: Option<usize>,
    receives: Vec<ReceiveBlock>,
    output: Vec<i64>,
}

/// What ranks contribute to these elements of the whole.
fn of_rank(rank: usize, elements: Range<usize>) -> Vec<i64> {
    let value = |element| i64::try_from(rank * 1_000 + element).unwrap();
    elements.map(value).collect()
}

impl Case {
    fn world(&self) -> usize {
        self.lengths.len()
    }

    fn block(&self, rank: usize) -> Range<usize> {
        let start = self.lengths[..rank].iter().sum();
        start..start + self.lengths[rank]
    }

    fn whole(&self) -> Range<usize> {
        0..self.lengths.iter().sum()
    }

    fn is_even(&self) -> bool {
        self.lengths.iter().all(|len| *len == self.lengths[0])
    }

    fn request(&self) -> Request {
        let len = match self.kind {
            Kind::Gather | Kind::Scatter if self.is_even() => self.lengths[0],
            _ => self.whole().len(),
        };
        let reduces = [Kind::AllReduce, Kind::Reduce, Kind::ReduceScatter].contains(&self.kind);
        let request = Request::unrecorded(Contract {
            epoch: 0,
            group: 0,
            sequence: 1,
            kind: self.kind,
            algorithm: self.algorithm,
            element: ElementType::I64,
            count: len as u64,
            op: reduces.then_some(ReduceOp::Sum),
            root: self.root,
        });
        Request {
            digest: u64::from(!self.is_even()),
            ..request
        }
    }

    fn sum(&self, elements: Range<usize>) -> Vec<i64> {
        let mut sum = vec![0; elements.len()];
        for rank in 0..self.world() {
            let own = of_rank(rank, elements.clone());
            sum.iter_mut().zip(own).for_each(|(sum, own)| *sum += own);
        }
        sum
    }

    /// What a rank ends with.
    fn expected(&self, me: usize) -> Vec<i64> {
        let ranks = 0..self.world();
        let is_root = self.root == Some(Rank::at(me));
        match (self.kind, self.root) {
            (Kind::AllReduce, _) => self.sum(self.whole()),
            (Kind::Reduce, _) if is_root => self.sum(self.whole()),
            (Kind::Reduce, _) => of_rank(me, self.whole()),
            (Kind::Broadcast, Some(root)) => of_rank(root.index(), self.whole()),
            (Kind::ReduceScatter, _) => self.sum(self.block(me)),
            (Kind::Gather, _) if !is_root => Vec::new(),
            (Kind::AllGather | Kind::Gather, _) => ranks
                .flat_map(|rank| of_rank(rank, self.block(rank)))
                .collect(),
            (Kind::Scatter, Some(root)) => of_rank(root.index(), self.block(me)),
            (Kind::AllToAll, _) => ranks
                .flat_map(|rank| of_rank(rank, self.block(me)))
                .collect(),
            _ => Vec::new(),
        }
    }

    /// What a rank has for others, or takes from them.
    fn exchange(&self, me: usize) -> Exchange {
        let (own, root) = (self.block(me), self.root.map(Rank::index));
        match (self.kind, root) {
            (Kind::AllGather, _) => Exchange {
                receives: self.gathers(me),
                output: self.gathered(me),
                ..self.one_block(me)
            },
            (Kind::Gather, Some(root)) if root == me => Exchange {
                receives: self.gathers(me),
                output: self.gathered(me),
                ..Exchange::default()
            },
            (Kind::Gather, taker) => Exchange {
                taker,
                ..self.one_block(me)
            },
            (Kind::Scatter, Some(root)) if root != me => Exchange {
                receives: vec![ReceiveBlock::new(root, me, own.start, 0..own.len())],
                output: vec![0; own.len()],
                parts: self.world(),
                ..Exchange::default()
            },
            (Kind::Scatter, _) => self.each_block(me),
            (Kind::AllToAll, _) => {
                let into = |from: usize| from * own.len()..(from + 1) * own.len();
                let take = |from| ReceiveBlock::new(from, me, own.start, into(from));
                Exchange {
                    receives: self.others(me).map(take).collect(),
                    output: of_rank(me, own.clone()).repeat(self.world()),
                    ..self.each_block(me)
                }
            }
            _ => {
                let take = |from| ReceiveBlock::new(from, me, own.start, 0..own.len());
                Exchange {
                    receives: self.others(me).map(take).collect(),
                    ..self.each_block(me)
                }
            }
        }
    }

    fn others(&self, me: usize) -> impl Iterator<Item = usize> + use<> {
        (0..self.world()).filter(move |from| *from != me)
    }

    fn gathers(&self, me: usize) -> Vec<ReceiveBlock> {
        let take = |from| ReceiveBlock::new(from, 0, 0, self.block(from));
        self.others(me).map(take).collect()
    }

    /// Room for all blocks, with that of this rank in its place.
    fn gathered(&self, me: usize) -> Vec<i64> {
        let mut gathered = vec![0; self.whole().len()];
        gathered[self.block(me)].copy_from_slice(&of_rank(me, self.block(me)));
        gathered
    }

    fn one_block(&self, me: usize) -> Exchange {
        let own = self.block(me);
        Exchange {
            offered: iter::once(0..own.len()).collect(),
            input: of_rank(me, own),
            parts: 1,
            ..Exchange::default()
        }
    }

    fn each_block(&self, me: usize) -> Exchange {
        Exchange {
            input: of_rank(me, self.whole()),
            offered: (0..self.world()).map(|rank| self.block(rank)).collect(),
            parts: self.world(),
            output: of_rank(me, self.block(me)),
            ..Exchange::default()
        }
    }

    /// Carries the case out, and says whom it was to be done with and what the rank ends with.
    async fn carry_out(
        &self,
        me: Rank,
        call_graph: CallGraph,
        memory: (&mut Links, &mut Scratch),
    ) -> (BTreeSet<Rank>, Vec<i64>) {
        let (links, scratch) = memory;
        let operation = LinkOperation {
            me,
            world: u32::try_from(self.world()).unwrap(),
            request: &self.request(),
            call_graph,
            ring: None,
            wait: &WaitState::new(me),
        };
        let mut run = async |work: Work<'_, i64>| {
            let work = work.into();
            let peers = operation.peers(&work);
            let done = operation.carry_out(links, scratch, work).await;
            assert!(done.is_ok(), "{self:?}, {me}");
            peers
        };
        let reduction = Reduction::new(ReduceOp::Sum).unwrap();
        let mut whole = of_rank(me.index(), self.whole());
        let buffer = &mut whole[..];
        let work = match (self.kind, self.root) {
            (Kind::Barrier, _) => return (run(Work::Barrier).await, Vec::new()),
            (Kind::Leave, _) => return (run(Work::Agree).await, Vec::new()),
            (Kind::AllReduce | Kind::Reduce, root) => Work::Reduce {
                buffer,
                reduction,
                root,
            },
            (Kind::Broadcast, Some(root)) => Work::Broadcast { buffer, root },
            _ => {
                let mut exchange = self.exchange(me.index());
                let transfer = exchange.transfer(self.kind, reduction);
                return (run(Work::Exchange(transfer)).await, exchange.output);
            }
        };
        (run(work).await, whole)
    }

    /// Whether ranks have but few peers in it.
    fn needs_few(&self) -> bool {
        let many = [
            Algorithm::OneShot,
            Algorithm::Direct,
            Algorithm::Hierarchical,
        ];
        let is_many = self
            .algorithm
            .is_none_or(|algorithm| many.contains(&algorithm));
        let request = self.request();
        let is_direct = matches!(Route::of(&request.contract, request.digest), Route::Direct);
        match self.kind {
            Kind::Barrier | Kind::Leave => true,
            Kind::AllReduce | Kind::Reduce | Kind::Broadcast => !is_many,
            _ => !is_direct,
        }
    }

    /// All ranks end with what they should, and have to do with those who were told before.
    fn holds(&self, scratch: &mut [Scratch]) {
        for call_graph in CALL_GRAPHS {
            self.holds_with(call_graph, scratch);
        }
    }

    fn holds_with(&self, call_graph: CallGraph, scratch: &mut [Scratch]) {
        let world = self.world();
        let touched: Vec<Touched> = (0..world).map(|_| Touched::default()).collect();
        // A call fits: it is told before anything is taken in.
        let links = links(world, [512, 512]);
        let mut links: Vec<_> = links
            .into_iter()
            .zip(&touched)
            .map(|(links, touched)| watched(links, touched))
            .collect();
        let ranks = links.iter_mut().zip(&mut *scratch).enumerate();
        let ended =
            together(ranks.map(|(me, memory)| self.carry_out(Rank::at(me), call_graph, memory)));
        let few = 3 * world.ilog2() as usize + 1;
        for (me, (peers, result)) in ended.into_iter().enumerate() {
            assert_eq!(result, self.expected(me), "{self:?}, rank {me}");
            let touched = touched[me].lock().unwrap();
            assert!(
                touched.is_subset(&peers),
                "{self:?}, rank {me}: {touched:?} beside {peers:?}"
            );
            let has_few = peers.len() <= few.min(world - 1);
            assert!(
                has_few || !self.needs_few(),
                "{self:?}, rank {me}: {peers:?}"
            );
        }
        // Nothing was left in the streams.
        let next = Self {
            kind: Kind::Barrier,
            root: None,
            ..self.clone()
        };
        let ranks = links.iter_mut().zip(scratch).enumerate();
        together(ranks.map(|(me, memory)| next.carry_out(Rank::at(me), call_graph, memory)));
    }
}

impl Exchange {
    fn transfer(&mut self, kind: Kind, reduction: Reduction<i64>) -> Transfer<'_, i64> {
        Transfer {
            outgoing_blocks: SendBlocks {
                input: &self.input,
                blocks: &self.offered,
                parts: self.parts,
                taker: self.taker,
                counts: None,
            },
            receives: &self.receives,
            output: &mut self.output,
            then: match kind {
                Kind::ReduceScatter => OnArrival::Fold(reduction),
                _ => OnArrival::Copy,
            },
        }
    }
}

/// Every operation of all ranks by every algorithm and by none, with these blocks.
fn every(lengths: &[usize], roots: &[usize]) -> Vec<Case> {
    let algorithms = Algorithm::ALL.map(Some).into_iter().chain([None]);
    let mut cases = Vec::new();
    for algorithm in algorithms {
        let mut add = |kind, root: Option<usize>| {
            cases.push(Case {
                kind,
                algorithm,
                root: root.map(Rank::at),
                lengths: lengths.to_vec(),
            });
        };
        for kind in [
            Kind::AllReduce,
            Kind::ReduceScatter,
            Kind::AllGather,
            Kind::AllToAll,
            Kind::Barrier,
            Kind::Leave,
        ] {
            add(kind, None);
        }
        for kind in [Kind::Reduce, Kind::Broadcast, Kind::Gather, Kind::Scatter] {
            roots.iter().for_each(|root| add(kind, Some(*root)));
        }
    }
    cases
}

/// All of these cases, with memory that each rank keeps from one to the next, as in a group.
fn all_hold(cases: &[Case]) {
    let world = cases[0].world();
    let mut scratch: Vec<_> = (0..world).map(|_| Scratch::new()).collect();
    cases.iter().for_each(|case| case.holds(&mut scratch));
}

#[test]
fn every_operation_is_right_by_every_algorithm_and_with_the_peers_that_were_told_before() {
    for world in 2..=9 {
        let uneven: Vec<usize> = (0..world).map(|rank| rank * 7 % 4).collect();
        for lengths in [vec![3; world], vec![0; world], uneven] {
            let roots: Vec<usize> = (0..world).collect();
            all_hold(&every(&lengths, &roots));
        }
    }
}

#[test]
fn larger_worlds_end_right_too_and_grow_with_the_logarithm() {
    for world in [16, 33] {
        let uneven: Vec<usize> = (0..world).map(|rank| rank % 3).collect();
        for lengths in [vec![2; world], uneven] {
            all_hold(&every(&lengths, &[world / 2]));
        }
    }
}

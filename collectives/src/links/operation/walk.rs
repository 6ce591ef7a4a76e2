//! The rounds of a schedule on one buffer.
//!
//! What a rank sends and what it receives are two flows, and neither waits for the other's rounds,
//! only for the very elements that it needs: what was received and reduced goes out again while the
//! rest of it still comes in. That is what keeps a link busy at the ends of the rounds.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use meshwork_accel::{Element, Error, Reduction};

use super::combine::Combine;
use super::flow::{Places, Progress};
use super::{CallGraph, ChunkReader, LinkOperation, PIECE_BYTES, Scratch};
use crate::Rank;
use crate::contract::Contract;
use crate::failure::Failure;
use crate::links::{LinkWriters, Links};
use crate::schedule::{Blocks, OnReceive, Receive, Round, Schedule, Send};
use crate::wire::FrameType;

impl LinkOperation<'_> {
    /// Walks a schedule on `buffer`, cut evenly.
    pub(crate) async fn walk<T: Element>(
        &self,
        schedule: Schedule,
        links: &mut Links,
        scratch: &mut Scratch,
        buffer: &mut [T],
    ) -> Result<(), Failure> {
        let blocks = Blocks::even(buffer.len(), schedule.blocks());
        let whole = CutBuffer::new(buffer, blocks);
        self.walk_cut(schedule, links, scratch, whole).await
    }

    /// Walks a schedule on a buffer, which holds unspecified values if it stops.
    ///
    /// Takes memory of its own for what is received only where a round reduces from several ranks
    /// at once: as much as all that they send.
    pub(super) async fn walk_cut<T: Element>(
        &self,
        schedule: Schedule,
        links: &mut Links,
        scratch: &mut Scratch,
        whole: CutBuffer<'_, T>,
    ) -> Result<(), Failure> {
        let Contract { element, op, .. } = self.request.contract;
        let reduction = op.map(|op| Reduction::carrying(element, op)).transpose()?;
        let combine = reduction.map(|reduction| Combine::by(&schedule, reduction));
        let Links {
            outgoing, incoming, ..
        } = links;
        let mut chunk_reader = ChunkReader::new(self, incoming, scratch);
        let CutBuffer { buffer, blocks } = whole;
        let walk = Walk {
            operation: self,
            blocks,
            schedule,
            combine,
            buffer: RefCell::new(buffer),
            sent: Progress::default(),
            received: Progress::default(),
            announced: Cell::new(false),
        };
        tokio::try_join!(walk.send_all(outgoing), walk.receive_all(&mut chunk_reader))?;
        if let Some(combine) = combine {
            combine.finish(buffer, self.world);
        }
        Ok(())
    }
}

/// A buffer, and how it is cut in the blocks of a schedule.
pub(super) struct CutBuffer<'a, T> {
    buffer: &'a mut [T],
    blocks: Blocks,
}

impl<'a, T> CutBuffer<'a, T> {
    pub(super) fn new(buffer: &'a mut [T], blocks: Blocks) -> Self {
        Self { buffer, blocks }
    }
}

/// One walk of one rank. The buffer is borrowed only while bytes are handed over, never while one
/// of the two flows waits.
struct Walk<'a, T: Element> {
    operation: &'a LinkOperation<'a>,
    schedule: Schedule,
    blocks: Blocks,
    combine: Option<Combine<T>>,
    buffer: RefCell<&'a mut [T]>,
    sent: Progress,
    received: Progress,
    /// Whether this rank has told of its call.
    announced: Cell<bool>,
}

impl<T: Element> Walk<'_, T> {
    async fn send_all(&self, outgoing: &mut LinkWriters) -> Result<(), Failure> {
        if !self.announces_with_a_chunk() {
            self.announce(outgoing).await?;
        }
        let mut before = Places::new(&self.blocks);
        for round in self.schedule.rounds() {
            for send in round.sends() {
                self.send(outgoing, send, &round, &before).await?;
            }
            for receive in round.receives() {
                before.count(&self.blocks, receive.blocks.clone());
            }
        }
        Ok(())
    }

    /// Sends what is in some blocks, each piece as soon as what was received for it in the rounds
    /// before is there.
    async fn send(
        &self,
        outgoing: &mut LinkWriters,
        send: &Send,
        round: &Round,
        before: &Places,
    ) -> Result<(), Failure> {
        let whole = self.blocks.elements(send.blocks.clone());
        let bytes = whole.len() * size_of::<T>();
        let needed = |piece: &Range<usize>| before.of(&self.blocks, send.blocks.clone(), piece);
        // A message without elements says no more than that its sender has come so far. Others
        // begin when there is something to say: head and elements are one packet then.
        let first = pieces::<T>(whole.clone()).next();
        let first = first.map_or_else(|| before.all(), |piece| needed(&piece));
        self.wait_for_received(first, outgoing).await?;
        if self.operation.told() == Some(send.to) && !self.announced.get() {
            self.announce(outgoing).await?;
        }
        let header = self.operation.frame(FrameType::Chunk, bytes).encode();
        outgoing.send(send.to, &header).await?;
        self.sent.advance(1);
        for piece in pieces::<T>(whole) {
            self.received.reach(needed(&piece)).await;
            if round.receives().is_empty() {
                self.operation.wait.waits_for(send.to);
            }
            let length = piece.len();
            outgoing.send_part(send.to, &self.buffer, piece).await?;
            self.sent.advance(length);
        }
        Ok(())
    }

    /// Whether the call travels with a chunk, which saves a packet: in a tree, where it goes to one
    /// that gets a chunk of this rank's.
    fn announces_with_a_chunk(&self) -> bool {
        let told = self.operation.told();
        let goes_to_told = |round: Round| round.sends().iter().any(|send| Some(send.to) == told);
        self.operation.call_graph == CallGraph::Tree && self.schedule.rounds().any(goes_to_told)
    }

    async fn announce(&self, outgoing: &mut LinkWriters) -> Result<(), Failure> {
        self.announced.set(true);
        self.operation.announce(outgoing).await
    }

    /// Waits until so much is received. If that lasts, others may wait for this rank in another
    /// call, and are told of this one.
    async fn wait_for_received(
        &self,
        place: u64,
        outgoing: &mut LinkWriters,
    ) -> Result<(), Failure> {
        if !self.announced.get() {
            tokio::select! {
                biased;
                () = self.received.reach(place) => return Ok(()),
                () = self.operation.wait.is_long.reach(1) => {}
            }
            self.announce(outgoing).await?;
        }
        self.received.reach(place).await;
        Ok(())
    }

    async fn receive_all(&self, chunk_reader: &mut ChunkReader<'_>) -> Result<(), Failure> {
        match self.operation.call_graph {
            CallGraph::Ring => {
                let first = first_sender(&self.schedule);
                chunk_reader.check_all(|from| first == Some(from)).await?;
            }
            CallGraph::Tree => {
                let senders: BTreeSet<Rank> = senders(&self.schedule).collect();
                chunk_reader
                    .check_all(|from| senders.contains(&from))
                    .await?;
            }
        }
        let mut before = Places::new(&self.blocks);
        for round in self.schedule.rounds() {
            for send in round.sends() {
                before.count(&self.blocks, send.blocks.clone());
            }
            if let Some(combine) = self.combine.filter(|_| meets_several(&round)) {
                self.fold(&round, chunk_reader, combine, &before).await?;
                continue;
            }
            for receive in round.receives() {
                self.receive(chunk_reader, receive, &round, &before).await?;
            }
        }
        Ok(())
    }

    /// Takes in what comes for some blocks, each piece as soon as what it changes is out.
    async fn receive(
        &self,
        chunk_reader: &mut ChunkReader<'_>,
        receive: &Receive,
        round: &Round,
        before: &Places,
    ) -> Result<(), Failure> {
        let Receive { from, blocks, then } = receive;
        let whole = self.blocks.elements(blocks.clone());
        chunk_reader.head::<T>(*from, whole.len()).await?;
        self.received.advance(1);
        let combine = self.combine.filter(|_| *then == OnReceive::Reduce);
        let first = match round.exchanges() && *from < self.operation.me {
            true => First::Received,
            false => First::Own,
        };
        for piece in pieces::<T>(whole) {
            let out = self
                .sent
                .reach(before.of(&self.blocks, blocks.clone(), &piece));
            let length = piece.len();
            match combine {
                None => {
                    out.await;
                    chunk_reader
                        .incoming
                        .receive_part(*from, &self.buffer, piece)
                        .await?;
                }
                Some(combine) => {
                    // Read first, so that a pair of ranks that exchange never wait for each other.
                    let read = chunk_reader.piece::<T>(*from, length).await?;
                    out.await;
                    let mut buffer = self.buffer.borrow_mut();
                    let own = &mut buffer[piece];
                    apply(own, read, combine, first)?;
                }
            }
            self.received.advance(length);
        }
        Ok(())
    }

    /// Receives beside the buffer, then reduces what came for each part at once.
    async fn fold(
        &self,
        round: &Round,
        chunk_reader: &mut ChunkReader<'_>,
        combine: Combine<T>,
        before: &Places,
    ) -> Result<(), Failure> {
        let mut arrived = Vec::new();
        let mut out = 0;
        for Receive { from, blocks, .. } in round.receives() {
            let elements = self.blocks.elements(blocks.clone());
            let mut part = vec![T::default(); elements.len()];
            chunk_reader.chunk(*from, &mut part).await?;
            out = out.max(before.of(&self.blocks, blocks.clone(), &elements));
            arrived.push((elements, *from, part));
        }
        self.sent.reach(out).await;
        let mut buffer = self.buffer.borrow_mut();
        let folded = fold_arrived(self.operation.me, &arrived, &mut buffer, combine);
        folded?;
        for (elements, ..) in arrived {
            self.received.advance(1 + elements.len());
        }
        Ok(())
    }
}

/// The elements, some at a time.
fn pieces<T>(whole: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let length = PIECE_BYTES / size_of::<T>();
    let end = whole.end;
    whole
        .step_by(length)
        .map(move |start| start..end.min(start + length))
}

/// Whose contribution is on the left of a reduction of two.
#[derive(Clone, Copy)]
enum First {
    Own,
    Received,
}

/// Reduces what was read into what is there.
fn apply<T: Element>(
    own: &mut [T],
    read: &mut [T],
    combine: Combine<T>,
    first: First,
) -> Result<(), Error> {
    match first {
        First::Received => {
            combine.pair(read, own)?;
            own.copy_from_slice(read);
        }
        First::Own => combine.pair(own, read)?,
    }
    Ok(())
}

/// Elements that were received, from whom, and what they are.
type Arrived<T> = (Range<usize>, Rank, Vec<T>);

/// Reduces, in the order of the ranks, all that came for each part of the buffer with what is
/// there.
fn fold_arrived<T: Element>(
    me: Rank,
    arrived: &[Arrived<T>],
    buffer: &mut [T],
    combine: Combine<T>,
) -> Result<(), Error> {
    let mut parts: BTreeMap<(usize, usize), BTreeMap<Rank, &[T]>> = BTreeMap::new();
    for (elements, from, part) in arrived {
        let range = (elements.start, elements.end);
        parts.entry(range).or_default().insert(*from, part);
    }
    for ((start, end), mut sources) in parts {
        let own = buffer[start..end].to_vec();
        sources.insert(me, &own);
        let sources: Vec<&[T]> = sources.into_values().collect();
        combine.several(&mut buffer[start..end], &sources)?;
    }
    Ok(())
}

/// Whether what is received cannot be reduced as it comes, because several ranks' meet, which are
/// reduced in their order.
fn meets_several(round: &Round) -> bool {
    let mut reduced: Vec<usize> = round
        .receives()
        .iter()
        .filter(|receive| receive.then == OnReceive::Reduce)
        .map(|receive| receive.blocks.start)
        .collect();
    reduced.sort_unstable();
    reduced.windows(2).any(|pair| pair[0] == pair[1])
}

/// Whom the first chunk comes from, if any does.
fn first_sender(schedule: &Schedule) -> Option<Rank> {
    senders(schedule).next()
}

/// Whom chunks come from, in their order.
fn senders(schedule: &Schedule) -> impl Iterator<Item = Rank> {
    let rounds = schedule.rounds();
    rounds.flat_map(|round| {
        let from: Vec<Rank> = round
            .receives()
            .iter()
            .map(|receive| receive.from)
            .collect();
        from
    })
}

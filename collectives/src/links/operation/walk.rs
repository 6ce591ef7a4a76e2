//! The rounds of a schedule on one buffer.
//!
//! What a rank sends and what it receives are two flows, and neither waits for the other's rounds,
//! only for the very elements that it needs: what was received and reduced goes out again while the
//! rest of it still comes in. That is what keeps a link busy at the ends of the rounds.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;

use meshwork_accel::Error;

use super::bytes::AlignedBytes;
use super::combine::{Combine, reduction_of_bytes};
use super::flow::{Places, Progress};
use super::{CallGraph, ChunkReader, LinkOperation, PIECE_BYTES, Scratch};
use crate::Rank;
use crate::contract::Contract;
use crate::failure::Failure;
use crate::links::{LinkReaders, LinkWriters, Links};
use crate::schedule::{Blocks, KNOMIAL_RADIX, OnReceive, Receive, Round, Schedule, Send};
use crate::wire::FrameType;

/// Bytes that are taken in from each of several ranks before they are reduced: of eight, as many as
/// of one.
const FOLDED_BYTES: usize = PIECE_BYTES / KNOMIAL_RADIX;

impl LinkOperation<'_> {
    /// Walks a schedule on the elements of `buffer`, cut evenly.
    pub(crate) async fn walk(
        &self,
        schedule: Schedule,
        links: &mut Links,
        scratch: &mut Scratch,
        buffer: &mut [u8],
    ) -> Result<(), Failure> {
        let size = self.request.contract.element.size();
        let blocks = Blocks::even(buffer.len() / size, schedule.blocks())
            .in_parts(size)
            .expect("the bytes are in memory");
        let whole = CutBuffer::new(buffer, blocks);
        self.walk_cut(schedule, links, scratch, whole).await
    }

    /// Walks a schedule on a buffer, which holds unspecified values if it stops.
    ///
    /// Takes memory of its own for what is received only where a round reduces from several ranks
    /// at once: as much as all that they send, or some pieces where nothing is sent in it.
    pub(super) async fn walk_cut(
        &self,
        schedule: Schedule,
        links: &mut Links,
        scratch: &mut Scratch,
        whole: CutBuffer<'_>,
    ) -> Result<(), Failure> {
        let Contract { element, op, .. } = self.request.contract;
        let reduction = op.map(|op| reduction_of_bytes(element, op)).transpose()?;
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
            unheard: Cell::new(None),
            received_all: Cell::new(false),
        };
        let senders: Vec<Rank> = senders(&walk.schedule).collect();
        let callers = chunk_reader.set_aside(|from| senders.contains(&from));
        tokio::try_join!(
            walk.send_all(outgoing),
            walk.receive_all(&mut chunk_reader, senders.first().copied()),
            walk.hear_calls(incoming, callers),
        )?;
        if let Some(combine) = walk.combine {
            combine.finish(walk.buffer.into_inner(), self.world);
        }
        Ok(())
    }
}

/// A buffer, and how its bytes are cut in the blocks of a schedule.
pub(super) struct CutBuffer<'a> {
    buffer: &'a mut [u8],
    blocks: Blocks,
}

impl<'a> CutBuffer<'a> {
    pub(super) fn new(buffer: &'a mut [u8], blocks: Blocks) -> Self {
        Self { buffer, blocks }
    }
}

/// One walk of one rank. The buffer is borrowed only while bytes are handed over, never while one
/// of the two flows waits.
struct Walk<'a> {
    operation: &'a LinkOperation<'a>,
    schedule: Schedule,
    blocks: Blocks,
    combine: Option<Combine>,
    buffer: RefCell<&'a mut [u8]>,
    sent: Progress,
    received: Progress,
    /// Whether this rank has told of its call.
    announced: Cell<bool>,
    /// Whose call is read beside the chunks.
    unheard: Cell<Option<Rank>>,
    received_all: Cell<bool>,
}

impl Walk<'_> {
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
        let bytes = whole.len();
        let needed = |piece: &Range<usize>| before.of(&self.blocks, send.blocks.clone(), piece);
        // A message without elements says no more than that its sender has come so far. Others
        // begin when there is something to say: head and elements are one packet then.
        let first = pieces(whole.clone(), PIECE_BYTES).next();
        let first = first.map_or_else(|| before.all(), |piece| needed(&piece));
        self.wait_for_received(first, outgoing).await?;
        if self.operation.told() == Some(send.to) && !self.announced.get() {
            self.announce(outgoing).await?;
        }
        let header = self.operation.frame(FrameType::Chunk, bytes).encode();
        outgoing.send(send.to, &header).await?;
        self.sent.advance(1);
        for piece in pieces(whole, PIECE_BYTES) {
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

    /// Takes in all chunks, and the calls that stand before the first of each rank. In a ring one
    /// that is not before the very first chunk is read at once, as its chunk may come late.
    async fn receive_all(
        &self,
        chunk_reader: &mut ChunkReader<'_>,
        first: Option<Rank>,
    ) -> Result<(), Failure> {
        if self.operation.call_graph == CallGraph::Ring {
            chunk_reader.check_all(|from| first == Some(from)).await?;
        }
        let mut before = Places::new(&self.blocks);
        for round in self.schedule.rounds() {
            for send in round.sends() {
                before.count(&self.blocks, send.blocks.clone());
            }
            if let Some(combine) = self.combine.as_ref().filter(|_| meets_several(&round)) {
                match Meeting::of(&round) {
                    Some(meeting) => {
                        let folded = self.fold_pieces(&meeting, chunk_reader, combine, &before);
                        folded.await?;
                    }
                    None => self.fold(&round, chunk_reader, combine, &before).await?,
                }
                continue;
            }
            for receive in round.receives() {
                self.receive(chunk_reader, receive, &round, &before).await?;
            }
        }
        self.received_all.set(true);
        self.wait_for_unheard();
        Ok(())
    }

    /// Reads the calls of those from whom no chunk comes, which holds up none of the others'.
    async fn hear_calls(&self, incoming: &LinkReaders, callers: Vec<Rank>) -> Result<(), Failure> {
        for from in callers {
            self.unheard.set(Some(from));
            self.wait_for_unheard();
            self.operation.read_call(incoming, from).await?;
        }
        self.unheard.set(None);
        Ok(())
    }

    /// Says for whom this rank waits, if it is for a call alone.
    fn wait_for_unheard(&self) {
        let unheard = self.unheard.get().filter(|_| self.received_all.get());
        if let Some(from) = unheard {
            self.operation.wait.waits_for(from);
        }
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
        chunk_reader.head(*from, whole.len()).await?;
        self.received.advance(1);
        let combine = self.combine.as_ref().filter(|_| *then == OnReceive::Reduce);
        let first = match round.exchanges() && *from < self.operation.me {
            true => First::Received,
            false => First::Own,
        };
        for piece in pieces(whole, PIECE_BYTES) {
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
                    let read = chunk_reader.piece(*from, length).await?;
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

    /// Receives a piece from each, and reduces them at once, piece by piece.
    async fn fold_pieces(
        &self,
        meeting: &Meeting,
        chunk_reader: &mut ChunkReader<'_>,
        combine: &Combine,
        before: &Places,
    ) -> Result<(), Failure> {
        let Meeting { blocks, from } = meeting;
        let whole = self.blocks.elements(blocks.clone());
        for rank in from {
            chunk_reader.head(*rank, whole.len()).await?;
        }
        // All but the last are counted before it.
        self.received
            .advance(from.len() + (from.len() - 1) * whole.len());
        let length = whole.len().min(FOLDED_BYTES);
        let mut read: Vec<_> = from.iter().map(|_| AlignedBytes::zeroed(length)).collect();
        for piece in pieces(whole, FOLDED_BYTES) {
            let mut arrived = BTreeMap::new();
            for (rank, read) in from.iter().zip(&mut read) {
                let read = &mut read[..piece.len()];
                chunk_reader.part(*rank, read).await?;
                arrived.insert(*rank, &*read);
            }
            let out = before.of(&self.blocks, blocks.clone(), &piece);
            self.sent.reach(out).await;
            let length = piece.len();
            let own = &mut self.buffer.borrow_mut()[piece];
            combine_in_order(self.operation.me, own, arrived, combine)?;
            self.received.advance(length);
        }
        Ok(())
    }

    /// Receives beside the buffer, then reduces what came for each part at once.
    async fn fold(
        &self,
        round: &Round,
        chunk_reader: &mut ChunkReader<'_>,
        combine: &Combine,
        before: &Places,
    ) -> Result<(), Failure> {
        let mut arrived: Vec<Arrived> = Vec::new();
        let mut out = 0;
        for Receive { from, blocks, .. } in round.receives() {
            let elements = self.blocks.elements(blocks.clone());
            let mut part = AlignedBytes::zeroed(elements.len());
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

/// The bytes, so many at a time, with no element in two.
fn pieces(whole: Range<usize>, length: usize) -> impl Iterator<Item = Range<usize>> {
    let end = whole.end;
    whole
        .step_by(length)
        .map(move |start| start..end.min(start + length))
}

/// What several ranks send for the same blocks in a round in which nothing goes out, as to a rank
/// above them in a tree: so nobody waits for one of them while it is read from all at once.
struct Meeting {
    blocks: Range<usize>,
    from: Vec<Rank>,
}

impl Meeting {
    fn of(round: &Round) -> Option<Self> {
        let (first, others) = round.receives().split_first()?;
        let meets = |other: &Receive| (&other.blocks, other.then) == (&first.blocks, first.then);
        let only_meets = round.sends().is_empty() && others.iter().all(meets);
        only_meets.then(|| Self {
            blocks: first.blocks.clone(),
            from: round
                .receives()
                .iter()
                .map(|receive| receive.from)
                .collect(),
        })
    }
}

/// Whose contribution is on the left of a reduction of two.
#[derive(Clone, Copy)]
enum First {
    Own,
    Received,
}

/// Reduces what was read into what is there.
fn apply(own: &mut [u8], read: &mut [u8], combine: &Combine, first: First) -> Result<(), Error> {
    match first {
        First::Received => {
            combine.pair(read, own)?;
            own.copy_from_slice(read);
        }
        First::Own => combine.pair(own, read)?,
    }
    Ok(())
}

/// Which bytes were received, from whom, and what they are.
type Arrived = (Range<usize>, Rank, AlignedBytes);

/// Reduces, in the order of the ranks, all that came for each part of the buffer with what is
/// there.
fn fold_arrived(
    me: Rank,
    arrived: &[Arrived],
    buffer: &mut [u8],
    combine: &Combine,
) -> Result<(), Error> {
    let mut parts: BTreeMap<(usize, usize), BTreeMap<Rank, &[u8]>> = BTreeMap::new();
    for (bytes, from, part) in arrived {
        let range = (bytes.start, bytes.end);
        parts.entry(range).or_default().insert(*from, part);
    }
    for ((start, end), sources) in parts {
        combine_in_order(me, &mut buffer[start..end], sources, combine)?;
    }
    Ok(())
}

/// Reduces what several have sent, and what is there, in the order of the ranks.
fn combine_in_order(
    me: Rank,
    own: &mut [u8],
    others: BTreeMap<Rank, &[u8]>,
    combine: &Combine,
) -> Result<(), Error> {
    let copied = AlignedBytes::copied(own);
    let mut sources: BTreeMap<Rank, &[u8]> = others;
    sources.insert(me, &copied);
    let sources: Vec<&[u8]> = sources.into_values().collect();
    combine.several(own, &sources)
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

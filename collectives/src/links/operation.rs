//! Walks a schedule over links: the only place where schedules, contracts and bytes meet.
//!
//! Every rank tells another which call it makes, and checks what others tell it: see [`CallGraph`].
//! Every chunk carries the contract again: no byte of another operation is ever taken in.

mod bytes;
mod call_graph;
mod combine;
mod exchange;
mod flow;
mod multi_hop;
mod peers;
mod walk;

use std::cell::Cell;

use meshwork_accel::ElementType;

use super::{LinkReaders, LinkWriters, Links};
use crate::Rank;
use crate::contract::{Call, SITE_LIMIT, site, told_site};
use crate::failure::Failure;
use crate::operation::Request;
use crate::schedule::{Algorithm, Collective, Hosts, RingOrder, Schedule};
use crate::wire::{FRAME_BYTES, Frame, FrameType, WireError};

use bytes::AlignedBytes;
pub(crate) use bytes::BytesWork;
pub(crate) use call_graph::CallGraph;
pub(super) use exchange::Route;
use flow::Progress;

/// Bytes that are handed over at a time. Small, so that what comes in can soon go out again, and
/// stays in a core's cache until it is reduced.
const PIECE_BYTES: usize = 64 * 1024;

/// Memory that operations of one group share, so that none allocates for itself.
#[derive(Debug)]
pub(crate) struct Scratch(Vec<u64>);

impl Scratch {
    pub(crate) fn new() -> Self {
        Self(vec![0; PIECE_BYTES / size_of::<u64>()])
    }
}

/// One operation of one rank.
pub(crate) struct LinkOperation<'a> {
    pub(crate) me: Rank,
    pub(crate) world: u32,
    pub(crate) request: &'a Request,
    pub(crate) call_graph: CallGraph,
    /// The order of ranks around a ring, where it is not that of their numbers.
    pub(crate) ring: Option<&'a RingOrder>,
    pub(crate) wait: &'a WaitState,
}

/// What an operation that waits is known by to whoever watches it.
#[derive(Debug)]
pub(crate) struct WaitState {
    /// Whom it waits for at the moment, for the error if it takes too long.
    waits_for: Cell<Rank>,
    /// Advanced once the wait is so long that the others should know the call.
    is_long: Progress,
}

impl WaitState {
    /// Waits for nobody yet.
    pub(crate) fn new(me: Rank) -> Self {
        Self {
            waits_for: Cell::new(me),
            is_long: Progress::default(),
        }
    }

    pub(crate) fn awaited(&self) -> Rank {
        self.waits_for.get()
    }

    pub(crate) fn waits_for(&self, rank: Rank) {
        self.waits_for.set(rank);
    }

    /// The operation has waited for long.
    pub(crate) fn lasts(&self) {
        self.is_long.advance(1);
    }
}

impl LinkOperation<'_> {
    pub(super) async fn carry_out(
        &self,
        links: &mut Links,
        scratch: &mut Scratch,
        work: BytesWork<'_>,
    ) -> Result<(), Failure> {
        match work {
            BytesWork::Barrier => {
                let barrier = self.schedule(Collective::Barrier);
                self.walk(barrier, links, scratch, &mut []).await
            }
            BytesWork::Reduce {
                buffer,
                root: Some(root),
            } if root != self.me => {
                // The result is for the root alone; this rank keeps its contribution.
                let mut passing = AlignedBytes::copied(buffer);
                let reduce = self.schedule(Collective::Reduce { root });
                self.walk(reduce, links, scratch, &mut passing).await
            }
            BytesWork::Reduce { buffer, root } => {
                let reduce = |root| Collective::Reduce { root };
                let reduce = self.schedule(root.map_or(Collective::AllReduce, reduce));
                self.walk(reduce, links, scratch, buffer).await
            }
            BytesWork::Broadcast { buffer, root } => {
                let broadcast = self.schedule(Collective::Broadcast { root });
                self.walk(broadcast, links, scratch, buffer).await
            }
            BytesWork::Agree => self.agree(links, scratch).await,
            BytesWork::Exchange(transfer) => self.exchange(links, scratch, transfer).await,
            BytesWork::Send { input, to } => self.send(links, input, to).await,
            BytesWork::Receive { output, from } => self.receive(links, scratch, output, from).await,
        }
    }

    /// Refuses bytes that are no values of the elements: truth values are carried as numbers, of
    /// which only two are some. Nobody passes others on, so whoever sent them has made them.
    fn check_values(&self, from: Rank, bytes: &[u8]) -> Result<(), Failure> {
        let element = self.request.contract.element;
        match element == ElementType::Bool && bytes.iter().any(|byte| *byte > 1) {
            true => Err(Failure::Protocol(from, WireError::Value { element })),
            false => Ok(()),
        }
    }

    fn schedule(&self, collective: Collective) -> Schedule {
        // Where there is no choice, the step from each rank to each.
        let algorithm = self.request.contract.algorithm.unwrap_or(Algorithm::Direct);
        match self.ring.filter(|_| algorithm == Algorithm::Ring) {
            Some(ring) => Schedule::along(collective, ring, self.me),
            None => Schedule::new(collective, algorithm, &Hosts::apart(self.world), self.me),
        }
    }

    /// Makes sure that all ranks make this call before any goes on. Behind each call stands the
    /// digest, so that no rank takes it for the beginning of an operation whose bytes go by another
    /// way.
    pub(crate) async fn agree(
        &self,
        links: &mut Links,
        scratch: &mut Scratch,
    ) -> Result<(), Failure> {
        let Links {
            outgoing, incoming, ..
        } = links;
        let mut chunk_reader = ChunkReader::new(self, incoming, scratch);
        match self.call_graph {
            CallGraph::Ring => {
                tokio::try_join!(
                    self.tell_digest(outgoing),
                    self.hear_digests(&mut chunk_reader)
                )?;
            }
            CallGraph::Tree => {
                self.announce(outgoing).await?;
                self.hear_digests(&mut chunk_reader).await?;
                let digest = self.request.digest.to_ne_bytes();
                if let Some(above) = self.told() {
                    self.send_chunk(outgoing, above, &digest).await?;
                    chunk_reader.digest(above).await?;
                }
                for below in self.tellers() {
                    self.send_chunk(outgoing, below, &digest).await?;
                }
            }
        }
        Ok(())
    }

    async fn tell_digest(&self, outgoing: &mut LinkWriters) -> Result<(), Failure> {
        self.announce(outgoing).await?;
        match self.told() {
            Some(to) => {
                let digest = self.request.digest.to_ne_bytes();
                self.send_chunk(outgoing, to, &digest).await
            }
            None => Ok(()),
        }
    }

    /// The digests of those who tell this rank of their call, which are to be its own.
    async fn hear_digests(&self, chunk_reader: &mut ChunkReader<'_>) -> Result<(), Failure> {
        for from in self.tellers() {
            let site = chunk_reader.check(from).await?;
            if chunk_reader.digest(from).await? != self.request.digest {
                let call = Call::new(self.request.contract, site.text());
                return Err(disagreement(from, call));
            }
        }
        Ok(())
    }

    async fn send(&self, links: &mut Links, input: &[u8], to: Rank) -> Result<(), Failure> {
        self.wait.waits_for(to);
        self.announce_to(&mut links.outgoing, to).await?;
        self.send_chunk(&mut links.outgoing, to, input).await
    }

    async fn receive(
        &self,
        links: &mut Links,
        scratch: &mut Scratch,
        output: &mut [u8],
        from: Rank,
    ) -> Result<(), Failure> {
        let mut chunk_reader = ChunkReader::new(self, &links.incoming, scratch);
        // A message is between two ranks, and announced by one to the other.
        chunk_reader.check(from).await?;
        chunk_reader.chunk(from, output).await
    }

    async fn announce(&self, outgoing: &mut LinkWriters) -> Result<(), Failure> {
        match self.told() {
            Some(to) => self.announce_to(outgoing, to).await,
            None => Ok(()),
        }
    }

    async fn announce_to(&self, outgoing: &mut LinkWriters, to: Rank) -> Result<(), Failure> {
        let site = site(self.request.caller);
        let site = site.as_bytes();
        let mut bytes = Vec::with_capacity(FRAME_BYTES + site.len());
        bytes.extend(self.frame(FrameType::Call, site.len()).encode());
        bytes.extend_from_slice(site);
        outgoing.send(to, &bytes).await
    }

    async fn send_chunk(
        &self,
        outgoing: &mut LinkWriters,
        to: Rank,
        bytes: &[u8],
    ) -> Result<(), Failure> {
        outgoing
            .send(to, &self.frame(FrameType::Chunk, bytes.len()).encode())
            .await?;
        outgoing.send(to, bytes).await
    }

    /// Reads the call that a rank announces, compares it with this one's, and says where it was
    /// made.
    async fn read_call(&self, incoming: &LinkReaders, from: Rank) -> Result<Site, Failure> {
        let frame = read_frame(incoming, from).await?;
        if frame.frame_type != FrameType::Call {
            return Err(disagreement(from, Call::new(frame.contract, "")));
        }
        let mut site = Site {
            bytes: [0; SITE_LIMIT],
            len: usize::try_from(frame.length.min(SITE_LIMIT as u64)).expect("at most SITE_LIMIT"),
        };
        incoming.receive(from, &mut site.bytes[..site.len]).await?;
        if frame.contract != self.request.contract {
            return Err(disagreement(from, Call::new(frame.contract, site.text())));
        }
        Ok(site)
    }

    fn frame(&self, frame_type: FrameType, length: usize) -> Frame {
        Frame {
            frame_type,
            contract: self.request.contract,
            length: length as u64,
        }
    }

    fn told(&self) -> Option<Rank> {
        self.call_graph.told(self.me, self.world)
    }

    fn tellers(&self) -> Vec<Rank> {
        self.call_graph.tellers(self.me, self.world)
    }
}

fn disagreement(peer: Rank, theirs: Call) -> Failure {
    Failure::Disagreement(peer, Box::new(theirs))
}

/// The line of a call, as it came.
struct Site {
    bytes: [u8; SITE_LIMIT],
    len: usize,
}

impl Site {
    fn text(&self) -> String {
        told_site(&self.bytes[..self.len])
    }
}

/// The receiving side of an operation.
struct ChunkReader<'a> {
    operation: &'a LinkOperation<'a>,
    incoming: &'a LinkReaders,
    scratch: &'a mut Scratch,
    /// Those who tell this rank of their call and whose call has not been read; it stands before
    /// their first chunk.
    unheard: Vec<Rank>,
}

impl<'a> ChunkReader<'a> {
    fn new(
        operation: &'a LinkOperation<'a>,
        incoming: &'a LinkReaders,
        scratch: &'a mut Scratch,
    ) -> Self {
        Self {
            operation,
            incoming,
            scratch,
            unheard: operation.tellers(),
        }
    }

    /// Reads the calls that have not been read, but for those of `later` ranks.
    async fn check_all(&mut self, later: impl Fn(Rank) -> bool) -> Result<(), Failure> {
        for from in self.unheard.clone() {
            if !later(from) {
                self.check(from).await?;
            }
        }
        Ok(())
    }

    /// Leaves out the calls that have not been read, but for those of `later` ranks: these are read
    /// beside the chunks.
    fn set_aside(&mut self, later: impl Fn(Rank) -> bool) -> Vec<Rank> {
        self.unheard.extract_if(.., |from| !later(*from)).collect()
    }

    /// Reads the call that this rank announces, and says where it was made.
    async fn check(&mut self, from: Rank) -> Result<Site, Failure> {
        self.operation.wait.waits_for(from);
        let site = self.operation.read_call(self.incoming, from).await?;
        self.unheard.retain(|unheard| *unheard != from);
        Ok(site)
    }

    /// Receives one chunk of elements, all of it.
    async fn chunk(&mut self, from: Rank, into: &mut [u8]) -> Result<(), Failure> {
        self.head(from, into.len()).await?;
        self.incoming.receive(from, into).await?;
        self.operation.check_values(from, into)
    }

    /// Receives the digest that stands for a call of whatever elements.
    async fn digest(&mut self, from: Rank) -> Result<u64, Failure> {
        let mut digest = [0; size_of::<u64>()];
        self.head(from, digest.len()).await?;
        self.incoming.receive(from, &mut digest).await?;
        Ok(u64::from_ne_bytes(digest))
    }

    /// What stands before a chunk: of the same operation, and of as many bytes as expected.
    async fn head(&mut self, from: Rank, expected: usize) -> Result<(), Failure> {
        if self.unheard.contains(&from) {
            self.check(from).await?;
        }
        let frame = self.frame(from).await?;
        let agreed = frame.frame_type == FrameType::Chunk
            && frame.contract == self.operation.request.contract;
        if !agreed {
            return Err(disagreement(from, Call::new(frame.contract, "")));
        }
        if frame.length != expected as u64 {
            let size = frame.contract.element.size() as u64;
            return Err(Failure::Uneven {
                peer: from,
                offered: frame.length / size,
                expected: expected as u64 / size,
            });
        }
        Ok(())
    }

    /// Receives a part of a chunk, into memory of its own: it is to be reduced.
    async fn piece(&mut self, from: Rank, len: usize) -> Result<&mut [u8], Failure> {
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut self.scratch.0);
        let bytes = &mut bytes[..len];
        self.incoming.receive(from, bytes).await?;
        self.operation.check_values(from, bytes)?;
        Ok(bytes)
    }

    /// Receives a part of a chunk where others' parts are awaited too.
    async fn part(&mut self, from: Rank, into: &mut [u8]) -> Result<(), Failure> {
        self.operation.wait.waits_for(from);
        self.incoming.receive(from, into).await?;
        self.operation.check_values(from, into)
    }

    async fn frame(&mut self, from: Rank) -> Result<Frame, Failure> {
        self.operation.wait.waits_for(from);
        read_frame(self.incoming, from).await
    }
}

async fn read_frame(incoming: &LinkReaders, from: Rank) -> Result<Frame, Failure> {
    let mut bytes = [0; FRAME_BYTES];
    incoming.receive(from, &mut bytes).await?;
    Frame::decode(&bytes).map_err(|error| Failure::Protocol(from, error))
}

#[cfg(test)]
mod tests;

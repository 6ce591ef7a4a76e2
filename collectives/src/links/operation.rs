//! Walks a schedule over links: the only place where schedules, contracts and bytes meet.
//!
//! Before the first round every rank tells its successor which call it makes, and checks what its
//! predecessor tells. If any two ranks make different calls then two neighbours do, so no
//! disagreement is missed, whatever the algorithm. Every chunk carries the contract again: no byte
//! of another operation is ever taken in.

mod combine;
mod exchange;
mod flow;
mod multi_hop;
mod peers;
mod walk;

use std::cell::Cell;

use meshwork_accel::Element;

use super::{LinkReaders, LinkWriters, Links};
use crate::Rank;
use crate::contract::{Call, SITE_LIMIT, site, told_site};
use crate::failure::Failure;
use crate::operation::{Request, Work};
use crate::schedule::{Algorithm, Collective, Hosts, Schedule};
use crate::wire::{FRAME_BYTES, Frame, FrameType, WireError};

pub(super) use exchange::Route;

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
    /// Whom the operation waits for at the moment, for the error if it takes too long.
    pub(crate) waits_for: &'a Cell<Rank>,
}

impl LinkOperation<'_> {
    pub(super) async fn carry_out<T: Element>(
        &self,
        links: &mut Links,
        scratch: &mut Scratch,
        work: Work<'_, T>,
    ) -> Result<(), Failure> {
        match work {
            Work::Barrier => {
                let barrier = self.schedule(Collective::Barrier);
                self.walk::<u8>(barrier, links, scratch, &mut []).await
            }
            Work::Reduce {
                buffer,
                root: Some(root),
                ..
            } if root != self.me => {
                // The result is for the root alone; this rank keeps its contribution.
                let mut passing = buffer.to_vec();
                let reduce = self.schedule(Collective::Reduce { root });
                self.walk(reduce, links, scratch, &mut passing).await
            }
            Work::Reduce { buffer, root, .. } => {
                let reduce = |root| Collective::Reduce { root };
                let reduce = self.schedule(root.map_or(Collective::AllReduce, reduce));
                self.walk(reduce, links, scratch, buffer).await
            }
            Work::Broadcast { buffer, root } => {
                let broadcast = self.schedule(Collective::Broadcast { root });
                self.walk(broadcast, links, scratch, buffer).await
            }
            Work::Agree => self.agree(links, scratch).await,
            Work::Exchange(transfer) => self.exchange(links, scratch, transfer).await,
            Work::Send { input, to } => self.send(links, input, to).await,
            Work::Receive { output, from } => self.receive(links, scratch, output, from).await,
        }
    }

    fn schedule(&self, collective: Collective) -> Schedule {
        let algorithm = self.request.contract.algorithm.unwrap_or(Algorithm::Tree);
        Schedule::new(collective, algorithm, &Hosts::apart(self.world), self.me)
    }

    /// Tells the successor of the call, and hears the predecessor's: no two ranks go on with
    /// different calls. Behind it stands the digest, so that no rank takes it for the beginning of
    /// an operation whose bytes go by another way.
    pub(crate) async fn agree(
        &self,
        links: &mut Links,
        scratch: &mut Scratch,
    ) -> Result<(), Failure> {
        let Links {
            outgoing, incoming, ..
        } = links;
        let mut chunk_reader = ChunkReader::new(self, incoming, scratch);
        let (successor, predecessor) = (self.successor(), self.predecessor());
        let told = async {
            self.announce(outgoing, successor).await?;
            self.send_chunk(outgoing, successor, &[self.request.digest])
                .await
        };
        let heard = async {
            let mut theirs = [0_u64];
            let site = chunk_reader.check(predecessor).await?;
            chunk_reader.chunk(predecessor, &mut theirs).await?;
            if theirs == [self.request.digest] {
                return Ok(());
            }
            let call = Call::new(self.request.contract, site.text());
            Err(disagreement(predecessor, call))
        };
        tokio::try_join!(told, heard)?;
        Ok(())
    }

    async fn send<T: Element>(
        &self,
        links: &mut Links,
        input: &[T],
        to: Rank,
    ) -> Result<(), Failure> {
        self.waits_for.set(to);
        self.announce(&mut links.outgoing, to).await?;
        self.send_chunk(&mut links.outgoing, to, input).await
    }

    async fn receive<T: Element>(
        &self,
        links: &mut Links,
        scratch: &mut Scratch,
        output: &mut [T],
        from: Rank,
    ) -> Result<(), Failure> {
        let mut chunk_reader = ChunkReader::new(self, &mut links.incoming, scratch);
        // A message is between two ranks, and announced by one to the other.
        chunk_reader.check(from).await?;
        chunk_reader.chunk(from, output).await
    }

    async fn announce(&self, outgoing: &mut LinkWriters, to: Rank) -> Result<(), Failure> {
        let site = site(self.request.caller);
        let site = site.as_bytes();
        let mut bytes = Vec::with_capacity(FRAME_BYTES + site.len());
        bytes.extend(self.frame(FrameType::Call, site.len()).encode());
        bytes.extend_from_slice(site);
        outgoing.send(to, &bytes).await
    }

    async fn send_chunk<T: Element>(
        &self,
        outgoing: &mut LinkWriters,
        to: Rank,
        part: &[T],
    ) -> Result<(), Failure> {
        let bytes: &[u8] = bytemuck::cast_slice(part);
        outgoing
            .send(to, &self.frame(FrameType::Chunk, bytes.len()).encode())
            .await?;
        outgoing.send(to, bytes).await
    }

    fn frame(&self, frame_type: FrameType, length: usize) -> Frame {
        Frame {
            frame_type,
            contract: self.request.contract,
            length: length as u64,
        }
    }

    fn successor(&self) -> Rank {
        Rank::new((self.me.number() + 1) % self.world)
    }

    fn predecessor(&self) -> Rank {
        Rank::new((self.me.number() + self.world - 1) % self.world)
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
    incoming: &'a mut LinkReaders,
    scratch: &'a mut Scratch,
    /// Whether the predecessor's call has been read, which stands before its first chunk.
    checked: bool,
}

impl<'a> ChunkReader<'a> {
    fn new(
        operation: &'a LinkOperation<'a>,
        incoming: &'a mut LinkReaders,
        scratch: &'a mut Scratch,
    ) -> Self {
        Self {
            operation,
            incoming,
            scratch,
            checked: false,
        }
    }

    async fn check_predecessor(&mut self) -> Result<(), Failure> {
        self.check(self.operation.predecessor()).await.map(drop)
    }

    /// Reads the call that this rank announces, compares it with this one's, and says where it was
    /// made.
    async fn check(&mut self, from: Rank) -> Result<Site, Failure> {
        let frame = self.frame(from).await?;
        if frame.frame_type != FrameType::Call {
            return Err(disagreement(from, Call::new(frame.contract, "")));
        }
        let mut site = Site {
            bytes: [0; SITE_LIMIT],
            len: usize::try_from(frame.length.min(SITE_LIMIT as u64)).expect("at most SITE_LIMIT"),
        };
        self.incoming
            .receive(from, &mut site.bytes[..site.len])
            .await?;
        self.checked = true;
        if frame.contract != self.operation.request.contract {
            return Err(disagreement(from, Call::new(frame.contract, site.text())));
        }
        Ok(site)
    }

    /// Receives one chunk, all of it.
    async fn chunk<T: Element>(&mut self, from: Rank, into: &mut [T]) -> Result<(), Failure> {
        self.head::<T>(from, into.len()).await?;
        if let Some(bytes) = T::bytes_mut(into) {
            return self.incoming.receive(from, bytes).await;
        }
        for piece in into.chunks_mut(PIECE_BYTES / size_of::<T>()) {
            piece.copy_from_slice(self.piece(from, piece.len()).await?);
        }
        Ok(())
    }

    /// What stands before a chunk: of the same operation, and of as many elements as expected.
    async fn head<T: Element>(&mut self, from: Rank, expected: usize) -> Result<(), Failure> {
        if from == self.operation.predecessor() && !self.checked {
            self.check_predecessor().await?;
        }
        let frame = self.frame(from).await?;
        let agreed = frame.frame_type == FrameType::Chunk
            && frame.contract == self.operation.request.contract;
        if !agreed {
            return Err(disagreement(from, Call::new(frame.contract, "")));
        }
        if frame.length != (expected * size_of::<T>()) as u64 {
            return Err(Failure::Uneven {
                peer: from,
                offered: frame.length / size_of::<T>() as u64,
                expected: expected as u64,
            });
        }
        Ok(())
    }

    /// Receives some elements of a chunk, into memory of its own: they are to be reduced, or may
    /// have bytes that are no value.
    async fn piece<T: Element>(&mut self, from: Rank, len: usize) -> Result<&mut [T], Failure> {
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut self.scratch.0);
        let bytes = &mut bytes[..len * size_of::<T>()];
        self.incoming.receive(from, bytes).await?;
        bytemuck::checked::try_cast_slice_mut(bytes).map_err(|_| {
            let element = T::TYPE;
            let error = WireError::Value { element };
            Failure::Protocol(from, error)
        })
    }

    async fn frame(&mut self, from: Rank) -> Result<Frame, Failure> {
        self.operation.waits_for.set(from);
        let mut bytes = [0; FRAME_BYTES];
        self.incoming.receive(from, &mut bytes).await?;
        Frame::decode(&bytes).map_err(|error| Failure::Protocol(from, error))
    }
}

#[cfg(test)]
mod tests;

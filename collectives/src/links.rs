//! The byte streams between this rank and every other, and operations over them.

mod hierarchy;
mod medium;
mod operation;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, poll_fn};
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::task::JoinSet;

use crate::Rank;
use crate::failure::Failure;
use crate::idle::{Closable, Held};
use crate::tasks::spawn_in;

pub(crate) use hierarchy::Hierarchy;
pub(crate) use medium::LinkMedium;
pub(crate) use operation::WaitState;
#[cfg(any(test, feature = "testing"))]
pub(crate) use operation::{CallGraph, LinkOperation, Scratch};

/// Bytes to one rank, in order.
pub(crate) type Outgoing = Box<dyn AsyncWrite + Send + Unpin>;

/// Bytes from one rank, in order.
pub(crate) type Incoming = Box<dyn AsyncRead + Send + Unpin>;

/// Opens the streams of a group to ranks that have none yet.
pub(crate) trait Connector: Send + Sync {
    /// Ends when they are open, which may be never: the group's failure and the operation's
    /// deadline end the wait.
    fn connect(&self, to: Rank) -> Connecting;
}

/// Streams that are being opened.
pub(crate) type Connecting = Pin<Box<dyn Future<Output = Connected> + Send>>;

/// Streams to and from a rank.
pub(crate) struct Connected {
    pub(crate) outgoing: Outgoing,
    pub(crate) incoming: Incoming,
    /// Their connection, if it may be closed once it is let go.
    pub(crate) held: Option<Held>,
}

/// One rank's streams to and from others, by rank; its own places are empty, and those of ranks
/// that no operation has needed yet.
pub(crate) struct Links {
    pub(crate) outgoing: LinkWriters,
    pub(crate) incoming: LinkReaders,
    connector: Option<Arc<dyn Connector>>,
    /// Ranks to which no stream is open yet, where there is a connector.
    unopened: usize,
    /// Connections of open streams that may be closed between operations.
    closable: BTreeMap<Rank, Arc<Closable>>,
}

/// The streams to the others.
pub(crate) struct LinkWriters {
    streams: Vec<Option<Outgoing>>,
    traffic: Traffic,
}

/// The streams from the others, of which several may be read at once.
pub(crate) struct LinkReaders {
    streams: Vec<RefCell<Option<Incoming>>>,
    traffic: Traffic,
}

/// Bytes that have gone over a rank's streams in either direction, for whoever looks on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Traffic(Arc<AtomicU64>);

impl Traffic {
    fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Links {
    pub(crate) fn new(streams: impl IntoIterator<Item = Option<(Outgoing, Incoming)>>) -> Self {
        let streams = streams.into_iter().map(Option::unzip);
        let (outgoing, incoming) = streams
            .map(|(outgoing, incoming)| (outgoing, RefCell::new(incoming)))
            .unzip();
        let traffic = Traffic::default();
        Self {
            outgoing: LinkWriters {
                streams: outgoing,
                traffic: traffic.clone(),
            },
            incoming: LinkReaders {
                streams: incoming,
                traffic,
            },
            connector: None,
            unopened: 0,
            closable: BTreeMap::new(),
        }
    }

    /// No streams yet, among so many ranks.
    pub(crate) fn on_demand(world: usize, connector: Arc<dyn Connector>) -> Self {
        Self {
            connector: Some(connector),
            unopened: world.saturating_sub(1),
            ..Self::new((0..world).map(|_| None))
        }
    }

    pub(crate) fn traffic(&self) -> &Traffic {
        &self.outgoing.traffic
    }

    /// Opens the streams to these ranks that are not open, all at once. They stay open as long as
    /// what is returned lives.
    pub(crate) async fn reach(
        &mut self,
        peers: impl FnOnce() -> BTreeSet<Rank>,
        wait: &WaitState,
    ) -> Result<Vec<Held>, Failure> {
        let all_stay_open = self.unopened == 0 && self.closable.is_empty();
        let Some(connector) = self.connector.clone().filter(|_| !all_stay_open) else {
            return Ok(Vec::new());
        };
        let mut missing = peers();
        let mut all_held = self.hold(&missing, wait).await;
        missing.retain(|rank| self.outgoing.streams[rank.index()].is_none());
        // Ends with this, and with it all that is half done.
        let mut opening = JoinSet::new();
        for rank in missing.iter().copied() {
            let connecting = connector.connect(rank);
            spawn_in(&mut opening, async move { (rank, connecting.await) });
        }
        while let Some(rank) = missing.first() {
            wait.waits_for(*rank);
            let opened = opening.join_next().await.and_then(Result::ok);
            let (rank, connected) = opened.ok_or(Failure::LinkBroken(*rank))?;
            self.outgoing.streams[rank.index()] = Some(connected.outgoing);
            self.incoming.streams[rank.index()] = RefCell::new(Some(connected.incoming));
            self.unopened -= 1;
            if let Some(held) = connected.held {
                self.closable.insert(rank, held.connection().clone());
                all_held.push(held);
            }
            missing.remove(&rank);
        }
        Ok(all_held)
    }

    /// Holds the connections with these ranks that could be closed, and lets go of the streams of
    /// all that were.
    async fn hold(&mut self, peers: &BTreeSet<Rank>, wait: &WaitState) -> Vec<Held> {
        let mut all_held = Vec::new();
        for rank in peers {
            if let Some(connection) = self.closable.get(rank) {
                wait.waits_for(*rank);
                all_held.extend(connection.hold().await);
            }
        }
        let closable = self.closable.iter();
        let closed = closable.filter(|(_, connection)| connection.is_closed());
        let closed: Vec<Rank> = closed.map(|(rank, _)| *rank).collect();
        for rank in closed {
            self.closable.remove(&rank);
            self.outgoing.streams[rank.index()] = None;
            self.incoming.streams[rank.index()] = RefCell::default();
            self.unopened += 1;
        }
        all_held
    }
}

impl LinkWriters {
    pub(crate) async fn send(&mut self, to: Rank, bytes: &[u8]) -> Result<(), Failure> {
        let stream = self.streams[to.index()]
            .as_mut()
            .ok_or(Failure::LinkBroken(to))?;
        let mut rest = bytes;
        while !rest.is_empty() {
            match stream.write(rest).await {
                Ok(more @ 1..) => {
                    rest = &rest[more..];
                    self.traffic.add(more);
                }
                Ok(0) | Err(_) => return Err(Failure::LinkBroken(to)),
            }
        }
        Ok(())
    }

    /// Sends a part of a buffer that is borrowed only while bytes are handed over.
    pub(crate) async fn send_part(
        &mut self,
        to: Rank,
        buffer: &RefCell<&mut [u8]>,
        part: Range<usize>,
    ) -> Result<(), Failure> {
        let stream = self.streams[to.index()]
            .as_mut()
            .ok_or(Failure::LinkBroken(to))?;
        let mut sent = 0;
        poll_fn(|context| {
            let buffer = buffer.borrow();
            let bytes = &buffer[part.clone()];
            while sent < bytes.len() {
                match ready!(Pin::new(&mut *stream).poll_write(context, &bytes[sent..])) {
                    Ok(more @ 1..) => {
                        sent += more;
                        self.traffic.add(more);
                    }
                    Ok(0) | Err(_) => return Poll::Ready(Err(Failure::LinkBroken(to))),
                }
            }
            Poll::Ready(Ok(()))
        })
        .await
    }
}

impl LinkReaders {
    /// Fills the whole of `into`.
    pub(crate) async fn receive(&self, from: Rank, into: &mut [u8]) -> Result<(), Failure> {
        let mut filled = 0;
        poll_fn(|context| self.poll_fill(context, from, into, &mut filled)).await
    }

    /// Fills a part of a buffer that is borrowed only while bytes are taken over.
    pub(crate) async fn receive_part(
        &self,
        from: Rank,
        buffer: &RefCell<&mut [u8]>,
        part: Range<usize>,
    ) -> Result<(), Failure> {
        let mut filled = 0;
        poll_fn(|context| {
            let into = &mut buffer.borrow_mut()[part.clone()];
            self.poll_fill(context, from, into, &mut filled)
        })
        .await
    }

    fn poll_fill(
        &self,
        context: &mut Context<'_>,
        from: Rank,
        into: &mut [u8],
        filled: &mut usize,
    ) -> Poll<Result<(), Failure>> {
        let mut stream = self.streams[from.index()].borrow_mut();
        let stream = stream.as_mut().ok_or(Failure::LinkBroken(from))?;
        while *filled < into.len() {
            let mut rest = ReadBuf::new(&mut into[*filled..]);
            let read = ready!(Pin::new(&mut *stream).poll_read(context, &mut rest));
            match rest.filled().len() {
                more @ 1.. if read.is_ok() => {
                    *filled += more;
                    self.traffic.add(more);
                }
                _ => return Poll::Ready(Err(Failure::LinkBroken(from))),
            }
        }
        Poll::Ready(Ok(()))
    }
}

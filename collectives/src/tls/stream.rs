//! The two directions of a connection.
//!
//! What is written is sealed at once, and goes to the kernel in large portions. What is left over
//! when the writer turns to something else, a task of the connection hands over, as QUIC's does: so
//! a small message goes together with its head, and no byte stays behind.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use ring::aead::NONCE_LEN;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::handshake::Keys;
use super::record::{self, LONGEST, MOST, Opened, Opener, Sealer};

use crate::tasks::spawn;

/// Sealed bytes that wait for more before the kernel gets them, so that it has fewer to wake; if it
/// does not take them, who writes more waits.
const FULL: usize = 256 << 10;
/// Bytes that one write seals.
const CHUNK: usize = 64 << 10;
/// Bytes that are asked from the kernel at a time: as many as fit in a core's cache, for the same
/// reason.
const RECEIVED: usize = 1 << 20;
/// And at first, for whoever has yet to prove what it is, or carries little.
const RECEIVED_FIRST: usize = 2 * LONGEST;
/// Records in a row that carry nothing, empty or with a new key. No member sends two; who sends
/// them for ever would keep a thread from everything else. rustls allows as many empty ones.
pub(super) const EMPTY_RECORDS: u32 = 32;
/// Records under one key, far from the 2^24.5 that AES-GCM is good for (RFC 8446, section 5.5).
const RECORDS: u64 = 1 << 22;
/// How long the other end may take for what was left over when its writer has gone.
const LINGER: Duration = Duration::from_secs(10);

/// A connection whose ends have proved who they are.
pub(crate) struct Secured {
    /// What both have agreed to speak; empty if nothing.
    pub(crate) protocol: Vec<u8>,
    /// The other's certificates, which the handshake has verified, its own first.
    pub(crate) peer: Vec<CertificateDer<'static>>,
    /// What only the two ends know, and only of this connection.
    pub(crate) binding: [u8; NONCE_LEN],
    pub(super) stream: TcpStream,
    pub(super) sealer: Sealer,
    pub(super) opener: Opener,
    pub(super) keys: Keys,
    /// What has arrived behind the handshake, sealed.
    pub(super) sealed: Vec<u8>,
    /// And before that, opened already.
    pub(super) opened: Vec<u8>,
}

/// What is sent. What was written goes out even when this is dropped.
pub(crate) struct Outgoing(Arc<Outlet>);

/// What is received.
pub(crate) struct Incoming {
    socket: OwnedReadHalf,
    opener: Opener,
    keys: Arc<Mutex<Keys>>,
    /// Opened bytes, then sealed ones, then room.
    buffer: Vec<u8>,
    /// Where the opened bytes are that nobody has read.
    opened: std::ops::Range<usize>,
    /// Where the sealed ones are.
    sealed: std::ops::Range<usize>,
    /// Records that have carried nothing since the last that did.
    empty: u32,
    /// Why nothing more is opened. A second try would take the next record's number, by which the
    /// record behind a lost one can be opened.
    broken: Option<io::ErrorKind>,
}

struct Outlet {
    socket: OwnedWriteHalf,
    line: Mutex<Line>,
    /// Whether something is left over.
    left: Notify,
}

/// What is on its way to the kernel.
struct Line {
    sealer: Sealer,
    keys: Arc<Mutex<Keys>>,
    renewal: u64,
    sealed: Vec<u8>,
    /// How many of those bytes the kernel has.
    sent: usize,
    /// Who waits for room.
    waiting: Option<Waker>,
    end: End,
}

/// Whether more is written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum End {
    Open,
    /// Nobody writes any more.
    Dropped,
    Broken(io::ErrorKind),
}

impl Secured {
    /// The two directions. Must be called where tasks run.
    pub(crate) fn split(self) -> (Outgoing, Incoming) {
        self.split_renewing(RECORDS)
    }

    fn split_renewing(self, renewal: u64) -> (Outgoing, Incoming) {
        let (receive, send) = self.stream.into_split();
        let keys = Arc::new(Mutex::new(self.keys));
        let outlet = Arc::new(Outlet {
            socket: send,
            line: Mutex::new(Line {
                sealer: self.sealer,
                keys: keys.clone(),
                renewal,
                sealed: Vec::new(),
                sent: 0,
                waiting: None,
                end: End::Open,
            }),
            left: Notify::new(),
        });
        spawn(outlet.clone().hand_over_all());
        let middle = self.opened.len();
        let mut buffer = self.opened;
        buffer.extend_from_slice(&self.sealed);
        let incoming = Incoming {
            socket: receive,
            opener: self.opener,
            keys,
            opened: 0..middle,
            sealed: middle..buffer.len(),
            empty: 0,
            broken: None,
            buffer,
        };
        (Outgoing(outlet), incoming)
    }
}

impl Line {
    fn rest(&self) -> usize {
        self.sealed.len() - self.sent
    }

    fn seal(&mut self, bytes: &[u8]) -> io::Result<()> {
        for record in bytes.chunks(MOST) {
            if self.sealer.records() >= self.renewal {
                self.sealer.next_key(&mut self.sealed)?;
                self.sealer = lock(&self.keys).next_to_send()?;
            }
            self.sealer.data(record, &mut self.sealed)?;
        }
        Ok(())
    }

    /// Hands the kernel what it takes.
    fn send(&mut self, socket: &OwnedWriteHalf) -> io::Result<()> {
        while self.rest() > 0 {
            match socket.try_write(&self.sealed[self.sent..]) {
                Ok(bytes) => self.sent += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    self.end = End::Broken(error.kind());
                    return Err(error);
                }
            }
        }
        // Only rarely is much moved: as much has gone before.
        if self.sent >= self.rest() {
            self.sealed.drain(..self.sent);
            self.sent = 0;
        }
        Ok(())
    }
}

impl Outlet {
    fn line(&self) -> MutexGuard<'_, Line> {
        lock(&self.line)
    }

    /// Hands over what is left, and wakes who waits for room; returns how the line is then, and how
    /// many bytes are left.
    fn hand_over(&self) -> (End, usize) {
        let mut line = self.line();
        let sent = line.send(&self.socket);
        if (sent.is_err() || line.rest() < FULL)
            && let Some(waiting) = line.waiting.take()
        {
            waiting.wake();
        }
        (line.end, line.rest())
    }

    /// Sees to it that all that is written goes out, until nobody writes any more.
    async fn hand_over_all(self: Arc<Self>) {
        loop {
            self.left.notified().await;
            loop {
                match self.hand_over() {
                    (End::Broken(_), _) | (End::Dropped, 0) => return,
                    (End::Open, 0) => break,
                    (end, _) => {
                        let room = timeout(LINGER, self.socket.writable()).await;
                        if room.is_err() && end == End::Dropped {
                            return;
                        }
                    }
                }
            }
        }
    }
}

impl AsyncWrite for Outgoing {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let outlet = &self.0;
        let mut line = outlet.line();
        if let End::Broken(kind) = line.end {
            return Poll::Ready(Err(kind.into()));
        }
        if line.rest() >= FULL {
            line.send(&outlet.socket)?;
            // Whoever reads for the same operation has a turn now, while what came is in the cache.
            match line.rest() {
                FULL.. => line.waiting = Some(context.waker().clone()),
                _ => context.waker().wake_by_ref(),
            }
            return Poll::Pending;
        }
        let chunk = &bytes[..bytes.len().min(CHUNK)];
        line.seal(chunk)?;
        outlet.left.notify_one();
        Poll::Ready(Ok(chunk.len()))
    }

    /// There is nothing to do: what was written goes out by itself.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Neither here: dropping this ends the direction.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        let mut line = self.0.line();
        if line.end == End::Open {
            line.end = End::Dropped;
        }
        self.0.left.notify_one();
    }
}

impl AsyncRead for Incoming {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.remaining();
        loop {
            let bytes = self.opened.len().min(into.remaining());
            let end = self.opened.start + bytes;
            into.put_slice(&self.buffer[self.opened.start..end]);
            self.opened.start = end;
            if into.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            let some = into.remaining() < before;
            match self.open_next() {
                Ok(true) => {}
                // What came before a record that cannot be opened is handed out first.
                Ok(false) | Err(_) if some => return Poll::Ready(Ok(())),
                Ok(false) => {
                    if ready!(self.poll_fill(context))? == 0 {
                        return Poll::Ready(Ok(()));
                    }
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl Incoming {
    /// Opens the next record if all of it is here. One that cannot be opened is the end.
    fn open_next(&mut self) -> io::Result<bool> {
        if let Some(kind) = self.broken {
            return Err(kind.into());
        }
        let opened = self.open_record();
        self.broken = opened.as_ref().err().map(io::Error::kind);
        opened
    }

    fn open_record(&mut self) -> io::Result<bool> {
        let sealed = &mut self.buffer[self.sealed.clone()];
        let Some(whole) = record::length(sealed)?.filter(|whole| *whole <= sealed.len()) else {
            return Ok(false);
        };
        let begin = self.sealed.start;
        let opened = match self.opener.open(&mut sealed[..whole])? {
            Opened::Data(bytes) => {
                // Opened where it lay, behind its head.
                let begin = begin + record::HEAD_BYTES;
                begin..begin + bytes.len()
            }
            Opened::NextKey => {
                self.opener = lock(&self.keys).next_to_receive()?;
                begin..begin
            }
        };
        if !opened.is_empty() {
            self.empty = 0;
        } else if self.empty < EMPTY_RECORDS {
            self.empty += 1;
        } else {
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.opened = opened;
        self.sealed.start += whole;
        Ok(true)
    }

    /// Asks the kernel for more, once all that was opened is read; 0 at the end.
    fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let left = self.sealed.len();
        if self.buffer.len() - self.sealed.end < LONGEST {
            self.buffer.copy_within(self.sealed.clone(), 0);
            self.sealed = 0..left;
            // At the first call, and once that is too little.
            let room = match self.buffer.len() {
                ..RECEIVED_FIRST => RECEIVED_FIRST,
                RECEIVED_FIRST.. => RECEIVED,
            };
            self.buffer.resize(room, 0);
        } else if left == 0 {
            self.sealed = 0..0;
        }
        let mut room = ReadBuf::new(&mut self.buffer[self.sealed.end..]);
        ready!(Pin::new(&mut self.socket).poll_read(context, &mut room))?;
        let bytes = room.filled().len();
        self.sealed.end += bytes;
        Poll::Ready(Ok(bytes))
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that holds the lock can panic half-way through a change.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;

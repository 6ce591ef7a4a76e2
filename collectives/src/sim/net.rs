//! Links with latency, bandwidth, loss, reordering and cuts; streams over them keep their order.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Plant;
use super::dice::Dice;
use super::faults::Faults;
use crate::agreement::MemberId;

/// Nanoseconds since a job began.
pub(super) type Time = u64;

pub(super) const MICROSECOND: Time = 1_000;
pub(super) const MILLISECOND: Time = 1_000_000;
pub(super) const SECOND: Time = 1_000_000_000;

/// What may be under way on one stream, in bytes; a writer waits for more.
const WINDOW: usize = 4 << 10;

/// The network between all member ids.
#[derive(Debug)]
pub(super) struct Net {
    pub(super) now: Time,
    links: BTreeMap<(MemberId, MemberId), Link>,
    cuts: Vec<Cut>,
    dice: Dice,
    plant: Plant,
    /// Pieces that have been written to streams.
    written: u64,
    /// When bytes of a stream arrive, and with which member ids somebody waits for that.
    pub(super) arrivals: Vec<(Time, [MemberId; 2])>,
    /// Whose process is being killed: no packet tells the end of its streams.
    pub(super) killed: Option<MemberId>,
}

/// One direction between two member ids.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub(super) latency: Time,
    /// Up to how much longer a packet takes, so that a later one may be faster.
    pub(super) jitter: Time,
    /// Packets that are lost, in a thousand; each is sent again after a while.
    pub(super) loss: u64,
    /// Bytes in a microsecond.
    pub(super) bandwidth: u64,
}

/// For some time, member ids of a side and all others do not hear each other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    pub(super) from: Time,
    pub(super) until: Time,
    /// One bit for each member id.
    pub(super) side: u64,
}

impl Net {
    pub(super) fn new(faults: &Faults, plant: Plant, dice: Dice) -> Self {
        Self {
            now: 0,
            links: faults.links.clone(),
            cuts: faults.cuts.clone(),
            dice,
            plant,
            written: 0,
            arrivals: Vec::new(),
            killed: None,
        }
    }

    /// Whether nothing gets through between two member ids now.
    pub(super) fn is_cut(&self, one: MemberId, other: MemberId) -> bool {
        self.cuts.iter().any(|cut| cut.holds(self.now, one, other))
    }

    /// When bytes that are sent now arrive; none is lost for good while both ends live.
    pub(super) fn transit(&mut self, way: (MemberId, MemberId), bytes: usize) -> Time {
        let (from, to) = way;
        let Some(link) = self.links.get(&(from, to)).copied() else {
            return self.now;
        };
        let again = 3 * link.latency + 20 * MILLISECOND;
        let mut sent = self.now;
        for _ in 0..8 {
            if !self.dice.happens(link.loss) {
                break;
            }
            sent += again;
        }
        while let Some(cut) = self.cuts.iter().find(|cut| cut.holds(sent, from, to)) {
            sent = cut.until + self.dice.between(0, again);
        }
        let jitter = self.dice.between(0, link.jitter + 1);
        sent + link.latency + jitter + bytes as u64 * MICROSECOND / link.bandwidth
    }
}

impl Cut {
    fn holds(&self, at: Time, one: MemberId, other: MemberId) -> bool {
        (self.from..self.until).contains(&at) && self.parts(one, other)
    }

    /// Whether these two do not hear each other while it lasts.
    pub(super) fn parts(&self, one: MemberId, other: MemberId) -> bool {
        let side = |member_id: MemberId| self.side >> member_id & 1;
        side(one) != side(other)
    }
}

/// The network as all streams see it.
pub(super) type Shared = Arc<Mutex<Net>>;

pub(super) fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that holds the lock can panic half-way through a change.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The bytes of one direction of one stream.
#[derive(Debug, Default)]
pub(super) struct Wire {
    under_way: VecDeque<(Time, Vec<u8>)>,
    /// When the other end sees that the writer is gone.
    closed: Option<Time>,
}

/// The end that writes.
#[derive(Debug)]
pub(super) struct Writer {
    wire: Arc<Mutex<Wire>>,
    net: Shared,
    way: (MemberId, MemberId),
}

/// The end that reads.
#[derive(Debug)]
pub(super) struct Reader {
    wire: Arc<Mutex<Wire>>,
    net: Shared,
}

impl Writer {
    pub(super) fn new(wire: &Arc<Mutex<Wire>>, net: &Shared, way: (MemberId, MemberId)) -> Self {
        let (wire, net) = (wire.clone(), net.clone());
        Self { wire, net, way }
    }
}

impl Reader {
    pub(super) fn new(wire: &Arc<Mutex<Wire>>, net: &Shared) -> Self {
        let (wire, net) = (wire.clone(), net.clone());
        Self { wire, net }
    }
}

impl AsyncWrite for Writer {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let (mut wire, mut net) = (lock(&self.wire), lock(&self.net));
        let used: usize = wire.under_way.iter().map(|(_, bytes)| bytes.len()).sum();
        let take = bytes.len().min(WINDOW.saturating_sub(used));
        if take == 0 && !bytes.is_empty() {
            return Poll::Pending;
        }
        let earliest = wire.under_way.back().map_or(0, |(at, _)| *at);
        let at = net.transit(self.way, take).max(earliest);
        let mut bytes = bytes[..take].to_vec();
        net.written += 1;
        net.plant.corrupt(net.written, &mut bytes);
        wire.under_way.push_back((at, bytes));
        net.arrivals.push((at, [self.way.0, self.way.1]));
        Poll::Ready(Ok(take))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let (mut wire, mut net) = (lock(&self.wire), lock(&self.net));
        if net.killed == Some(self.way.0) {
            return;
        }
        let at = net.transit(self.way, 0);
        wire.closed = Some(at);
        net.arrivals.push((at, [self.way.0, self.way.1]));
    }
}

impl AsyncRead for Reader {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let now = lock(&self.net).now;
        let mut wire = lock(&self.wire);
        let before = into.filled().len();
        while into.remaining() > 0
            && let Some((at, bytes)) = wire.under_way.front_mut()
            && *at <= now
        {
            let take = bytes.len().min(into.remaining());
            into.put_slice(&bytes[..take]);
            bytes.drain(..take);
            if bytes.is_empty() {
                wire.under_way.pop_front();
            }
        }
        let ended = wire.under_way.is_empty() && wire.closed.is_some_and(|at| at <= now);
        match into.filled().len() > before || ended {
            true => Poll::Ready(Ok(())),
            false => Poll::Pending,
        }
    }
}

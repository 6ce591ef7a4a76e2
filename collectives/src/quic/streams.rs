//! Streams for groups that are split from the one that was joined.
//!
//! The higher rank opens them, and says at their head for which group. They are few and bounded: a
//! member can have no more than [`GROUPS`] under way at a time.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use quinn::{Connection, RecvStream, SendStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::admission::Admission;
use super::heads::SplitHead;
use super::stripes::Stripes;
use crate::links::{self, Links};
use crate::{DataTransport, LossCause, Member, OperationError, Rank, SystemError};

/// Groups that two ranks can be in together, besides the one that they joined.
pub(super) const GROUPS: u8 = 64;
/// How long the head of a stream may take to arrive after its first byte.
const HEAD: Duration = Duration::from_secs(10);
/// Both directions of a stream of quinn's.
pub(super) type Stream = (SendStream, RecvStream);

/// Both directions of whatever carries the bytes of operations.
pub(super) type Data = (links::Outgoing, links::Incoming);

/// QUIC as the carrier.
pub(super) fn data(stream: Stream) -> Data {
    (Box::new(stream.0), Box::new(stream.1))
}

/// What has arrived and is not asked for yet: streams, by a name that both ends know.
pub(super) struct Arrivals<K, V = Data> {
    waiting: Mutex<BTreeMap<K, V>>,
    changed: Notify,
}

impl<K, V> Default for Arrivals<K, V> {
    fn default() -> Self {
        Self {
            waiting: Mutex::default(),
            changed: Notify::new(),
        }
    }
}

impl<K: Ord, V> Arrivals<K, V> {
    pub(super) fn put(&self, name: K, arrived: V) {
        self.waiting().insert(name, arrived);
        self.changed.notify_waiters();
    }

    pub(super) async fn take(&self, name: K) -> V {
        loop {
            // Made before the look, so that an arrival between the two is not missed.
            let changed = self.changed.notified();
            let found = self.waiting().remove(&name);
            match found {
                Some(arrived) => return arrived,
                None => changed.await,
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.waiting().len()
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeMap<K, V>> {
        // Nothing that holds the lock can panic half-way through a change.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The one stream that the streams of all connections with a member make.
pub(super) fn joined(mut streams: Vec<Data>) -> Data {
    match streams.pop() {
        Some(only) if streams.is_empty() => only,
        last => {
            let (send, receive) = streams.into_iter().chain(last).unzip();
            (
                Box::new(Stripes::over(send)),
                Box::new(Stripes::over(receive)),
            )
        }
    }
}

/// Takes in the streams that a member opens on one of its connections, until that ends.
pub(super) async fn receive(
    admission: Arc<Admission>,
    from: Rank,
    lane: u8,
    connection: Connection,
) {
    if from > admission.me() {
        // Control and data come first, and are taken by those who admit.
        while let Ok((send, mut receive)) = connection.accept_bi().await {
            let mut head = [0; SplitHead::BYTES];
            let read = timeout(HEAD, receive.read_exact(&mut head)).await;
            if let (Ok(Ok(())), Some(SplitHead { group })) = (read, SplitHead::decode(&head)) {
                // quinn lets no member open more than GROUPS, so these are bounded too.
                let name = (from, group, lane);
                admission.arrivals().put(name, data((send, receive)));
            }
        }
    }
}

impl Admission {
    /// Streams to these members for a group of them, opened to all at once.
    pub(super) async fn streams(
        self: &Arc<Self>,
        members: &[Member],
        number: u64,
    ) -> Result<Links, OperationError> {
        // Ends with this, and with it all that is half done.
        let mut opening = JoinSet::new();
        let others = members.iter().enumerate();
        for (place, member) in others.filter(|(_, member)| member.rank() != self.me()) {
            let (admission, member) = (self.clone(), member.clone());
            opening.spawn(async move {
                let lanes = admission.lanes_of(&member, number).await;
                lanes.map(|lanes| (place, joined(lanes)))
            });
        }
        let mut streams: Vec<Option<Data>> = members.iter().map(|_| None).collect();
        while let Some(opened) = opening.join_next().await {
            let (place, stream) = opened.map_err(|_| unfinished())??;
            streams[place] = Some(stream);
        }
        Ok(Links::new(streams))
    }

    /// A stream for each lane with a member.
    async fn lanes_of(
        self: &Arc<Self>,
        member: &Member,
        number: u64,
    ) -> Result<Vec<Data>, OperationError> {
        match self.data_transport() {
            DataTransport::Quic => self.streams_of(member, number).await,
            DataTransport::Tls => self.tcp_lanes_of(member, number).await,
        }
    }

    /// A stream on each connection with a member.
    async fn streams_of(&self, member: &Member, number: u64) -> Result<Vec<Data>, OperationError> {
        let rank = member.rank();
        let mut streams = Vec::new();
        if rank > self.me() {
            for lane in 0..self.lane_count() {
                streams.push(self.arrivals().take((rank, number, lane)).await);
            }
            return Ok(streams);
        }
        for connection in self.connections(rank).unwrap_or_default() {
            streams.extend(open(&connection, number).await.map(data));
        }
        if streams.len() == usize::from(self.lane_count()) {
            return Ok(streams);
        }
        Err(OperationError::lost(
            member.clone(),
            LossCause::Disconnected,
        ))
    }
}

/// A task that opened streams ended without a word: the runtime is going down.
pub(super) fn unfinished() -> OperationError {
    SystemError::new("opening streams to a member", io::ErrorKind::Interrupted).into()
}

async fn open(connection: &Connection, number: u64) -> Option<Stream> {
    let (mut send, receive) = connection.open_bi().await.ok()?;
    let head = SplitHead { group: number }.encode();
    send.write_all(&head).await.ok()?;
    Some((send, receive))
}

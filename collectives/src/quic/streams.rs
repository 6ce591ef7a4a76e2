//! Streams for groups that are split from the one that was joined.
//!
//! The higher rank opens them, and says at their head for which group. They are few and bounded:
//! two ranks can use no more than [`GROUPS`] groups at a time, and the next is an error.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use quinn::{Connection, RecvStream, SendStream};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::admission::{Admission, MemberLink};
use super::heads::SplitHead;
use super::stripes::Stripes;
use crate::idle::Closable;
use crate::links;
use crate::{LossCause, Member, OperationError, SystemError};

/// Groups that two ranks can use together, besides the one that they joined.
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

/// A stream that one end has opened and the other is to take.
pub(super) struct Arrived {
    pub(super) data: Data,
    /// Its connection, if that may be closed.
    closable: Option<Arc<Closable>>,
}

impl Arrived {
    pub(super) fn new(data: Data, closable: Option<Arc<Closable>>) -> Self {
        Self { data, closable }
    }

    /// Whether it is a stream over this connection, and not over one before.
    pub(super) fn is_over(&self, connection: Option<&Arc<Closable>>) -> bool {
        match (&self.closable, connection) {
            (None, None) => true,
            (Some(own), Some(other)) => Arc::ptr_eq(own, other),
            (None, Some(_)) | (Some(_), None) => false,
        }
    }

    pub(super) fn closable(&self) -> Option<&Arc<Closable>> {
        self.closable.as_ref()
    }
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

    /// Drops all that the names of which are not to be kept.
    pub(super) fn retain(&self, keep: impl Fn(&K) -> bool) {
        self.waiting().retain(|name, _| keep(name));
    }

    pub(super) fn len(&self) -> usize {
        self.waiting().len()
    }

    /// How many there are with such names.
    pub(super) fn count(&self, is_meant: impl Fn(&K) -> bool) -> usize {
        self.waiting().keys().filter(|&name| is_meant(name)).count()
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
pub(super) async fn receive(link: MemberLink, lane: u8, connection: Connection) {
    let MemberLink {
        rank: from,
        admission,
        closable,
    } = link;
    if from > admission.me() {
        // Control and data come first, and are taken by those who admit.
        while let Ok((send, mut receive)) = connection.accept_bi().await {
            let mut head = [0; SplitHead::BYTES];
            let read = timeout(HEAD, receive.read_exact(&mut head)).await;
            if let (Ok(Ok(())), Some(SplitHead { group })) = (read, SplitHead::decode(&head)) {
                // quinn lets no member open more than twice GROUPS, so these are bounded too.
                let arrived = Arrived::new(data((send, receive)), closable.clone());
                admission.split_stream_arrives((from, group, lane), arrived);
            }
        }
    }
}

/// A stream of a group on each connection with a member.
pub(super) async fn open_all(
    admission: &Admission,
    member: &Member,
    group: u64,
) -> Result<Vec<Data>, OperationError> {
    let mut streams = Vec::new();
    for connection in admission.connections(member.rank()).unwrap_or_default() {
        streams.extend(open(&connection, group).await.map(data));
    }
    match streams.len() == usize::from(admission.lane_count()) {
        true => Ok(streams),
        false => Err(OperationError::lost(
            member.clone(),
            LossCause::Disconnected,
        )),
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

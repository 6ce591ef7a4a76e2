//! Streams for groups that are split from the one that was joined.
//!
//! The higher rank opens them, and says at their head for which group. They are few and bounded: a
//! member can have no more than [`GROUPS`] under way at a time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use quinn::{Connection, RecvStream, SendStream};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::lobby::Lobby;
use crate::links::{self, Links};
use crate::{Error, LossCause, Member, Rank};

/// Groups that two ranks can be in together, besides the one that they joined.
pub(super) const GROUPS: u8 = 64;
/// How long the head of a stream may take to arrive after its first byte.
const HEAD: Duration = Duration::from_secs(10);
/// Bytes of a head: a word that says what it is, and the group's number.
const HEAD_BYTES: usize = 12;
const WORD: [u8; 4] = *b"SPLT";

type Stream = (SendStream, RecvStream);

/// Streams that have arrived and are not asked for yet.
#[derive(Default)]
pub(super) struct Arrivals {
    waiting: Mutex<BTreeMap<(Rank, u64), Stream>>,
    changed: Notify,
}

impl Arrivals {
    fn put(&self, from: Rank, number: u64, stream: Stream) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        // quinn lets no member open more than GROUPS, so these are bounded too.
        waiting.insert((from, number), stream);
        drop(waiting);
        self.changed.notify_waiters();
    }

    async fn take(&self, from: Rank, number: u64) -> Stream {
        loop {
            // Made before the look, so that an arrival between the two is not missed.
            let changed = self.changed.notified();
            let found = {
                let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
                waiting.remove(&(from, number))
            };
            match found {
                Some(stream) => return stream,
                None => changed.await,
            }
        }
    }
}

/// Takes in the streams that a member opens, until its connection ends.
pub(super) async fn receive(lobby: Arc<Lobby>, from: Rank, connection: Connection) {
    if from > lobby.me() {
        // Control and data come first, and are taken by those who admit.
        while let Ok((send, mut receive)) = connection.accept_bi().await {
            let mut head = [0; HEAD_BYTES];
            let read = timeout(HEAD, receive.read_exact(&mut head)).await;
            if let (Ok(Ok(())), Some(number)) = (read, number(&head)) {
                lobby.arrivals().put(from, number, (send, receive));
            }
        }
    }
}

impl Lobby {
    pub(super) async fn streams(&self, members: &[Member], number: u64) -> Result<Links, Error> {
        let mut streams = Vec::new();
        for member in members {
            streams.push(if member.rank() == self.me() {
                None
            } else {
                let (send, receive) = self.stream(member, number).await?;
                let stream: (links::Outgoing, links::Incoming) =
                    (Box::new(send), Box::new(receive));
                Some(stream)
            });
        }
        Ok(Links::new(streams))
    }

    async fn stream(&self, member: &Member, number: u64) -> Result<Stream, Error> {
        if member.rank() > self.me() {
            return Ok(self.arrivals().take(member.rank(), number).await);
        }
        let opened = match self.connection(member.rank()) {
            Some(connection) => open(&connection, number).await,
            None => None,
        };
        opened.ok_or_else(|| Error::RankLost {
            peer: member.clone(),
            cause: LossCause::Disconnected,
            reporter: None,
        })
    }
}

async fn open(connection: &Connection, number: u64) -> Option<Stream> {
    let (mut send, receive) = connection.open_bi().await.ok()?;
    let mut head = [0; HEAD_BYTES];
    head[..4].copy_from_slice(&WORD);
    head[4..].copy_from_slice(&number.to_le_bytes());
    send.write_all(&head).await.ok()?;
    Some((send, receive))
}

fn number(head: &[u8; HEAD_BYTES]) -> Option<u64> {
    let (word, number) = head.split_first_chunk::<4>()?;
    (*word == WORD).then(|| number.try_into().map(u64::from_le_bytes).ok())?
}

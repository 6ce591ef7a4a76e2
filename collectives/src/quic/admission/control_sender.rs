//! What a member is told on its control stream, up to the confirmed last message.

use std::mem;
use std::pin::pin;
use std::time::Duration;

use quinn::{Connection, ConnectionError, SendStream, StoppedError, VarInt};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::quic::{UNNEEDED, control};
use crate::tasks::spawn;
use crate::wire::Message;

/// Messages that may wait for a slow control stream.
const WAITING: usize = 32;
/// How many of them heartbeats leave free for what is said once.
const SAID_ONCE: usize = 16;
/// How long a member may take to confirm the last word: several round trips and retransmissions in
/// any network, and far less than [`Timeouts::silence`](crate::Timeouts::silence).
const FAREWELL: Duration = Duration::from_millis(250);
/// How many times within that it is looked whether it has: it is the looks that are counted, for a
/// process that does not come to look was itself held up.
const LOOKS: u32 = 10;
/// How often is looked whether a packet has gone out, of which quinn does not tell.
const LOOK: Duration = Duration::from_millis(1);
/// Control goes before the bytes of operations, which may be many.
const FIRST: i32 = 1;

/// What becomes of connections on which all is said.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum After {
    Close,
    /// One that may serve the next epoch.
    MayStay,
}

/// Tells a member what the driver has for it, up to the last word.
pub(super) struct ControlSender {
    connections: Vec<Connection>,
    after: After,
    /// Taken for the last word.
    open_stream: Option<OpenStream>,
    farewell: Option<Farewell>,
}

/// Ends once the last word is confirmed, or is not to be.
pub(super) type Farewell = JoinHandle<LastWord>;

/// What became of the last word, and of the connection.
pub(super) enum LastWord {
    /// It has arrived, and the connection may be of use.
    Stays(Parted),
    /// It has arrived, and the connection closes.
    Closes(Closing),
    Unconfirmed,
}

struct OpenStream {
    messages: mpsc::Sender<Message>,
    /// Ends when the member has confirmed everything, which it can once no more is to come, or
    /// wants to hear no more; false if it never can.
    confirmed: JoinHandle<bool>,
}

/// Connections on which all is said. They close when this is dropped.
pub(super) struct Parted {
    connections: Vec<Connection>,
    code: VarInt,
    reason: Vec<u8>,
}

impl Parted {
    /// The connection, which stays open, if it is the only one and has not ended.
    pub(super) fn into_kept(mut self) -> Option<Connection> {
        match self.connections.as_slice() {
            [only] if only.close_reason().is_none() => self.connections.pop(),
            _ => None,
        }
    }

    pub(super) fn close(mut self) -> Closing {
        close(&mem::take(&mut self.connections), self.code, &self.reason)
    }
}

/// Connections that were open until this end closed them, and the packets that each had sent.
pub(in crate::quic) struct Closing(Vec<(Connection, u64)>);

impl Closing {
    /// Waits until the packets that say so have gone out.
    pub(in crate::quic) async fn sent(&self) {
        for (connection, before) in &self.0 {
            while sent(connection) == *before {
                sleep(LOOK).await;
            }
        }
    }
}

impl Drop for Parted {
    fn drop(&mut self) {
        close(&self.connections, self.code, &self.reason);
    }
}

impl ControlSender {
    pub(super) fn new(control: SendStream, connections: Vec<Connection>, after: After) -> Self {
        let (messages, outgoing) = mpsc::channel(WAITING);
        let confirmed = spawn(send_all(control, outgoing));
        Self {
            connections,
            after,
            open_stream: Some(OpenStream {
                messages,
                confirmed,
            }),
            farewell: None,
        }
    }

    /// The one with control first.
    pub(super) fn connections(&self) -> &[Connection] {
        &self.connections
    }

    /// The connection that may serve another epoch, if it has not ended.
    pub(super) fn lasting(&self) -> Option<&Connection> {
        let connection = self.connections.first()?;
        let may_stay = self.after == After::MayStay && connection.close_reason().is_none();
        may_stay.then_some(connection)
    }

    /// Whether the last word has not been said.
    pub(super) fn is_open(&self) -> bool {
        self.open_stream.is_some()
    }

    /// Queues a message, or drops it if too many wait; a heartbeat sooner than others.
    pub(super) fn tell(&self, message: Message) {
        let Some(open_stream) = &self.open_stream else {
            return;
        };
        let is_one_of_many = matches!(message, Message::Heartbeat);
        if !is_one_of_many || open_stream.messages.capacity() > SAID_ONCE {
            let _ = open_stream.messages.try_send(message);
        }
    }

    /// Says the last word, and closes the connections once all is confirmed or has not been for
    /// [`FAREWELL`]. The word is also the reason of the end, which arrives even where the stream is
    /// stuck. One that may stay closes only with what its [`Farewell`] leaves.
    ///
    /// The reason alone would not do: its packet is sent once and may be lost, and quinn does not
    /// send it at all while the congestion window is full
    /// (<https://github.com/quinn-rs/quinn/issues/2785>).
    pub(super) fn part(&mut self, code: VarInt, last: Option<Message>) {
        let Some(open_stream) = self.open_stream.take() else {
            return;
        };
        let parted = Parted {
            connections: self.connections.clone(),
            code,
            reason: last.as_ref().map(Message::encode).unwrap_or_default(),
        };
        let is_queued = last.is_none_or(|word| open_stream.messages.try_send(word).is_ok());
        drop(open_stream.messages);
        let stays = self.after == After::MayStay && is_queued && code != UNNEEDED;
        self.farewell = Some(spawn(async move {
            match in_looks(open_stream.confirmed).await {
                Some(Ok(true)) if stays => LastWord::Stays(parted),
                Some(Ok(true)) => LastWord::Closes(parted.close()),
                Some(Ok(false) | Err(_)) | None => LastWord::Unconfirmed,
            }
        }));
    }

    /// Closes the connections at once for this reason, as to a process that has ended.
    pub(super) fn hang_up(&mut self, code: VarInt, reason: &[u8]) {
        self.open_stream = None;
        close(&self.connections, code, reason);
    }

    /// What is to be waited for before this process ends: the last word, no longer than
    /// [`FAREWELL`].
    pub(super) fn farewell(&mut self) -> Option<Farewell> {
        self.farewell.take()
    }
}

pub(super) fn close(connections: &[Connection], code: VarInt, reason: &[u8]) -> Closing {
    let open = connections
        .iter()
        .filter(|one| one.close_reason().is_none());
    let counted = open.map(|one| (one.clone(), sent(one)));
    let closing = Closing(counted.collect());
    for connection in connections {
        connection.close(code, reason);
    }
    closing
}

fn sent(connection: &Connection) -> u64 {
    connection.stats().udp_tx.datagrams
}

/// What comes within [`FAREWELL`].
pub(super) async fn in_looks<T>(work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    for _ in 0..LOOKS {
        if let Ok(done) = timeout(FAREWELL / LOOKS, &mut work).await {
            return Some(done);
        }
    }
    None
}

/// Sends messages until there are no more, and waits until the last has arrived or the other end
/// wants none of them, as once it has gone on or left. False if the connection ends otherwise.
async fn send_all(mut control: SendStream, mut messages: mpsc::Receiver<Message>) -> bool {
    let _ = control.set_priority(FIRST);
    while let Some(message) = messages.recv().await {
        if control::write(&mut control, &message).await.is_err() {
            break;
        }
    }
    // It fails only where the other end wants no more, which is what comes next.
    let _ = control.finish();
    match control.stopped().await {
        Ok(_) | Err(StoppedError::ConnectionLost(ConnectionError::ApplicationClosed(_))) => true,
        Err(StoppedError::ConnectionLost(_) | StoppedError::ZeroRttRejected) => false,
    }
}

#[cfg(test)]
mod tests;

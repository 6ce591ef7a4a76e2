//! Messages on a control stream: a head, a body of bounded length.

use std::sync::Arc;

use quinn::{Connection, ConnectionError, RecvStream, SendStream};
use tokio::task::JoinSet;

use super::admission::{Admission, MemberLink};
use super::{ABORT, GOODBYE};
use crate::membership::Event;
use crate::wire::{MESSAGE_HEAD_BYTES, Message, MessageHead, Routed, WireError};
use crate::{OperationError, Rank};

/// Why no message came.
#[derive(Debug)]
pub(super) enum NoMessage {
    /// The stream is over.
    Ended,
    /// What came is no message.
    Malformed(WireError),
}

impl From<ConnectionError> for NoMessage {
    fn from(_: ConnectionError) -> Self {
        Self::Ended
    }
}

pub(super) async fn read(stream: &mut RecvStream) -> Result<Message, NoMessage> {
    let mut head = [0; MESSAGE_HEAD_BYTES];
    stream
        .read_exact(&mut head)
        .await
        .map_err(|_| NoMessage::Ended)?;
    let head = MessageHead::decode(&head).map_err(NoMessage::Malformed)?;
    let mut body = vec![0; head.length()];
    stream
        .read_exact(&mut body)
        .await
        .map_err(|_| NoMessage::Ended)?;
    Message::decode(head, &body).map_err(NoMessage::Malformed)
}

pub(super) async fn write(stream: &mut SendStream, message: &Message) -> Result<(), NoMessage> {
    stream
        .write_all(&message.encode())
        .await
        .map_err(|_| NoMessage::Ended)
}

/// Turns what a member says into events until it has no more to say.
pub(super) async fn listen(link: &MemberLink, mut stream: RecvStream) {
    let MemberLink {
        rank: from,
        admission,
        closable,
    } = link;
    let from = *from;
    let events = admission.events();
    loop {
        let event = match read(&mut stream).await {
            Ok(Message::Heartbeat) => Event::Heard(from),
            Ok(Message::PingRequest(ping)) => Event::Asked { by: from, ping },
            Ok(Message::Ack(ping)) => Event::Vouched { by: from, ping },
            Ok(Message::Goodbye) => Event::Goodbye(from),
            Ok(Message::Abort(abort)) => Event::Aborted { by: from, abort },
            Ok(Message::WaitProbe(probe)) => admission.probed(from, &probe),
            Ok(Message::Records(batch)) => Event::Records(batch),
            Ok(Message::Absent(absence)) => Event::Absent(absence),
            Ok(Message::OpenStreams(group)) => {
                admission.asked_to_open(from, group);
                continue;
            }
            Ok(Message::Routed(routed)) => match routed_event(admission, from, routed) {
                Some(event) => event,
                None => continue,
            },
            Ok(Message::Closing(said)) => {
                let closing = admission.hears_of_closing(from, closable.as_ref(), said);
                match closing.await {
                    true => return,
                    false => continue,
                }
            }
            // Greetings are over: whoever begins again has lost its mind, and so its place.
            Ok(
                Message::Hello(_)
                | Message::Welcome(_)
                | Message::Refusal(_)
                | Message::Lane(_)
                | Message::Spoken(_)
                | Message::Directory(_)
                | Message::JoinRequest(_)
                | Message::Register(_)
                | Message::Addresses(_),
            ) => Event::Disconnected(from),
            Err(NoMessage::Malformed(error)) => {
                let _ = events
                    .send(Event::GiveUp(OperationError::Protocol {
                        peer: from,
                        error,
                    }))
                    .await;
                return;
            }
            // Why the connection ended is reported by the one who waits for its end.
            Err(NoMessage::Ended) => return,
        };
        if events.send(event).await.is_err() {
            return;
        }
    }
}

/// What a message comes to that has come over other members, if it is for this one.
fn routed_event(admission: &Arc<Admission>, by: Rank, routed: Routed) -> Option<Event> {
    match admission.route(routed) {
        Ok(None) => None,
        Ok(Some((from, Message::OpenStreams(group)))) => {
            admission.asked_to_open(from, group);
            None
        }
        Ok(Some((from, Message::WaitProbe(probe)))) => Some(admission.probed(from, &probe)),
        // Nothing else is sent so.
        Ok(Some(_)) => Some(Event::Disconnected(by)),
        Err(error) => Some(Event::GiveUp(error)),
    }
}

/// Waits for the end of any of a member's connections and says why it ended: none is of use
/// without the others.
pub(super) async fn until_any_closed(link: &MemberLink, connections: Vec<Connection>) {
    let mut ends: JoinSet<_> = connections
        .into_iter()
        .map(|connection| until_closed(link.clone(), connection))
        .collect();
    ends.join_next().await;
}

async fn until_closed(link: MemberLink, connection: Connection) {
    let MemberLink {
        rank: from,
        admission,
        closable,
    } = link;
    let event = match connection.closed().await {
        ConnectionError::LocallyClosed => return,
        ConnectionError::ApplicationClosed(close) if close.error_code == GOODBYE => {
            Event::Goodbye(from)
        }
        ConnectionError::ApplicationClosed(close) if close.error_code == ABORT => {
            abort(from, &close.reason)
        }
        _ => match admission.breaks(from, closable.as_ref()).await {
            true => return,
            false => Event::Disconnected(from),
        },
    };
    let _ = admission.events().send(event).await;
    if let Some(closable) = closable {
        closable.give_up();
    }
}

/// The abort that stands in the reason of a closed connection.
fn abort(from: Rank, reason: &[u8]) -> Event {
    let message = reason
        .split_first_chunk::<MESSAGE_HEAD_BYTES>()
        .and_then(|(head, body)| Message::decode(MessageHead::decode(head).ok()?, body).ok());
    match message {
        Some(Message::Abort(abort)) => Event::Aborted { by: from, abort },
        _ => Event::Disconnected(from),
    }
}

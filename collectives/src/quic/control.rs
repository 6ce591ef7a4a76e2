//! Messages on a control stream: a head, a body of bounded length.

use std::iter;
use std::sync::Arc;

use quinn::{Connection, ConnectionError, RecvStream, SendStream};
use tokio::task::JoinSet;

use super::admission::{Admission, MemberLink};
use super::{ABORT, GOODBYE};
use crate::membership::Event;
use crate::wait_for_graph::Probe;
use crate::wire::{MESSAGE_HEAD_BYTES, Message, MessageHead, Routed, WireError};
use crate::{OperationError, Rank, overlay};

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

/// What a message carries that goes over other members, if that makes sense.
pub(super) fn carried(routed: &Routed) -> Result<Message, WireError> {
    let message = routed.message()?;
    if let Message::WaitProbe(probe) = &message {
        Probe::told(Rank::new(routed.from), probe)?;
    }
    Ok(message)
}

/// Whether a message between these two ranks, each of a group of `world`, comes to the rank `at` by
/// the hand of `by`: who has it hands it to the next on the way, or to the last if it can.
pub(super) fn is_handed_on(by: Rank, at: Rank, [from, to]: [Rank; 2], world: u32) -> bool {
    if from == to || from.max(to).number() >= world {
        return false;
    }
    let next = |rank: &Rank| {
        let next = overlay::next_hop(*rank, to, world);
        (next != to).then_some(next)
    };
    let mut way = iter::successors(Some(from), next);
    let has_it = way.any(|rank| rank == by);
    has_it && (at == to || way.next() == Some(at))
}

/// What a message comes to that has come over other members, if it is for this one.
fn routed_event(admission: &Arc<Admission>, by: Rank, routed: Routed) -> Option<Event> {
    match admission.route(by, routed) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quic::testing::Job;

    /// Who hands a message to whom on its way, where this rank is connected with the last.
    fn hands([from, to]: [Rank; 2], world: u32, knows_last: Rank) -> Vec<[Rank; 2]> {
        let (mut at, mut hands) = (from, Vec::new());
        while at != to {
            let next = match at == knows_last {
                true => to,
                false => overlay::next_hop(at, to, world),
            };
            hands.push([at, next]);
            at = next;
        }
        hands
    }

    #[test]
    fn a_message_is_handed_on_along_its_way_and_by_nobody_else() {
        for world in 2..=20 {
            let mut pairs = Vec::new();
            for one in Rank::all(world) {
                pairs.extend(Rank::all(world).map(|other| [one, other]));
            }
            for &ends in &pairs {
                let may = Rank::all(world).flat_map(|knows_last| hands(ends, world, knows_last));
                let may: Vec<_> = may.collect();
                for &[by, at] in pairs.iter().filter(|[by, at]| by != at) {
                    let expected = may.contains(&[by, at]);
                    let found = is_handed_on(by, at, ends, world);
                    assert_eq!(found, expected, "{ends:?} of {world}, {by} to {at}");
                }
            }
        }
    }

    #[test]
    fn ranks_that_there_are_not_send_nothing_and_get_nothing() {
        let [zero, one, five] = [0, 1, 5].map(Rank::new);
        assert!(is_handed_on(zero, one, [zero, one], 3));
        for ends in [[five, one], [zero, five], [five, five], [one, one]] {
            assert!(!is_handed_on(zero, one, ends, 3), "{ends:?}");
        }
    }

    #[tokio::test]
    async fn nonsense_is_told_of_whoever_has_handed_it_on_and_a_false_sender_of_nobody() {
        let job = Job::new(3);
        let members = tokio::join!(job.member(0), job.member(1), job.member(2));
        let [me, by, blamed] = [0, 1, 2].map(Rank::new);
        let admission = &members.0.admission;
        let nonsense = Routed {
            from: blamed.number(),
            to: me.number(),
            message: vec![7; 3],
        };
        let heard = routed_event(admission, by, nonsense);
        let Some(Event::GiveUp(OperationError::Protocol { peer, .. })) = heard else {
            panic!("{heard:?}");
        };
        assert_eq!(peer, by);
        let heartbeat = |from| Routed::new(from, me, &Message::Heartbeat);
        let heard = routed_event(admission, by, heartbeat(by));
        assert!(matches!(heard, Some(Event::Disconnected(rank)) if rank == by));
        // Its own neighbours are handed nothing by others.
        let heard = routed_event(admission, by, heartbeat(blamed));
        assert!(heard.is_none(), "{heard:?}");
    }
}

//! Everything that reads bytes of others, for fuzz targets and the test that replays their corpus.
//!
//! Each takes any bytes at all, and panics where what was read does not keep its word.

mod conversation;

use crate::diagnosis::{self, Dump};
use crate::identity;
use crate::quic::decode_heads;
use crate::relay::decode_datagram;
use crate::shm::{self, decode_contract_words};
use crate::wait_for_graph::Probe;
use crate::wire::{FRAME_BYTES, Frame, MESSAGE_HEAD_BYTES, Message, MessageHead};
use crate::{JobSecret, Rank};

/// The head of a frame on a data stream: what is read is written so that it reads the same.
pub fn frame(bytes: &[u8]) {
    let Some((head, _)) = bytes.split_first_chunk::<FRAME_BYTES>() else {
        return;
    };
    if let Ok(frame) = Frame::decode(head) {
        assert_eq!(Frame::decode(&frame.encode()), Ok(frame));
    }
}

/// A message on a control stream, or the reason of a closed connection.
pub fn message(bytes: &[u8]) {
    let Some(message) = read_message(bytes) else {
        return;
    };
    if let Message::WaitProbe(told) = &message
        && let Ok(probe) = Probe::told(Rank::CHIEF, told)
    {
        assert!(!format!("{probe:?}").contains('\n'));
    }
    let again = read_message(&message.encode());
    assert_eq!(again, Some(message), "what is written is read");
}

/// The message that these bytes begin with.
fn read_message(bytes: &[u8]) -> Option<Message> {
    let (head, body) = bytes.split_first_chunk::<MESSAGE_HEAD_BYTES>()?;
    let head = MessageHead::decode(head).ok()?;
    Message::decode(head, body.get(..head.length())?).ok()
}

/// Messages of three other members, each after a byte for its sender and one for the pause before
/// it: the group ends once and says why on a line, and the agreement on the next epoch ends too.
pub fn conversation(bytes: &[u8]) {
    conversation::hear(bytes);
}

/// Orders for the other end of a TLS connection over TCP: of what it seals, repeats, changes and
/// makes up, only what an honest end would have sent arrives.
pub fn records(bytes: &[u8]) {
    crate::tls::meddle(bytes);
}

/// What ranks offer before a communicator of their devices is made.
pub fn offers(bytes: &[u8]) {
    crate::group::decide_any(bytes);
}

/// A PEM file with certificates and a key: what it holds can be shown, or is refused.
pub fn credentials(bytes: &[u8]) {
    if let Some(credentials) = identity::credentials_in(bytes) {
        identity::usable(credentials);
    }
}

/// What stands first on a stream or connection for the bytes of operations.
pub fn heads(bytes: &[u8]) {
    decode_heads(bytes);
}

/// A datagram between a rank and a relay.
pub fn relay(bytes: &[u8]) {
    decode_datagram(bytes);
}

/// What another rank of the host has written on its control block: an operation with it ends, and
/// touches
/// no memory that it should not.
pub fn control_block(bytes: &[u8]) {
    shm::meddle(bytes);
}

/// The words of a post on the control block of another rank.
pub fn post(bytes: &[u8]) {
    let words = bytes.chunks(8).map(|chunk| {
        let mut message = [0; 8];
        message[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(message)
    });
    decode_contract_words(&words.collect::<Vec<_>>());
}

/// A dump: whatever it says, a diagnosis and a trace can be made of it.
pub fn dump(bytes: &[u8]) {
    if let Ok(dump) = Dump::from_json(&String::from_utf8_lossy(bytes)) {
        let dumps = [dump];
        let found = diagnosis::diagnose(&dumps);
        assert!(found.evidence().iter().all(|line| !line.contains('\n')));
        assert!(!diagnosis::trace(&dumps).is_empty());
    }
}

/// A job secret as text: an error says the same of all that have as many digits, and as many other
/// characters.
pub fn secret(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match JobSecret::from_hex(&text) {
        Ok(secret) => assert_eq!(*secret.to_hex(), text.to_lowercase()),
        Err(error) => {
            let hidden = |of: char| if of.is_ascii_hexdigit() { '0' } else { '-' };
            let other: String = text.chars().map(hidden).collect();
            let same = JobSecret::from_hex(&other).map_err(|error| error.to_string());
            assert_eq!(same.err(), Some(error.to_string()));
        }
    }
}

#[cfg(test)]
#[path = "../../fuzz/checks/replay.rs"]
mod replay;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::replay::replay;
    use super::{FRAME_BYTES, Frame, read_message};

    #[test]
    fn no_frame_of_the_corpus_breaks_the_decoder() {
        replay("frame", super::frame);
    }

    #[test]
    fn no_message_of_the_corpus_breaks_the_decoder() {
        replay("message", super::message);
    }

    #[test]
    fn no_conversation_of_the_corpus_breaks_a_member() {
        // Most that is cut short or changed ends early, and in the same messages as another.
        let mut conversations = BTreeSet::new();
        replay("conversation", |bytes| {
            let heard = super::conversation::heard(bytes);
            if conversations.insert(heard.to_vec()) {
                super::conversation(heard);
            }
        });
    }

    /// Or else nothing is replayed but the refusal of another version.
    #[test]
    fn the_corpus_is_of_the_protocol_that_is_spoken() {
        let (mut frames, mut messages) = (0, 0);
        replay("frame", |bytes| {
            let head = bytes.first_chunk::<FRAME_BYTES>();
            frames += usize::from(head.is_some_and(|head| Frame::decode(head).is_ok()));
        });
        replay("message", |bytes| {
            messages += usize::from(read_message(bytes).is_some());
        });
        let mut conversations = BTreeSet::new();
        replay("conversation", |bytes| {
            conversations.insert(super::conversation::heard(bytes).to_vec());
        });
        let read = [frames, messages, conversations.len()];
        assert!(read.iter().all(|read| *read >= 1000), "{read:?}");
    }

    #[test]
    fn no_record_of_the_corpus_breaks_the_receiver() {
        replay("records", super::records);
    }

    #[test]
    fn no_offer_of_the_corpus_breaks_the_reader() {
        replay("offers", super::offers);
    }

    #[test]
    fn no_credentials_of_the_corpus_break_the_reader() {
        replay("credentials", super::credentials);
    }

    #[test]
    fn no_head_of_the_corpus_breaks_the_decoder() {
        replay("heads", super::heads);
    }

    #[test]
    fn no_datagram_of_the_corpus_breaks_a_relay_or_its_ranks() {
        replay("relay", super::relay);
    }

    #[test]
    #[cfg(all(target_os = "linux", not(meshwork_portable)))]
    fn no_control_block_of_the_corpus_breaks_a_reader() {
        replay("control_block", super::control_block);
    }

    #[test]
    fn no_post_of_the_corpus_breaks_the_decoder() {
        replay("post", super::post);
    }

    #[test]
    fn no_dump_of_the_corpus_breaks_the_reader() {
        replay("dump", super::dump);
    }

    #[test]
    fn no_secret_of_the_corpus_breaks_the_reader() {
        replay("secret", super::secret);
    }
}

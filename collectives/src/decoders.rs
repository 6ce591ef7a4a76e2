//! Everything that reads bytes of others, for fuzz targets and the test that replays their corpus.
//!
//! Each takes any bytes at all, and panics where what was read does not keep its word.

mod conversation;

use crate::diagnosis::{self, Dump};
use crate::identity;
use crate::memory::{self, decode_terms};
use crate::quic::decode_heads;
use crate::waits::Wait;
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
    if let Message::Waiting(waiting) = &message
        && let Ok(wait) = Wait::told(Rank::CHIEF, waiting)
    {
        assert!(!wait.call.to_string().contains('\n'));
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

/// Messages of three other members, each after a byte for its sender and one for the pause before it:
/// the group ends once and says why on a line, and the agreement on the next epoch ends too.
pub fn conversation(bytes: &[u8]) {
    conversation::hear(bytes);
}

/// Orders for the other end of a TLS connection over TCP: of what it seals, repeats, changes and makes
/// up, only what an honest end would have sent arrives.
pub fn records(bytes: &[u8]) {
    crate::tls::meddle(bytes);
}

/// What ranks offer before a communicator of their devices is made.
pub fn offers(bytes: &[u8]) {
    crate::group::decide_any(bytes);
}

/// A PEM file with certificates and a key: what it holds can be shown, or is refused.
pub fn papers(bytes: &[u8]) {
    if let Some(papers) = identity::papers_in(bytes) {
        identity::usable(papers);
    }
}

/// What stands first on a stream or connection for the bytes of operations.
pub fn heads(bytes: &[u8]) {
    decode_heads(bytes);
}

/// What another rank of the host has written on its board: an operation with it ends, and touches no
/// memory that it should not.
pub fn board(bytes: &[u8]) {
    memory::meddle(bytes);
}

/// The words of a post on the board of another rank.
pub fn post(bytes: &[u8]) {
    let words = bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    });
    decode_terms(&words.collect::<Vec<_>>());
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

/// A job secret as text: an error never shows it.
pub fn secret(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match JobSecret::from_hex(&text) {
        Ok(secret) => assert_eq!(*secret.to_hex(), text.to_lowercase()),
        Err(error) => assert!(text.len() < 16 || !error.to_string().contains(&*text)),
    }
}

#[cfg(test)]
#[path = "../../fuzz/checks/replay.rs"]
mod replay;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::replay::replay;

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
        replay("conversation", super::conversation);
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
    fn no_papers_of_the_corpus_break_the_reader() {
        replay("papers", super::papers);
    }

    #[test]
    fn no_head_of_the_corpus_breaks_the_decoder() {
        replay("heads", super::heads);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn no_board_of_the_corpus_breaks_a_reader() {
        replay("board", super::board);
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

    /// Inputs of another version would be refused at their first bytes, and show nothing.
    #[test]
    fn the_corpus_has_every_kind_of_message_of_this_version() {
        let mut kinds: Vec<u8> = inputs("message")
            .filter_map(|input| super::read_message(&input))
            .map(|message| message.encode()[KIND])
            .collect();
        kinds.sort_unstable();
        kinds.dedup();
        assert_eq!(kinds, (1..=10).collect::<Vec<u8>>());
    }

    #[test]
    fn the_corpus_has_conversations_of_this_version() {
        let spoken = inputs("conversation").filter(|input| super::conversation::is_heard(input));
        assert!(spoken.count() >= 20);
    }

    /// Where a message says what it is.
    const KIND: usize = 5;

    fn inputs(target: &str) -> impl Iterator<Item = Vec<u8>> {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
        let inputs = fs::read_dir(corpus.join(target)).unwrap();
        inputs.map(|input| fs::read(input.unwrap().path()).unwrap())
    }

    #[test]
    fn zz_regenerate() {
        use crate::contract::{Call, Contract, Kind};
        use crate::wire::*;
        let out = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/corpus.new");
        let mut number = 0;
        let mut put = |target: &str, bytes: &[u8]| {
            let folder = out.join(target);
            fs::create_dir_all(&folder).unwrap();
            number += 1;
            fs::write(folder.join(number.to_string()), bytes).unwrap();
        };
        let new = |seat, incarnation| Newcomer { seat, incarnation };
        let call = |rank: u32, kind, count, site: &str| {
            let contract = Contract {
                epoch: 1,
                group: 0,
                sequence: 3,
                kind,
                algorithm: None,
                element: meshwork_accel::ElementType::F32,
                count,
                op: None,
                root: None,
            };
            ToldCall::new(
                crate::Rank::new(rank),
                &Call::new(contract, site.to_owned()),
            )
        };
        let hello = |rank, host: &str| Hello {
            rank,
            incarnation: 17,
            world: 4,
            members: [7; 32],
            process: 4711,
            host: host.to_owned(),
            connections: 2,
            carrier: 1,
        };
        let mut messages = vec![
            Message::Heartbeat,
            Message::Goodbye,
            Message::Hello(hello(3, "a host")),
            Message::Hello(hello(u32::MAX, "")),
            Message::Welcome(hello(0, "another")),
            Message::Lane(Lane {
                rank: 3,
                attempt: 1,
                index: 2,
            }),
            Message::Lane(Lane {
                rank: 0,
                attempt: u32::MAX,
                index: 0,
            }),
        ];
        for code in 0..10 {
            messages.push(Message::Refusal(Refusal {
                code,
                expected: 4,
                found: 3,
            }));
        }
        let abort = |culprit, cause, heard_ms, text: &str, calls: Vec<ToldCall>| {
            Message::Abort(Abort {
                culprit,
                cause,
                heard_ms,
                text: text.to_owned(),
                calls,
            })
        };
        for cause in 0..10 {
            messages.push(abort(
                u32::from(cause) % 5,
                cause,
                (cause % 2 == 0).then_some(1500),
                "rank 2: timed out",
                vec![],
            ));
        }
        messages.push(abort(
            1,
            6,
            None,
            "",
            vec![
                call(0, Kind::AllReduce, 8, "a.rs:1"),
                call(1, Kind::Broadcast, 9, "b.rs:2"),
            ],
        ));
        messages.push(abort(
            1,
            6,
            None,
            "",
            vec![call(0, Kind::AllReduce, 8, "a.rs:1")],
        ));
        let waiting = |rank, awaited, receives, letters| {
            Message::Waiting(Waiting {
                call: call(rank, Kind::AllReduce, 8, "a.rs:1"),
                awaited,
                serial: 9,
                receives,
                holds: vec![(0, 2), (5, u64::MAX)],
                letters,
            })
        };
        for (rank, awaited) in [(1, 2), (2, 3), (3, 1), (1, 0), (2, u32::MAX)] {
            messages.push(waiting(rank, awaited, false, None));
        }
        messages.push(waiting(
            1,
            2,
            true,
            Some(vec![ToldLetters {
                group: 0,
                with: 2,
                sent: 1,
                received: 0,
            }]),
        ));
        for (epoch, seat, restarts) in [(0, 3, 0), (1, 2, 1), (4, 1, u64::MAX)] {
            messages.push(Message::Knock(Knock {
                epoch,
                newcomer: new(seat, 17),
                restarts,
            }));
        }
        let ballot = |round, proposer| Ballot { round, proposer };
        let decision = |survivors: &[u32], newcomers: Vec<Newcomer>, epoch| Decision {
            epoch,
            survivors: survivors.iter().map(|seat| new(*seat, 1)).collect(),
            newcomers,
            completed: 17,
        };
        let standing = |completed, newcomers| Standing {
            completed,
            newcomers,
        };
        let words = vec![
            Word::Prepare(ballot(1, 1)),
            Word::Prepare(ballot(2, 3)),
            Word::Prepare(ballot(u64::MAX, 2)),
            Word::Promise {
                ballot: ballot(1, 0),
                standing: standing(17, vec![]),
                accepted: None,
            },
            Word::Promise {
                ballot: ballot(1, 0),
                standing: standing(18, vec![new(3, 2)]),
                accepted: Some((ballot(1, 1), decision(&[0, 1, 2], vec![], 2))),
            },
            Word::Propose {
                ballot: ballot(1, 1),
                decision: decision(&[0, 1, 2, 3], vec![], 2),
            },
            Word::Propose {
                ballot: ballot(2, 2),
                decision: decision(&[1, 2, 3], vec![], 2),
            },
            Word::Accept {
                ballot: ballot(1, 0),
            },
            Word::Overtaken { by: ballot(9, 3) },
            Word::Decided(decision(&[0, 1, 2, 3], vec![], 2)),
            Word::Decided(decision(&[1, 2, 3], vec![new(0, 2)], 2)),
            Word::Decided(decision(&[0, 1], vec![new(3, 7)], 5)),
            Word::Decided(decision(&[], vec![], 2)),
        ];
        let say = |word: &Word, epoch| {
            Message::Spoken(Spoken {
                epoch,
                word: word.clone(),
            })
        };
        for word in &words {
            messages.push(say(word, 1));
        }
        messages.push(say(&words[0], 7));
        for message in &messages {
            put("message", &message.encode());
        }
        put("message", b"");
        let mut talk = |said: &[(u8, u8, &Message)]| {
            let mut bytes = vec![];
            for (by, pause, message) in said {
                bytes.extend([*by, *pause]);
                bytes.extend(message.encode());
            }
            put("conversation", &bytes);
        };
        for message in &messages {
            talk(&[(1, 5, message)]);
        }
        let w: Vec<Message> = words.iter().map(|word| say(word, 1)).collect();
        let beat = Message::Heartbeat;
        talk(&[
            (0, 0, &beat),
            (1, 0, &beat),
            (2, 0, &beat),
            (0, 255, &beat),
            (1, 0, &Message::Goodbye),
            (0, 1, &Message::Goodbye),
            (2, 1, &Message::Goodbye),
        ]);
        talk(&[(0, 10, &w[0]), (0, 1, &w[5]), (0, 1, &w[9])]);
        talk(&[
            (0, 255, &w[3]),
            (1, 0, &w[3]),
            (2, 0, &w[4]),
            (0, 0, &w[7]),
            (1, 0, &w[7]),
            (2, 0, &w[7]),
        ]);
        talk(&[(1, 255, &w[3]), (2, 0, &w[3]), (1, 0, &w[7]), (2, 0, &w[7])]);
        talk(&[(0, 0, &w[1]), (1, 0, &w[8]), (2, 50, &w[6]), (2, 1, &w[10])]);
        talk(&[(0, 0, &w[2]), (1, 0, &w[2]), (2, 100, &w[11])]);
        talk(&[
            (2, 30, &messages[messages.len() - 17]),
            (0, 255, &w[3]),
            (1, 255, &w[3]),
        ]);
        let circle = [
            waiting(1, 2, false, None),
            waiting(2, 3, false, None),
            waiting(3, 1, false, None),
        ];
        talk(&[
            (0, 1, &circle[0]),
            (1, 1, &circle[1]),
            (2, 1, &circle[2]),
            (0, 255, &circle[0]),
        ]);
    }
}

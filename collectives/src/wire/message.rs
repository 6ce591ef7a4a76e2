//! Control messages and their bytes: greetings, aborts, waits, join requests and agreement.

use rkyv::{Archive, Deserialize, Serialize, rancor};

use super::absence::Absence;
use super::agreement_message::AgreementMessage;
use super::call::{WaitProbe, WireCall};
use super::closing::ClosingMessage;
use super::newcomer::{Directory, Newcomer};
use super::records::RecordBatch;
use super::registration::{AddressBatch, Registration};
use super::routed::Routed;
use super::{MAGIC, VERSION, WireError, begins_well};
use crate::DataTransport;

/// Bytes before each message body.
pub(crate) const MESSAGE_HEAD_BYTES: usize = 12;

/// Bytes of free text a message may carry: an abort must fit in one QUIC packet of 1,200 bytes,
/// because it travels as the reason of a closed connection.
pub(crate) const TEXT_LIMIT: usize = 900;

/// Bytes a message body may have.
const BODY_LIMIT: u32 = 32 << 10;

/// Bytes of a word on the next epoch: all members that a group can have, three times, and twice as
/// many newcomers as one step admits, as a promise tells who has promised, what they have accepted,
/// who has ended and who is to be admitted.
const SPOKEN_LIMIT: u32 = 192 << 10;

/// Ranks that a message names as absent at most; nobody reads more.
pub(crate) const ABSENT_LIMIT: usize = 1000;

/// What goes over a control stream.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Message {
    /// Dialler to acceptor, first: who I am and what group I believe to be in.
    Hello(Hello),
    /// Acceptor to dialler: the same, in answer.
    Welcome(Hello),
    /// Acceptor to dialler: you are not let in.
    Refusal(Refusal),
    /// I am alive.
    Heartbeat,
    /// The group has failed.
    Abort(Abort),
    /// I have finished and need nothing more from you.
    Goodbye,
    /// Dialler to acceptor, first: this is one more connection of ours.
    Lane(Lane),
    /// On the next epoch.
    Spoken(Spoken),
    /// I have waited for some time: do you wait for me?
    WaitProbe(Box<WaitProbe>),
    /// First: I want to be in the next epoch. The answer, if it is the same: so do I.
    JoinRequest(JoinRequest),
    /// Who is there, as far as I know.
    Records(RecordBatch),
    /// These ranks have not come in time, and these processes were not let in.
    Absent(Absence),
    /// For a rank that the sender may not be connected with.
    Routed(Routed),
    /// Open the streams of this group to me: the higher rank of two does.
    OpenStreams(u64),
    /// A rank misses another: do you hear of it? To that one itself: you are missed.
    PingRequest(Ping),
    /// The answer: it lives.
    Ack(Ping),
    /// Before there is a group, to rank 0: this is where I am going to listen.
    Register(Registration),
    /// The answer: this is where all do.
    Addresses(AddressBatch),
    /// In answer to a newcomer: this is where the members are. Its request stands.
    Directory(Directory),
    /// About a connection that is closed while neither end needs it.
    Closing(ClosingMessage),
}

/// Who a process is.
#[derive(Archive, Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Hello {
    pub(crate) rank: u32,
    /// Tells this process from those that had its place before.
    pub(crate) incarnation: u64,
    pub(crate) world: u32,
    /// SHA-256 of the member addresses, so that two views of the cluster cannot meet.
    pub(crate) members: [u8; 32],
    /// The process id, meaningful only to a process on the same host.
    pub(crate) process: u32,
    /// Names the host and its process namespace; empty where unknown.
    pub(crate) host: String,
    /// Connections that each pair of ranks has.
    pub(crate) connections: u8,
    /// The code of what carries the bytes of operations.
    pub(crate) data_transport: u8,
}

/// Which connection this is.
#[derive(Archive, Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub(crate) struct Lane {
    pub(crate) rank: u32,
    /// The dialler's attempt that it belongs to: one that was given up leaves connections behind.
    pub(crate) attempt: u32,
    /// From 1; the connection that was greeted is 0.
    pub(crate) index: u8,
}

/// What a member says to agree on the epoch that follows.
#[derive(Archive, Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Spoken {
    /// The one that is over.
    pub(crate) epoch: u64,
    pub(crate) message: AgreementMessage,
}

/// Who misses whom.
#[derive(Archive, Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Ping {
    pub(crate) origin: u32,
    pub(crate) target: u32,
}

/// Who wants to be in the next epoch.
#[derive(Archive, Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct JoinRequest {
    /// The one that it was in last; 0 if in none.
    pub(crate) epoch: u64,
    pub(crate) newcomer: Newcomer,
    /// Of the program that it runs, which is that of all members.
    pub(crate) program: [u8; 16],
    /// How often its launcher has seen a process with its member id end, and started another.
    pub(crate) restarts: u64,
}

/// The code of [`Message::Spoken`].
pub(super) const SPOKEN: u8 = 8;

/// The code of [`Message::Routed`].
pub(super) const ROUTED: u8 = 13;

/// Why a process is not let in.
#[derive(Archive, Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Refusal {
    pub(crate) code: u8,
    /// The refuser's own value of what differs.
    pub(crate) expected: u32,
    /// The refused one's value.
    pub(crate) found: u32,
}

/// Why the group has failed.
#[derive(Archive, Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Abort {
    /// The rank at fault.
    pub(crate) culprit: u32,
    /// Who noticed it first.
    pub(crate) reporter: u32,
    pub(crate) cause: u8,
    /// How long before it had last been heard of, in milliseconds, where that is known.
    pub(crate) heard_ms: Option<u64>,
    pub(crate) text: String,
    /// The two calls that disagree, where that is the cause.
    pub(crate) calls: Vec<WireCall>,
}

/// The head of a message, decoded: how many bytes of which type follow.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct MessageHead {
    kind: u8,
    length: u32,
}

impl MessageHead {
    pub(crate) fn decode(bytes: &[u8; MESSAGE_HEAD_BYTES]) -> Result<Self, WireError> {
        begins_well(bytes)?;
        let length = u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
        let kind = bytes[5];
        let limit = if kind == SPOKEN {
            SPOKEN_LIMIT
        } else {
            BODY_LIMIT
        };
        if length > limit {
            return Err(WireError::Length {
                found: u64::from(length),
                limit: u64::from(limit),
            });
        }
        Ok(Self { kind, length })
    }

    /// The code of the message's type.
    pub(super) fn kind(self) -> u8 {
        self.kind
    }

    /// Bytes of the body.
    pub(crate) fn length(self) -> usize {
        self.length as usize
    }
}

impl Message {
    /// Head and body.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let body = match self {
            Self::Hello(hello) | Self::Welcome(hello) => rkyv::to_bytes::<rancor::Error>(hello),
            Self::Refusal(refusal) => rkyv::to_bytes(refusal),
            Self::Abort(abort) => rkyv::to_bytes(abort),
            Self::Lane(lane) => rkyv::to_bytes(lane),
            Self::Spoken(spoken) => rkyv::to_bytes(spoken),
            Self::WaitProbe(probe) => rkyv::to_bytes(&**probe),
            Self::JoinRequest(join_request) => rkyv::to_bytes(join_request),
            Self::Records(batch) => rkyv::to_bytes(batch),
            Self::Absent(absence) => rkyv::to_bytes(absence),
            Self::Routed(routed) => rkyv::to_bytes(routed),
            Self::OpenStreams(group) => rkyv::to_bytes(group),
            Self::PingRequest(ping) | Self::Ack(ping) => rkyv::to_bytes(ping),
            Self::Register(registration) => rkyv::to_bytes(registration),
            Self::Addresses(batch) => rkyv::to_bytes(batch),
            Self::Directory(directory) => rkyv::to_bytes(directory),
            Self::Closing(closing) => rkyv::to_bytes(closing),
            Self::Heartbeat | Self::Goodbye => Ok(rkyv::util::AlignedVec::new()),
        };
        let body = body.expect("serialising plain numbers and short texts into memory cannot fail");
        let length = u32::try_from(body.len()).expect("texts are bounded by TEXT_LIMIT");
        let mut bytes = Vec::with_capacity(MESSAGE_HEAD_BYTES + body.len());
        bytes.extend(MAGIC);
        bytes.extend([VERSION, self.code(), 0, 0]);
        bytes.extend(length.to_le_bytes());
        bytes.extend_from_slice(&body);
        bytes
    }

    /// The body that belongs to `head`.
    pub(crate) fn decode(head: MessageHead, body: &[u8]) -> Result<Self, WireError> {
        let malformed = |_: rancor::Error| WireError::Body { kind: head.kind };
        match (head.kind, body) {
            (1, _) => rkyv::from_bytes(body).map(Self::Hello).map_err(malformed),
            (2, _) => rkyv::from_bytes(body).map(Self::Welcome).map_err(malformed),
            (3, _) => rkyv::from_bytes(body).map(Self::Refusal).map_err(malformed),
            (4, []) => Ok(Self::Heartbeat),
            (5, _) => rkyv::from_bytes(body).map(Self::Abort).map_err(malformed),
            (6, []) => Ok(Self::Goodbye),
            (7, _) => rkyv::from_bytes(body).map(Self::Lane).map_err(malformed),
            (SPOKEN, _) => match rkyv::from_bytes::<Spoken, _>(body).map_err(malformed)? {
                spoken if spoken.message.makes_sense() => Ok(Self::Spoken(spoken)),
                _ => Err(WireError::Body { kind: head.kind }),
            },
            (9, _) => rkyv::from_bytes(body)
                .map(|probe| Self::WaitProbe(Box::new(probe)))
                .map_err(malformed),
            (10, _) => match rkyv::from_bytes::<JoinRequest, _>(body).map_err(malformed)? {
                request if request.newcomer.makes_sense() => Ok(Self::JoinRequest(request)),
                _ => Err(WireError::Body { kind: head.kind }),
            },
            (11, _) => rkyv::from_bytes(body).map(Self::Records).map_err(malformed),
            (12, _) => rkyv::from_bytes(body).map(Self::Absent).map_err(malformed),
            (ROUTED, _) => rkyv::from_bytes(body).map(Self::Routed).map_err(malformed),
            (14, _) => rkyv::from_bytes(body)
                .map(Self::OpenStreams)
                .map_err(malformed),
            (15, _) => rkyv::from_bytes(body)
                .map(Self::PingRequest)
                .map_err(malformed),
            (16, _) => rkyv::from_bytes(body).map(Self::Ack).map_err(malformed),
            (17, _) => rkyv::from_bytes(body)
                .map(Self::Register)
                .map_err(malformed),
            (18, _) => rkyv::from_bytes(body)
                .map(Self::Addresses)
                .map_err(malformed),
            (19, _) => match rkyv::from_bytes::<Directory, _>(body).map_err(malformed)? {
                directory if directory.makes_sense() => Ok(Self::Directory(directory)),
                _ => Err(WireError::Body { kind: head.kind }),
            },
            (20, _) => rkyv::from_bytes(body).map(Self::Closing).map_err(malformed),
            (4 | 6, _) => Err(WireError::Body { kind: head.kind }),
            (kind, _) => Err(WireError::Code {
                field: "message type",
                found: u32::from(kind),
            }),
        }
    }

    fn code(&self) -> u8 {
        match self {
            Self::Hello(_) => 1,
            Self::Welcome(_) => 2,
            Self::Refusal(_) => 3,
            Self::Heartbeat => 4,
            Self::Abort(_) => 5,
            Self::Goodbye => 6,
            Self::Lane(_) => 7,
            Self::Spoken(_) => SPOKEN,
            Self::WaitProbe(_) => 9,
            Self::JoinRequest(_) => 10,
            Self::Records(_) => 11,
            Self::Absent(_) => 12,
            Self::Routed(_) => ROUTED,
            Self::OpenStreams(_) => 14,
            Self::PingRequest(_) => 15,
            Self::Ack(_) => 16,
            Self::Register(_) => 17,
            Self::Addresses(_) => 18,
            Self::Directory(_) => 19,
            Self::Closing(_) => 20,
        }
    }
}

impl Refusal {
    /// Where nobody who belongs to the job was refused.
    pub(super) fn none() -> Self {
        Self {
            code: 0,
            expected: 0,
            found: 0,
        }
    }
}

impl From<crate::Refusal> for Refusal {
    fn from(reason: crate::Refusal) -> Self {
        use crate::Refusal::{
            Connections, DataTransport, Members, Program, RankTaken, RankUnexpected, RankUnproved,
            Version, World,
        };
        let (code, expected, found) = match reason {
            World { expected, found } => (1, expected, found),
            Members => (2, 0, 0),
            RankTaken => (3, 0, 0),
            RankUnproved { claimed } => (4, 0, claimed),
            RankUnexpected { claimed } => (5, 0, claimed),
            Connections { expected, found } => (6, expected, found),
            DataTransport { expected, found } => (7, expected.code().into(), found.code().into()),
            Version { expected, found } => (8, expected.into(), found.into()),
            Program => (9, 0, 0),
        };
        Self {
            code,
            expected,
            found,
        }
    }
}

/// Inverse of the above; a code of a later version is the least specific reason.
impl From<Refusal> for crate::Refusal {
    fn from(
        Refusal {
            code,
            expected,
            found,
        }: Refusal,
    ) -> Self {
        match code {
            1 => Self::World { expected, found },
            2 => Self::Members,
            3 => Self::RankTaken,
            4 => Self::RankUnproved { claimed: found },
            6 => Self::Connections { expected, found },
            7 => match [expected, found].map(DataTransport::from_code) {
                [Some(expected), Some(found)] => Self::DataTransport { expected, found },
                _ => Self::RankUnexpected { claimed: found },
            },
            8 => match [expected, found].map(u8::try_from) {
                [Ok(expected), Ok(found)] => Self::Version { expected, found },
                _ => Self::RankUnexpected { claimed: found },
            },
            9 => Self::Program,
            _ => Self::RankUnexpected { claimed: found },
        }
    }
}

/// `text` in one line of at most [`TEXT_LIMIT`] bytes.
pub(crate) fn truncate(text: &str) -> String {
    let mut line = text.replace(char::is_control, " ");
    while line.len() > TEXT_LIMIT {
        line.pop();
    }
    line
}

#[cfg(test)]
pub(super) use tests::samples;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::records::sample;
    use std::time::Duration;

    use super::super::{
        Ballot, CloseRequest, Decision, MemberProcess, MemberState, NEWCOMERS, Promises, Stranger,
        WaitReport, WireMessageCounts,
    };
    use super::*;
    use crate::Rank;

    fn decode(bytes: &[u8]) -> Result<Message, WireError> {
        let (head, body) = bytes.split_first_chunk::<MESSAGE_HEAD_BYTES>().unwrap();
        Message::decode(MessageHead::decode(head)?, body)
    }

    fn stranger() -> Stranger {
        let cause = crate::UnauthenticatedCause::Refused(crate::Refusal::Members);
        let address = "[fd00::9]:65535".parse().unwrap();
        Stranger::from(&crate::UnauthenticatedPeer::new(address, cause))
    }

    fn hello() -> Hello {
        Hello {
            rank: 3,
            incarnation: 17,
            world: 4,
            members: [7; 32],
            process: 4711,
            host: "a host".to_owned(),
            connections: 2,
            data_transport: 1,
        }
    }

    /// Bytes of a QUIC packet of 1,200 that the reason of a closed connection may take.
    const PACKET: usize = 1150;

    const PING: Ping = Ping {
        origin: 7,
        target: u32::MAX,
    };

    fn longest_addresses() -> Message {
        Message::Addresses(AddressBatch {
            first: 64,
            addresses: vec!["h".repeat(255 + 6); AddressBatch::MOST],
        })
    }

    fn longest_probe() -> Message {
        let call = WireCall::longest(3);
        let message_counts = WireMessageCounts {
            group: u64::MAX,
            with: u32::MAX,
            sent: u64::MAX,
            received: u64::MAX,
        };
        let last = WaitReport {
            call: call.clone(),
            awaited: 3,
            serial: 9,
            receives: true,
            held_groups: vec![(u64::MAX, u64::MAX); WaitReport::HELD_GROUPS],
            message_counts: Some(vec![message_counts; WaitReport::MESSAGE_COUNTS]),
        };
        Message::WaitProbe(Box::new(WaitProbe {
            initiator: u32::MAX,
            serial: u64::MAX,
            sent: Duration::MAX,
            hops: u32::MAX,
            digest: u64::MAX,
            differing: Some([call.clone(), call]),
            last,
        }))
    }

    /// Messages of every type.
    pub(in crate::wire) fn samples() -> Vec<Message> {
        let others = vec![
            Message::Hello(hello()),
            Message::Welcome(hello()),
            Message::Refusal(Refusal {
                code: 1,
                expected: 4,
                found: 3,
            }),
            Message::Heartbeat,
            Message::Register(Registration {
                rank: 3,
                world: 4,
                port: u16::MAX,
            }),
            longest_addresses(),
            longest_probe(),
            Message::Goodbye,
            Message::Lane(Lane {
                rank: 3,
                attempt: 1,
                index: 2,
            }),
            spoken(3),
            Message::JoinRequest(JoinRequest {
                epoch: 4,
                newcomer: newcomer(3),
                program: [9; 16],
                restarts: 1,
            }),
            Message::Directory(Directory {
                epoch: u64::MAX,
                most: 5,
                entries: (0..).take(Directory::LIMIT).map(entry).collect(),
            }),
            Message::Records(sample(RecordBatch::LIMIT)),
            Message::Absent(Absence {
                ranks: vec![3; ABSENT_LIMIT],
                refused: vec![stranger(); 4],
            }),
            Message::OpenStreams(u64::MAX),
            Message::PingRequest(PING),
            Message::Ack(PING),
            Message::Routed(Routed::new(
                Rank::new(1),
                Rank::new(2),
                &Message::OpenStreams(7),
            )),
        ];
        [others, closings(), aborts(), agreement()].concat()
    }

    /// What is said on the next epoch besides promises.
    fn agreement() -> Vec<Message> {
        let ballot = Ballot {
            round: 7,
            proposer: 1,
        };
        let decision = Decision {
            epoch: 2,
            survivors: vec![newcomer(0).process],
            newcomers: vec![newcomer(1)],
            completed: 17,
        };
        let part = vec![2, 3];
        let voters = decision.survivors.clone();
        let said = [
            AgreementMessage::Prepare {
                ballot,
                part: part.clone(),
            },
            AgreementMessage::Propose {
                ballot,
                decision: decision.clone(),
                part,
            },
            AgreementMessage::Accept { ballot, voters },
            AgreementMessage::Overtaken { by: ballot },
            AgreementMessage::Decided(decision),
            AgreementMessage::Waits { ballot, beat: 3 },
        ];
        said.map(|message| Message::Spoken(Spoken { epoch: 1, message }))
            .to_vec()
    }

    fn closings() -> Vec<Message> {
        let request = CloseRequest {
            number: 1,
            sent: u64::MAX,
            received: 2,
        };
        let said = [
            ClosingMessage::Unneeded,
            ClosingMessage::Request(request),
            ClosingMessage::Keep(u64::MAX),
            ClosingMessage::Close(3),
        ];
        said.map(Message::Closing).to_vec()
    }

    fn aborts() -> Vec<Message> {
        let abort = Abort {
            culprit: 2,
            reporter: 1,
            cause: 1,
            heard_ms: Some(1500),
            text: truncate(&"ä\n".repeat(900)),
            calls: Vec::new(),
        };
        let disagreement = Abort {
            culprit: 1,
            reporter: 0,
            cause: 6,
            heard_ms: None,
            text: String::new(),
            calls: vec![WireCall::longest(1); 2],
        };
        vec![Message::Abort(abort), Message::Abort(disagreement)]
    }

    /// As long as one can be.
    fn newcomer(member_id: u32) -> Newcomer {
        let process = MemberProcess {
            member_id,
            incarnation: u64::MAX,
        };
        Newcomer::at(process, "n".repeat(259))
    }

    fn entry(member_id: u32) -> (u32, String) {
        (member_id, newcomer(member_id).address)
    }

    /// The longest word there is, with so many members besides newcomers.
    fn spoken(members: u32) -> Message {
        let ballot = Ballot {
            round: 7,
            proposer: 1,
        };
        let decision = Decision {
            epoch: 2,
            survivors: (0..members)
                .map(|member_id| newcomer(member_id).process)
                .collect(),
            newcomers: (members..).take(NEWCOMERS).map(newcomer).collect(),
            completed: 17,
        };
        let standing = MemberState {
            completed: 18,
            newcomers: decision.newcomers.clone(),
        };
        let promises = Promises {
            voters: decision.survivors.clone(),
            standing,
            accepted: Some((ballot, decision)),
            ended: (0..members).collect(),
        };
        let message = AgreementMessage::Promise { ballot, promises };
        Message::Spoken(Spoken { epoch: 1, message })
    }

    #[test]
    fn a_word_about_the_largest_group_fits() {
        let bytes = spoken(crate::config::WORLD_LIMIT).encode();
        assert!(
            bytes.len() <= MESSAGE_HEAD_BYTES + SPOKEN_LIMIT as usize,
            "{} bytes",
            bytes.len()
        );
    }

    #[test]
    fn encode_and_decode_are_inverse() {
        for message in samples() {
            let bytes = message.encode();
            let limit = match message {
                Message::Spoken(_) => SPOKEN_LIMIT,
                _ => BODY_LIMIT,
            };
            assert!(bytes.len() <= MESSAGE_HEAD_BYTES + limit as usize);
            if matches!(message, Message::Abort(_)) {
                assert!(bytes.len() < PACKET, "{} bytes", bytes.len());
            }
            assert_eq!(decode(&bytes), Ok(message));
        }
    }

    #[test]
    fn a_decision_that_cannot_be_is_no_message() {
        let decided = |epoch, member_ids: &[u32]| {
            let decision = Decision {
                epoch,
                survivors: Vec::new(),
                newcomers: member_ids.iter().copied().map(newcomer).collect(),
                completed: 0,
            };
            let message = AgreementMessage::Decided(decision);
            decode(&Message::Spoken(Spoken { epoch: 1, message }).encode())
        };
        assert!(decided(2, &[0, 1]).is_ok());
        let malformed = Err(WireError::Body { kind: SPOKEN });
        assert_eq!(decided(2, &[0, 1, 0]), malformed);
        assert_eq!(decided(u64::MAX, &[0, 1]), malformed);
    }

    #[test]
    fn free_text_keeps_to_a_line_and_says_nothing_to_a_terminal() {
        assert_eq!(truncate("a\r\nb\x1b[2J\u{85}c"), "a  b [2J c");
    }

    #[test]
    fn every_reason_of_a_refusal_is_understood() {
        use crate::Refusal::{
            Connections, DataTransport, Members, Program, RankTaken, RankUnexpected, RankUnproved,
            Version, World,
        };
        let world = World {
            expected: 4,
            found: 3,
        };
        for reason in [
            world,
            Members,
            Program,
            RankTaken,
            RankUnproved { claimed: 7 },
            RankUnexpected { claimed: 7 },
            Connections {
                expected: 4,
                found: 1,
            },
            DataTransport {
                expected: crate::DataTransport::Quic,
                found: crate::DataTransport::Tls,
            },
            Version {
                expected: 2,
                found: 1,
            },
        ] {
            assert_eq!(crate::Refusal::from(Refusal::from(reason)), reason);
        }
    }

    #[test]
    fn a_body_at_any_alignment_decodes() {
        let bytes = Message::Hello(hello()).encode();
        for shift in 0..8 {
            let mut shifted = vec![0; shift];
            shifted.extend_from_slice(&bytes);
            assert_eq!(decode(&shifted[shift..]), Ok(Message::Hello(hello())));
        }
    }

    #[test]
    fn a_truncated_or_lengthened_message_without_body_is_refused() {
        for message in [Message::Heartbeat, Message::Goodbye] {
            let mut bytes = message.encode();
            bytes.push(0);
            assert!(decode(&bytes).is_err());
        }
        let bytes = Message::Hello(hello()).encode();
        assert_eq!(
            decode(&bytes[..MESSAGE_HEAD_BYTES]),
            Err(WireError::Body { kind: 1 })
        );
    }

    #[test]
    fn an_announced_length_beyond_the_limit_is_refused_before_anything_is_allocated() {
        let mut bytes = Message::Heartbeat.encode();
        bytes[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
        let expected = WireError::Length {
            found: u64::from(u32::MAX),
            limit: u64::from(BODY_LIMIT),
        };
        assert_eq!(decode(&bytes), Err(expected));
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_decoder_panic(
            kind in 0_u8..22,
            body in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let head = MessageHead { kind, length: 0 };
            let _ = Message::decode(head, &body);
        }

        #[test]
        fn no_changed_byte_makes_the_decoder_panic(at in any::<prop::sample::Index>(), value in any::<u8>()) {
            for message in samples() {
                let mut bytes = message.encode();
                let at = at.index(bytes.len());
                bytes[at] = value;
                let _ = decode(&bytes);
            }
        }
    }
}

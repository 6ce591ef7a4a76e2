//! What the other members of a group say, from its first second to the next epoch.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::agreement::{
    self, Agreement, AgreementRules, AgreementTimeouts, PreviousEpoch, TwoMemberPolicy,
};
use crate::contract::{Call, Contract, Kind};
use crate::idle::closing::{ByteCounts, Closing, End, Reaction};
use crate::membership::{self, Membership, MembershipTimeouts};
use crate::wait_for_graph::{Action, HeldGroup, Probe, WaitEdge, WaitForGraph};
use crate::wire::{
    AgreementMessage, Ballot, ClosingMessage, Cores, MESSAGE_HEAD_BYTES, MemberProcess,
    MemberRecord, MemberState, Message, MessageHead, RecordBatch, Spoken, WaitProbe,
};
use crate::{ElementType, Member, OperationError, Rank};

/// Members of the group, the one that listens among them as rank 0.
const WORLD: u32 = 4;
const ME: MemberProcess = MemberProcess {
    member_id: 0,
    incarnation: 1,
};
const EPOCH: u64 = 1;
/// What is known of each member.
const RECORD: MemberRecord = MemberRecord {
    incarnation: ME.incarnation,
    process: 1,
    host: [0; 16],
    cores: Cores { first: 0, count: 1 },
};

/// Everything that takes in what is said, as a rank has it.
struct Listener {
    now: Instant,
    membership: Membership,
    wait_for_graph: WaitForGraph,
    agreement: Agreement,
    /// How often either has come to its end.
    ends: [u32; 2],
    /// The last ballot of this rank's own.
    ballot: Ballot,
}

/// Rank 0 waits for rank 1 in the first operation of the group, and has another in hand.
fn own_wait() -> WaitEdge {
    let contract = Contract {
        epoch: EPOCH,
        group: 0,
        sequence: 1,
        kind: Kind::Barrier,
        algorithm: None,
        element: ElementType::F32,
        count: 0,
        op: None,
        root: None,
    };
    let held_groups = [0, 7].map(|group| HeldGroup { group, finished: 0 });
    WaitEdge {
        waiter: Rank::CHIEF,
        awaited: Rank::new(1),
        serial: 1,
        call: Call::new(contract, "own.rs:1"),
        receives: false,
        held_groups: held_groups.into(),
        message_counts: Some(Vec::new()),
    }
}

/// Before each message: who sends it, and how long after the one before, in units of 4 ms.
const PREFIX_BYTES: usize = 2;

pub(super) fn hear(mut bytes: &[u8]) {
    let mut listener = Listener::new();
    while let Some((said, rest)) = next(bytes) {
        listener.hear(said);
        bytes = rest;
    }
    listener.finish();
}

/// The messages that these bytes begin with: what `hear` takes of them.
#[cfg(test)]
pub(super) fn heard(bytes: &[u8]) -> &[u8] {
    let mut rest = bytes;
    while let Some((_, behind)) = next(rest) {
        rest = behind;
    }
    &bytes[..bytes.len() - rest.len()]
}

/// The sender, the pause before, and the message; the rest follows.
type Said = (Rank, Duration, Message);

fn next(bytes: &[u8]) -> Option<(Said, &[u8])> {
    let ([who, pause], rest) = bytes.split_first_chunk::<PREFIX_BYTES>()?;
    let (head, rest) = rest.split_first_chunk::<MESSAGE_HEAD_BYTES>()?;
    let head = MessageHead::decode(head).ok()?;
    let (body, rest) = rest.split_at_checked(head.length())?;
    let by = Rank::new(1 + u32::from(*who) % (WORLD - 1));
    let pause = Duration::from_millis(4) * u32::from(*pause);
    let message = Message::decode(head, body).ok()?;
    Some(((by, pause, message), rest))
}

impl Listener {
    fn new() -> Self {
        let now = Instant::now();
        let ms = Duration::from_millis;
        let members: Arc<[Member]> = Rank::all(WORLD)
            .map(|rank| Member::new(rank, "localhost:1"))
            .collect();
        let timeouts = MembershipTimeouts {
            join: ms(2000),
            heartbeat: ms(200),
            check: ms(200),
            silence: ms(1500),
        };
        let pace = AgreementTimeouts {
            gather: ms(1000),
            retry: ms(300),
            limit: ms(10_000),
        };
        let previous_epoch = PreviousEpoch {
            epoch: EPOCH,
            members: (0..WORLD).collect(),
            incarnations: Arc::new(
                (0..WORLD)
                    .map(|member_id| (member_id, ME.incarnation))
                    .collect(),
            ),
        };
        let standing = MemberState::default();
        let mut listener = Self {
            now,
            membership: Membership::new(Rank::CHIEF, RECORD, members, timeouts, now),
            wait_for_graph: WaitForGraph::default(),
            agreement: Agreement::new(
                ME,
                previous_epoch,
                AgreementRules {
                    pair: TwoMemberPolicy::Proven,
                    timeouts: pace,
                },
                standing,
                now,
            ),
            ends: [0; 2],
            ballot: Ballot::NONE,
        };
        for rank in Rank::all(WORLD).skip(1) {
            listener.happens(membership::Event::Joined(rank));
        }
        let records = vec![RECORD; WORLD as usize];
        let others = RecordBatch { first: 0, records };
        listener.happens(membership::Event::Records(others));
        listener
    }

    /// As `quic::control` and `quic::reconfiguration` hand it on.
    fn hear(&mut self, said: Said) {
        let (by, pause, message) = said;
        self.now += pause;
        match message {
            Message::Heartbeat => self.happens(membership::Event::Heard(by)),
            Message::PingRequest(ping) => self.happens(membership::Event::Asked { by, ping }),
            Message::Ack(ping) => self.happens(membership::Event::Vouched { by, ping }),
            Message::Goodbye => self.happens(membership::Event::Goodbye(by)),
            Message::Abort(abort) => self.happens(membership::Event::Aborted { by, abort }),
            Message::Records(batch) => self.happens(membership::Event::Records(batch)),
            Message::Absent(absence) => self.happens(membership::Event::Absent(absence)),
            // It goes to another rank, or opens streams.
            Message::Routed(routed) => drop(routed.message()),
            Message::OpenStreams(_) => {}
            Message::Closing(said) => self.closes(by, said),
            Message::WaitProbe(probe) => {
                let event = self.probed(by, &probe);
                self.happens(event);
            }
            Message::JoinRequest(join_request) => {
                // The certificate has told the member id.
                let member_id = by.number();
                let process = MemberProcess {
                    member_id,
                    ..join_request.newcomer.process
                };
                self.asked(agreement::Event::Reached(process));
            }
            Message::Spoken(Spoken { epoch, message }) if epoch == EPOCH => {
                let by = MemberProcess {
                    member_id: by.number(),
                    ..ME
                };
                self.asked(agreement::Event::Said { by, message });
            }
            Message::Spoken(_)
            | Message::Register(_)
            | Message::Addresses(_)
            | Message::Hello(_)
            | Message::Welcome(_)
            | Message::Refusal(_)
            | Message::Directory(_)
            | Message::Lane(_) => self.happens(membership::Event::Disconnected(by)),
        }
    }

    /// As `quic::admission` does with a connection that nothing needs.
    fn closes(&mut self, by: Rank, said: ClosingMessage) {
        let mut closing = Closing::new(End::Decides, self.now);
        match closing.hear(self.now, said, ByteCounts::default()) {
            Reaction::Nothing | Reaction::Say(ClosingMessage::Keep(_)) => {}
            Reaction::Close(Some(ClosingMessage::Close(_))) => {
                self.happens(membership::Event::Released(by));
            }
            out_of_place => panic!("{out_of_place:?} as an answer to {said:?}"),
        }
    }

    /// As `quic::admission` does, while this rank waits for the next.
    fn probed(&mut self, by: Rank, probe: &WaitProbe) -> membership::Event {
        match Probe::told(by, probe) {
            Ok(probe) => self.wait_for_graph.arrives(self.now, probe),
            Err(error) => {
                return membership::Event::GiveUp(OperationError::Protocol { peer: by, error });
            }
        }
        let actions = self.wait_for_graph.look(self.now, &own_wait());
        let deadlock = actions.into_iter().find_map(|action| match action {
            Action::GiveUp(deadlock) => Some(deadlock),
            Action::Send(to, probe) => {
                let (told, back) = (WaitProbe::from(&probe), Rank::CHIEF);
                assert_eq!((to, Probe::told(back, &told)), (Rank::new(1), Ok(probe)));
                None
            }
        });
        deadlock.map_or(membership::Event::Heard(by), |deadlock| {
            membership::Event::GiveUp(deadlock.into())
        })
    }

    /// A group ends once, for a reason that fits on a line.
    fn happens(&mut self, event: membership::Event) {
        let mut out = Vec::new();
        self.membership.handle(self.now, event, &mut out);
        for action in out {
            assert_eq!(self.ends[0], 0, "{action:?} after the end");
            match action {
                membership::Action::Fail(error) => {
                    self.ends[0] += 1;
                    let line = error.to_string();
                    assert!(!line.contains(char::is_control), "{line:?}");
                }
                membership::Action::Over => self.ends[0] += 1,
                membership::Action::Say(awaited) => {
                    let line = awaited.to_string();
                    assert!(!line.contains(char::is_control), "{line:?}");
                }
                membership::Action::Send(..)
                | membership::Action::Examine { .. }
                | membership::Action::Ready(_) => {}
            }
        }
    }

    /// An agreement ends once, and in the next epoch this rank has one place or none; until then
    /// its own ballots rise.
    fn asked(&mut self, event: agreement::Event) {
        let mut out = Vec::new();
        self.agreement.handle(self.now, event, &mut out);
        let mut prepared = self.ballot;
        for action in out {
            match action {
                agreement::Action::Call(member_id) => {
                    assert_ne!(member_id, ME.member_id, "it calls itself");
                }
                agreement::Action::Send(to, message) => {
                    assert_ne!(to, ME.member_id, "it says to itself {message:?}");
                    if let AgreementMessage::Prepare { ballot, .. } = message {
                        assert!(ballot >= self.ballot, "{ballot:?} after {:?}", self.ballot);
                        prepared = ballot;
                    }
                }
                agreement::Action::Decided(decision) => {
                    self.ends[1] += 1;
                    let own = |member: &MemberProcess| member.member_id == ME.member_id;
                    assert_eq!(decision.epoch, EPOCH + 1);
                    assert_eq!(decision.members().filter(own).count(), 1, "{decision:?}");
                }
                agreement::Action::Excluded(decision) => {
                    self.ends[1] += 1;
                    let next = decision.epoch == EPOCH + 1;
                    let there = decision.survivors.contains(&ME);
                    assert!(!(next && there), "{decision:?}");
                }
                agreement::Action::NoMajority(_) => self.ends[1] += 1,
            }
        }
        self.ballot = prepared;
        assert!(self.ends[1] <= 1);
    }

    /// Whatever was said, both end by themselves when nothing more is, and do nothing in the second
    /// after that.
    fn finish(mut self) {
        const TICKS: u32 = 100;
        const AFTER_THE_END: u32 = 5;
        let mut after = [0; 2];
        for _ in 0..TICKS {
            self.now += Duration::from_millis(200);
            if after[0] < AFTER_THE_END {
                self.happens(membership::Event::Tick);
            }
            if after[1] < AFTER_THE_END {
                self.asked(agreement::Event::Tick);
            }
            after = [0, 1].map(|one: usize| after[one] + self.ends[one]);
            if after.iter().all(|after| *after >= AFTER_THE_END) {
                break;
            }
        }
        assert_eq!(self.ends, [1, 1]);
    }
}

//! Builds that would misunderstand each other have different versions.

use meshwork_accel::{ElementType, ReduceOp};
use ring::digest::{self, SHA256};

use super::message::samples;
use super::{FRAME_BYTES, Frame, FrameType, Message, VERSION};
use crate::contract::{Contract, Kind};
use crate::schedule::{Algorithm, Collective, Hosts};
use crate::shm::shared_layout;
use crate::{Choices, Communication, CostModel, Payload, Rank};

/// The version, and digests of what it stands for: messages, shared memory, choices of `auto`.
const HELD: (u8, [&str; 3]) = (
    12,
    ["b08499a863536527", "f1608f186891eaf2", "742203f81889ef9d"],
);

#[test]
fn what_builds_must_have_alike_changes_with_the_version() {
    let digests = [messages(), shared_memory(), choices()].map(|bytes| short(&bytes));
    let found = (VERSION, digests.each_ref().map(String::as_str));
    assert_eq!(
        found, HELD,
        "processes of this build and of those before would misunderstand each other: where it is \
         not done yet, raise VERSION, with the byte behind each MSHW in fuzz/corpus; then run \
         this again and put into HELD what `left` is"
    );
}

fn short(bytes: &[u8]) -> String {
    let whole = digest::digest(&SHA256, bytes);
    let hex = whole.as_ref()[..8].iter().map(|byte| format!("{byte:02x}"));
    hex.collect()
}

fn messages() -> Vec<u8> {
    let messages = samples();
    let messages = messages.iter().flat_map(Message::encode);
    messages.chain((0..20).flat_map(frame)).collect()
}

/// With the codes at this place, around the end of each list.
fn frame(place: usize) -> [u8; FRAME_BYTES] {
    let contract = Contract {
        epoch: 1,
        group: 2,
        sequence: 3,
        kind: Kind::ALL[place % Kind::ALL.len()],
        algorithm: Some(Algorithm::ALL[place % Algorithm::ALL.len()]),
        element: ElementType::ALL[place % ElementType::ALL.len()],
        count: 4,
        op: Some(ReduceOp::ALL[place % ReduceOp::ALL.len()]),
        root: Some(Rank::new(5)),
    };
    let frame = Frame {
        frame_type: FrameType::Chunk,
        contract,
        length: 6,
    };
    frame.encode()
}

fn shared_memory() -> Vec<u8> {
    let numbers = shared_layout().into_iter();
    numbers.flat_map(u64::to_le_bytes).collect()
}

/// By ranks, ranks to a core, operation and bytes.
fn choices() -> Vec<u8> {
    let root = Rank::CHIEF;
    let broadcast = Collective::Broadcast { root };
    let mut taken = Vec::new();
    for ranks in [2, 3, 4, 8, 12, 32] {
        for ranks_per_core in [1.0, 2.0, 4.0, 16.0] {
            let model = CostModel::QUIC.with_ranks_per_core(ranks_per_core);
            let choices = Choices::new(&Hosts::apart(ranks), model);
            for collective in [Collective::AllReduce, broadcast, Collective::AllGather] {
                taken.extend([1 << 6, 1 << 10, 1 << 14, 1 << 18, 1 << 22].map(|bytes| {
                    let payload = Payload::new(ElementType::U8, bytes);
                    let chosen = choices.choose(Communication::Auto, collective, payload);
                    chosen.code()
                }));
            }
        }
    }
    taken
}

//! What a process tells of itself, and its streams to and from the members of an epoch.

use super::Surroundings;
use super::member::Epoch;
use crate::links::{Incoming, Links, Outgoing, Scratch};
use crate::sim::net::{Reader, Writer};
use crate::sim::program::Means;
use crate::wire::{Cores, MemberProcess, MemberRecord};

/// What a process tells of itself.
pub(super) fn record(me: MemberProcess, around: &Surroundings) -> MemberRecord {
    let place = around.hosts[me.member_id as usize];
    let mut host = [1; 16];
    host[..8].copy_from_slice(&place.to_le_bytes());
    MemberRecord {
        incarnation: me.incarnation,
        process: me.member_id,
        host,
        cores: Cores::default(),
    }
}

/// Streams to and from all members.
pub(super) fn means(
    me: MemberProcess,
    epoch: &Epoch,
    records: &[MemberRecord],
    around: &mut Surroundings,
) -> Means {
    let mut streams = Vec::new();
    for (&member_id, record) in epoch.member_ids.iter().zip(records) {
        let incarnation = record.incarnation;
        let member = MemberProcess {
            member_id,
            incarnation,
        };
        streams.push((member != me).then(|| {
            let mut wire = |from: MemberProcess, to: MemberProcess| {
                let wire = around.wires.entry((epoch.number, from, to));
                wire.or_default().clone()
            };
            let way = (me.member_id, member.member_id);
            let outgoing = Writer::new(&wire(me, member), &around.net, way);
            let incoming = Reader::new(&wire(member, me), &around.net);
            let streams: (Outgoing, Incoming) = (Box::new(outgoing), Box::new(incoming));
            streams
        }));
    }
    Means {
        links: Links::new(streams),
        scratch: Scratch::new(),
    }
}

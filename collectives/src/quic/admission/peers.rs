//! What the connections with other members have gone through.

use quinn::Connection;

use super::Admission;
use crate::Rank;
use crate::statistics::Peer;

impl Admission {
    /// The members that this one is connected with, in the order of their ranks.
    pub(crate) fn peers(&self) -> Vec<Peer> {
        let admitted = self.admitted();
        let peers = admitted.iter();
        peers
            .filter_map(|(rank, member)| peer(*rank, member.control_sender.connections()))
            .collect()
    }
}

/// All connections with a member as one, with the round trip of the one that has control.
fn peer(rank: Rank, connections: &[Connection]) -> Option<Peer> {
    let mut peer = Peer {
        rank,
        round_trip: connections.first()?.rtt(),
        bytes_sent: 0,
        bytes_received: 0,
        packets_sent: 0,
        packets_lost: 0,
    };
    for connection in connections {
        let stats = connection.stats();
        peer.bytes_sent += stats.udp_tx.bytes;
        peer.bytes_received += stats.udp_rx.bytes;
        peer.packets_sent += stats.path.sent_packets;
        peer.packets_lost += stats.path.lost_packets;
    }
    Some(peer)
}

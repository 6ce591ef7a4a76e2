use quinn::Connection;

use super::Admission;
use crate::Rank;
use crate::quic::control::NoMessage;
use crate::quic::endpoint;
use crate::quic::streams::{Data, Stream, data};
use crate::wire::Lane;

/// Connections that may wait to be asked for; a member that opens more is not heard.
const WAITING: usize = 4096;

impl Admission {
    /// Keeps one more connection of a member until its greeting is answered.
    pub(super) fn lane_arrived(&self, lane: Lane, connection: Connection, stream: Stream) {
        let role = self.role(Rank::new(lane.rank));
        let proved = self.identity.is(&connection, role);
        let expected = (1..self.lane_count()).contains(&lane.index);
        if proved && expected && self.lanes.len() < WAITING {
            endpoint::trust(&connection);
            self.lanes.put(lane, (connection, data(stream)));
        }
    }

    /// Waits for all further connections of the attempt that `first` belongs to, for as long as
    /// that lives.
    pub(super) async fn lanes(
        &self,
        rank: Rank,
        attempt: u32,
        first: &Connection,
    ) -> Result<Vec<(Connection, Data)>, NoMessage> {
        let mut lanes = Vec::new();
        for index in 1..self.lane_count() {
            let lane = Lane {
                rank: rank.number(),
                attempt,
                index,
            };
            let arrived = async {
                loop {
                    let arrived = self.lanes.take(lane).await;
                    // Else it is of an earlier call in this epoch, which was given up.
                    if arrived.0.close_reason().is_none() {
                        return arrived;
                    }
                }
            };
            tokio::select! {
                arrived = arrived => lanes.push(arrived),
                _ = first.closed() => return Err(NoMessage::Ended),
            }
        }
        Ok(lanes)
    }
}

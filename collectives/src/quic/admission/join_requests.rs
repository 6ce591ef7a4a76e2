//! Who wants to be let into a group that runs, or has missed how the last one ended.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use quinn::{Connection, SendStream};

use super::{Admission, lock};
use crate::Rank;
use crate::agreement::MemberId;
use crate::config::WORLD_LIMIT;
use crate::identity::Role;
use crate::membership::Event;
use crate::quic::control::{self, NoMessage};
use crate::wire::{AgreementMessage, JoinRequest, MemberProcess, Message, Spoken};

/// Who has not asked to join for so long has gone away.
const RECENT: Duration = Duration::from_secs(3);

/// Newcomers by member id, so there are never more of them than member ids, and when they last
/// asked to join.
#[derive(Default)]
pub(super) struct JoinRequests(Mutex<BTreeMap<MemberId, (u64, Instant)>>);

impl Admission {
    /// Notes who asks to be let in, and tells those who have missed a decision.
    pub(super) async fn join_requested(
        &self,
        join_request: JoinRequest,
        connection: Connection,
        mut send: SendStream,
    ) -> Result<(), NoMessage> {
        let JoinRequest {
            epoch,
            newcomer,
            restarts,
        } = join_request;
        if !self
            .identity
            .is(&connection, Role::Rank(Rank::new(newcomer.member_id)))
        {
            return Ok(());
        }
        let missed = self.decision.as_ref().filter(|decision| match epoch {
            0 => decision.newcomers.contains(&newcomer),
            _ => epoch < self.epoch,
        });
        match missed {
            Some(decision) => {
                let message = AgreementMessage::Decided(decision.clone());
                let spoken = Message::Spoken(Spoken { epoch, message });
                control::write(&mut send, &spoken).await?;
                // The other closes when it has read it.
                connection.closed().await;
            }
            None if epoch == 0 => {
                self.note(newcomer);
                if let Some(rank) = self.rank_at(newcomer.member_id) {
                    // Later members may have been started again themselves.
                    if restarts > 0 && self.epoch == 1 {
                        lock(&self.ended).insert(rank);
                    }
                    self.miss(rank).await;
                }
            }
            None => {}
        }
        Ok(())
    }

    fn note(
        &self,
        MemberProcess {
            member_id,
            incarnation,
        }: MemberProcess,
    ) {
        let mut join_requests = self
            .join_requests
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if member_id < WORLD_LIMIT {
            join_requests.insert(member_id, (incarnation, Instant::now()));
        }
    }

    /// Another process has come in the place of a member: if that is still waited for, it will not
    /// come.
    pub(super) async fn miss(&self, rank: Rank) {
        let missing = !self.admitted().contains_key(&rank);
        if missing {
            let _ = self.events.send(Event::Reported(rank)).await;
        }
    }

    /// Who has asked to join a short while ago.
    pub(in crate::quic) fn joiners(&self) -> Vec<MemberProcess> {
        let join_requests = self
            .join_requests
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let recent = join_requests
            .iter()
            .filter(|(_, (_, at))| at.elapsed() < RECENT);
        let newcomer = |(&member_id, &(incarnation, _))| MemberProcess {
            member_id,
            incarnation,
        };
        recent.map(newcomer).collect()
    }
}

//! Who wants to be let into a group that runs, or has missed how the last one ended.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use quinn::{Connection, SendStream};

use super::accept::refuse;
use super::{Admission, evidence, lock};
use crate::agreement::MemberId;
use crate::identity::Role;
use crate::membership::Event;
use crate::quic::control::{self, NoMessage};
use crate::quic::program;
use crate::wire::{AgreementMessage, Decision, JoinRequest, Message, NEWCOMERS, Newcomer, Spoken};
use crate::{Rank, Refusal};

/// Who has not asked to join for so long has gone away.
const RECENT: Duration = Duration::from_secs(3);
/// Newcomers that are remembered: those that one step admits, and as many for each of the next.
const MOST: usize = 4 * NEWCOMERS;

/// Newcomers by member id, and when they last asked to join.
#[derive(Default)]
pub(super) struct JoinRequests(Mutex<BTreeMap<MemberId, (Newcomer, Instant)>>);

impl Admission {
    /// Notes who asks to be let in and tells it where all are, and tells those that have missed a
    /// decision.
    pub(super) async fn join_requested(
        &self,
        join_request: JoinRequest,
        connection: Connection,
        mut send: SendStream,
    ) -> Result<(), NoMessage> {
        let process = join_request.newcomer.process;
        let role = Role::Rank(Rank::new(process.member_id));
        if !self.identity.is(&connection, role) {
            return Ok(());
        }
        let epoch = join_request.epoch;
        let missed = self.decision.as_ref().filter(|decision| match epoch {
            0 => decision.admits(process),
            _ => epoch < self.epoch,
        });
        if epoch == 0 {
            let own = self.node.program().await;
            if !program::may_be_equal(own, join_request.program) {
                return refuse(self, connection, send, Refusal::Program).await;
            }
            self.tell_where_all_are(&mut send).await?;
        }
        match missed {
            Some(decision) => tell_decision(&mut send, epoch, decision).await?,
            None if epoch == 0 => self.takes_the_place(&join_request).await,
            None => return Ok(()),
        }
        let _ = send.finish();
        if epoch == 0 && missed.is_none() {
            self.note(join_request.newcomer, connection.remote_address())
                .await;
        }
        // The other closes when it has read it.
        connection.closed().await;
        Ok(())
    }

    async fn tell_where_all_are(&self, send: &mut SendStream) -> Result<(), NoMessage> {
        let directory = self.node.directory_of(self.epoch, &self.member_ids);
        for message in directory.messages() {
            control::write(send, &message).await?;
        }
        Ok(())
    }

    /// Whoever was there before a newcomer has ended, if this still waits for it.
    async fn takes_the_place(&self, join_request: &JoinRequest) {
        let process = join_request.newcomer.process;
        let Some(rank) = self.rank_at(process.member_id) else {
            return;
        };
        if self.incarnations().get(&process.member_id) == Some(&process.incarnation) {
            // It asked before it came in, and is heard only now.
            return;
        }
        // Later members may have been started again themselves.
        if join_request.restarts > 0 && self.epoch == 1 {
            lock(&self.ended).insert(rank);
        }
        self.miss(rank).await;
    }

    async fn note(&self, newcomer: Newcomer, from: SocketAddr) {
        // It is asked there for as long as it joins.
        let port_is_telling = match self.address_of(&newcomer, from).await {
            Some(address) => !evidence::refuses(address).await,
            None => false,
        };
        let newcomer = Newcomer {
            port_is_telling,
            ..newcomer
        };
        let mut join_requests = self
            .join_requests
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        join_requests.retain(|_, (_, at)| at.elapsed() < RECENT);
        let member_id = newcomer.process.member_id;
        if join_requests.len() < MOST || join_requests.contains_key(&member_id) {
            join_requests.insert(member_id, (newcomer, Instant::now()));
        }
    }

    /// Another process has come in the place of a member: if that is still waited for, it will not
    /// come.
    pub(super) async fn miss(&self, rank: Rank) {
        // Once all have met nobody is, and only neighbours are admitted.
        let missing = self.roster.get().is_none() && !self.admitted().contains_key(&rank);
        if missing {
            let _ = self.events.send(Event::Reported(rank)).await;
        }
    }

    /// Who has asked to join a short while ago and is no member: as many as one step admits, and as
    /// the group has room for.
    pub(in crate::quic) fn joiners(&self) -> Vec<Newcomer> {
        let room = (self.node.directory().most() as usize).saturating_sub(self.member_ids.len());
        let join_requests = self
            .join_requests
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let recent = join_requests
            .values()
            .filter(|(newcomer, at)| {
                let is_member = self.member_ids.contains(&newcomer.process.member_id);
                at.elapsed() < RECENT && !is_member
            })
            .map(|(newcomer, _)| newcomer.clone());
        recent.take(room.min(NEWCOMERS)).collect()
    }
}

async fn tell_decision(
    send: &mut SendStream,
    epoch: u64,
    decision: &Decision,
) -> Result<(), NoMessage> {
    let message = AgreementMessage::Decided(decision.clone());
    control::write(send, &Message::Spoken(Spoken { epoch, message })).await
}

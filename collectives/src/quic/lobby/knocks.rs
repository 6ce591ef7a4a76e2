//! Who wants to be let into a group that runs, or has missed how the last one ended.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use quinn::{Connection, SendStream};

use super::{Lobby, lock};
use crate::Rank;
use crate::agreement::Seat;
use crate::config::WORLD_LIMIT;
use crate::identity::Role;
use crate::membership::Event;
use crate::quic::control::{self, NoMessage};
use crate::wire::{Knock, Message, Newcomer, Spoken, Word};

/// Who has not knocked for so long has gone away.
const RECENT: Duration = Duration::from_secs(3);

/// Newcomers by seat, so there are never more of them than seats, and when they last knocked.
#[derive(Default)]
pub(super) struct Knocks(Mutex<BTreeMap<Seat, (u64, Instant)>>);

impl Lobby {
    /// Notes who asks to be let in, and tells those who have missed a decision.
    pub(super) async fn knocked(
        &self,
        knock: Knock,
        connection: Connection,
        mut send: SendStream,
    ) -> Result<(), NoMessage> {
        let Knock {
            epoch,
            newcomer,
            restarts,
        } = knock;
        if !self
            .identity
            .is(&connection, Role::Rank(Rank::new(newcomer.seat)))
        {
            return Ok(());
        }
        let missed = self.decision.as_ref().filter(|decision| match epoch {
            0 => decision.newcomers.contains(&newcomer),
            _ => epoch < self.epoch,
        });
        match missed {
            Some(decision) => {
                let word = Word::Decided(decision.clone());
                let spoken = Message::Spoken(Spoken { epoch, word });
                control::write(&mut send, &spoken).await?;
                // The other closes when it has read it.
                connection.closed().await;
            }
            None if epoch == 0 => {
                self.note(newcomer);
                if let Some(rank) = self.rank_at(newcomer.seat) {
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

    fn note(&self, Newcomer { seat, incarnation }: Newcomer) {
        let mut knocks = self.knocks.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seat < WORLD_LIMIT {
            knocks.insert(seat, (incarnation, Instant::now()));
        }
    }

    /// Another process has come in the place of a member: if that is still waited for, it will not
    /// come.
    pub(super) async fn miss(&self, rank: Rank) {
        let missing = self.seats()[rank.index()].is_none();
        if missing {
            let _ = self.events.send(Event::Reported(rank)).await;
        }
    }

    /// Who has knocked a short while ago.
    pub(in crate::quic) fn at_the_door(&self) -> Vec<Newcomer> {
        let knocks = self.knocks.0.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = knocks.iter().filter(|(_, (_, at))| at.elapsed() < RECENT);
        let newcomer = |(&seat, &(incarnation, _))| Newcomer { seat, incarnation };
        recent.map(newcomer).collect()
    }
}

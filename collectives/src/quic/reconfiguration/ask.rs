//! Asking to be let in: a newcomer asks some members, again and again, until all have decided.
//!
//! ```text
//!   newcomer ── join request ──────────────────────────> any member
//!            <── directory: where all members are ─────  or: refused, and why
//!            <── decided, if that has been missed ─────
//!            <── join request: it is between two epochs
//! ```
//!
//! One member that hears it is enough: the members tell each other when they grow. Whoever is asked
//! may die, so others are too, and those that the answers name. An address may be one that the job
//! has left and another job has taken: `denials` says when such answers leave no hope.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn::Connection;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::Reconfiguration;
use super::denials::{Answer, Denials};
use crate::JoinError;
use crate::agreement::{Event, MemberId};
use crate::identity::{Distrust, Role, distrust};
use crate::quic::TURNED_AWAY;
use crate::quic::control::{self, NoMessage};
use crate::tasks::spawn_in;
use crate::wire::{AgreementMessage, Message, Spoken, WireError};

/// How long one member may take to answer.
const ATTEMPT: Duration = Duration::from_secs(1);
/// The pause before all are asked again; it doubles each time.
const PAUSE: Duration = Duration::from_millis(20);
/// The longest pause: far below what members remember a request for.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// Members that are asked at a time: one may be gone without anybody knowing.
const ASKED: usize = 8;

/// A member that may be asked.
#[derive(Clone, Copy, Debug)]
struct Seed {
    /// Who it has to be; any member where nobody said so.
    role: Role,
    address: SocketAddr,
}

/// Whom to ask in a round.
struct Round {
    seeds: Vec<Seed>,
    /// Whether a name has no address at the moment.
    unresolved: bool,
    /// Rounds in which everybody is asked.
    of_all: usize,
}

impl Reconfiguration {
    /// Asks until this is dropped, or returns why there is no hope: all who answered have refused.
    pub(super) async fn ask(self: Arc<Self>) -> JoinError {
        let timeouts = self.node.config.timeouts();
        let mut denials = Denials::new(timeouts.silence().min(timeouts.join() / 2));
        let mut pause = PAUSE;
        for number in 0_usize.. {
            let round = self.round(number).await;
            let mut asked = JoinSet::new();
            for seed in round.seeds {
                let own = self.clone();
                spawn_in(&mut asked, async move { own.ask_one(seed).await });
            }
            let mut answers = asked.join_all().await;
            answers.extend(round.unresolved.then_some(Answer::Nobody));
            if let Some(error) = denials.hear(Instant::now(), answers, round.of_all) {
                return error;
            }
            sleep(pause).await;
            pause = LONGEST_PAUSE.min(2 * pause);
        }
        unreachable!("rounds are counted beyond any time")
    }

    async fn ask_one(&self, seed: Seed) -> Answer {
        match timeout(ATTEMPT, self.request(seed)).await {
            Ok(answer) => answer,
            Err(_) => Answer::Nobody,
        }
    }

    async fn request(&self, seed: Seed) -> Answer {
        let Some(connecting) = self.dial_at(seed.address, seed.role) else {
            return Answer::Nobody;
        };
        let seed = seed.address;
        let connection = match connecting.await {
            Ok(connection) => connection,
            Err(error) => {
                return match distrust(&error) {
                    Some(Distrust::OtherJob) => {
                        Answer::Stranger(JoinError::SeedOfOtherJob { seed })
                    }
                    Some(Distrust::Expired) => Answer::Stranger(JoinError::SeedExpired { seed }),
                    None => Answer::Nobody,
                };
            }
        };
        self.node.connection_counters.dialled();
        let answer = self.hear_answer(&connection, seed).await;
        connection.close(TURNED_AWAY, b"");
        answer
    }

    /// Says what this process is, and hears the other out.
    async fn hear_answer(&self, connection: &Connection, seed: SocketAddr) -> Answer {
        let Ok(mut line) = connection.open_bi().await else {
            return Answer::Nobody;
        };
        let request = Message::JoinRequest(self.join_request.clone());
        if control::write(&mut line.0, &request).await.is_err() {
            return Answer::Nobody;
        }
        let mut answer = Answer::Nobody;
        loop {
            match control::read(&mut line.1).await {
                Ok(Message::Directory(part)) => {
                    self.node.directory().learn(&part);
                    answer = Answer::Noted;
                }
                Ok(Message::Spoken(Spoken {
                    message: AgreementMessage::Decided(decision),
                    ..
                })) => {
                    let _ = self.tell(Event::Decided(decision)).await;
                    return Answer::Noted;
                }
                Ok(Message::JoinRequest(member)) if member.epoch > 0 => return Answer::Between,
                Ok(Message::Refusal(refusal)) => {
                    let reason = refusal.into();
                    return Answer::Denied(JoinError::Denied { seed, reason });
                }
                // Another version understands at least the version.
                Err(NoMessage::Malformed(WireError::Version { found, expected })) => {
                    let reason = crate::Refusal::Version {
                        expected: found,
                        found: expected,
                    };
                    return Answer::Denied(JoinError::Denied { seed, reason });
                }
                Ok(_) | Err(NoMessage::Ended | NoMessage::Malformed(_)) => return answer,
            }
        }
    }

    /// Members that are asked in a round: some that were given first, and some others that are
    /// known.
    async fn round(&self, number: usize) -> Round {
        let given = self.node.config.seeds();
        let known = self.known_members();
        let names = some_of(given, number).map(|seed| (Role::Member, seed.clone()));
        let mut names: Vec<(Role, String)> = names.collect();
        names.extend(some_of(&known, number).filter_map(|member_id| {
            let address = self.node.address(*member_id)?;
            Some((self.node.role(*member_id), address))
        }));
        let mut round = Round {
            seeds: Vec::new(),
            unresolved: false,
            of_all: rounds_of(given.len().max(known.len())),
        };
        let Ok(own) = self.node.endpoint.local_addr() else {
            return round;
        };
        for (role, name) in names {
            // One that cannot be resolved yet, as while a cluster starts, is tried again.
            let Ok(found) = tokio::net::lookup_host(&name).await else {
                round.unresolved = true;
                continue;
            };
            let reached = found.filter(|address| address.is_ipv4() == own.is_ipv4());
            let reached: Vec<_> = reached.collect();
            round.of_all = round.of_all.max(rounds_of(reached.len()));
            for &address in some_of(&reached, number).filter(|address| **address != own) {
                if round.seeds.iter().all(|seed| seed.address != address) {
                    round.seeds.push(Seed { role, address });
                }
            }
        }
        round.seeds.truncate(2 * ASKED);
        round
    }

    /// All whose addresses are known, but this process.
    fn known_members(&self) -> Vec<MemberId> {
        let mut known: Vec<MemberId> = (0..).take(self.node.config.listed().len()).collect();
        known.extend(self.node.directory().members());
        known.sort_unstable();
        known.dedup();
        known.retain(|member_id| *member_id != self.node.me.member_id);
        known
    }
}

/// Rounds in which so many are asked.
fn rounds_of(len: usize) -> usize {
    len.div_ceil(ASKED)
}

/// As many as are asked at a time, in each round the next ones.
fn some_of<T>(all: &[T], round: usize) -> impl Iterator<Item = &T> {
    let first = match all.len() {
        0 => 0,
        len => round * ASKED % len,
    };
    all.iter().cycle().skip(first).take(all.len().min(ASKED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_any_number_each_is_asked_in_time_and_none_twice_at_once() {
        for len in 0..40 {
            let all: Vec<usize> = (0..len).collect();
            let mut missed = all.clone();
            for round in 0..len.div_ceil(ASKED) {
                let mut asked: Vec<usize> = some_of(&all, round).copied().collect();
                assert_eq!(asked.len(), len.min(ASKED));
                missed.retain(|seed| !asked.contains(seed));
                asked.sort_unstable();
                asked.dedup();
                assert_eq!(asked.len(), len.min(ASKED));
            }
            assert_eq!(missed, [0; 0], "{len} seeds");
        }
    }
}

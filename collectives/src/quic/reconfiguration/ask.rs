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

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use quinn::Connection;
use tokio::net::lookup_host;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{self, sleep, timeout, timeout_at};

use super::Reconfiguration;
use super::denials::{Answer, Denials};
use crate::JoinError;
use crate::agreement::{Event, MemberId};
use crate::identity::{Distrust, Role, distrust};
use crate::quic::TURNED_AWAY;
use crate::quic::control::{self, NoMessage};
use crate::tasks::{spawn, spawn_in};
use crate::wire::{AgreementMessage, Message, Spoken, WireError};

/// How long one member may take to answer, and how long a round waits for addresses before.
const ATTEMPT: Duration = Duration::from_secs(1);
/// The pause before all are asked again; it doubles each time.
const PAUSE: Duration = Duration::from_millis(20);
/// The longest pause: far below what members remember a request for.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// Members that are asked at a time: one may be gone without anybody knowing.
const ASKED: usize = 8;

/// Names that are being looked up.
type LookUps = BTreeMap<String, JoinHandle<Option<Vec<SocketAddr>>>>;

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
        let (mut look_ups, mut pause) = (LookUps::new(), PAUSE);
        for number in 0_usize.. {
            let round = self.round(number, &mut look_ups).await;
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
                    Some(Distrust::OtherRank) => {
                        Answer::Stranger(JoinError::SeedOfOtherRank { seed })
                    }
                    Some(Distrust::Expired) => Answer::Stranger(JoinError::SeedExpired { seed }),
                    None => Answer::Nobody,
                };
            }
        };
        self.node.connection_counters.dialled();
        let answer = self.hear_answer(&connection, seed).await;
        if answer.is_hopeful() {
            self.is_answered.store(true, Ordering::Relaxed);
        }
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
    async fn round(&self, number: usize, look_ups: &mut LookUps) -> Round {
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
        let found = looked_up(&names, look_ups, look_up).await;
        for ((role, _), reached) in names.into_iter().zip(found) {
            // One that cannot be resolved yet, as while a cluster starts, is tried again.
            let Some(mut reached) = reached else {
                round.unresolved = true;
                continue;
            };
            reached.retain(|address| address.is_ipv4() == own.is_ipv4());
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

    /// Whom it asks by and by, as they were given and are known.
    pub(super) fn asked(&self) -> Vec<String> {
        let known = self.known_members().into_iter();
        let known = known.filter_map(|member_id| self.node.address(member_id));
        let given = self.node.config.seeds().iter().cloned();
        given.chain(known).collect()
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

/// The addresses of each name, as far as they are found in time. What takes longer goes on and is
/// for a later round: begun anew it would take as long again.
async fn looked_up<F>(
    names: &[(Role, String)],
    look_ups: &mut LookUps,
    look_up: impl Fn(String) -> F,
) -> Vec<Option<Vec<SocketAddr>>>
where
    F: Future<Output = Option<Vec<SocketAddr>>> + Send + 'static,
{
    for (_, name) in names {
        let begin = || spawn(look_up(name.clone()));
        look_ups.entry(name.clone()).or_insert_with(begin);
    }
    let until = time::Instant::now() + ATTEMPT;
    let mut found = BTreeMap::new();
    for (_, name) in names {
        if let Some(looking) = look_ups.get_mut(name)
            && let Ok(ended) = timeout_at(until, looking).await
        {
            look_ups.remove(name);
            found.insert(name, ended.ok().flatten());
        }
    }
    let names = names.iter();
    names
        .map(|(_, name)| found.get(name).cloned().flatten())
        .collect()
}

async fn look_up(name: String) -> Option<Vec<SocketAddr>> {
    Some(lookup_host(name).await.ok()?.collect())
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
    use std::sync::Mutex;
    use std::sync::atomic::AtomicBool;

    use tokio::sync::{mpsc, oneshot};

    use super::*;
    use crate::quic::node::Node;
    use crate::quic::testing::without_look_ups;
    use crate::wire::JoinRequest;
    use crate::{GroupConfig, JobSecret, Rank};

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

    /// A name service may not answer for long.
    #[test]
    fn who_is_known_by_an_address_is_asked_whatever_becomes_of_names() {
        let (bind, living) = ("127.0.0.1:0", "127.0.0.1:1");
        let secret = JobSecret::generate().unwrap();
        let config = GroupConfig::newcomer(["localhost:1", living], secret).unwrap();
        let config = config.with_bind(bind.parse().unwrap());
        let round = without_look_ups(async |_| {
            let node = Node::open(&config).await.unwrap();
            let join_request = JoinRequest {
                epoch: 0,
                newcomer: node.newcomer(),
                program: [0; 16],
                restarts: 0,
            };
            let (inbox, _arrivals) = mpsc::channel(1);
            let asks = Reconfiguration {
                node,
                join_request,
                inbox,
                is_answered: AtomicBool::new(false),
            };
            asks.round(0, &mut LookUps::new()).await
        });
        let asked: Vec<String> = round
            .seeds
            .iter()
            .map(|seed| seed.address.to_string())
            .collect();
        assert_eq!(asked, [living]);
        assert!(round.unresolved);
    }

    #[tokio::test]
    async fn a_name_that_takes_longer_than_a_round_is_found_in_a_later_one() {
        let address = SocketAddr::from(([192, 0, 2, 1], 1));
        // A member may be a seed too.
        let roles = [Role::Rank(Rank::CHIEF), Role::Member];
        let names = roles.map(|role| (role, "slow:1".to_owned()));
        let (service, answer) = oneshot::channel();
        // Only who asks first is ever answered.
        let answer = Mutex::new(Some(answer));
        let look_up = |_| {
            let answer = answer.lock().unwrap().take();
            async move { answer?.await.ok() }
        };
        let mut look_ups = LookUps::new();
        let found = looked_up(&names, &mut look_ups, look_up).await;
        assert_eq!(found, [None, None]);
        service.send(vec![address]).unwrap();
        let found = looked_up(&names, &mut look_ups, look_up).await;
        assert_eq!(found, [Some(vec![address]), Some(vec![address])]);
    }
}

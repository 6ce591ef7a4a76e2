//! Who is registered at a relay, and what becomes of a datagram. Pure: time and the relay's own key
//! come from outside.

// Addresses of `core`, which has no sockets.
use core::net::{IpAddr, SocketAddr};
use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::time::Duration;

use ring::hmac;

use super::RelayToken;
use super::datagram::{Cookie, Datagram, HEAD, Nonce, Proof, data_head};
use crate::RelayRefusal;

/// A rank that says nothing for so long is not registered any more.
pub(super) const EXPIRY: Duration = Duration::from_secs(30);
/// Answers in a second to callers that have proved nothing, all together: each costs a hash.
const ANSWERS: u32 = 10_000;
/// How often an event is told, as whoever runs the relay has a line of each.
const EVENT: Duration = Duration::from_secs(1);
/// Events at once beyond that; of registrations as many as there may be ranks, if those are more.
const EVENTS: u32 = 16;
/// How long a cookie is taken, at least; twice as long at most.
const COOKIE: Duration = Duration::from_secs(30);
/// What a rank may send at once beyond its rate, as the time in which it would be sent.
const BURST: Duration = Duration::from_millis(200);

/// What one relay carries at most.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RelayLimits {
    /// Ranks that are registered at a time.
    pub ranks: u32,
    /// Bytes in a second of each of them; what is above is lost, and QUIC slows down.
    pub bytes_per_second: u64,
}

impl Default for RelayLimits {
    /// 256 ranks with 125,000,000 bytes a second (1 Gbit/s) each.
    fn default() -> Self {
        Self {
            ranks: 256,
            bytes_per_second: 125_000_000,
        }
    }
}

/// What happens at a relay. Where very much does, some of it is not told.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum RelayEvent {
    /// A rank has registered, or has another address now.
    Registered {
        /// Its number, which is its place in the list of members or one that no list has.
        member: u32,
        /// Where it is, as the relay sees it.
        address: SocketAddr,
    },
    /// Whoever is there has another token.
    Refused {
        /// Where it is.
        address: SocketAddr,
    },
}

impl Display for RelayEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Registered { member, address } => {
                write!(f, "member {member} is at {address}")
            }
            Self::Refused { address } => {
                write!(f, "{address} is refused: it has the token of another job")
            }
        }
    }
}

pub(super) enum Outcome {
    /// It is lost.
    Nothing,
    /// Back to whom it is from.
    Answer(Vec<u8>, Option<RelayEvent>),
    /// To another rank, behind another head.
    Forward { to: Path, head: [u8; HEAD] },
}

pub(super) struct Table {
    token: RelayToken,
    /// For cookies and sessions; of this relay, from its start to its end.
    own_key: hmac::Key,
    limits: RelayLimits,
    ranks: BTreeMap<u32, Registration>,
    members: BTreeMap<u64, u32>,
    registrations: u64,
    answers: Bucket,
    /// Events of those who have not proved anything, so that they do not hide the others.
    refusals: Bucket,
    /// Events of those who have.
    arrivals: Bucket,
}

struct Registration {
    path: Path,
    session: u64,
    heard: Duration,
    sent: Bucket,
}

impl Table {
    pub(super) fn new(token: RelayToken, own_key: &[u8; 32], limits: RelayLimits) -> Self {
        Self {
            token,
            own_key: hmac::Key::new(hmac::HMAC_SHA256, own_key),
            limits,
            ranks: BTreeMap::new(),
            members: BTreeMap::new(),
            registrations: 0,
            answers: Bucket::default(),
            refusals: Bucket::default(),
            arrivals: Bucket::default(),
        }
    }

    /// What becomes of a datagram.
    pub(super) fn handle(&mut self, heard: Heard, bytes: &[u8]) -> Outcome {
        match Datagram::decode(bytes) {
            Some(Datagram::Data {
                session, member, ..
            }) => self.forward(heard, session, member, bytes.len()),
            Some(Datagram::Hello {
                member,
                session,
                nonce,
            }) => self.greeted(heard, Caller { member, nonce }, session),
            Some(Datagram::Register {
                member,
                nonce,
                cookie,
                proof,
            }) => self.register(heard, Caller { member, nonce }, cookie, &proof),
            // What relays say, or nobody.
            Some(
                Datagram::Challenge { .. }
                | Datagram::Registered { .. }
                | Datagram::Alive { .. }
                | Datagram::Refused { .. },
            )
            | None => Outcome::Nothing,
        }
    }

    fn forward(&mut self, heard: Heard, session: u64, to: u32, len: usize) -> Outcome {
        let (now, cost) = (heard.now, self.cost(len));
        let Some((member, sender)) = self.registered(heard, session) else {
            return Outcome::Nothing;
        };
        if !sender.sent.takes(now, cost, BURST) {
            return Outcome::Nothing;
        }
        sender.heard = now;
        match self.ranks.get(&to).filter(|to| to.is_there(now)) {
            Some(receiver) if to != member => Outcome::Forward {
                to: receiver.path,
                head: data_head(receiver.session, member),
            },
            Some(_) | None => Outcome::Nothing,
        }
    }

    /// How long a rank may take to send so many bytes.
    fn cost(&self, len: usize) -> Duration {
        // No datagram has 2^16 bytes.
        Duration::from_nanos(len as u64 * 1_000_000_000 / self.limits.bytes_per_second.max(1))
    }

    fn registered(&mut self, heard: Heard, session: u64) -> Option<(u32, &mut Registration)> {
        let member = *self.members.get(&session)?;
        let rank = self.ranks.get_mut(&member)?;
        let is_it = rank.path == heard.path && rank.is_there(heard.now);
        is_it.then_some((member, rank))
    }

    fn greeted(&mut self, heard: Heard, caller: Caller, session: u64) -> Outcome {
        let (now, nonce) = (heard.now, caller.nonce);
        if let Some((member, rank)) = self.registered(heard, session)
            && member == caller.member
        {
            rank.heard = now;
            return Outcome::Answer(Datagram::Alive { nonce }.encode(), None);
        }
        let cookie = self.cookie(window(now), heard.path.rank, caller.member);
        self.answer(now, &Datagram::Challenge { nonce, cookie }, None)
    }

    /// To somebody who has proved nothing.
    fn answer(&mut self, now: Duration, said: &Datagram<'_>, event: Option<RelayEvent>) -> Outcome {
        let second = Duration::from_secs(1);
        match self.answers.takes(now, second / ANSWERS, second) {
            true => {
                let event = event.filter(|_| self.refusals.tells(now, EVENTS));
                Outcome::Answer(said.encode(), event)
            }
            false => Outcome::Nothing,
        }
    }

    fn register(&mut self, heard: Heard, caller: Caller, cookie: Cookie, proof: &Proof) -> Outcome {
        let (Heard { now, path }, Caller { member, nonce }) = (heard, caller);
        let address = path.rank;
        let this = window(now);
        let windows = [Some(this), this.checked_sub(1)].into_iter().flatten();
        let mut cookies = windows.map(|window| self.cookie(window, address, member));
        if !cookies.any(|one| one == cookie) {
            return Outcome::Nothing;
        }
        if !self.token.is_of_rank(member, &nonce, &cookie, proof) {
            let reason = RelayRefusal::Token;
            let event = Some(RelayEvent::Refused { address });
            return self.answer(now, &Datagram::Refused { nonce, reason }, event);
        }
        let Some((session, event)) = self.session(heard, member) else {
            let reason = RelayRefusal::Full;
            return Outcome::Answer(Datagram::Refused { nonce, reason }.encode(), None);
        };
        let proof = self.token.of_relay(&nonce, session);
        let registered = Datagram::Registered {
            nonce,
            session,
            proof,
        };
        Outcome::Answer(registered.encode(), event)
    }

    /// That of a rank which has proved that it may have one, if there is room; an answer that was
    /// lost is given again.
    fn session(&mut self, heard: Heard, member: u32) -> Option<(u64, Option<RelayEvent>)> {
        let Heard { now, path } = heard;
        if let Some(known) = self.ranks.get_mut(&member)
            && known.path == path
            && known.is_there(now)
        {
            known.heard = now;
            return Some((known.session, None));
        }
        let sent = self.forget(now, member);
        (self.ranks.len() < self.limits.ranks as usize).then_some(())?;
        let session = self.new_session(member);
        let registration = Registration {
            path,
            session,
            heard: now,
            sent,
        };
        self.members.insert(session, member);
        self.ranks.insert(member, registration);
        let is_told = self.arrivals.tells(now, self.limits.ranks.max(EVENTS));
        let address = path.rank;
        let event = is_told.then_some(RelayEvent::Registered { member, address });
        Some((session, event))
    }

    /// Forgets a rank, and where there is no room all that have said nothing for too long. What
    /// the rank has sent counts wherever it is next.
    fn forget(&mut self, now: Duration, member: u32) -> Bucket {
        let gone = self.ranks.remove(&member);
        if self.ranks.len() >= self.limits.ranks as usize {
            self.ranks.retain(|_, rank| rank.is_there(now));
        }
        let ranks = &self.ranks;
        self.members.retain(|session, member| {
            let rank = ranks.get(member);
            rank.is_some_and(|rank| rank.session == *session)
        });
        gone.map(|gone| gone.sent).unwrap_or_default()
    }

    /// One that nobody can guess, and that is not 0.
    fn new_session(&mut self, member: u32) -> u64 {
        self.registrations += 1;
        let count = self.registrations.to_le_bytes();
        let parts: [&[u8]; 3] = [b"session", &count, &member.to_le_bytes()];
        u64::from_le_bytes(self.hash(&parts)).max(1)
    }

    fn cookie(&self, window: u64, from: SocketAddr, member: u32) -> Cookie {
        let address = match from.ip() {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        let (window, member) = (window.to_le_bytes(), member.to_le_bytes());
        let (octets, port) = (address.octets(), from.port().to_le_bytes());
        let parts: [&[u8]; 5] = [b"cookie", &window, &member, &octets, &port];
        self.hash(&parts)
    }

    /// The first bytes of a hash of 32.
    fn hash<const N: usize>(&self, parts: &[&[u8]]) -> [u8; N] {
        let mut short = [0; N];
        let whole = hmac::sign(&self.own_key, &parts.concat());
        short.copy_from_slice(&whole.as_ref()[..N]);
        short
    }
}

/// When something came, and by which way.
#[derive(Clone, Copy)]
pub(super) struct Heard {
    pub(super) now: Duration,
    pub(super) path: Path,
}

/// The two ends of a way to the relay.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Path {
    pub(super) rank: SocketAddr,
    /// The relay's address, as the rank knows it: it hears no other. `None` where the system does
    /// not tell.
    pub(super) relay: Option<IpAddr>,
}

/// Who says to be which rank.
#[derive(Clone, Copy)]
struct Caller {
    member: u32,
    nonce: Nonce,
}

impl Registration {
    fn is_there(&self, now: Duration) -> bool {
        now < self.heard + EXPIRY
    }
}

/// How much was used: of something that may be used at a rate, and a burst at once.
#[derive(Default)]
struct Bucket {
    paid_until: Duration,
}

impl Bucket {
    /// Whether as much may be used now as is there after this time.
    fn takes(&mut self, now: Duration, cost: Duration, burst: Duration) -> bool {
        let begins = self.paid_until.max(now);
        let has_room = begins <= now + burst;
        if has_room {
            self.paid_until = begins.saturating_add(cost);
        }
        has_room
    }

    /// Whether an event is told, of so many at once.
    fn tells(&mut self, now: Duration, at_once: u32) -> bool {
        self.takes(now, EVENT, EVENT * at_once.saturating_sub(1))
    }
}

fn window(now: Duration) -> u64 {
    now.as_secs() / COOKIE.as_secs()
}

#[cfg(test)]
mod tests;

//! Who may be half-way through proving who it is over TCP, and for how long.
//!
//! Nobody is kept waiting for a place: who finds none is hung up on at once, and a member that is
//! calls again. A crowd in front of it, however long, is gone by then.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Callers that may be half done at a time, from where no member has greeted.
const STRANGERS: usize = 64;
/// And of those the callers from one site.
const STRANGERS_SHARE: usize = 16;
/// The same from where members have greeted, which open all their lanes at once.
const EXPECTED: usize = 512;
/// And of those the callers from one site: whoever shares a host with a member leaves room for
/// members elsewhere.
const EXPECTED_SHARE: usize = 256;
/// How long a caller may take to prove what it is.
const PROVING: Duration = Duration::from_secs(10);
/// And how long in a crowd, in which those who say nothing must not keep others out.
const HURRY: Duration = Duration::from_millis(500);
/// How often the log says at most that callers were turned away.
const SAID: Duration = Duration::from_secs(60);

/// Where a caller is.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum TcpCaller {
    /// Where a member has greeted from.
    Expected(IpAddr),
    /// Anywhere else.
    Stranger(IpAddr),
}

/// Places for callers that have not proved who they are.
#[derive(Default)]
pub(super) struct TcpLimiter(Mutex<BTreeMap<TcpCaller, usize>>);

/// A caller's place, which it has until this is dropped.
pub(super) struct TcpPermit {
    tcp_limiter: Arc<TcpLimiter>,
    caller: TcpCaller,
    patience: Duration,
}

impl TcpCaller {
    /// Places for all callers of its kind, and for those from one site.
    fn room(self) -> (usize, usize) {
        match self {
            Self::Expected(_) => (EXPECTED, EXPECTED_SHARE),
            Self::Stranger(_) => (STRANGERS, STRANGERS_SHARE),
        }
    }

    fn is_like(self, other: Self) -> bool {
        matches!(
            (self, other),
            (Self::Expected(_), Self::Expected(_)) | (Self::Stranger(_), Self::Stranger(_))
        )
    }
}

impl TcpLimiter {
    /// Gives a caller a place, if there is one.
    pub(super) fn permit(self: &Arc<Self>, caller: TcpCaller) -> Option<TcpPermit> {
        let mut taken = self.taken();
        let own = taken.get(&caller).copied().unwrap_or_default();
        let alike = taken.iter().filter(|(other, _)| other.is_like(caller));
        let all: usize = alike.map(|(_, count)| *count).sum();
        let (places, share) = caller.room();
        if own >= share || all >= places {
            return None;
        }
        taken.insert(caller, own + 1);
        drop(taken);
        // Of the site's own places too: members call from there as well.
        let is_crowd = own >= share / 2 || all >= places / 2;
        Some(TcpPermit {
            tcp_limiter: self.clone(),
            caller,
            patience: if is_crowd { HURRY } else { PROVING },
        })
    }

    fn taken(&self) -> MutexGuard<'_, BTreeMap<TcpCaller, usize>> {
        // Nothing that holds the lock can panic half-way through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TcpPermit {
    /// How long whoever has it may take to prove what it is.
    pub(super) fn patience(&self) -> Duration {
        self.patience
    }
}

impl Drop for TcpPermit {
    fn drop(&mut self) {
        let mut taken = self.tcp_limiter.taken();
        if let Some(others @ 2..) = taken.remove(&self.caller) {
            taken.insert(self.caller, others - 1);
        }
    }
}

/// Callers that were turned away, of whom the log tells once in a while.
#[derive(Default)]
pub(super) struct TurnedAwayLog {
    untold: u64,
    said: Option<Instant>,
}

impl TurnedAwayLog {
    /// Takes in that one more was turned away. Returns how many were that nobody was told of, if it
    /// is time to tell.
    pub(super) fn note(&mut self, now: Instant) -> Option<u64> {
        self.untold += 1;
        let is_news = |said: Instant| now.saturating_duration_since(said) >= SAID;
        if !self.said.is_none_or(is_news) {
            return None;
        }
        self.said = Some(now);
        Some(std::mem::take(&mut self.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(number: usize) -> IpAddr {
        IpAddr::from([198, 51, 100, u8::try_from(number).unwrap()])
    }

    fn permits(
        tcp_limiter: &Arc<TcpLimiter>,
        callers: impl Iterator<Item = TcpCaller>,
    ) -> Vec<TcpPermit> {
        callers
            .filter_map(|caller| tcp_limiter.permit(caller))
            .collect()
    }

    #[test]
    fn strangers_leave_all_places_for_members_to_these() {
        let tcp_limiter = Arc::new(TcpLimiter::default());
        let strangers = (0..10 * STRANGERS).map(|number| TcpCaller::Stranger(host(number % 100)));
        assert_eq!(permits(&tcp_limiter, strangers).len(), STRANGERS);
        let strangers = (0..10 * STRANGERS).map(|number| TcpCaller::Stranger(host(number % 100)));
        let _strangers = permits(&tcp_limiter, strangers);
        let member = tcp_limiter.permit(TcpCaller::Expected(host(1))).unwrap();
        assert_eq!(member.patience(), PROVING);
    }

    #[test]
    fn one_site_leaves_places_for_others_and_silence_there_is_soon_over() {
        let tcp_limiter = Arc::new(TcpLimiter::default());
        let kinds: [fn(IpAddr) -> TcpCaller; 2] = [TcpCaller::Expected, TcpCaller::Stranger];
        for kind in kinds {
            let (_, share) = kind(host(1)).room();
            let own = std::iter::repeat_n(kind(host(1)), 10 * share);
            let mut crowd = permits(&tcp_limiter, own);
            assert_eq!(crowd.len(), share);
            let patient = crowd.iter().filter(|permit| permit.patience() == PROVING);
            assert_eq!(patient.count(), share / 2);
            assert!(tcp_limiter.permit(kind(host(2))).is_some());
            crowd.pop();
            let again = tcp_limiter.permit(kind(host(1))).unwrap();
            assert_eq!(again.patience(), HURRY);
        }
        assert!(tcp_limiter.taken().is_empty());
    }

    #[test]
    fn the_log_tells_of_all_who_were_turned_away_and_once_a_minute_at_most() {
        let (mut log, begun) = (TurnedAwayLog::default(), Instant::now());
        assert_eq!(log.note(begun), Some(1));
        let soon = (1..600_u32).filter_map(|tenths| log.note(begun + tenths * SAID / 600));
        assert_eq!(soon.count(), 0);
        assert_eq!(log.note(begun + SAID), Some(600));
    }
}

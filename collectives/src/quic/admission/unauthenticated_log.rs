use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use crate::{UnauthenticatedCause, UnauthenticatedPeer};

/// Strangers that were logged, in whatever epoch: nobody fills a log by asking to join again and
/// again.
#[derive(Default)]
pub(in crate::quic) struct UnauthenticatedLog(Mutex<BTreeSet<(IpAddr, u8)>>);

/// Hosts and causes that are told apart; those beyond are not logged any more.
const MOST: usize = 256;

impl UnauthenticatedLog {
    /// Whether nobody has asked to join from this host and been refused for such a cause before.
    pub(super) fn is_news(&self, peer: &UnauthenticatedPeer) -> bool {
        let cause = match peer.cause() {
            UnauthenticatedCause::OtherJob => 0,
            UnauthenticatedCause::Expired => 1,
            UnauthenticatedCause::Refused(_) => 2,
            UnauthenticatedCause::OtherRank => 3,
        };
        // Nothing that holds the lock can panic half-way through a change.
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.len() < MOST && known.insert((peer.address().ip(), cause))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Refusal;

    #[test]
    fn an_unauthenticated_peer_is_logged_once_for_each_cause_and_crowds_are_cut() {
        let log = UnauthenticatedLog::default();
        let from = |host: u32, cause| {
            let ip = std::net::Ipv4Addr::from_bits(host);
            UnauthenticatedPeer::new((ip, 4000).into(), cause)
        };
        let causes = [
            UnauthenticatedCause::OtherJob,
            UnauthenticatedCause::OtherRank,
            UnauthenticatedCause::Expired,
            UnauthenticatedCause::Refused(Refusal::RankTaken),
        ];
        for cause in causes {
            assert!(log.is_news(&from(1, cause)));
            assert!(!log.is_news(&from(1, cause)));
        }
        let news =
            (0..10_000).filter(|host| log.is_news(&from(2 + host, UnauthenticatedCause::OtherJob)));
        assert_eq!(news.count(), MOST - causes.len());
    }
}

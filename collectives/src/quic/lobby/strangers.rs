use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use crate::{Stranger, StrangerCause};

/// Strangers that were logged: nobody fills a log by knocking again and again.
#[derive(Default)]
pub(super) struct Log(Mutex<BTreeSet<(IpAddr, u8)>>);

/// Hosts and causes that are told apart; those beyond are not logged any more.
const MOST: usize = 256;

impl Log {
    /// Whether nobody has knocked from this host and been refused for such a cause before.
    pub(super) fn is_news(&self, stranger: &Stranger) -> bool {
        let cause = match stranger.cause() {
            StrangerCause::OtherJob => 0,
            StrangerCause::Expired => 1,
            StrangerCause::Refused(_) => 2,
        };
        // Nothing that holds the lock can panic half-way through a change.
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.len() < MOST && known.insert((stranger.address().ip(), cause))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Refusal;

    #[test]
    fn a_stranger_is_news_once_for_each_cause_and_crowds_are_cut() {
        let log = Log::default();
        let from = |host: u32, cause| {
            let ip = std::net::Ipv4Addr::from_bits(host);
            Stranger::new((ip, 4000).into(), cause)
        };
        let causes = [
            StrangerCause::OtherJob,
            StrangerCause::Expired,
            StrangerCause::Refused(Refusal::RankTaken),
        ];
        for cause in causes {
            assert!(log.is_news(&from(1, cause)));
            assert!(!log.is_news(&from(1, cause)));
        }
        let news = (0..10_000).filter(|host| log.is_news(&from(2 + host, StrangerCause::OtherJob)));
        assert_eq!(news.count(), MOST - causes.len());
    }
}

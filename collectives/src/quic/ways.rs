//! How members are reached: directly, or by a relay where that fails.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::agreement::MemberId;
use crate::config::GroupConfig;
use crate::notice::say;
use crate::relay::{Registrant, RelayClient};
use crate::{JoinError, Member, RelayRefusal};

/// What a process knows of how its members are reached, through all epochs.
#[derive(Default)]
pub(super) struct Ways {
    relay: Option<RelayClient>,
    directly: Duration,
    /// Members that were reached by the relay.
    relayed: Mutex<BTreeSet<MemberId>>,
}

/// How long one try by a relay may take that does not serve this process.
const UNSERVED: Duration = Duration::from_secs(1);

/// How the next try is made.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Way {
    Direct,
    /// At this address, which stands for the member.
    ByRelay(SocketAddr),
}

impl Ways {
    /// Registers at the relay, if there is one, for an endpoint that listens there.
    pub(super) async fn open(
        config: &GroupConfig,
        endpoint: SocketAddr,
    ) -> Result<Self, JoinError> {
        let Some(relay) = config.relay()? else {
            return Ok(Self::default());
        };
        let own = Registrant {
            member: config.rank().number(),
            endpoint,
            most: config.most(),
            limit: config.timeouts().join(),
        };
        Ok(Self {
            relay: Some(RelayClient::open(&relay.name, &relay.token, own).await?),
            directly: config.directly(),
            relayed: Mutex::default(),
        })
    }

    /// How to try a member next that has been tried for so long, the last time in this way: by the
    /// relay each second time, once it is late or was reached so before.
    pub(super) fn next(&self, member_id: MemberId, tried: Duration, last: Way) -> Way {
        let Some(relay) = &self.relay else {
            return Way::Direct;
        };
        let is_relayed = tried >= self.directly || self.is_relayed(member_id);
        if last != Way::Direct || !is_relayed {
            return Way::Direct;
        }
        match relay.way_to(member_id) {
            Some(way) => Way::ByRelay(way),
            None => Way::Direct,
        }
    }

    /// How long one direct try may take, where there is another way, or one by a relay that does
    /// not serve this process yet, or never will: the packets go nowhere.
    pub(super) fn limit(&self, way: Way, longest: Duration) -> Duration {
        match (&self.relay, way) {
            (Some(_), Way::Direct) => longest.min(self.directly),
            (Some(relay), Way::ByRelay(_)) if !relay.serves() => longest.min(UNSERVED),
            (Some(_), Way::ByRelay(_)) | (None, _) => longest,
        }
    }

    /// The relay's name and why it does not serve this process, if it has said so.
    pub(super) fn refusal(&self) -> Option<(String, RelayRefusal)> {
        let relay = self.relay.as_ref()?;
        Some((relay.name().to_owned(), relay.refusal()?))
    }

    /// Takes note of how a member was reached or has reached this process, and says so once if that
    /// is by the relay.
    pub(super) fn met(&self, member_id: MemberId, member: &Member, address: SocketAddr) {
        let Some(relay) = &self.relay else { return };
        if relay.at(address).is_some() && self.relayed().insert(member_id) {
            say(format_args!(
                "{member} is not reached directly: packets to and from it go by the relay {}, sealed",
                relay.name()
            ));
        }
    }

    /// Gives back what leads to others than these.
    pub(super) fn keep(&self, stays: impl Fn(MemberId) -> bool) {
        if let Some(relay) = &self.relay {
            relay.keep(&stays);
        }
        self.relayed().retain(|member_id| stays(*member_id));
    }

    /// The endpoint listens at this address from now on.
    pub(super) fn begin_at(&self, endpoint: SocketAddr) {
        if let Some(relay) = &self.relay {
            relay.begin_at(endpoint);
        }
    }

    /// Whether packets to this address go straight to whoever is there.
    pub(super) fn is_direct(&self, address: SocketAddr) -> bool {
        let by_relay = |relay: &RelayClient| relay.at(address).is_some();
        !self.relay.as_ref().is_some_and(by_relay)
    }

    fn is_relayed(&self, member_id: MemberId) -> bool {
        self.relayed().contains(&member_id)
    }

    fn relayed(&self) -> std::sync::MutexGuard<'_, BTreeSet<MemberId>> {
        // Nothing that holds the lock can panic half-way through a change.
        self.relayed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use tokio::sync::mpsc;

    use super::*;
    use crate::quic::admission::{Admission, Kept};
    use crate::quic::node::Node;
    use crate::quic::testing::Job;
    use crate::wire::{Decision, MemberProcess, Newcomer};
    use crate::{JobSecret, RelayToken};

    /// A group has two members at the most, and the second is gone.
    #[tokio::test]
    async fn a_new_epoch_gives_back_the_ways_to_all_who_are_not_in_it() {
        let relay = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = relay.local_addr().unwrap().to_string();
        let token = RelayToken::of(&JobSecret::generate().unwrap());
        let config = Job::new(2).config(0).with_relay(address, token);
        let node = Node::open(&config).await.unwrap();
        let is_late = Duration::MAX;
        let by_relay = |member_id| node.ways.next(member_id, is_late, Way::Direct) != Way::Direct;
        assert!(by_relay(1) && by_relay(7) && !by_relay(8));
        let newcomer = MemberProcess {
            member_id: 8,
            incarnation: 1,
        };
        let view = node.view(Decision {
            epoch: 2,
            survivors: vec![node.me],
            newcomers: vec![Newcomer::at(newcomer, "127.0.0.1:1")],
            completed: 0,
        });
        let (events, _inbox) = mpsc::channel(1);
        let _admission = Admission::new(&node, view.unwrap(), Kept::new(), events);
        assert!(by_relay(8) && by_relay(9) && !by_relay(10));
    }
}

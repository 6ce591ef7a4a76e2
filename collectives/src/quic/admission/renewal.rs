use std::sync::Arc;
use std::time::SystemTime;

use quinn::Endpoint;

use super::Admission;
use crate::identity::{Identity, RENEWAL};
use crate::quic::endpoint;
use crate::{Network, Rank};

/// Shows a new certificate to whoever calls, before the old one is over, for as long as the group
/// lasts.
pub(in crate::quic) async fn renew(admission: Arc<Admission>, endpoint: Endpoint) {
    let shown = Shown {
        rank: admission.me,
        identity: admission.identity.clone(),
        network: admission.network,
        endpoint,
    };
    shown.renew_by(SystemTime::now).await;
}

/// The certificate of this process, and where it is shown.
struct Shown {
    rank: Rank,
    identity: Arc<Identity>,
    network: Network,
    endpoint: Endpoint,
}

impl Shown {
    async fn renew_by(self, clock: impl Fn() -> SystemTime) {
        loop {
            // Looks come before pauses: epochs that are all shorter than one have looks too.
            self.look(clock());
            // Files may be replaced as late as half an hour before their certificates are over.
            tokio::time::sleep(RENEWAL / 12).await;
        }
    }

    fn look(&self, now: SystemTime) {
        match self.identity.renew(now) {
            Ok(true) => {
                let server = endpoint::server(&self.identity, self.network);
                self.endpoint.set_server_config(Some(server));
                tracing::debug!(rank = self.rank.number(), "a new certificate is shown");
            }
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(rank = self.rank.number(), %error, "the old certificate stays");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::JobSecret;
    use crate::identity::Role;

    #[tokio::test]
    async fn an_epoch_that_ends_at_once_renews_a_certificate_that_is_old() {
        let secret = JobSecret::generate().unwrap();
        let identity = Identity::new(&secret, Role::Rank(Rank::CHIEF)).unwrap();
        let identity = Arc::new(identity);
        let epoch = async |clock: fn() -> SystemTime| {
            let shown = Shown {
                rank: Rank::CHIEF,
                identity: identity.clone(),
                network: Network::default(),
                endpoint: Endpoint::client(([127, 0, 0, 1], 0).into()).unwrap(),
            };
            let ended = tokio::time::timeout(Duration::ZERO, shown.renew_by(clock)).await;
            assert!(ended.is_err());
        };
        let first = identity.client();
        epoch(SystemTime::now).await;
        assert!(Arc::ptr_eq(&first, &identity.client()));
        epoch(|| SystemTime::now() + 2 * RENEWAL).await;
        assert!(!Arc::ptr_eq(&first, &identity.client()));
    }
}

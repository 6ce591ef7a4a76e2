//! Certificates are replaced before they are over, wherever a process may wait that long.

use std::pin::pin;
use std::time::SystemTime;

use quinn::Endpoint;
use tokio::time::timeout;

use super::endpoint;
use crate::identity::{Identity, RENEWAL};
use crate::{Network, Rank};

/// The certificate of a process, and where it is shown.
pub(super) struct Shown<'a> {
    /// Whose it is.
    pub(super) rank: Rank,
    pub(super) identity: &'a Identity,
    /// What answers whoever calls, if somebody can: who is called is shown the newest anyway.
    pub(super) server: Option<(&'a Endpoint, Network)>,
}

impl Shown<'_> {
    /// Does this, and takes and shows new certificates in time for as long as it lasts.
    pub(super) async fn renew_during<T>(self, work: impl Future<Output = T>) -> T {
        self.renew_by(SystemTime::now, work).await
    }

    async fn renew_by<T>(self, clock: fn() -> SystemTime, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            // Looks come before pauses: epochs that are all shorter than one have looks too.
            self.look(clock());
            // Files may be replaced as late as half an hour before their certificates are over.
            if let Ok(done) = timeout(RENEWAL / 12, work.as_mut()).await {
                return done;
            }
        }
    }

    fn look(&self, now: SystemTime) {
        match self.identity.renew(now) {
            Ok(true) => {
                if let Some((endpoint, network)) = self.server {
                    let server = endpoint::server(self.identity, network);
                    endpoint.set_server_config(Some(server));
                }
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
    use std::future::pending;
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::JobSecret;
    use crate::identity::Role;

    #[tokio::test]
    async fn an_epoch_that_ends_at_once_renews_a_certificate_that_is_old() {
        let secret = JobSecret::generate().unwrap();
        let identity = Identity::new(&secret, Role::Rank(Rank::CHIEF)).unwrap();
        let endpoint = Endpoint::client(([127, 0, 0, 1], 0).into()).unwrap();
        let epoch = async |clock: fn() -> SystemTime| {
            let shown = Shown {
                rank: Rank::CHIEF,
                identity: &identity,
                server: Some((&endpoint, Network::default())),
            };
            let lasts = shown.renew_by(clock, pending::<()>());
            assert!(timeout(Duration::ZERO, lasts).await.is_err());
        };
        let first = identity.client();
        epoch(SystemTime::now).await;
        assert!(Arc::ptr_eq(&first, &identity.client()));
        epoch(|| SystemTime::now() + 2 * RENEWAL).await;
        assert!(!Arc::ptr_eq(&first, &identity.client()));
    }
}

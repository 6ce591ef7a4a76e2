//! By which relay ranks reach each other that do not directly.

use std::env;
use std::time::Duration;

use super::GroupConfig;
use crate::{ConfigError, DataTransport, JobIdentity, RelayToken};

/// Ranks try for no longer than this part of the time in which all have to meet to reach each other
/// directly before they go by a relay.
const PART: u32 = 4;

/// A relay, and what it knows this job by.
#[derive(Clone, Debug)]
pub(crate) struct RelayAt {
    /// `host:port`.
    pub(crate) name: String,
    pub(crate) token: RelayToken,
}

impl GroupConfig {
    /// The environment variable for the `host:port` of a relay: see
    /// [`with_relay`](Self::with_relay).
    pub const RELAY_ENV: &'static str = "MESHWORK_RELAY";

    /// Goes by the [relay](crate::Relay) at `host:port` to ranks that are not reached directly, and
    /// is reached by others so: give it to every rank.
    ///
    /// A rank tries to reach another directly for a quarter of [`Timeouts::join`] and at most 5 s
    /// first. By a relay packets are sealed between the two ranks as on any way. It carries QUIC
    /// alone.
    ///
    /// [`Timeouts::join`]: crate::Timeouts::join
    ///
    /// ```
    /// use meshwork_collectives::{GroupConfig, JobSecret, Rank, RelayToken};
    ///
    /// let secret = JobSecret::generate()?;
    /// let token = RelayToken::of(&secret);
    /// let members = ["192.168.0.4:4000", "192.168.7.9:4000"]; // of two sites
    /// let config = GroupConfig::new(members, Rank::new(1), secret)?
    ///     .with_relay("relay.example.com:4400", token);
    /// # assert_eq!(config.rank(), Rank::new(1));
    /// # Ok::<(), meshwork_collectives::Error>(())
    /// ```
    #[must_use]
    pub fn with_relay(mut self, address: impl Into<String>, token: RelayToken) -> Self {
        self.relay = Some(RelayAt {
            name: address.into(),
            token,
        });
        self
    }

    pub(super) fn with_relay_from_env(self) -> Result<Self, ConfigError> {
        let Some(address) = env::var_os(Self::RELAY_ENV) else {
            return Ok(self);
        };
        let address = address.to_string_lossy().into_owned();
        let token = match (RelayToken::from_env()?, &self.identity) {
            (Some(token), _) => token,
            (None, JobIdentity::Secret(secret)) => RelayToken::of(secret),
            (None, JobIdentity::Certificates(_)) => {
                return Err(ConfigError::RelayTokenMissing { relay: address });
            }
        };
        Ok(self.with_relay(address, token))
    }

    /// The relay, if there is one.
    pub(crate) fn relay(&self) -> Result<Option<&RelayAt>, ConfigError> {
        match (&self.relay, self.network.data_transport()) {
            (Some(relay), DataTransport::Tls) => Err(ConfigError::RelayCarrier {
                relay: relay.name.clone(),
            }),
            (relay, DataTransport::Quic | DataTransport::Tls) => Ok(relay.as_ref()),
        }
    }

    /// How long others are tried directly before a relay is.
    pub(crate) fn directly(&self) -> Duration {
        self.bounds.directly.min(self.timeouts.join / PART)
    }
}

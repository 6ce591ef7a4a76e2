//! How the network between ranks is used: packet size, connections, congestion control, and what
//! carries bulk bytes.

use std::time::Duration;

use crate::idle::budget;
use crate::{ConfigError, DataTransport};

/// How the network between ranks is used.
///
/// The defaults suit the network of one site. Over a long or lossy link, choose
/// [`Congestion::Bbr`], or several connections, or both.
///
/// ```
/// use meshwork_collectives::{Congestion, GroupConfig, JobSecret, Network, Rank};
///
/// let lossy = Network::default()
///     .with_congestion(Congestion::Bbr)
///     .with_connections(4)?;
/// let members = ["10.0.0.1:4000", "10.9.0.2:4000"];
/// let config = GroupConfig::new(members, Rank::new(0), JobSecret::generate()?)?
///     .with_network(lossy);
/// # Ok::<(), meshwork_collectives::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Network {
    largest_packet: u16,
    congestion: Congestion,
    connections: u8,
    data_transport: DataTransport,
    connection_budget: Option<u32>,
    idle: Duration,
}

/// What decides how much may be under way at a time.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Congestion {
    /// CUBIC (RFC 9438): takes every loss as a sign of a full queue, and shares a link fairly.
    #[default]
    Cubic,
    /// BBR, version 1: goes by the bandwidth and the round trip that it measures, and not by
    /// losses. Over TCP, the kernel's of that name, if it has it. Many times faster where packets
    /// are lost at random; where a short queue is what loses them, it presses on and pushes others
    /// aside.
    Bbr,
}

impl Network {
    /// The packet that every path carries, in bytes of UDP payload (RFC 9000, section 14).
    pub const LEAST_PACKET: u16 = 1200;
    /// The largest packet that UDP has room for over IPv4, in bytes of payload.
    pub const MOST_PACKET: u16 = 65_507;
    /// The most connections that two ranks may have with each other.
    pub const MOST_CONNECTIONS: u8 = 16;
    /// The environment variable for [`Network::connection_budget`].
    pub const BUDGET_ENV: &'static str = "MESHWORK_CONNECTION_BUDGET";

    /// The largest packet that the search for a path's limit tries, in bytes of UDP payload.
    /// Default: 8,952, what frames of 9,000 bytes carry over IPv6. The search begins small and
    /// keeps what arrives, so a larger bound than the path's costs a few lost probes.
    #[must_use]
    pub fn largest_packet(&self) -> u16 {
        self.largest_packet
    }

    /// Default: [`Congestion::Cubic`].
    #[must_use]
    pub fn congestion(&self) -> Congestion {
        self.congestion
    }

    /// How many connections each pair of ranks has, over which the bytes of operations are spread.
    /// Default: 1.
    #[must_use]
    pub fn connections(&self) -> u8 {
        self.connections
    }

    /// Default: [`DataTransport::Quic`].
    #[must_use]
    pub fn data_transport(&self) -> DataTransport {
        self.data_transport
    }

    /// How many other ranks this one stays connected with, if that was set. Default: four times
    /// log₂ of the number of ranks, rounded up.
    #[must_use]
    pub fn connection_budget(&self) -> Option<u32> {
        self.connection_budget
    }

    /// Changes [`Network::connection_budget`], in the same way on every rank.
    ///
    /// A rank that has more closes those that nothing has needed for the longest time, at least two
    /// seconds, and dials again when an operation needs them. Neighbours, which tell each other
    /// that they live, stay connected, and what operations need at one time is open at that time.
    #[must_use]
    pub fn with_connection_budget(self, ranks: u32) -> Self {
        Self {
            connection_budget: Some(ranks),
            ..self
        }
    }

    /// The budget among so many ranks.
    pub(crate) fn budget(&self, world: u32) -> u32 {
        let set = self.connection_budget;
        set.unwrap_or_else(|| budget::default_budget(world))
    }

    /// How long nothing has needed a connection that may be closed.
    pub(crate) fn idle(&self) -> Duration {
        self.idle
    }

    /// Changes it, so that tests see many connections closed in a short time.
    #[cfg(test)]
    pub(crate) fn with_idle(self, idle: Duration) -> Self {
        Self { idle, ..self }
    }

    /// Changes [`Network::largest_packet`].
    ///
    /// # Errors
    /// [`ConfigError::PacketSize`] outside [`Network::LEAST_PACKET`] and [`Network::MOST_PACKET`].
    pub fn with_largest_packet(self, bytes: u16) -> Result<Self, ConfigError> {
        if !(Self::LEAST_PACKET..=Self::MOST_PACKET).contains(&bytes) {
            return Err(ConfigError::PacketSize {
                bytes,
                least: Self::LEAST_PACKET,
                most: Self::MOST_PACKET,
            });
        }
        Ok(Self {
            largest_packet: bytes,
            ..self
        })
    }

    /// Changes [`Network::congestion`]. Each rank chooses for what it sends.
    #[must_use]
    pub fn with_congestion(self, congestion: Congestion) -> Self {
        Self { congestion, ..self }
    }

    /// Changes [`Network::data_transport`], in the same way on every rank.
    #[must_use]
    pub fn with_data_transport(self, data_transport: DataTransport) -> Self {
        Self {
            data_transport,
            ..self
        }
    }

    /// Changes [`Network::connections`], in the same way on every rank.
    ///
    /// # Errors
    /// [`ConfigError::Connections`] for none or more than [`Network::MOST_CONNECTIONS`].
    pub fn with_connections(self, connections: u8) -> Result<Self, ConfigError> {
        if !(1..=Self::MOST_CONNECTIONS).contains(&connections) {
            return Err(ConfigError::Connections {
                connections,
                most: Self::MOST_CONNECTIONS,
            });
        }
        Ok(Self {
            connections,
            ..self
        })
    }
}

impl Default for Network {
    fn default() -> Self {
        Self {
            largest_packet: 8952,
            congestion: Congestion::Cubic,
            connections: 1,
            data_transport: DataTransport::Quic,
            connection_budget: None,
            idle: budget::IDLE,
        }
    }
}

/// The budget of connections that a variable of the environment sets.
pub(super) fn connection_budget(value: &str) -> Result<u32, ConfigError> {
    value.parse().map_err(|_| ConfigError::ConnectionBudget {
        value: value.to_owned(),
    })
}

/// The carrier of bytes that a variable of the environment names.
pub(super) fn data_transport(name: &str) -> Result<DataTransport, ConfigError> {
    DataTransport::from_name(name).ok_or_else(|| ConfigError::DataTransportName {
        value: name.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_as_large_as_udp_carries_and_quic_needs() {
        let sized = |bytes| Network::default().with_largest_packet(bytes);
        for fits in [1200, 1452, 8952, 65_507] {
            assert_eq!(
                sized(fits).map(|network| network.largest_packet()),
                Ok(fits)
            );
        }
        for bytes in [0, 1199, 65_508, u16::MAX] {
            let expected = ConfigError::PacketSize {
                bytes,
                least: 1200,
                most: 65_507,
            };
            assert_eq!(sized(bytes), Err(expected));
        }
    }

    #[test]
    fn data_transports_have_names_and_codes() {
        for data_transport in [DataTransport::Quic, DataTransport::Tls] {
            assert_eq!(
                super::data_transport(&data_transport.to_string()),
                Ok(data_transport)
            );
            assert_eq!(
                DataTransport::from_code(data_transport.code().into()),
                Some(data_transport)
            );
        }
        for wrong in ["", "TLS", "tcp"] {
            let value = wrong.to_owned();
            let expected = ConfigError::DataTransportName { value };
            assert_eq!(data_transport(wrong), Err(expected));
        }
        assert_eq!(DataTransport::from_code(2), None);
    }

    #[test]
    fn a_budget_of_connections_is_a_number_of_ranks() {
        assert_eq!(Network::default().budget(128), 28);
        let set = Network::default().with_connection_budget(0);
        assert_eq!(set.budget(128), 0);
        assert_eq!(connection_budget("40"), Ok(40));
        for wrong in ["", "-1", "4 ", "many", "4294967296"] {
            let value = wrong.to_owned();
            let expected = ConfigError::ConnectionBudget { value };
            assert_eq!(connection_budget(wrong), Err(expected));
        }
    }

    #[test]
    fn pairs_have_at_least_one_connection_and_few() {
        let several = |connections| Network::default().with_connections(connections);
        assert_eq!(several(1), Ok(Network::default()));
        assert_eq!(several(16).map(|network| network.connections()), Ok(16));
        for connections in [0, 17] {
            let expected = ConfigError::Connections {
                connections,
                most: 16,
            };
            assert_eq!(several(connections), Err(expected));
        }
    }
}

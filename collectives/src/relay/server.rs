//! The relay itself: a socket, and a table of those who are registered.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::Instant;

use socket2::{Domain, Protocol, Socket, Type};

use super::datagram::HEAD;
use super::table::{Outcome, Table};
use super::{RelayEvent, RelayLimits, RelayToken};
use crate::identity::fill_random;
use crate::{Error, SystemError};

/// The largest datagram of UDP.
const LARGEST: usize = 65_535;
/// Bytes that the kernel may hold until they are looked at.
const RECEIVED: usize = 4 << 20;

/// Carries packets between the ranks of a job that do not reach each other, as `meshwork relay`
/// does.
///
/// It has a [token](RelayToken) of the job and none of its keys: what it carries is sealed between
/// the two ranks, so that it can lose packets, and see who sends how many to whom, and no more. It
/// sends to ranks with that token only, and to others no more than they send.
///
/// ```no_run
/// use meshwork_collectives::{JobSecret, Relay, RelayLimits, RelayToken};
///
/// let token = RelayToken::of(&JobSecret::from_env()?);
/// let address = "0.0.0.0:4400".parse().expect("an address");
/// let relay = Relay::bind(address, token, RelayLimits::default())?;
/// let Err(error) = relay.run(|event| eprintln!("{event}"));
/// eprintln!("{error}");
/// # Ok::<(), meshwork_collectives::Error>(())
/// ```
pub struct Relay {
    socket: UdpSocket,
    address: SocketAddr,
    table: Table,
    began: Instant,
}

impl Relay {
    /// Listens on this address.
    ///
    /// # Errors
    /// [`SystemError`](crate::OperationError::System) where it cannot;
    /// [`ConfigError::Identity`](crate::ConfigError::Identity) when the system has no randomness.
    pub fn bind(
        address: SocketAddr,
        token: RelayToken,
        limits: RelayLimits,
    ) -> Result<Self, Error> {
        let failed = |error: io::Error| SystemError::new("listening as a relay", error.kind());
        let mut own_key = [0; 32];
        fill_random(&mut own_key)?;
        let socket = bound(address).map_err(failed)?;
        Ok(Self {
            address: socket.local_addr().map_err(failed)?,
            socket,
            table: Table::new(token, &own_key, limits),
            began: Instant::now(),
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Carries packets until the system does not let it any more, and tells what happens.
    ///
    /// # Errors
    /// The one that it ends with.
    pub fn run(mut self, mut tell: impl FnMut(RelayEvent)) -> Result<Infallible, SystemError> {
        let mut buffer = vec![0; LARGEST];
        loop {
            let (len, from) = match self.socket.recv_from(&mut buffer) {
                Ok(received) => received,
                Err(error) if is_passing(error.kind()) => continue,
                Err(error) => return Err(SystemError::new("receiving as a relay", error.kind())),
            };
            let datagram = &mut buffer[..len];
            // A datagram that cannot be sent is lost, as it may be anywhere else.
            match self.table.handle(self.began.elapsed(), from, datagram) {
                Outcome::Nothing => {}
                Outcome::Answer(bytes, event) => {
                    let _ = self.socket.send_to(&bytes, from);
                    event.into_iter().for_each(&mut tell);
                }
                Outcome::Forward { to, head } => {
                    datagram[..HEAD].copy_from_slice(&head);
                    let _ = self.socket.send_to(datagram, to);
                }
            }
        }
    }
}

impl std::fmt::Debug for Relay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let address = &self.address;
        f.debug_struct("Relay")
            .field("address", address)
            .finish_non_exhaustive()
    }
}

fn bound(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::DGRAM,
        Some(Protocol::UDP),
    )?;
    // The kernel may allow less; slower, but no reason to fail.
    let _ = socket.set_recv_buffer_size(RECEIVED);
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// What a signal or a rank that is gone causes.
fn is_passing(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{ConnectionRefused, ConnectionReset, Interrupted, WouldBlock};
    matches!(
        kind,
        Interrupted | ConnectionRefused | ConnectionReset | WouldBlock
    )
}

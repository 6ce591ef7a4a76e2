//! The relay itself: a socket, and a table of those who are registered.

use std::convert::Infallible;
use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::time::Instant;

use quinn::udp::{RecvMeta, Transmit, UdpSocketState};
use socket2::{Domain, Protocol, Socket, Type};

use super::datagram::HEAD;
use super::table::{Heard, Outcome, Path, Table};
use super::{RelayEvent, RelayLimits, RelayToken};
use crate::identity::fill_random;
use crate::{Error, JoinError, SystemError};

/// The largest datagram of UDP, and the most that the kernel joins of smaller ones.
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
    /// Tells at which of the machine's addresses the relay is asked, and answers from there.
    state: UdpSocketState,
    address: SocketAddr,
    table: Table,
    began: Instant,
}

impl Relay {
    /// Listens on this address.
    ///
    /// # Errors
    /// [`JoinError::RelayPortTaken`], [`JoinError::RelayBind`] and [`SystemError`] where it cannot;
    /// [`ConfigError::Identity`](crate::ConfigError::Identity) when the system has no randomness.
    pub fn bind(
        address: SocketAddr,
        token: RelayToken,
        limits: RelayLimits,
    ) -> Result<Self, Error> {
        let failed = |error: io::Error| not_bound(address, error.kind());
        let mut own_key = [0; 32];
        fill_random(&mut own_key)?;
        let (socket, state) = bound(address).map_err(failed)?;
        Ok(Self {
            address: socket.local_addr().map_err(failed)?,
            socket,
            state,
            table: Table::new(token, &own_key, limits),
            began: Instant::now(),
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Carries packets until the system does not let it any more, and tells what happens;
    /// packets wait until `tell` returns.
    ///
    /// # Errors
    /// The one that it ends with.
    pub fn run(mut self, mut tell: impl FnMut(RelayEvent)) -> Result<Infallible, SystemError> {
        let mut buffer = vec![0; LARGEST];
        let mut meta = [RecvMeta::default()];
        loop {
            let mut parts = [IoSliceMut::new(&mut buffer)];
            match self
                .state
                .recv((&self.socket).into(), &mut parts, &mut meta)
            {
                Ok(_) => {}
                Err(error) if is_passing(error.kind()) => continue,
                Err(error) => return Err(SystemError::new("receiving as a relay", error.kind())),
            }
            let [received] = meta;
            let path = Path {
                rank: received.addr,
                relay: received.dst_ip,
            };
            // The kernel may have joined some of one sender.
            for datagram in buffer[..received.len].chunks_mut(received.stride.max(1)) {
                self.heard(path, datagram).into_iter().for_each(&mut tell);
            }
        }
    }

    fn heard(&mut self, path: Path, datagram: &mut [u8]) -> Option<RelayEvent> {
        let now = self.began.elapsed();
        match self.table.handle(Heard { now, path }, datagram) {
            Outcome::Nothing => None,
            Outcome::Answer(bytes, event) => {
                self.send(path, &bytes);
                event
            }
            Outcome::Forward { to, head } => {
                datagram[..HEAD].copy_from_slice(&head);
                self.send(to, datagram);
                None
            }
        }
    }

    /// A datagram that cannot be sent is lost, as it may be anywhere else.
    fn send(&self, path: Path, contents: &[u8]) {
        let transmit = Transmit {
            destination: path.rank,
            ecn: None,
            contents,
            segment_size: None,
            src_ip: path.relay,
        };
        let _ = self.state.try_send((&self.socket).into(), &transmit);
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

fn bound(address: SocketAddr) -> io::Result<(UdpSocket, UdpSocketState)> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::DGRAM,
        Some(Protocol::UDP),
    )?;
    // The kernel may allow less; slower, but no reason to fail.
    let _ = socket.set_recv_buffer_size(RECEIVED);
    socket.bind(&address.into())?;
    let state = UdpSocketState::new((&socket).into())?;
    // The state has made it return at once where nothing has come.
    socket.set_nonblocking(false)?;
    Ok((socket.into(), state))
}

fn not_bound(address: SocketAddr, kind: io::ErrorKind) -> Error {
    match kind {
        io::ErrorKind::AddrInUse => JoinError::RelayPortTaken { address }.into(),
        io::ErrorKind::AddrNotAvailable | io::ErrorKind::PermissionDenied => {
            JoinError::RelayBind { address, kind }.into()
        }
        kind => SystemError::new("listening as a relay", kind).into(),
    }
}

/// What a signal or a rank that is gone causes.
fn is_passing(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{ConnectionRefused, ConnectionReset, Interrupted, WouldBlock};
    matches!(
        kind,
        Interrupted | ConnectionRefused | ConnectionReset | WouldBlock
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::JobSecret;

    #[test]
    fn where_a_relay_cannot_listen_the_error_has_the_address_and_what_to_do() {
        let token = RelayToken::of(&JobSecret::generate().unwrap());
        let bind = |address| Relay::bind(address, token.clone(), RelayLimits::default());
        let first = bind(([127, 0, 0, 1], 0).into()).unwrap();
        let address = first.address();
        let taken = bind(address).unwrap_err();
        assert_eq!(taken, Error::from(JoinError::RelayPortTaken { address }));
        let text = taken.to_string();
        assert!(text.contains(&address.to_string()), "{text}");
        assert!(!text.contains("limited"), "{text}");
        // Which no machine has.
        let elsewhere = bind(([192, 0, 2, 1], 0).into()).unwrap_err().to_string();
        assert!(elsewhere.contains("192.0.2.1:0"), "{elsewhere}");
        assert!(elsewhere.contains("address of this machine"), "{elsewhere}");
        // It may serve later, at the same address.
        let limited = not_bound(address, io::ErrorKind::OutOfMemory);
        assert!(limited.is_retryable(), "{limited}");
    }
}

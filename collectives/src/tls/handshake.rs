//! The TLS handshake of a TCP connection, up to the keys for its records.

use std::io;
use std::sync::Arc;

use ring::aead::NONCE_LEN;
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::kernel::KernelConnection;
use rustls::pki_types::ServerName;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, InsufficientSizeError, UnbufferedStatus};
use rustls::{ClientConfig, CommonState, ConnectionTrafficSecrets, ExtractedSecrets, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::record::{Opener, Sealer, Secret};
use super::stream::Secured;

/// What the other may have sent beyond what could be made use of: two certificates and the rest of
/// a handshake have a tenth of it.
const UNREAD: usize = 64 << 10;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failed {
    /// The other is gone, or speaks something else.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The two do not believe each other, or do not understand each other.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
}

impl From<io::ErrorKind> for Failed {
    fn from(kind: io::ErrorKind) -> Self {
        Self::Io(kind.into())
    }
}

/// Proves this side to whoever listens there, which has to prove that it has this name.
///
/// Neither this nor [`accept`] has a deadline of its own.
pub(crate) async fn connect(
    stream: TcpStream,
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
) -> Result<Secured, Failed> {
    let side = UnbufferedClientConnection::new(config, name)?;
    shake(side, stream).await
}

/// Answers whoever has connected; who that is, [`Secured::peer`] says.
pub(crate) async fn accept(
    stream: TcpStream,
    config: Arc<ServerConfig>,
) -> Result<Secured, Failed> {
    let side = UnbufferedServerConnection::new(config)?;
    shake(side, stream).await
}

/// Derives the keys that follow those in use.
pub(super) enum Keys {
    Dialled(KernelConnection<ClientConnectionData>),
    Taken(KernelConnection<ServerConnectionData>),
}

impl Keys {
    pub(super) fn next_to_send(&mut self) -> io::Result<Sealer> {
        let secret = match self {
            Self::Dialled(connection) => connection.update_tx_secret(),
            Self::Taken(connection) => connection.update_tx_secret(),
        };
        Sealer::new(secret.map_err(io::Error::other)?)
    }

    pub(super) fn next_to_receive(&mut self) -> io::Result<Opener> {
        let secret = match self {
            Self::Dialled(connection) => connection.update_rx_secret(),
            Self::Taken(connection) => connection.update_rx_secret(),
        };
        Opener::new(secret.map_err(io::Error::other)?)
    }
}

/// One end of a handshake: rustls has a type for each.
trait Side {
    type Data;

    fn process<'a>(&'a mut self, bytes: &'a mut [u8]) -> UnbufferedStatus<'a, 'a, Self::Data>;

    fn state(&self) -> &CommonState;

    /// What it ends with: the keys, and those of the two secrets that the dialler sends by.
    fn keys(self) -> Result<(ExtractedSecrets, Keys), rustls::Error>;

    /// Which of the two directions is the dialler's.
    fn diallers(secrets: &ExtractedSecrets) -> &Secret;
}

impl Side for UnbufferedClientConnection {
    type Data = ClientConnectionData;

    fn process<'a>(&'a mut self, bytes: &'a mut [u8]) -> UnbufferedStatus<'a, 'a, Self::Data> {
        self.process_tls_records(bytes)
    }

    fn state(&self) -> &CommonState {
        self
    }

    fn keys(self) -> Result<(ExtractedSecrets, Keys), rustls::Error> {
        let (secrets, connection) = self.dangerous_into_kernel_connection()?;
        Ok((secrets, Keys::Dialled(connection)))
    }

    fn diallers(secrets: &ExtractedSecrets) -> &Secret {
        &secrets.tx
    }
}

impl Side for UnbufferedServerConnection {
    type Data = ServerConnectionData;

    fn process<'a>(&'a mut self, bytes: &'a mut [u8]) -> UnbufferedStatus<'a, 'a, Self::Data> {
        self.process_tls_records(bytes)
    }

    fn state(&self) -> &CommonState {
        self
    }

    fn keys(self) -> Result<(ExtractedSecrets, Keys), rustls::Error> {
        let (secrets, connection) = self.dangerous_into_kernel_connection()?;
        Ok((secrets, Keys::Taken(connection)))
    }

    fn diallers(secrets: &ExtractedSecrets) -> &Secret {
        &secrets.rx
    }
}

/// What a handshake wants next.
enum Next {
    Go,
    Send,
    Receive,
    Done,
}

/// Bytes of a handshake under way.
#[derive(Default)]
struct PeerChannel {
    /// From the other, not made use of yet.
    arrived: Vec<u8>,
    /// For the other.
    leaving: Vec<u8>,
    /// What the other has said behind its handshake, opened.
    early: Vec<u8>,
}

impl PeerChannel {
    fn step<S: Side>(&mut self, side: &mut S) -> Result<Next, rustls::Error> {
        let UnbufferedStatus { discard, state, .. } = side.process(&mut self.arrived);
        let next = match state? {
            ConnectionState::EncodeTlsData(mut data) => {
                let begin = self.leaving.len();
                if let Err(EncodeError::InsufficientSize(InsufficientSizeError { required_size })) =
                    data.encode(&mut [])
                {
                    self.leaving.resize(begin + required_size, 0);
                    // It says itself how much it takes.
                    let _ = data.encode(&mut self.leaving[begin..]);
                }
                Next::Go
            }
            ConnectionState::TransmitTlsData(data) => {
                data.done();
                Next::Send
            }
            ConnectionState::BlockedHandshake => Next::Receive,
            ConnectionState::ReadTraffic(mut traffic) => {
                while let Some(record) = traffic.next_record() {
                    self.early.extend_from_slice(record?.payload);
                }
                Next::Go
            }
            ConnectionState::WriteTraffic(_) => Next::Done,
            _ => return Err(rustls::Error::HandshakeNotComplete),
        };
        self.arrived.drain(..discard);
        Ok(next)
    }
}

async fn shake<S: Side>(mut side: S, mut stream: TcpStream) -> Result<Secured, Failed> {
    let mut peer_channel = PeerChannel::default();
    loop {
        match peer_channel.step(&mut side)? {
            Next::Go => {}
            Next::Send => {
                stream.write_all(&peer_channel.leaving).await?;
                peer_channel.leaving.clear();
            }
            Next::Receive if peer_channel.arrived.len() > UNREAD => {
                return Err(io::ErrorKind::InvalidData.into());
            }
            Next::Receive => {
                if stream.read_buf(&mut peer_channel.arrived).await? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            Next::Done => return secured(side, stream, peer_channel),
        }
    }
}

fn secured<S: Side>(
    side: S,
    stream: TcpStream,
    peer_channel: PeerChannel,
) -> Result<Secured, Failed> {
    let state = side.state();
    let protocol = state.alpn_protocol().map(<[u8]>::to_vec);
    let peer = state
        .peer_certificates()
        .map(<[_]>::to_vec)
        .unwrap_or_default();
    let (secrets, keys) = side.keys()?;
    let binding = binding(&S::diallers(&secrets).1)?;
    Ok(Secured {
        protocol: protocol.unwrap_or_default(),
        peer,
        binding,
        stream,
        sealer: Sealer::new(secrets.tx)?,
        opener: Opener::new(secrets.rx)?,
        keys,
        sealed: peer_channel.arrived,
        opened: peer_channel.early,
    })
}

/// What the two ends of this connection know, and nobody else, and no other connection has.
fn binding(secret: &ConnectionTrafficSecrets) -> io::Result<[u8; NONCE_LEN]> {
    let (ConnectionTrafficSecrets::Aes128Gcm { iv, .. }
    | ConnectionTrafficSecrets::Aes256Gcm { iv, .. }
    | ConnectionTrafficSecrets::Chacha20Poly1305 { iv, .. }) = secret
    else {
        return Err(io::ErrorKind::Unsupported.into());
    };
    iv.as_ref()
        .try_into()
        .map_err(|_| io::ErrorKind::InvalidData.into())
}

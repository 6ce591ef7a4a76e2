//! The other end of a connection, which seals what it likes and changes what it sealed.

use std::io;
use std::sync::LazyLock;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};

use super::handshake::Keys;
use super::record::Sealer;
use super::stream::{EMPTY_RECORDS, Incoming, Secured};
use super::{accept, connect};
use crate::identity::{Identity, Role};
use crate::{JobSecret, Rank};

/// Two ranks of a job, and what they run on.
struct Job {
    runtime: Runtime,
    dialler: Identity,
    acceptor: Identity,
}

/// What goes over the wire, and what of it is to be believed.
struct Adversary {
    sealer: Sealer,
    keys: Keys,
    wire: Vec<u8>,
    sent: Vec<u8>,
    /// Records that carry nothing since the last that does.
    empty: u32,
    /// Whether everything on the wire was sealed in its order and is whole.
    honest: bool,
}

/// Sends what these bytes ask for over a new connection: the receiver reads what was sealed before
/// the first thing that no honest end does, and nothing else.
pub(crate) fn meddle(bytes: &[u8]) {
    static JOB: LazyLock<Job> = LazyLock::new(Job::new);
    let carried = JOB.runtime.block_on(JOB.carry(bytes));
    carried.expect("the sockets of this host work");
}

impl Job {
    fn new() -> Self {
        let secret = JobSecret::from_hex(&"5a".repeat(32)).expect("64 digits");
        let identity = |rank| {
            let identity = Identity::new(&secret, Role::Rank(Rank::new(rank)));
            identity.expect("a certificate")
        };
        Self {
            runtime: Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime"),
            dialler: identity(1),
            acceptor: identity(0),
        }
    }

    async fn carry(&self, bytes: &[u8]) -> io::Result<()> {
        let (near, far) = self.pair().await?;
        let mut adversary = Adversary {
            sealer: near.sealer,
            keys: near.keys,
            wire: Vec::new(),
            sent: Vec::new(),
            empty: 0,
            honest: true,
        };
        adversary.obey(bytes)?;
        let (_outgoing, incoming) = far.split();
        let mut socket = near.stream;
        let send = async {
            // Who receives may have hung up already.
            let _ = socket.write_all(&adversary.wire).await;
            let _ = socket.shutdown().await;
        };
        let ((), (got, end)) = tokio::join!(send, read_all(incoming, bytes.len() % 31));
        assert!(
            got == adversary.sent,
            "{} bytes for {}",
            got.len(),
            adversary.sent.len()
        );
        assert!(end.is_ok() || !adversary.honest, "{end:?}");
        Ok(())
    }

    async fn pair(&self) -> io::Result<(Secured, Secured)> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let near = TcpStream::connect(listener.local_addr()?).await?;
        let (far, _) = listener.accept().await?;
        // Else each handshake waits for an acknowledgement that is put off.
        near.set_nodelay(true)?;
        far.set_nodelay(true)?;
        let name = self.dialler.server_name(Role::Rank(Rank::CHIEF));
        let met = tokio::join!(
            connect(
                near,
                self.dialler.tcp_client(),
                name.map_err(io::Error::other)?
            ),
            accept(far, self.acceptor.tcp_server()),
        );
        Ok((
            met.0.map_err(io::Error::other)?,
            met.1.map_err(io::Error::other)?,
        ))
    }
}

impl Adversary {
    /// Each two bytes are an order and a number; so many bytes follow as are needed.
    fn obey(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while let Some(([order, number], rest)) = bytes.split_first_chunk() {
            let (text, others) = rest.split_at(usize::from(*number).min(rest.len()));
            bytes = others;
            match order % 7 {
                0 => self.say(text, DATA)?,
                1 => self.say(&vec![*order; LONG / 255 * usize::from(*number)], DATA)?,
                2 => self.say(text, order / 7)?,
                3 => self.renew()?,
                4 => self.utter(text),
                5 => self.spoil(text, *order)?,
                _ => self.withhold(text)?,
            }
        }
        Ok(())
    }

    /// A record of any type, which is a record of data too if that is its last byte but zeros.
    fn say(&mut self, text: &[u8], kind: u8) -> io::Result<()> {
        self.sealer.seal(kind, text, &mut self.wire)?;
        let inner = [text, &[kind]].concat();
        let end = inner.iter().rposition(|byte| *byte != 0);
        match end.map(|end| (inner[end], end)) {
            Some((DATA, 0)) => self.carry_nothing(),
            Some((DATA, end)) if self.honest => {
                self.empty = 0;
                self.sent.extend_from_slice(&inner[..end]);
            }
            _ => self.honest = false,
        }
        Ok(())
    }

    fn carry_nothing(&mut self) {
        self.empty += 1;
        self.honest &= self.empty <= EMPTY_RECORDS;
    }

    fn renew(&mut self) -> io::Result<()> {
        self.sealer.next_key(&mut self.wire)?;
        self.sealer = self.keys.next_to_send()?;
        self.carry_nothing();
        Ok(())
    }

    /// Bytes that nobody has sealed.
    fn utter(&mut self, bytes: &[u8]) {
        self.wire.extend_from_slice(bytes);
        self.honest &= bytes.is_empty();
    }

    /// A record with a byte changed.
    fn spoil(&mut self, text: &[u8], place: u8) -> io::Result<()> {
        let begin = self.wire.len();
        self.sealer.data(text, &mut self.wire)?;
        let place = begin + usize::from(place) % (self.wire.len() - begin);
        self.wire[place] ^= 1 << (place % 8);
        self.honest = false;
        Ok(())
    }

    /// A record that is lost.
    fn withhold(&mut self, text: &[u8]) -> io::Result<()> {
        self.sealer.data(text, &mut Vec::new())?;
        self.honest = false;
        Ok(())
    }
}

/// All that can be read, asked for in pieces of various lengths, and how it ended.
async fn read_all(mut from: Incoming, seed: usize) -> (Vec<u8>, io::Result<()>) {
    let (mut got, mut piece, mut length) = (Vec::new(), vec![0; 30_000], seed + 1);
    loop {
        match from.read(&mut piece[..length]).await {
            Ok(0) => return (got, Ok(())),
            Ok(bytes) => got.extend_from_slice(&piece[..bytes]),
            Err(error) => {
                assert!(
                    from.read(&mut piece).await.is_err(),
                    "it goes on after {error}"
                );
                return (got, Err(error));
            }
        }
        length = length * 7 % 29_989 + 1;
    }
}

/// The type of records with data (RFC 8446, section 5.1).
const DATA: u8 = 23;
/// As many bytes as the longest records have.
const LONG: usize = 16 << 10;

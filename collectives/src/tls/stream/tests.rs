//! Encrypted streams between two ranks: whole, cut, tampered with and slow.

use std::future::poll_fn;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::super::{Failed, accept, connect};
use super::*;
use crate::identity::{Identity, Role, TCP_ALPN};
use crate::{JobSecret, Rank};

/// Two ranks of a job.
struct Job {
    dialler: Identity,
    acceptor: Identity,
}

impl Job {
    fn new() -> Self {
        let secret = JobSecret::generate().unwrap();
        let identity = |rank| Identity::new(&secret, Role::Rank(Rank::new(rank))).unwrap();
        Self {
            dialler: identity(1),
            acceptor: identity(0),
        }
    }

    /// What comes of it when one calls the other as rank 0 over this pair of sockets.
    async fn meet(
        &self,
        sockets: (TcpStream, TcpStream),
    ) -> (Result<Secured, Failed>, Result<Secured, Failed>) {
        let (near, far) = sockets;
        let name = self.dialler.server_name(Role::Rank(Rank::CHIEF)).unwrap();
        tokio::join!(
            connect(near, self.dialler.tcp_client(), name),
            accept(far, self.acceptor.tcp_server()),
        )
    }

    async fn pair(&self, sockets: (TcpStream, TcpStream)) -> (Secured, Secured) {
        let (near, far) = self.meet(sockets).await;
        (near.unwrap(), far.unwrap())
    }
}

async fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).await;
    (near.unwrap(), listener.accept().await.unwrap().0)
}

fn pattern(bytes: usize, seed: usize) -> Vec<u8> {
    let byte = |at: usize| u8::try_from((at * 31 + at / 251 + seed) % 256).unwrap();
    (0..bytes).map(byte).collect()
}

/// Both directions at once, in writes and reads of many sizes.
async fn carries(near: (Outgoing, Incoming), far: (Outgoing, Incoming), bytes: usize) {
    let writes = async |mut out: Outgoing, seed| {
        let all = pattern(bytes, seed);
        let (mut rest, mut step) = (&all[..], 1);
        while !rest.is_empty() {
            let (now, later) = rest.split_at(step.min(rest.len()));
            out.write_all(now).await.unwrap();
            (rest, step) = (later, step * 3 % 200_003);
        }
        // Whatever was written goes out, though nobody waits for it.
        drop(out);
    };
    let reads = async |mut from: Incoming, seed| {
        let (mut got, mut step) = (vec![0; bytes], 1);
        let mut rest = &mut got[..];
        while !rest.is_empty() {
            let (now, later) = rest.split_at_mut(step.min(rest.len()));
            from.read_exact(now).await.unwrap();
            (rest, step) = (later, step * 5 % 300_007);
        }
        assert!(got == pattern(bytes, seed));
        assert_eq!(from.read(&mut [0; 1]).await.unwrap(), 0, "more came");
    };
    tokio::join!(
        writes(near.0, 1),
        writes(far.0, 2),
        reads(far.1, 1),
        reads(near.1, 2)
    );
}

#[tokio::test]
async fn bytes_arrive_in_order_however_they_are_cut_and_written_bytes_outlive_their_writer() {
    for bytes in [1, 5000, 3_000_001] {
        let (near, far) = Job::new().pair(sockets().await).await;
        assert_eq!(near.protocol, TCP_ALPN);
        assert_eq!(near.binding, far.binding);
        carries(near.split(), far.split(), bytes).await;
    }
}

#[tokio::test]
async fn keys_are_renewed_as_often_as_records_ask_for_it() {
    let (near, far) = Job::new().pair(sockets().await).await;
    carries(near.split_renewing(3), far.split_renewing(1), 1_000_001).await;
}

#[tokio::test]
async fn what_came_before_a_changed_record_is_read_and_nothing_behind_it() {
    let (near, far) = Job::new().pair(sockets().await).await;
    let (mut socket, mut sealer) = (near.stream, near.sealer);
    let (mut wire, mut ends) = (Vec::new(), Vec::new());
    for part in [b"one", b"two", b"six"] {
        sealer.data(part, &mut wire).unwrap();
        ends.push(wire.len());
    }
    wire[ends[1] - 1] ^= 1;
    socket.write_all(&wire).await.unwrap();
    let (_outgoing, mut read) = far.split();
    let mut got = [0; 9];
    assert_eq!(read.read(&mut got).await.unwrap(), 3);
    assert!(got.starts_with(b"one"));
    for _ in 0..2 {
        let error = read.read(&mut got).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}

#[tokio::test]
async fn who_sends_records_that_carry_nothing_for_ever_is_not_heard() {
    for renews in [false, true] {
        for (count, heard) in [(EMPTY_RECORDS, true), (EMPTY_RECORDS + 1, false)] {
            let (near, far) = Job::new().pair(sockets().await).await;
            let (mut sealer, mut keys, mut wire) = (near.sealer, near.keys, Vec::new());
            for _ in 0..count {
                if renews {
                    sealer.next_key(&mut wire).unwrap();
                    sealer = keys.next_to_send().unwrap();
                } else {
                    sealer.data(b"", &mut wire).unwrap();
                }
            }
            sealer.data(b"one", &mut wire).unwrap();
            let mut socket = near.stream;
            socket.write_all(&wire).await.unwrap();
            let (_outgoing, mut read) = far.split();
            let got = read.read_exact(&mut [0; 3]).await;
            let kind = got.map_err(|error| error.kind());
            assert_eq!(kind, heard.then_some(3).ok_or(io::ErrorKind::InvalidData));
        }
    }
}

/// A try to open an empty record leaves its one sealed byte as zero. Where that is what it was, it
/// could be opened by its own number later, though all records before it are missing.
#[tokio::test]
async fn no_record_behind_a_lost_one_is_read_however_often_it_is_tried() {
    let (near, far) = Job::new().pair(sockets().await).await;
    let (mut socket, mut sealer) = (near.stream, near.sealer);
    let sealed = loop {
        let mut sealed = Vec::new();
        sealer.data(b"", &mut sealed).unwrap();
        if sealer.records() > 1 && sealed[record::HEAD_BYTES] == 0 {
            break sealed;
        }
    };
    socket.write_all(&sealed).await.unwrap();
    socket.shutdown().await.unwrap();
    let (_outgoing, mut read) = far.split();
    for _ in 0..sealer.records() {
        let error = read.read(&mut [0; 9]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}

#[tokio::test]
async fn every_connection_has_a_binding_of_its_own() {
    let job = Job::new();
    let (first, _) = job.pair(sockets().await).await;
    let (second, _) = job.pair(sockets().await).await;
    assert_ne!(first.binding, second.binding);
}

#[tokio::test]
async fn who_writes_more_than_is_read_waits_with_bounded_memory() {
    let (near, far) = Job::new().pair(sockets().await).await;
    let ((mut out, _near), (_far, mut read)) = (near.split(), far.split());
    let (bytes, mut written) = (vec![5; 1 << 20], 0);
    let stuck = async {
        loop {
            let write = poll_fn(|context| Pin::new(&mut out).poll_write(context, &bytes));
            // The kernel's buffers are some megabytes; nobody empties them.
            match timeout(Duration::from_millis(300), write).await {
                Ok(more) => written += more.unwrap(),
                Err(_) => break,
            }
        }
    };
    stuck.await;
    assert!(out.0.line().rest() < FULL + 2 * CHUNK);
    // And goes on when it is read.
    let mut all = vec![0; written + bytes.len()];
    let (wrote, got) = tokio::join!(out.write_all(&bytes), read.read_exact(&mut all));
    wrote.unwrap();
    got.unwrap();
    assert!(all.iter().all(|byte| *byte == 5));
}

#[tokio::test]
async fn a_connection_takes_little_memory_until_it_carries_much() {
    let (near, far) = Job::new().pair(sockets().await).await;
    let ((mut out, _near), (_far, mut read)) = (near.split(), far.split());
    // A head and a proof each.
    for _ in 0..100 {
        out.write_all(&[1; 49]).await.unwrap();
        read.read_exact(&mut [0; 49]).await.unwrap();
    }
    assert!(read.buffer.capacity() < 64 << 10);
    let mut all = vec![0; 3 << 20];
    let (wrote, got) = tokio::join!(out.write_all(&[2; 3 << 20]), read.read_exact(&mut all));
    wrote.unwrap();
    got.unwrap();
    assert!(all.iter().all(|byte| *byte == 2));
    assert_eq!(read.buffer.len(), RECEIVED);
}

/// What somebody in between does with what passes.
async fn between(
    meddle: impl Fn(usize, &mut [u8]) + Send + Sync + 'static,
) -> (TcpStream, TcpStream) {
    let (near, mut left) = sockets().await;
    let (mut right, far) = sockets().await;
    tokio::spawn(async move {
        let ((mut a, mut b), (mut c, mut d)) = (left.split(), right.split());
        let forth = async {
            let (mut buffer, mut place) = ([0; 4096], 0);
            while let Ok(bytes @ 1..) = a.read(&mut buffer).await {
                meddle(place, &mut buffer[..bytes]);
                place += bytes;
                d.write_all(&buffer[..bytes]).await.unwrap();
            }
        };
        let back = tokio::io::copy(&mut c, &mut b);
        let _ = tokio::join!(forth, back);
    });
    (near, far)
}

#[tokio::test]
async fn nothing_of_what_is_sent_can_be_read_on_the_way() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let notes = seen.clone();
    let sockets = between(move |_, bytes| lock(&notes).extend_from_slice(bytes)).await;
    let (near, far) = Job::new().pair(sockets).await;
    let ((mut out, _near), (_far, mut read)) = (near.split(), far.split());
    let mut got = vec![0; 100_000];
    let secret = b"gradient".repeat(12_500);
    tokio::join!(async { out.write_all(&secret).await.unwrap() }, async {
        read.read_exact(&mut got).await.map(drop).unwrap();
    },);
    assert_eq!(got, secret);
    let seen = lock(&seen);
    assert!(seen.len() > secret.len());
    assert!(!seen.windows(8).any(|at| at == b"gradient"));
}

#[tokio::test]
async fn a_byte_that_was_changed_on_the_way_ends_the_connection() {
    // Somewhere behind the handshake, which has a few kilobytes.
    let change = |place: usize, bytes: &mut [u8]| {
        if let Some(at) = 40_000_usize
            .checked_sub(place)
            .filter(|at| *at < bytes.len())
        {
            bytes[at] ^= 1;
        }
    };
    let (near, far) = Job::new().pair(between(change).await).await;
    let ((mut out, _near), (_far, mut read)) = (near.split(), far.split());
    let mut got = vec![0; 100_000];
    let (wrote, got) = tokio::join!(out.write_all(&[1; 100_000]), read.read_exact(&mut got));
    wrote.unwrap();
    assert_eq!(got.unwrap_err().kind(), io::ErrorKind::InvalidData);
}

#[tokio::test]
async fn who_belongs_to_another_job_or_is_another_rank_is_refused() {
    let (job, other) = (Job::new(), Job::new());
    let mixed = Job {
        dialler: job.dialler,
        acceptor: other.acceptor,
    };
    let (near, far) = mixed.meet(sockets().await).await;
    assert!(matches!(near, Err(Failed::Tls(_))) && far.is_err());
    let secret = JobSecret::generate().unwrap();
    let identity = |role| Identity::new(&secret, role).unwrap();
    let posing = Job {
        dialler: identity(Role::Rank(Rank::new(1))),
        acceptor: identity(Role::Rank(Rank::new(2))),
    };
    let (near, _) = posing.meet(sockets().await).await;
    assert!(matches!(near, Err(Failed::Tls(_))));
}

#[tokio::test]
async fn noise_instead_of_a_handshake_is_an_error_and_endless_noise_takes_no_memory() {
    for noise in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[22, 3, 1, 64, 0][..],
        &[0; 9][..],
    ] {
        let (mut near, far) = sockets().await;
        let identity = Job::new().acceptor;
        let (wrote, refused) = tokio::join!(
            async {
                // It may be cut off at any time.
                for _ in 0..100_000 {
                    near.write_all(noise).await?;
                }
                near.shutdown().await
            },
            accept(far, identity.tcp_server()),
        );
        drop(wrote);
        assert!(refused.is_err());
    }
}

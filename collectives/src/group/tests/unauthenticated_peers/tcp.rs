//! At the port for TCP, where that carries the bytes of operations.

use std::io::{Read, Write};
use std::net::TcpStream;

use ring::{digest, hmac};
use rustix::process::{Resource, getrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::identity::Identity;
use crate::tls;
use crate::wire::{Cores, Hello, MemberRecord, Message, RecordBatch};

fn identity(secret: &JobSecret, role: Role) -> Identity {
    Identity::new(secret, role).unwrap()
}

/// Shakes hands with rank 0 of this job, as whoever `identity` is.
async fn shaken(siege: &Siege, identity: &Identity) -> Result<tls::Secured, tls::Failed> {
    let name = identity.server_name(Role::Rank(Rank::CHIEF)).unwrap();
    let stream = tls::dial(siege.addresses[0].parse().unwrap()).await?;
    tls::connect(stream, identity.tcp_client(), name).await
}

/// What rank 0 answers to these bytes, until it hangs up or has said as much as it ever says.
async fn answer(secured: tls::Secured, bytes: &[u8]) -> Vec<u8> {
    let (mut outgoing, mut incoming) = secured.split();
    // It may be gone already.
    let _ = outgoing.write_all(bytes).await;
    let mut said = Vec::new();
    let mut part = [0; 32];
    while said.len() < part.len()
        && let Ok(more @ 1..) = incoming.read(&mut part).await
    {
        said.extend_from_slice(&part[..more]);
    }
    said
}

const NOTHING: &[u8] = &[];

#[test]
fn noise_and_silence_at_the_port_for_tcp_change_nothing() {
    besieged_over(DataTransport::Tls, |siege| {
        let mut noise = noise();
        for length in [0, 1, 5, 100, 5000] {
            for address in &siege.addresses {
                let mut bytes: Vec<u8> = (0..length).map(|_| noise()).collect();
                if let Some(head) = bytes.first_chunk_mut::<3>().filter(|_| length % 2 == 0) {
                    // The first record of a handshake.
                    *head = [22, 3, 1];
                }
                let mut stream = TcpStream::connect(address).unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                // It may be cut off at any byte, by an end or by a reset.
                let _ = stream.write_all(&bytes);
                let _ = stream.shutdown(std::net::Shutdown::Write);
                let mut said = Vec::new();
                let _ = stream.read_to_end(&mut said);
                // An alert at most.
                assert!(said.len() < 64, "{said:?}");
            }
        }
    });
}

#[test]
fn who_has_no_certificate_of_the_job_gets_no_word_over_tcp() {
    besieged_over(DataTransport::Tls, |siege| {
        let other = JobSecret::generate().unwrap();
        let peer = identity(&other, Role::Rank(Rank::new(1)));
        let refused = runtime().block_on(shaken(siege, &peer));
        assert!(refused.is_err());
    });
}

/// So many that to look at each for a moment takes longer than a member tries; fewer where this
/// process, which has both ends of each, may not open so many files.
fn many() -> usize {
    let network = Network::default().with_data_transport(DataTransport::Tls);
    // As much as a rank takes that is connected with a thousand others.
    crate::open_files::reserve(1024, network).unwrap();
    let limit = getrlimit(Resource::Nofile).current;
    let most = limit.map_or(600, |limit| 600.min(limit / 2));
    usize::try_from(most).unwrap()
}

#[test]
fn many_who_say_nothing_over_tcp_keep_no_member_out() {
    let (members, secret) = (free_addresses(2), JobSecret::generate().unwrap());
    let join = |rank| {
        let config = config(&members, Rank::new(rank), &secret);
        Group::connect(&over_tls(config, Network::default())).unwrap()
    };
    let (many, began) = (many(), Instant::now());
    thread::scope(|scope| {
        let first = scope.spawn(|| join(0));
        let mut silent = Vec::new();
        while silent.len() < many {
            assert!(began.elapsed() < PATIENCE, "{} callers", silent.len());
            // Nobody listens in the first moment.
            silent.extend(TcpStream::connect(&members[0]));
            thread::yield_now();
        }
        let groups = [join(1), first.join().unwrap()];
        each(groups, |group| group.leave().unwrap());
        drop(silent);
    });
}

/// A member that rank 0 has greeted over QUIC, and what only the two know by that.
async fn greeted(siege: &Siege, endpoint: &Endpoint) -> (Connection, [u8; 32]) {
    let connection = loop {
        // Rank 0 may not listen yet.
        let credentials = siege.credentials(1, SystemTime::now());
        if let Ok(connection) = siege.join_request(endpoint, Some(credentials)).await {
            break connection;
        }
    };
    let mut members = 1_u64.to_le_bytes().to_vec();
    for address in &siege.addresses {
        members.extend_from_slice(format!("{address}\n").as_bytes());
    }
    let members = digest::digest(&digest::SHA256, &members);
    let hello = Message::Hello(Hello {
        rank: 1,
        incarnation: 1,
        world: 2,
        members: members.as_ref().try_into().unwrap(),
        process: std::process::id(),
        host: String::new(),
        connections: 1,
        data_transport: 1,
    });
    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    let record = MemberRecord {
        incarnation: 1,
        process: std::process::id(),
        host: [0; 16],
        cores: Cores::default(),
    };
    let records = RecordBatch {
        first: 1,
        records: vec![record],
    };
    let words = [hello, Message::Records(records)].map(|word| word.encode());
    send.write_all(&words.concat()).await.unwrap();
    let mut welcome = [0; 12];
    receive.read_exact(&mut welcome).await.unwrap();
    assert_eq!(welcome[5], 2, "not welcome");
    // Its end would be the member's.
    std::mem::forget(send);
    let mut secret = [0; 32];
    let exported = connection.export_keying_material(&mut secret, b"EXPORTER-meshwork-bulk", b"");
    exported.unwrap();
    (connection, secret)
}

/// What a member says first of a lane, with a proof for a connection of this binding.
fn claim(secret: &[u8; 32], lane: u8, binding: &[u8]) -> Vec<u8> {
    let mut head = b"BULK\x01\0\0\0\0\0\0\0\0\0\0\0".to_vec();
    head.push(lane);
    let said = [&b"dials"[..], &head, binding].concat();
    let proof = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), &said);
    [&head, proof.as_ref()].concat()
}

#[test]
fn a_member_has_to_prove_that_each_connection_over_tcp_is_of_the_one_over_quic() {
    let siege = Siege::of(&free_addresses(2), &JobSecret::generate().unwrap());
    thread::scope(|scope| {
        let first = scope.spawn(|| {
            let config = config(&siege.addresses, Rank::CHIEF, &siege.secret);
            Group::connect(&over_tls(config, Network::default()))
        });
        let runtime = runtime();
        let _inside = runtime.enter();
        let endpoint = client();
        runtime.block_on(async {
            let (_connection, secret) = greeted(&siege, &endpoint).await;
            let member = identity(&siege.secret, Role::Rank(Rank::new(1)));
            let other = identity(&siege.secret, Role::Rank(Rank::new(2)));
            let call = async |who| shaken(&siege, who).await.unwrap();
            // What the proof of one connection is worth on another.
            let (first, second) = (call(&member).await, call(&member).await);
            let replayed = claim(&secret, 0, &first.binding);
            assert_eq!(
                answer(second, &replayed).await,
                NOTHING,
                "a replay is answered"
            );
            drop(first);
            // A proof by another secret, of a lane that there is not, by another rank's
            // certificate.
            let wrong = call(&member).await;
            let guessed = claim(&[7; 32], 0, &wrong.binding);
            assert_eq!(
                answer(wrong, &guessed).await,
                NOTHING,
                "a guess is answered"
            );
            let further = call(&member).await;
            let lane = claim(&secret, 1, &further.binding);
            assert_eq!(
                answer(further, &lane).await,
                NOTHING,
                "a second lane is let in"
            );
            let posing = call(&other).await;
            let stolen = claim(&secret, 0, &posing.binding);
            assert_eq!(
                answer(posing, &stolen).await,
                NOTHING,
                "another rank is let in"
            );
            // Nothing of this is in the way of the member itself.
            let right = call(&member).await;
            let proved = claim(&secret, 0, &right.binding);
            assert_eq!(answer(right, &proved).await.len(), 32);
        });
        drop(first.join().unwrap().unwrap());
    });
}

//! Someone between two ranks who passes for one of them.

use std::sync::Arc;
use std::time::SystemTime;

use quinn::crypto::rustls::QuicServerConfig;
use quinn::{Endpoint, ServerConfig};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::time::timeout;

use super::*;
use crate::identity::{ALPN, Authority, Credentials, Role};

/// Answers in the place of rank 0 with these credentials, and asks for none.
fn impostor(credentials: Credentials) -> Endpoint {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(credentials.chain, credentials.key.clone_key())
        .unwrap();
    tls.alpn_protocols = vec![ALPN.to_vec()];
    let quic = QuicServerConfig::try_from(tls).unwrap();
    let server = ServerConfig::with_crypto(Arc::new(quic));
    Endpoint::server(server, "127.0.0.1:0".parse().unwrap()).unwrap()
}

/// Rank 1 finds a rank 0 that answers like this.
fn answered_by(answer: Vec<u8>) -> Error {
    let secret = JobSecret::generate().unwrap();
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let _inside = runtime.enter();
    let other = impostor(credentials(&secret, Role::Rank(Rank::CHIEF)));
    let members = [
        other.local_addr().unwrap().to_string(),
        free_addresses(1).remove(0),
    ];
    runtime.spawn(async move {
        let connection = other.accept().await.unwrap().await.unwrap();
        let (mut send, _receive) = connection.accept_bi().await.unwrap();
        send.write_all(&answer).await.unwrap();
        connection.closed().await;
    });
    let config = config(&members, Rank::new(1), &secret);
    let joining = thread::spawn(move || Group::connect(&config).unwrap_err());
    joining.join().unwrap()
}

#[test]
fn a_rank_of_another_release_is_named_with_both_versions() {
    let mut answer = crate::wire::Message::Goodbye.encode();
    answer[4] = 1;
    let error = answered_by(answer);
    let expected = OperationError::Protocol {
        peer: Rank::CHIEF,
        error: crate::wire::WireError::Version {
            found: 1,
            expected: crate::wire::VERSION,
        },
    };
    assert_eq!(error, Error::Operation(expected));
    let text = error.to_string();
    let versions = format!("protocol version 1 is not version {}", crate::wire::VERSION);
    assert!(text.contains(&versions), "{text}");
}

/// The name that rank 0 of the job has, which anybody may read in a first packet.
fn own_authority(secret: &JobSecret) -> Credentials {
    let name = format!("rank-0.{}.meshwork.invalid", secret.job());
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let certificate = rcgen::CertificateParams::new(vec![name]).unwrap();
    let certificate = certificate.self_signed(&key).unwrap();
    Credentials {
        roots: Vec::new(),
        chain: vec![certificate.der().clone()],
        key: PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der())).into(),
    }
}

fn credentials(secret: &JobSecret, role: Role) -> Credentials {
    let authority = Authority::derive(secret).unwrap();
    authority.credentials(role, SystemTime::now()).unwrap()
}

/// Rank 1 finds the impostor where rank 0 should be: it must break off before it has said anything.
#[track_caller]
fn is_seen_through(secret: &JobSecret, credentials: Credentials) -> Error {
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let _inside = runtime.enter();
    let impostor = impostor(credentials);
    let place = impostor.local_addr().unwrap().to_string();
    let call = runtime.spawn(async move {
        let call = timeout(PATIENCE, impostor.accept()).await;
        call.unwrap().unwrap().await.is_ok()
    });
    let members = [place, free_addresses(1).remove(0)];
    let short = Timeouts::default().with_join(Duration::from_secs(2));
    let config = config(&members, Rank::new(1), secret).with_timeouts(short);
    let joining = thread::spawn(move || Group::connect(&config).unwrap_err());
    let believed = runtime.block_on(call).unwrap();
    assert!(!believed, "the impostor got a connection");
    joining.join().unwrap()
}

#[test]
fn whoever_answers_with_a_certificate_of_its_own_is_seen_through() {
    let secret = JobSecret::generate().unwrap();
    let error = is_seen_through(&secret, own_authority(&secret));
    assert!(
        matches!(error, Error::Join(JoinError::OtherJob { .. })),
        "{error}"
    );
}

#[test]
fn a_rank_of_another_job_is_seen_through() {
    let (secret, other) = (
        JobSecret::generate().unwrap(),
        JobSecret::generate().unwrap(),
    );
    let error = is_seen_through(&secret, credentials(&other, Role::Rank(Rank::CHIEF)));
    assert!(
        matches!(error, Error::Join(JoinError::OtherJob { .. })),
        "{error}"
    );
}

#[test]
fn a_member_of_the_job_that_answers_for_another_is_seen_through() {
    let secret = JobSecret::generate().unwrap();
    for role in [Role::Rank(Rank::new(2)), Role::Launcher] {
        let error = is_seen_through(&secret, credentials(&secret, role));
        let refused = matches!(
            error,
            Error::Join(JoinError::OtherRank { .. }) | Error::Join(JoinError::NotJoined { .. })
        );
        assert!(refused, "{error}");
    }
}

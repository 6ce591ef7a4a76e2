//! Processes as threads, over loopback; rank 0's port is one that the system has just given.

use std::net::UdpSocket;
use std::sync::Arc;
use std::thread;
use std::time::SystemTime;

use meshwork_testing::free_addresses;
use quinn::{Connection, Endpoint, RecvStream, SendStream};
use tokio::runtime::Builder;
use tokio::time::{sleep, timeout};

use super::*;
use crate::identity::RENEWAL;
use crate::quic::testing::{in_time, without_look_ups};
use crate::quic::{control, endpoint};
use crate::wire::{Message, Registration, VERSION};
use crate::{
    Error, Group, GroupConfig, JobSecret, Network, Refusal, UnauthenticatedCause,
    UnauthenticatedPeer,
};

const PLENTY: Duration = Duration::from_secs(60);

fn free_address() -> String {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.local_addr().unwrap().to_string()
}

fn secret() -> JobSecret {
    JobSecret::generate().unwrap()
}

fn of(address: &str, rank: u32, world: u32, limit: Duration) -> Rendezvous {
    let port = 61_000 + u16::try_from(rank).unwrap();
    let rendezvous = Rendezvous::new(address, Rank::new(rank), world, port).unwrap();
    rendezvous.with_limit(limit)
}

type Met = Result<Vec<String>, JoinError>;

/// What each of these hears, all at once.
fn meet(all: Vec<(Rendezvous, JobSecret)>) -> Vec<Met> {
    let threads: Vec<_> = all
        .into_iter()
        .map(|(rendezvous, secret)| thread::spawn(move || rendezvous.meet(secret)))
        .collect();
    threads.into_iter().map(|t| t.join().unwrap()).collect()
}

#[test]
fn all_learn_the_same_addresses_in_order_of_rank() {
    for world in [1, 2, 70] {
        let (address, secret) = (free_address(), secret());
        let all = (0..world).rev();
        let all = all.map(|rank| (of(&address, rank, world, PLENTY), secret.clone()));
        let expected: Vec<_> = (0..world)
            .map(|rank| format!("127.0.0.1:{}", 61_000 + rank))
            .collect();
        for met in meet(all.collect()) {
            assert_eq!(met.unwrap(), expected);
        }
    }
}

#[test]
fn all_who_come_are_told_who_does_not() {
    let (address, secret) = (free_address(), secret());
    let limit = Duration::from_millis(1500);
    let come = [0, 1, 3].map(|rank| (of(&address, rank, 4, limit), secret.clone()));
    for met in meet(come.into()) {
        let error = met.unwrap_err();
        assert_eq!(error.rank_at_fault(), Some(Rank::new(2)), "{error}");
        assert!(
            error
                .to_string()
                .starts_with("rank 2 (at an unknown address) did not join within 1.5s"),
            "{error}"
        );
    }
}

#[test]
fn without_rank_0_its_address_is_named() {
    let address = free_address();
    let alone = of(&address, 1, 2, Duration::from_millis(200));
    let error = alone.meet(secret()).unwrap_err();
    let expected = format!("rank 0 ({address}) did not join within 200.0ms");
    assert!(error.to_string().starts_with(&expected), "{error}");
}

#[test]
fn another_secret_is_refused_and_disturbs_nobody() {
    let (address, limit) = (free_address(), PLENTY);
    let (secret, other) = (secret(), secret());
    let mut all: Vec<_> = (0..2)
        .map(|rank| (of(&address, rank, 2, limit), secret.clone()))
        .collect();
    let stranger = of(&address, 1, 2, limit);
    // Before the right one, so that all are still waiting.
    let right = all.pop().unwrap();
    let host = thread::spawn(move || meet(all));
    let refused = stranger.meet(other).unwrap_err();
    assert!(matches!(refused, JoinError::OtherJob { .. }), "{refused}");
    assert!(right.0.meet(right.1).is_ok());
    assert!(host.join().unwrap().remove(0).is_ok());
}

#[test]
fn ranks_of_another_number_are_told_both() {
    let (address, secret) = (free_address(), secret());
    let all = vec![
        (of(&address, 0, 2, Duration::from_secs(2)), secret.clone()),
        (of(&address, 1, 3, PLENTY), secret),
    ];
    let mut met = meet(all);
    let refused = met.pop().unwrap().unwrap_err();
    let reason = Refusal::World {
        expected: 2,
        found: 3,
    };
    assert!(
        matches!(&refused, JoinError::Refused { reason: r, .. } if *r == reason),
        "{refused}"
    );
    let alone = met.pop().unwrap().unwrap_err();
    assert!(
        alone
            .to_string()
            .contains("was refused: it was started for 2 ranks"),
        "{alone}"
    );
}

#[test]
fn a_rank_whose_time_is_over_before_that_of_rank_0_says_that_this_was_reached() {
    let (address, secret) = (free_address(), secret());
    let begin = |rank, limit| {
        let (rendezvous, secret) = (of(&address, rank, 3, limit), secret.clone());
        thread::spawn(move || rendezvous.meet(secret))
    };
    let host = begin(0, PLENTY);
    let is_told = |error: &JoinError| match error {
        JoinError::StillWaiting { peer, .. } => peer.rank() == Rank::CHIEF,
        _ => false,
    };
    let early = |limit| begin(1, limit).join().unwrap().unwrap_err();
    let error = in_time(early, is_told);
    assert!(is_told(&error), "{error}");
    assert_eq!(error.rank_at_fault(), None);
    assert!(error.is_retryable());
    // It still waits, indeed.
    let all = [host, begin(1, PLENTY), begin(2, PLENTY)];
    for met in all.map(|thread| thread.join().unwrap()) {
        assert_eq!(met.unwrap().len(), 3);
    }
}

/// Rank 0 hears a guest, unless the time of that is over before.
async fn hear_one(endpoint: &Endpoint) -> Option<(Connection, SendStream, RecvStream)> {
    let connection = endpoint.accept().await?.await.ok()?;
    let (send, mut receive) = connection.accept_bi().await.ok()?;
    let heard = control::read(&mut receive).await.ok()?;
    assert!(matches!(heard, Message::Register(_)), "{heard:?}");
    Some((connection, send, receive))
}

/// Rank 0 hears a guest, and ends without a word.
fn hear_and_end(address: SocketAddr, secret: JobSecret) {
    let identity = Identity::of_job(&secret.into(), Role::Rank(Rank::CHIEF)).unwrap();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let hearing = async {
        let server = endpoint::server(&identity, Network::default());
        let endpoint = endpoint::listener(address, server).unwrap();
        let held = hear_one(&endpoint).await.unwrap();
        (endpoint, held)
    };
    let held = runtime.block_on(async { timeout(PLENTY, hearing).await.unwrap() });
    // Nobody is left to send anything when these say goodbye.
    drop(runtime);
    drop(held);
}

#[test]
fn a_rank_0_that_has_ended_and_was_started_again_is_met() {
    let (address, secret) = (free_address(), secret());
    let begin = |rank| {
        let (rendezvous, secret) = (of(&address, rank, 2, PLENTY), secret.clone());
        thread::spawn(move || rendezvous.meet(secret))
    };
    let guest = begin(1);
    hear_and_end(address.parse().unwrap(), secret.clone());
    for met in [begin(0), guest].map(|thread| thread.join().unwrap()) {
        assert_eq!(met.unwrap().len(), 2);
    }
}

#[test]
fn a_rank_whose_connection_breaks_when_its_time_is_over_says_that_rank_0_was_reached() {
    let secret = secret();
    let identity = Identity::of_job(&secret.clone().into(), Role::Rank(Rank::CHIEF)).unwrap();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let attempt = |limit| {
        let address = free_address();
        let (guest, secret) = (of(&address, 1, 2, limit), secret.clone());
        let breaking = async {
            let server = endpoint::server(&identity, Network::default());
            let endpoint = endpoint::listener(address.parse().unwrap(), server).unwrap();
            let guest = thread::spawn(move || guest.meet(secret));
            let held = timeout(limit, hear_one(&endpoint)).await.ok().flatten();
            // It began before it was heard.
            sleep(limit).await;
            endpoint.close(0_u32.into(), b"");
            endpoint.wait_idle().await;
            (held.is_some(), guest)
        };
        let (is_heard, guest) = runtime.block_on(breaking);
        (is_heard, guest.join().unwrap().unwrap_err())
    };
    let (is_heard, error) = in_time(attempt, |(is_heard, _)| *is_heard);
    assert!(is_heard, "{error}");
    assert!(
        matches!(&error, JoinError::StillWaiting { peer, .. } if peer.rank() == Rank::CHIEF),
        "{error}"
    );
    assert_eq!(error.rank_at_fault(), None);
}

/// A rank is heard, unless its time is over before, and its connection breaks.
fn be_heard_and_break(guest: &Rendezvous, secret: JobSecret) -> Option<()> {
    let identity = Identity::of_job(&secret.into(), Role::Rank(guest.rank)).unwrap();
    let registration = Registration {
        rank: guest.rank.number(),
        world: guest.world,
        port: guest.port,
    };
    let said = Message::Register(registration).encode();
    let breaking = async {
        let address = guest.address.parse().unwrap();
        let reached = guest::reach(guest, &identity, address).await.ok();
        let (endpoint, connection) = reached?;
        let (mut send, _receive) = connection.open_bi().await.ok()?;
        send.write_all(&said).await.ok()?;
        send.finish().ok()?;
        // All has arrived.
        send.stopped().await.ok()?;
        connection.close(0_u32.into(), b"");
        endpoint.wait_idle().await;
        Some(())
    };
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { timeout(guest.limit, breaking).await.ok().flatten() })
}

#[test]
fn a_rank_whose_connection_is_broken_when_the_last_one_comes_is_told_when_it_calls_again() {
    let (address, secret) = (free_address(), secret());
    let begin = |rank| {
        let (rendezvous, secret) = (of(&address, rank, 3, PLENTY), secret.clone());
        thread::spawn(move || rendezvous.meet(secret))
    };
    let host = begin(0);
    be_heard_and_break(&of(&address, 1, 3, PLENTY), secret.clone()).unwrap();
    let last = begin(2).join().unwrap().unwrap();
    for met in [begin(1), host].map(|thread| thread.join().unwrap()) {
        assert_eq!(met.unwrap(), last);
    }
}

/// Why there is no group of those that this one meets.
fn meet_in_vain(rendezvous: &Rendezvous, secret: JobSecret) -> Result<Error, JoinError> {
    let addresses = rendezvous.meet(secret.clone())?;
    let config = GroupConfig::new(addresses, rendezvous.rank, secret).unwrap();
    let timeouts = Timeouts::default().with_join(rendezvous.limit);
    Ok(Group::connect(&config.with_timeouts(timeouts)).unwrap_err())
}

#[test]
fn all_name_a_rank_that_has_come_and_is_not_there_to_be_told() {
    let secret = secret();
    let attempt = |limit| {
        let (address, listening) = (free_address(), free_addresses(3));
        let of = |rank: u32| {
            let own: SocketAddr = listening[rank as usize].parse().unwrap();
            let port = own.port();
            Rendezvous {
                port,
                ..of(&address, rank, 3, limit)
            }
        };
        let begin = |rank| {
            let (rendezvous, secret) = (of(rank), secret.clone());
            thread::spawn(move || meet_in_vain(&rendezvous, secret))
        };
        let host = begin(0);
        let _ = be_heard_and_break(&of(1), secret.clone());
        [host, begin(2)].map(|thread| thread.join().unwrap())
    };
    let names_it = |error: &Error| error.rank_at_fault() == Some(Rank::new(1));
    let is_named = |met: &Result<Error, JoinError>| met.as_ref().is_ok_and(names_it);
    let ended = in_time(attempt, |ended| ended.iter().all(is_named));
    assert!(ended.iter().all(is_named), "{ended:?}");
}

#[test]
fn a_rank_may_look_for_rank_0_longer_than_it_calls_it() {
    let (address, secret) = (free_address(), secret());
    let [host, guest] = [0, 1].map(|rank| of(&address, rank, 2, 10 * guest::ATTEMPT));
    let identity = Identity::of_job(&secret.clone().into(), Role::Rank(Rank::new(1))).unwrap();
    let host = thread::spawn(move || host.meet(secret));
    let look_up = || async {
        sleep(guest::ATTEMPT + Duration::from_millis(100)).await;
        look_up(&address).await
    };
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let met = runtime.block_on(guest::register(&guest, &identity, look_up));
    assert_eq!(met.unwrap(), host.join().unwrap().unwrap());
}

/// What rank 0 answers to somebody of its job who says this, unless its time is over before.
async fn answer(identity: &Identity, address: SocketAddr, said: &[u8]) -> Option<Message> {
    let guest = of(&address.to_string(), 1, 2, PLENTY);
    let reached = guest::reach(&guest, identity, address).await.ok();
    let (_endpoint, connection) = reached?;
    let (mut send, mut receive) = connection.open_bi().await.ok()?;
    send.write_all(said).await.ok()?;
    control::read(&mut receive).await.ok()
}

#[test]
fn a_rank_of_another_release_is_told_both_versions_and_named() {
    let (address, secret) = (free_address(), secret());
    let identity = Identity::of_job(&secret.clone().into(), Role::Rank(Rank::new(1))).unwrap();
    let registration = Registration {
        rank: 1,
        world: 2,
        port: 61_001,
    };
    let mut said = Message::Register(registration).encode();
    said[4] = VERSION + 1;
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let attempt = |limit| {
        let (host, secret) = (of(&address, 0, 2, limit), secret.clone());
        let host = thread::spawn(move || host.meet(secret));
        let answer = answer(&identity, address.parse().unwrap(), &said);
        let answer = runtime.block_on(async { timeout(limit, answer).await.ok().flatten() });
        (answer, host.join().unwrap().unwrap_err())
    };
    let (answer, error) = in_time(attempt, |(answer, _)| answer.is_some());
    let reason = Refusal::Version {
        expected: VERSION,
        found: VERSION + 1,
    };
    assert_eq!(answer, Some(Message::Refusal(reason.into())));
    let JoinError::NotJoined { refused, .. } = error else {
        panic!("{error}");
    };
    let causes: Vec<_> = refused.iter().map(UnauthenticatedPeer::cause).collect();
    assert_eq!(causes, [UnauthenticatedCause::Refused(reason)]);
}

#[test]
fn no_limit_is_longer_than_clocks_bear() {
    let alone = of(&free_address(), 0, 1, Duration::MAX);
    assert_eq!(alone.meet(secret()).unwrap(), ["127.0.0.1:61000"]);
}

#[test]
fn rank_0_looks_for_its_own_address_no_longer_than_for_the_others() {
    let alone = of("localhost:0", 0, 1, Duration::from_millis(1));
    let identity = Identity::of_job(&secret().into(), Role::Rank(Rank::CHIEF)).unwrap();
    let met = without_look_ups(async |_| host::receive_all(&alone, &identity).await);
    let error = met.unwrap_err();
    let late = io::ErrorKind::TimedOut.to_string();
    assert!(
        matches!(&error, JoinError::OwnName { reason, .. } if *reason == late),
        "{error}"
    );
}

/// They may wait for as long as a day.
#[test]
fn all_who_wait_show_a_new_certificate_in_time() {
    for rank in 0..2 {
        let waiting = of(&free_address(), rank, 2, Duration::from_millis(50));
        let role = Role::Rank(waiting.rank);
        let identity = Identity::of_job(&secret().into(), role).unwrap();
        // It is as old as one that has been shown for so long.
        let set_back = SystemTime::now() + 2 * RENEWAL;
        assert_eq!(identity.renew(set_back), Ok(true));
        let first = identity.client();
        let error = waiting.on_this_thread(&identity).unwrap_err();
        assert!(matches!(error, JoinError::NotJoined { .. }), "{error}");
        assert!(!Arc::ptr_eq(&first, &identity.client()), "rank {rank}");
    }
}

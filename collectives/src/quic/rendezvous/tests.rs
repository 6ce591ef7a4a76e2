//! Processes as threads, over loopback; rank 0's port is one that the system has just given.

use std::net::UdpSocket;
use std::thread;

use super::*;
use crate::{JobSecret, Refusal};

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

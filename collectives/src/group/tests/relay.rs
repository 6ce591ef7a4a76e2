//! Ranks that do not reach each other directly, and a relay between them.

use super::*;
use crate::config::Bounds;
use crate::{ConfigError, Relay, RelayLimits, RelayRefusal, RelayToken};

/// Ports of which each stands for a rank at which nothing arrives.
struct Walls(Vec<UdpSocket>);

impl Walls {
    fn new(world: u32) -> Self {
        // Bound and never read, as behind address translation that drops what comes in.
        Self(
            (0..world)
                .map(|_| UdpSocket::bind("127.0.0.1:0").unwrap())
                .collect(),
        )
    }

    fn members(&self) -> Vec<String> {
        let addresses = self.0.iter().map(|wall| wall.local_addr().unwrap());
        addresses.map(|address| address.to_string()).collect()
    }
}

/// Long enough to see that nobody is reached directly who never is.
const DIRECTLY: Duration = Duration::from_millis(200);

/// What ranks behind walls make of a relay with this token, if each has so long to join.
fn relayed<R: Send>(
    world: u32,
    join: impl Fn(Rank) -> Duration + Sync,
    token: impl Fn(&JobSecret) -> RelayToken,
    program: impl Fn(Result<Group, Error>) -> R + Sync,
) -> Vec<R> {
    let (walls, secret) = (Walls::new(world), JobSecret::generate().unwrap());
    let at = "127.0.0.1:0".parse().unwrap();
    let relay = Relay::bind(at, token(&secret), RelayLimits::default()).unwrap();
    let address = relay.address().to_string();
    // It ends with the test's process.
    thread::spawn(move || relay.run(|_| {}).unwrap());
    let members = walls.members();
    each(Rank::all(world), |rank| {
        let config = GroupConfig::new(members.clone(), rank, secret.clone()).unwrap();
        let config = config
            .with_bind("127.0.0.1:0".parse().unwrap())
            .with_transport(Transport::Quic)
            .with_host(format!("host {rank}"))
            .with_timeouts(Timeouts::default().with_join(join(rank)))
            .with_relay(&address, RelayToken::of(&secret))
            .with_bounds(Bounds {
                directly: DIRECTLY,
                ..Bounds::default()
            });
        program(Group::connect(&config))
    })
}

#[test]
fn ranks_that_do_not_reach_each_other_directly_meet_and_sum_by_a_relay() {
    let elements = 100_000;
    let sums = relayed(
        3,
        |_| PATIENCE,
        RelayToken::of,
        |group| {
            let mut group = group.unwrap();
            group.set_operation_timeout(PATIENCE);
            let mut buffer = vec![1.0_f32 + group.rank().number() as f32; elements];
            group.all_reduce(&mut buffer, ReduceOp::Sum).unwrap();
            group.leave().unwrap();
            buffer
        },
    );
    assert!(sums.iter().flatten().all(|sum| *sum == 6.0));
}

#[test]
fn without_a_relay_they_do_not_meet() {
    let (walls, secret) = (Walls::new(2), JobSecret::generate().unwrap());
    let members = walls.members();
    let errors = each(Rank::all(2), |rank| {
        let config = GroupConfig::new(members.clone(), rank, secret.clone()).unwrap();
        let config = config
            .with_bind("127.0.0.1:0".parse().unwrap())
            .with_timeouts(Timeouts::default().with_join(2 * DIRECTLY));
        Group::connect(&config).unwrap_err()
    });
    for error in errors {
        let not_joined = matches!(error, Error::Join(JoinError::NotJoined { .. }));
        assert!(not_joined, "{error}");
    }
}

#[test]
fn a_relay_with_the_token_of_another_job_is_named_with_what_to_do() {
    let other = |_: &JobSecret| RelayToken::of(&JobSecret::generate().unwrap());
    // Rank 0, which dials nobody, is not what this is about.
    let join = |rank| {
        if rank == Rank::CHIEF {
            DIRECTLY
        } else {
            PATIENCE
        }
    };
    let errors = relayed(2, join, other, Result::unwrap_err);
    let Error::Join(JoinError::RelayRefused { peer, reason, .. }) = &errors[1] else {
        panic!("{}", errors[1])
    };
    assert_eq!((peer.rank(), *reason), (Rank::CHIEF, RelayRefusal::Token));
    assert!(errors[1].to_string().contains("token of another job"));
}

#[test]
fn what_cannot_go_by_a_relay_is_refused_before_anybody_is_asked() {
    let secret = JobSecret::generate().unwrap();
    let token = RelayToken::of(&secret);
    let members = ["127.0.0.1:0", "127.0.0.1:1"];
    let config = GroupConfig::new(members, Rank::CHIEF, secret).unwrap();
    let relay = "127.0.0.1:9";
    let over_tcp = over_tls(config.clone(), Network::default()).with_relay(relay, token.clone());
    let refused = Group::connect(&over_tcp).unwrap_err();
    let expected = ConfigError::RelayCarrier {
        relay: relay.to_owned(),
    };
    assert_eq!(refused.to_string(), expected.to_string());
    let nowhere = config.with_relay("127.0.0.1", token);
    let refused = Group::connect(&nowhere).unwrap_err();
    let is_named =
        matches!(&refused, Error::Join(JoinError::Relay { relay, .. }) if relay == "127.0.0.1");
    assert!(is_named, "{refused}");
}

//! What can be seen on the wire, and who is let in.

use std::net::UdpSocket;
use std::thread;
use std::time::Duration;

use meshwork_collectives::{
    DataTransport, Error, Group, GroupConfig, JobSecret, JoinError, Network, Rank, ReduceOp,
    Timeouts, Transport, UnauthenticatedCause,
};
use meshwork_testing::in_threads;

use crate::relay::Relay;
use crate::worker::{Job, Worker, free_addresses};

/// As bytes, numbers that stand nowhere else.
const PATTERN: &[u8; 16] = b"PLAINTEXTPAYLOAD";

fn payload() -> Vec<u32> {
    let words = PATTERN
        .chunks(4)
        .map(|word| u32::from_le_bytes(word.try_into().unwrap()));
    words.cycle().take(64 * 1024).collect()
}

/// Rank 1 reaches rank 0 through the relay only.
fn through(relay: &Relay, server: &str, secret: &JobSecret, carrier: DataTransport) -> Vec<u32> {
    let members = [relay.address().to_string(), free_addresses(1).remove(0)];
    let config = |rank| {
        GroupConfig::new(members.clone(), Rank::new(rank), secret.clone())
            .unwrap()
            .with_transport(Transport::Quic)
            .with_network(Network::default().with_data_transport(carrier))
    };
    let configs = [config(0).with_bind(server.parse().unwrap()), config(1)];
    let run = |config: &GroupConfig| {
        let mut group = Group::connect(config).unwrap();
        let mut buffer = if group.rank() == Rank::CHIEF {
            payload()
        } else {
            vec![0; 64 * 1024]
        };
        group.broadcast(&mut buffer, Rank::CHIEF).unwrap();
        // Rank 1 adds nothing, so that the same bytes travel back.
        let mut sum = if group.rank() == Rank::CHIEF {
            vec![0; buffer.len()]
        } else {
            buffer.clone()
        };
        group.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
        group.leave().unwrap();
        assert_eq!(sum, buffer);
        buffer
    };
    in_threads(&configs, run).pop().unwrap()
}

#[test]
fn no_payload_and_no_secret_is_readable_on_the_wire() {
    for carrier in [DataTransport::Quic, DataTransport::Tls] {
        nothing_is_readable(carrier);
    }
}

fn nothing_is_readable(carrier: DataTransport) {
    let server = free_addresses(1).remove(0);
    let relay = Relay::to(server.parse().unwrap());
    let secret = JobSecret::generate().unwrap();
    assert_eq!(through(&relay, &server, &secret, carrier), payload());
    let bytes: usize = relay.captured().iter().map(Vec::len).sum();
    assert!(
        bytes > 2 * 4 * payload().len(),
        "only {bytes} bytes went through the relay"
    );
    // Neither the numbers, in any rotation a packet may begin with, nor the frames around them.
    for start in 0..PATTERN.len() {
        let rotated: Vec<u8> = PATTERN
            .iter()
            .cycle()
            .skip(start)
            .take(8)
            .copied()
            .collect();
        assert_eq!(
            relay.sightings(&rotated),
            0,
            "{:?} is on the wire",
            String::from_utf8_lossy(&rotated)
        );
    }
    for text in [
        "MSHW",
        secret.to_hex().as_str(),
        secret.job().as_str(),
        "meshwork.invalid",
    ] {
        assert_eq!(
            relay.sightings(text.as_bytes()),
            0,
            "{text:?} is on the wire"
        );
    }
}

#[test]
fn operations_complete_while_a_caller_s_address_changes() {
    let server = free_addresses(1).remove(0);
    let relay = Relay::moving(server.parse().unwrap(), 30);
    let secret = JobSecret::generate().unwrap();
    let before = relay.moves();
    for _ in 0..3 {
        let told = through(&relay, &server, &secret, DataTransport::Quic);
        assert_eq!(told, payload());
    }
    let moves = relay.moves() - before;
    assert!(moves >= 3, "only {moves} changes of the address");
}

#[test]
fn the_capture_would_see_plain_text() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let relay = Relay::to(server.local_addr().unwrap());
    let caller = UdpSocket::bind("127.0.0.1:0").unwrap();
    caller.send_to(&PATTERN.repeat(8), relay.address()).unwrap();
    let mut buffer = [0; 200];
    let (len, _) = server.recv_from(&mut buffer).unwrap();
    assert_eq!(len, 128);
    assert_eq!(relay.sightings(&PATTERN[3..11]), 1);
}

#[test]
fn a_process_with_another_secret_is_refused_by_name_and_the_others_say_who_knocked() {
    let job = Job::new(2);
    let mut honest = job.command(0, &[]);
    honest.env("MESHWORK_JOIN_TIMEOUT", "2");
    let mut stranger = job.command(1, &[]);
    stranger.env(
        JobSecret::ENV,
        JobSecret::generate().unwrap().to_hex().as_str(),
    );
    let [honest, stranger] = [honest, stranger].map(Worker::start);
    let (zero, one) = (&job.addresses[0], &job.addresses[1]);
    stranger.end().failed_naming(&[
        &format!("rank 0 ({zero}) belongs to another job"),
        "MESHWORK_JOB_SECRET",
    ]);
    let join_requested = format!("the process at {one} holds another job secret");
    honest.end().failed_naming(&[
        &format!("rank 1 ({one}) did not join within 2.0s"),
        &join_requested,
    ]);
}

#[test]
fn a_stranger_that_knocks_at_a_running_job_is_logged_once_and_changes_nothing() {
    let job = Job::new(2);
    let commands = [0, 1].map(|rank| job.command(rank, &["--verbose", "--epochs=1000000"]));
    let mut workers = commands.map(Worker::start_merged);
    for worker in &mut workers {
        worker.reaches("step 3 ");
    }
    let own = free_addresses(1).remove(0);
    for _ in 0..5 {
        let members = [job.addresses[0].clone(), own.clone()];
        let secret = JobSecret::generate().unwrap();
        let config = GroupConfig::new(members, Rank::new(1), secret).unwrap();
        let refused = Group::connect(&config).unwrap_err();
        assert!(
            matches!(refused, Error::Join(JoinError::OtherJob { .. })),
            "{refused}"
        );
    }
    // Both still make steps.
    workers[1].reaches("step ");
    workers[0].kill();
    let ended = workers.into_iter().next().unwrap().end();
    let told = ended.lines.iter();
    let told = told.filter(|line| line.contains("holds another job secret"));
    assert_eq!(told.count(), 1);
}

#[test]
fn a_relay_between_two_jobs_brings_nobody_into_the_other() {
    let server = free_addresses(1).remove(0);
    let relay = Relay::to(server.parse().unwrap());
    let run = |rank: u32, front: &str, secret: JobSecret| {
        let members = [front.to_owned(), free_addresses(1).remove(0)];
        let config = GroupConfig::new(members, Rank::new(rank), secret).unwrap();
        let short = Timeouts::default().with_join(Duration::from_secs(2));
        Group::connect(&config.with_timeouts(short)).unwrap_err()
    };
    let secrets = [(); 2].map(|()| JobSecret::generate().unwrap());
    let front = relay.address().to_string();
    let [waits, calls] = thread::scope(|scope| {
        let [mine, others] = secrets;
        let ranks = [
            scope.spawn(|| run(0, &server, mine)),
            scope.spawn(|| run(1, &front, others)),
        ];
        ranks.map(|rank| rank.join().unwrap())
    });
    assert!(
        matches!(calls, Error::Join(JoinError::OtherJob { .. })),
        "{calls}"
    );
    let Error::Join(JoinError::NotJoined { refused, .. }) = &waits else {
        panic!("{waits}")
    };
    assert_eq!(refused[0].cause(), UnauthenticatedCause::OtherJob);
}

#[test]
fn packets_that_are_sent_again_by_somebody_else_change_nothing() {
    let server = free_addresses(1).remove(0);
    let relay = Relay::to(server.parse().unwrap());
    let secret = JobSecret::generate().unwrap();
    let members = [relay.address().to_string(), free_addresses(1).remove(0)];
    let run = |rank: u32| {
        let config = GroupConfig::new(members.clone(), Rank::new(rank), secret.clone()).unwrap();
        let config = config.with_transport(Transport::Quic);
        let mut group = Group::connect(&match rank {
            0 => config.with_bind(server.parse().unwrap()),
            _ => config,
        })
        .unwrap();
        for turn in 0..6_u32 {
            let mut buffer = vec![turn + rank; 2000];
            group.all_reduce(&mut buffer, ReduceOp::Sum).unwrap();
            assert_eq!(buffer, vec![2 * turn + 1; 2000]);
            if rank == 1 {
                // The handshake and all that followed, from an address of its own.
                let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
                for packet in relay.captured() {
                    for member in [&server, &members[1]] {
                        socket.send_to(&packet, member).unwrap();
                    }
                }
            }
        }
        group.leave().unwrap();
    };
    in_threads([0, 1], run);
}

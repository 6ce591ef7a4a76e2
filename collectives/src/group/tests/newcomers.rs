//! Processes that nobody has listed come into a group that runs, and those who may not do not.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::runtime::Runtime;

use super::*;
use crate::identity::{Identity, Role};
use crate::quic::host_digest;
use crate::wire::{
    JoinRequest, MESSAGE_HEAD_BYTES, MemberProcess, Message, MessageHead, Newcomer, VERSION,
};

/// A job that begins with two members.
struct Job {
    members: Vec<String>,
    secret: JobSecret,
    over: Over,
}

impl Job {
    fn new(over: Over, founders: usize) -> Self {
        Self {
            members: free_addresses(founders),
            secret: JobSecret::generate().unwrap(),
            over,
        }
    }

    fn configured(&self, config: GroupConfig) -> GroupConfig {
        match self.over {
            Over::Local | Over::Memory => config,
            Over::Hosts => config.with_host("a"),
            Over::Quic => config.with_transport(Transport::Quic),
            Over::Tls => over_tls(config, Network::default()),
        }
    }

    fn founder(&self, rank: Rank, most: u32) -> Group {
        let config = config(&self.members, rank, &self.secret);
        let founders = u32::try_from(self.members.len()).unwrap();
        let config = config.with_workers(founders, most).unwrap();
        Group::connect(&self.configured(config)).unwrap()
    }

    /// One that knows the address of one member only.
    fn newcomer(&self, secret: &JobSecret) -> GroupConfig {
        let seeds = self.members.iter().rev().take(1);
        let timeouts = Timeouts::default().with_join(PATIENCE);
        let config = GroupConfig::newcomer(seeds, secret.clone()).unwrap();
        self.configured(config.with_timeouts(timeouts))
    }

    /// Runs founders and newcomers until there are `world` of them.
    fn grows(&self, newcomers: u32, most: u32) -> Vec<Group> {
        let founders = u32::try_from(self.members.len()).unwrap();
        let world = founders + newcomers;
        each(0..world, |number| {
            let mut group = match number < founders {
                true => self.founder(Rank::new(number), most),
                false => Group::rejoin(&self.newcomer(&self.secret)).unwrap(),
            };
            while group.world() < world {
                group.grow().unwrap();
            }
            group
        })
    }
}

/// Every rank contributes its own number, and all are counted.
#[track_caller]
fn reduces(group: &mut Group) {
    let world = group.world();
    let mut sum = [u64::from(group.rank().number())];
    group.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
    assert_eq!(sum[0], u64::from(world * (world - 1) / 2));
}

#[test]
fn newcomers_that_nobody_listed_come_in_and_take_part() {
    for over in [Over::Memory, Over::Hosts, Over::Quic, Over::Tls] {
        let job = Job::new(over, 2);
        let groups = job.grows(3, 5);
        let mut ranks: Vec<u32> = groups.iter().map(|group| group.rank().number()).collect();
        // Founders keep their places.
        assert_eq!(ranks[..2], [0, 1]);
        ranks.sort_unstable();
        assert_eq!(ranks, [0, 1, 2, 3, 4]);
        each(groups, |mut group| {
            // Two, and two at the most with them, and one.
            assert!(group.epoch().number() >= 3 && group.epoch().survivors() >= 3);
            assert!(
                group
                    .members()
                    .iter()
                    .all(|member| member.address().contains(':'))
            );
            reduces(&mut group);
            group.leave().unwrap();
        });
    }
}

#[test]
fn one_that_is_alone_is_joined_by_others() {
    let job = Job::new(Over::Memory, 1);
    each(job.grows(2, 3), |mut group| {
        reduces(&mut group);
        group.leave().unwrap();
    });
}

#[test]
fn those_listed_behind_the_founders_come_later_in_their_own_name() {
    let (members, secret) = (free_addresses(3), JobSecret::generate().unwrap());
    each(Rank::all(3), |rank| {
        let config = config(&members, rank, &secret).with_workers(2, 3).unwrap();
        let mut group = match config.is_founder() {
            true => Group::connect(&config).unwrap(),
            false => {
                let refused = Group::connect(&config).err();
                let founders = 2;
                let expected = Error::Join(JoinError::NotAFounder { rank, founders });
                assert_eq!(refused, Some(expected));
                Group::rejoin(&config).unwrap()
            }
        };
        while group.world() < 3 {
            group.grow().unwrap();
        }
        let last = &group.members()[2];
        assert_eq!(last.address(), members[2]);
        reduces(&mut group);
        group.leave().unwrap();
    });
}

#[test]
fn a_member_that_came_in_later_is_gone_without_and_others_come_in_its_stead() {
    let job = Job::new(Over::Quic, 2);
    let mut groups = job.grows(2, 4);
    groups.sort_by_key(Group::rank);
    // It came in last, and ends without a word.
    drop(groups.pop());
    let mut groups = each(groups, |mut group| {
        assert!(group.barrier().unwrap_err().is_loss());
        group.shrink().unwrap();
        group
    });
    thread::scope(|scope| {
        let late = scope.spawn(|| Group::rejoin(&job.newcomer(&job.secret)).unwrap());
        groups = each(std::mem::take(&mut groups), |mut group| {
            while group.world() < 4 {
                group.grow().unwrap();
            }
            group
        });
        groups.push(late.join().unwrap());
    });
    each(groups, |mut group| {
        reduces(&mut group);
        group.leave().unwrap();
    });
}

/// Runs `attempt` beside a group of two that has room and looks for newcomers all the time; none
/// comes in.
fn beside(most: u32, attempt: impl FnOnce(&Job) + Send) {
    let job = Job::new(Over::Quic, 2);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for rank in Rank::all(2) {
            let (job, over) = (&job, &over);
            scope.spawn(move || {
                let mut group = job.founder(rank, most);
                let mut ends = [0_u8];
                while ends == [0] {
                    group.grow().unwrap();
                    ends = [u8::from(over.load(Ordering::SeqCst))];
                    group.broadcast(&mut ends, Rank::CHIEF).unwrap();
                }
                assert_eq!((group.world(), group.epoch().number()), (2, 1));
                group.leave().unwrap();
            });
        }
        // Even if the attempt comes to something else than it should.
        let _end = Ends(&over);
        attempt(&job);
    });
}

struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_newcomer_of_another_job_is_refused_at_once_and_disturbs_nobody() {
    beside(5, |job| {
        let config = job.newcomer(&JobSecret::generate().unwrap());
        let refused = Group::rejoin(&config).unwrap_err();
        let seed = job.members[1].parse().unwrap();
        assert_eq!(refused, Error::Join(JoinError::SeedOfOtherJob { seed }));
    });
}

#[test]
fn a_newcomer_that_runs_another_program_is_refused_at_once_and_disturbs_nobody() {
    beside(5, |job| {
        let config = job.newcomer(&job.secret).with_program("another");
        let refused = Group::rejoin(&config).unwrap_err();
        let seed = job.members[1].parse().unwrap();
        let reason = Refusal::Program;
        assert_eq!(refused, Error::Join(JoinError::Denied { seed, reason }));
    });
}

#[test]
fn a_group_that_has_all_its_members_lets_nobody_in_and_says_so() {
    beside(2, |job| {
        let timeouts = Timeouts::default().with_join(Duration::from_secs(1));
        let config = job.newcomer(&job.secret).with_timeouts(timeouts);
        let refused = Group::rejoin(&config).unwrap_err();
        let waited = Duration::from_secs(1);
        let expected = Error::Join(JoinError::Full { most: 2, waited });
        assert_eq!(refused, expected);
    });
}

/// Somebody's endpoint, and what it runs in.
fn listens(secret: &JobSecret, rank: Rank, address: &str) -> (Runtime, quinn::Endpoint) {
    let mut runtime = Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
    let identity = Identity::new(secret, Role::Rank(rank)).unwrap();
    let server = quinn::ServerConfig::with_crypto(identity.server());
    let endpoint = {
        let _runtime = runtime.enter();
        quinn::Endpoint::server(server, address.parse().unwrap()).unwrap()
    };
    (runtime, endpoint)
}

/// A process of another job or rank, which counts who calls it.
async fn turns_away(endpoint: quinn::Endpoint, callers: Arc<AtomicUsize>) {
    while let Some(incoming) = endpoint.accept().await {
        callers.fetch_add(1, Ordering::SeqCst);
        assert!(incoming.await.is_err());
    }
}

/// One of its seeds is another job's by now; the other is a member that waits for a third, which is
/// still at work, to agree on the next epoch.
#[test]
fn a_newcomer_that_a_stranger_turns_away_waits_for_members_that_are_between_epochs() {
    let (job, turned_away) = (Job::new(Over::Quic, 3), Arc::new(AtomicUsize::new(0)));
    let stranger = free_addresses(1).remove(0);
    let other = JobSecret::generate().unwrap();
    let (runtime, endpoint) = listens(&other, Rank::CHIEF, &stranger);
    runtime.spawn(turns_away(endpoint, turned_away.clone()));
    let mut groups = each(Rank::all(3), |rank| job.founder(rank, 3));
    // It ends without a word.
    drop(groups.pop());
    let groups = each(groups, |mut group| {
        assert!(group.barrier().unwrap_err().is_loss());
        group
    });
    let seeds = [stranger, job.members[0].clone()];
    let config = GroupConfig::newcomer(seeds, job.secret.clone()).unwrap();
    let config = job.configured(config.with_timeouts(Timeouts::default().with_join(PATIENCE)));
    let (begins, begun) = mpsc::channel();
    thread::scope(|scope| {
        let (config, turned_away) = (&config, &turned_away);
        let newcomer = scope.spawn(move || {
            begun.recv().unwrap();
            let newcomer = Group::rejoin(config);
            // Whoever waits to see it turned away does not wait for ever.
            turned_away.fetch_add(1000, Ordering::SeqCst);
            newcomer.unwrap()
        });
        let mut groups = each(groups, |mut group| {
            match group.rank() {
                Rank::CHIEF => begins.send(()).unwrap(),
                _ => {
                    while turned_away.load(Ordering::SeqCst) < 5 {
                        thread::yield_now();
                    }
                }
            }
            group.shrink().unwrap();
            while group.world() < 3 {
                group.grow().unwrap();
            }
            group
        });
        groups.push(newcomer.join().unwrap());
        each(groups, |mut group| {
            reduces(&mut group);
            group.leave().unwrap();
        });
    });
}

/// Answers whoever asks as a member of another release would.
async fn answer_as(endpoint: quinn::Endpoint, version: u8) {
    while let Some(incoming) = endpoint.accept().await {
        let connection = incoming.await.unwrap();
        let (mut send, mut receive) = connection.accept_bi().await.unwrap();
        let mut head = [0; MESSAGE_HEAD_BYTES];
        receive.read_exact(&mut head).await.unwrap();
        let refusal = Message::Refusal(Refusal::Members.into());
        let mut bytes = refusal.encode();
        bytes[4] = version;
        send.write_all(&bytes).await.unwrap();
        connection.closed().await;
    }
}

#[test]
fn a_newcomer_of_another_release_is_told_both_versions() {
    let (address, secret) = (free_addresses(1).remove(0), JobSecret::generate().unwrap());
    let (runtime, endpoint) = listens(&secret, Rank::CHIEF, &address);
    runtime.spawn(answer_as(endpoint, VERSION + 1));
    let config = GroupConfig::newcomer([address.clone()], secret).unwrap();
    let refused = Group::rejoin(&config).unwrap_err();
    let reason = Refusal::Version {
        expected: VERSION + 1,
        found: VERSION,
    };
    let seed = address.parse().unwrap();
    assert_eq!(refused, Error::Join(JoinError::Denied { seed, reason }));
}

/// Where the list has rank 0, another member listens by now.
#[test]
fn who_rejoins_and_finds_another_rank_than_the_list_names_is_told_so() {
    let (members, secret) = (free_addresses(2), JobSecret::generate().unwrap());
    let (runtime, endpoint) = listens(&secret, Rank::new(7), &members[0]);
    runtime.spawn(turns_away(endpoint, Arc::default()));
    let refused = Group::rejoin(&config(&members, Rank::new(1), &secret)).unwrap_err();
    let seed = members[0].parse().unwrap();
    assert_eq!(refused, Error::Join(JoinError::SeedOfOtherRank { seed }));
}

#[test]
fn a_newcomer_that_nobody_answers_names_whom_it_asked() {
    let (asked, waited) = (free_addresses(2), Duration::from_millis(300));
    let config = GroupConfig::newcomer(&asked, JobSecret::generate().unwrap()).unwrap();
    let config = config.with_timeouts(Timeouts::default().with_join(waited));
    let refused = Group::rejoin(&config).unwrap_err();
    assert!(refused.is_retryable(), "{refused}");
    let nobody = JoinError::NobodyAnswered { asked, waited };
    assert_eq!(refused, Error::Join(nobody));
}

#[test]
fn who_is_alone_in_its_list_has_nobody_to_ask() {
    let (members, secret) = (free_addresses(1), JobSecret::generate().unwrap());
    let timeouts = Timeouts::default().with_join(Duration::from_millis(300));
    let config = config(&members, Rank::CHIEF, &secret).with_timeouts(timeouts);
    let refused = Group::rejoin(&config).unwrap_err();
    assert_eq!(refused, Error::Join(JoinError::NobodyToAsk));
}

#[test]
fn seeds_that_are_no_addresses_are_named() {
    let secret = JobSecret::generate().unwrap();
    let config = GroupConfig::newcomer(["not an address"], secret).unwrap();
    let refused = Group::rejoin(&config).unwrap_err().to_string();
    assert!(
        refused.contains("none of the seeds not an address"),
        "{refused}"
    );
}

/// Asks to be let in as a newcomer that never joins, and is this process of the system at this
/// address; returns once the group has decided that it comes in.
async fn asks_and_never_joins(job: &Job, process_id: u32, address: String) {
    let process = MemberProcess {
        member_id: 7777,
        incarnation: 1,
    };
    let newcomer = Newcomer {
        process_id,
        host: host_digest(&crate::host::host()),
        ..Newcomer::at(process, address)
    };
    let request = Message::JoinRequest(JoinRequest {
        epoch: 0,
        newcomer,
        program: [0; 16],
        restarts: 0,
    });
    let role = Role::Rank(Rank::new(process.member_id));
    let identity = Identity::new(&job.secret, role).unwrap();
    let any = "127.0.0.1:0".parse().unwrap();
    let endpoint = quinn::Endpoint::client(any).unwrap();
    let name = identity.server_name(Role::Member).unwrap();
    loop {
        let client = quinn::ClientConfig::new(identity.client());
        let seed = job.members[0].parse().unwrap();
        let connecting = endpoint.connect_with(client, seed, &name.to_str());
        // Between two epochs nobody answers.
        let Ok(connection) = connecting.unwrap().await else {
            continue;
        };
        let Ok((mut send, mut receive)) = connection.open_bi().await else {
            continue;
        };
        let _ = send.write_all(&request.encode()).await;
        if let Ok(answer) = receive.read_to_end(1 << 20).await
            && spoken_in(&answer)
        {
            return;
        }
    }
}

/// Whether a decision is among these messages.
fn spoken_in(mut bytes: &[u8]) -> bool {
    while let Some((head, rest)) = bytes.split_first_chunk() {
        let head = MessageHead::decode(head).unwrap();
        let (body, rest) = rest.split_at(head.length());
        if let Message::Spoken(_) = Message::decode(head, body).unwrap() {
            return true;
        }
        bytes = rest;
    }
    false
}

/// A founder that lets a newcomer in and loses it; when it knew.
fn outlives_a_newcomer(job: &Job, rank: Rank) -> Instant {
    let mut group = job.founder(rank, 3);
    let lost = loop {
        if let Err(error) = group.grow() {
            break error;
        }
    };
    let known = Instant::now();
    assert!(lost.is_loss(), "{lost}");
    group.shrink().unwrap();
    assert_eq!((group.world(), group.epoch().number()), (2, 3));
    reduces(&mut group);
    group.leave().unwrap();
    known
}

/// When each of two founders knows that a newcomer has ended which never joins, and is this process
/// of the system. Once it is let in, `ends` takes its port, and says when it has ended.
fn known_and_ended(
    process_id: u32,
    ends: impl FnOnce(UdpSocket) -> Instant,
) -> (Vec<Instant>, Instant) {
    let job = Job::new(Over::Quic, 2);
    let listening = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = listening.local_addr().unwrap().to_string();
    thread::scope(|scope| {
        let founders = Rank::all(2).map(|rank| {
            let job = &job;
            scope.spawn(move || outlives_a_newcomer(job, rank))
        });
        let founders: Vec<_> = founders.collect();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let asks = asks_and_never_joins(&job, process_id, address);
        let admitted = runtime.block_on(async { tokio::time::timeout(PATIENCE, asks).await });
        admitted.expect("it is admitted in time");
        let ended = ends(listening);
        let known = founders.into_iter().map(|founder| founder.join().unwrap());
        (known.collect(), ended)
    })
}

#[test]
fn a_newcomer_that_dies_while_it_joins_costs_the_others_no_time_to_join() {
    let mut dying = std::process::Command::new("sleep")
        .arg("1000")
        .spawn()
        .unwrap();
    let (known, died) = known_and_ended(dying.id(), |listening| {
        // Where the kernel tells of no process, a port that nobody has is the end of a newcomer.
        drop(listening);
        dying.kill().unwrap();
        let died = Instant::now();
        dying.wait().unwrap();
        died
    });
    for known in known {
        let took = known.saturating_duration_since(died);
        assert!(took < PATIENCE / 2, "{took:?}");
    }
}

/// As one is on a copy of a running machine, which has the name of the other.
#[test]
fn a_newcomer_that_is_no_process_of_this_kernel_lives_as_long_as_its_port_is_open() {
    let mut ended = std::process::Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    let (known, closed) = known_and_ended(ended.id(), |listening| {
        is_asked(&listening);
        Instant::now()
    });
    for known in known {
        let took = known.checked_duration_since(closed);
        assert!(took.is_some_and(|took| took < PATIENCE / 2), "{took:?}");
    }
}

/// Waits for one of the datagrams that ask whether somebody listens; what came before does not
/// count.
fn is_asked(listening: &UdpSocket) {
    let mut buffer = [0; 2048];
    listening.set_nonblocking(true).unwrap();
    while listening.recv(&mut buffer).is_ok() {}
    listening.set_nonblocking(false).unwrap();
    listening.set_read_timeout(Some(PATIENCE)).unwrap();
    while listening.recv(&mut buffer).expect("its port is asked") != 1 {}
}

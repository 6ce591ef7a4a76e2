//! `meshwork relay`: workers that do not reach each other train by it, and say so when it ends.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot set the scene has failed"
)]

#[path = "run/harness.rs"]
#[expect(dead_code, reason = "other tests need all of it")]
mod harness;

use std::env;
use std::io::{self, Write};
use std::net::UdpSocket;
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command};
use std::time::Duration;

use harness::{Running, meshwork};
use meshwork_collectives::{Group, GroupConfig, JobSecret, Rank, RelayToken, Timeouts, Transport};
use meshwork_strategy::MultiWorkerMirroredStrategy;
use meshwork_strategy::low_communication::{LowCommunication, OuterOptimizer};
use rustix::process::Signal;

/// Tells this program that it is a worker: its rank, the members, and its inner steps.
const WORKER: &str = "MESHWORK_TEST_RELAYED";
/// Enough to be killed meanwhile.
const ENDLESS: u64 = 1_000_000_000;

/// What each rank runs.
#[test]
fn worker() {
    let Ok(told) = env::var(WORKER) else { return };
    let told: Vec<&str> = told.split(' ').collect();
    let [rank, members, steps] = told[..] else {
        panic!("{told:?}")
    };
    let rank = Rank::new(rank.parse().unwrap());
    let config = GroupConfig::new(members.split(','), rank, JobSecret::from_env().unwrap());
    let config = config
        .unwrap()
        .with_environment()
        .unwrap()
        // Not where others look for it, and as if on a host of its own.
        .with_bind("127.0.0.1:0".parse().unwrap())
        .with_host(format!("host {rank}"))
        .with_transport(Transport::Quic);
    let trained = Group::connect(&config).map_err(Into::into);
    match trained.and_then(|group| train(group, steps.parse().unwrap())) {
        Ok(far) => eprintln!("trained, {far:.3} from what there is to be learned"),
        Err(error) => eprintln!("error: {error}"),
    }
}

fn train(group: Group, steps: u64) -> Result<f32, meshwork_strategy::Error> {
    let mut strategy = MultiWorkerMirroredStrategy::from_group(group)?;
    let mut own = vec![1.0_f32; 1000];
    let settings = LowCommunication::new(NonZeroU32::new(10).unwrap());
    let mut outer = OuterOptimizer::new(&mut strategy, settings, &[1000], &own)?;
    while outer.steps() < steps {
        for one in &mut own {
            *one -= 0.05 * (*one - 2.5 - strategy.rank().number() as f32);
        }
        outer.step(&mut strategy, &mut own)?;
        if outer.outer_steps() == 3 {
            let _ = writeln!(io::stderr(), "three exchanges");
        }
    }
    outer.finish(&mut strategy, &mut own)?;
    strategy.leave()?;
    Ok((own[0] - 3.0).abs())
}

/// A relay, and two workers behind ports at which nothing arrives.
struct Job {
    secret: JobSecret,
    relay: Running,
    address: String,
    walls: [UdpSocket; 2],
}

impl Job {
    fn new() -> Self {
        let secret = JobSecret::generate().unwrap();
        let token = RelayToken::of(&secret);
        let mut command = meshwork(&["relay", "--listen", "127.0.0.1:0"]);
        let relay = Running::start(command.env(RelayToken::ENV, token.to_hex().as_str()));
        let line = relay.says("meshwork relay: listens on ");
        let (_, address) = line.split_once("listens on ").unwrap();
        Self {
            secret,
            address: address.to_owned(),
            relay,
            walls: [0, 1].map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()),
        }
    }

    fn worker(&self, rank: usize, steps: u64) -> Running {
        let members = self.walls.each_ref().map(|wall| wall.local_addr().unwrap());
        let [one, other] = members;
        let mut command = Command::new(env::current_exe().unwrap());
        command
            .args(["--exact", "worker", "--nocapture"])
            .env(WORKER, format!("{rank} {one},{other} {steps}"))
            .env(JobSecret::ENV, self.secret.to_hex().as_str())
            .env(GroupConfig::RELAY_ENV, &self.address)
            .env(Timeouts::JOIN_ENV, "20");
        Running::start(&mut command)
    }
}

#[test]
fn workers_that_do_not_reach_each_other_train_by_a_relay_and_say_so_in_a_line() {
    let job = Job::new();
    let workers = [0, 1].map(|rank| job.worker(rank, 200));
    for (worker, other) in workers.into_iter().zip([1, 0]) {
        let line = worker.says("not reached directly");
        let named = format!("by the relay {}, sealed", job.address);
        assert!(line.contains(&format!("rank {other} (")), "{line}");
        assert!(line.ends_with(&named), "{line}");
        let line = worker.says("trained, ");
        assert!(line.contains("trained, 0.0"), "{line}");
        assert_eq!(worker.end().status, Some(0));
    }
    // In either order, each once.
    let mut told = [0, 1].map(|_| job.relay.says(" is at 127.0.0.1:"));
    told.sort();
    assert!(
        told[0].contains("member 0") && told[1].contains("member 1"),
        "{told:?}"
    );
}

#[test]
fn a_relay_that_dies_is_named_before_the_workers_that_it_took_with_it() {
    let job = Job::new();
    let workers = [0, 1].map(|rank| job.worker(rank, ENDLESS));
    for worker in &workers {
        worker.says("three exchanges");
    }
    job.relay.signal(Signal::KILL);
    for (worker, other) in workers.into_iter().zip([1, 0]) {
        let line = worker.says("does not answer");
        assert!(
            line.contains(&format!("the relay {}", job.address)),
            "{line}"
        );
        let line = worker.says("error: ");
        assert!(line.contains(&format!("rank {other} (")), "{line}");
    }
}

#[test]
fn a_relay_without_a_token_says_where_to_get_one_and_a_token_is_of_its_job() {
    let mut command = meshwork(&["relay", "--listen", "127.0.0.1:0"]);
    let ended = harness::run(command.env_remove(RelayToken::ENV));
    assert_eq!(ended.status, Some(1));
    assert!(
        ended.verdict().contains("`meshwork relay-token`"),
        "{}",
        ended.verdict()
    );
    let secret = JobSecret::generate().unwrap();
    let mut command = meshwork(&["relay-token"]);
    let ended = harness::run(command.env(JobSecret::ENV, secret.to_hex().as_str()));
    let printed = String::from_utf8(ended.stdout).unwrap();
    assert_eq!(printed.trim_end(), *RelayToken::of(&secret).to_hex());
}

/// A command that runs, and the two ends of its standard error.
struct Spawned {
    child: Child,
    ours: UnixDatagram,
    theirs: UnixDatagram,
}

impl Spawned {
    fn new(mut command: Command) -> Self {
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        ours.set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        let stderr = OwnedFd::from(theirs.try_clone().unwrap());
        let child = command.stderr(stderr).spawn().unwrap();
        Self {
            child,
            ours,
            theirs,
        }
    }

    /// What it writes by one call.
    fn write(&self) -> String {
        let mut written = [0; 4096];
        let len = self.ours.recv(&mut written).unwrap();
        String::from_utf8_lossy(&written[..len]).into_owned()
    }

    /// What it writes from now on waits for a reader.
    fn fill(&self) {
        self.theirs.set_nonblocking(true).unwrap();
        while self.theirs.send(b"full").is_ok() {}
        self.theirs.set_nonblocking(false).unwrap();
    }
}

impl Drop for Spawned {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_relay_whose_lines_nobody_reads_answers_all_the_same() {
    let mut relay = meshwork(&["relay", "--listen", "127.0.0.1:0"]);
    let token = RelayToken::of(&JobSecret::generate().unwrap());
    relay.env(RelayToken::ENV, token.to_hex().as_str());
    let relay = Spawned::new(relay);
    let line = relay.write();
    let (_, address) = line.trim_end().split_once("listens on ").unwrap();
    relay.fill();
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    stranger.connect(address).unwrap();
    stranger
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let answer = |datagram: &[u8]| {
        let mut answer = [0; 64];
        stranger.send(datagram).unwrap();
        let len = stranger.recv(&mut answer).expect("an answer");
        answer[..len].to_vec()
    };
    // A hello, and then a register with the cookie of its answer, for which it has no proof.
    let challenge = answer(&[&b"mw1\x01"[..], &[0; 44]].concat());
    let register = [&b"mw1\x03"[..], &[0; 20], &challenge[20..], &[0; 32]].concat();
    for _ in 0..100 {
        assert!(answer(&register).starts_with(b"mw1\x06"), "it is refused");
    }
}

#[test]
fn lines_are_written_whole_so_that_those_of_others_do_not_cut_them() {
    let complaint = Spawned::new(meshwork(&["relay-token"])).write();
    assert!(
        complaint.starts_with("meshwork relay-token: "),
        "{complaint}"
    );
    assert!(complaint.ends_with('\n'), "{complaint}");
    let mut relay = meshwork(&["relay", "--listen", "127.0.0.1:0"]);
    let token = RelayToken::of(&JobSecret::generate().unwrap());
    relay.env(RelayToken::ENV, token.to_hex().as_str());
    let line = Spawned::new(relay).write();
    assert!(
        line.starts_with("meshwork relay: listens on 127.0.0.1:") && line.ends_with('\n'),
        "{line}"
    );
}

#[test]
fn a_relay_for_no_rank_is_refused() {
    let mut command = meshwork(&["relay", "--listen", "127.0.0.1:0", "--ranks", "0"]);
    let ended = harness::run(command.env_remove(RelayToken::ENV));
    assert_eq!(ended.status, Some(2));
    assert!(ended.stderr.contains("--ranks"), "{}", ended.stderr);
}

//! Workers in networks of their own: one gets another address in the middle of an exchange, and
//! links are slower in one direction than in the other.

use std::env;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use meshwork_collectives::{
    GroupConfig, JobSecret, Relay, RelayLimits, RelayToken, Timeouts, Transport,
};
use meshwork_testing::{Need, in_threads};

use crate::namespaces::Namespaces;
use crate::worker::{Ended, Worker, tf_config};

/// Workers that train over slow links, each where its namespace is; the higher rank dials the
/// lower.
struct Job<'a> {
    namespaces: &'a Namespaces,
    secret: JobSecret,
    addresses: Vec<String>,
    relay: Option<String>,
}

impl<'a> Job<'a> {
    fn new(namespaces: &'a Namespaces) -> Self {
        Self {
            namespaces,
            secret: JobSecret::generate().unwrap(),
            addresses: namespaces.addresses(),
            relay: None,
        }
    }

    /// With that worker at another address in the list.
    fn with_address(mut self, rank: usize, address: &str) -> Self {
        address.clone_into(&mut self.addresses[rank]);
        self
    }

    fn workers(&self, more: &[&str]) -> Vec<Worker> {
        let program = Path::new(env!("CARGO_BIN_EXE_diloco"));
        let start = |rank| {
            let mut command = self.namespaces.command(rank, program);
            command
                .args(more)
                .env("TF_CONFIG", tf_config(&self.addresses, rank))
                .env(JobSecret::ENV, self.secret.to_hex().as_str())
                .env(Transport::ENV, "quic")
                .env(Timeouts::JOIN_ENV, "40");
            if let Some(relay) = &self.relay {
                command.env(GroupConfig::RELAY_ENV, relay);
            }
            Worker::start_merged(command)
        };
        (0..self.addresses.len()).map(start).collect()
    }

    /// Starts a relay where the first worker is.
    fn by_relay(mut self) -> (Self, Worker) {
        let program = env::current_exe().unwrap();
        let mut command: Command = self.namespaces.command(0, &program);
        command
            .args(["--exact", "roaming::relay", "--nocapture"])
            .env(RELAYS, "10.0.0.1:0")
            .env(
                RelayToken::ENV,
                RelayToken::of(&self.secret).to_hex().as_str(),
            );
        let mut relay = Worker::start_merged(command);
        let line = relay.reaches("relays at ");
        let at = line.split_once("relays at ").map(|(_, at)| at.to_owned());
        self.relay = at;
        (self, relay)
    }
}

/// Says to this program that it is a relay, and where.
const RELAYS: &str = "MESHWORK_TEST_RELAYS_AT";

/// What a job starts in a namespace, and no test.
#[test]
fn relay() {
    let Ok(at) = env::var(RELAYS) else { return };
    let token = RelayToken::from_env().unwrap().unwrap();
    let relay = Relay::bind(at.parse().unwrap(), token, RelayLimits::default()).unwrap();
    let mut out = std::io::stdout();
    writeln!(out, "relays at {}", relay.address()).unwrap();
    let Err(error) = relay.run(|event| drop(writeln!(out, "{event}")));
    panic!("{error}");
}

/// Another address for a worker, three times, each in the middle of an exchange.
fn moves(namespaces: &Namespaces, worker: &mut Worker, rank: usize) {
    for (round, host) in [(20, 12), (40, 13), (60, 14)] {
        worker.reaches(&format!("step {round} "));
        moves_to(namespaces, rank, host);
    }
}

fn moves_to(namespaces: &Namespaces, rank: usize, host: u8) {
    let lines = format!("addr flush dev eth0\naddr add 10.0.0.{host}/24 dev eth0\n");
    namespaces.change(rank, &lines).unwrap();
}

/// All have ended well, as many as these, with the same.
#[track_caller]
fn end_alike(workers: Vec<Worker>) {
    let fewer: Vec<String> = (1..workers.len())
        .map(|workers| format!(" of {workers} workers"))
        .collect();
    let trained = |ended: &Ended| {
        assert!(ended.status.success(), "{:?}", ended.lines);
        let is_lost = |line: &&String| fewer.iter().any(|fewer| line.contains(fewer));
        let lost = ended.lines.iter().find(is_lost);
        assert_eq!(lost, None);
        let line = ended.lines.iter().find(|line| line.starts_with("trained "));
        line.expect("a line with the result").clone()
    };
    let all: Vec<String> = workers
        .into_iter()
        .map(|worker| trained(&worker.end()))
        .collect();
    assert!(all.iter().all(|one| *one == all[0]), "{all:?}");
}

/// Where nobody is found, as behind address translation.
const NOWHERE: &str = "192.0.2.9:4000";

/// An exchange of 4 MB each way takes two seconds, of which the inner steps are a hundredth.
const LARGE: [&str; 2] = ["--steps=100", "--parameters=1000000"];
/// One of 2 MB among three takes longer.
const LARGE_FOR_THREE: [&str; 2] = ["--steps=80", "--parameters=500000"];

/// So many networks, as exchanges over slow links are waits that pass at the same time.
#[track_caller]
fn networks(count: usize, workers: u32) -> Option<Vec<Namespaces>> {
    let all = (0..count).map(|_| Namespaces::new(workers));
    Need::Namespaces.or_skip(all.collect::<Result<_, _>>())
}

/// The same with slow links.
#[track_caller]
fn slow(count: usize, workers: u32) -> Option<Vec<Namespaces>> {
    let networks = networks(count, workers)?;
    for namespaces in &networks {
        for rank in 0..namespaces.addresses().len() {
            namespaces.limit(rank, 16).unwrap();
        }
    }
    Some(networks)
}

#[test]
fn a_worker_that_gets_another_address_in_the_middle_of_an_exchange_ends_it() {
    let seconds = ["10.0.0.2:4000", NOWHERE];
    let Some(networks) = slow(2, 2) else { return };
    in_threads(seconds.iter().zip(&networks), |(second, namespaces)| {
        let job = Job::new(namespaces).with_address(1, second);
        let mut workers = job.workers(&LARGE);
        moves(namespaces, &mut workers[1], 1);
        end_alike(workers);
    });
}

/// The first is dialled by both others, and the second by one.
#[test]
fn a_worker_that_others_have_dialled_gets_another_address_and_ends_the_exchange() {
    let Some(networks) = slow(2, 3) else { return };
    in_threads([0, 1].into_iter().zip(&networks), |(rank, namespaces)| {
        let mut workers = Job::new(namespaces).workers(&LARGE_FOR_THREE);
        moves(namespaces, &mut workers[rank], rank);
        end_alike(workers);
    });
}

/// Its port is another one then, of which those hear who have dialled it.
#[test]
fn a_worker_that_loses_its_address_and_gets_it_back_ends_the_exchange() {
    let Some(networks) = slow(1, 2) else { return };
    let mut workers = Job::new(&networks[0]).workers(&LARGE);
    workers[0].reaches("step 20 ");
    networks[0].change(0, "addr flush dev eth0\n").unwrap();
    workers[0].reaches("is not an address of this machine any more");
    let back = "addr add 10.0.0.1/24 dev eth0\n";
    networks[0].change(0, back).unwrap();
    end_alike(workers);
}

#[test]
fn a_worker_that_has_moved_goes_on_with_those_who_are_left_of_three() {
    let Some(networks) = slow(2, 3) else { return };
    in_threads([0, 2].into_iter().zip(&networks), |(lost, namespaces)| {
        let small = ["--steps=120", "--parameters=200000"];
        let mut workers = Job::new(namespaces).workers(&small);
        workers[1].reaches("step 20 ");
        moves_to(namespaces, 1, 12);
        workers[1].reaches("step 60 ");
        workers.remove(lost).kill();
        end_alike(workers);
    });
}

/// The third does not reach the second, whether it knows where that is or not.
#[test]
fn a_worker_that_is_reached_by_a_relay_gets_another_address_and_ends_the_exchange() {
    let seconds = ["10.0.0.2:4000", NOWHERE];
    let Some(networks) = slow(2, 3) else { return };
    in_threads(seconds.iter().zip(&networks), |(second, namespaces)| {
        let wall = "route add blackhole 10.0.0.2/32\n";
        namespaces.change(2, wall).unwrap();
        let job = Job::new(namespaces).with_address(1, second);
        let (job, mut relay) = job.by_relay();
        let mut workers = job.workers(&LARGE_FOR_THREE);
        workers[2].reaches("is not reached directly");
        moves(namespaces, &mut workers[1], 1);
        relay.reaches("member 1 is at 10.0.0.14:");
        end_alike(workers);
    });
}

#[test]
fn links_that_are_ten_times_slower_in_one_direction_carry_exchanges_of_every_kind() {
    let kinds = [
        &[][..],
        &["--compress", "--fragments=3", "--delay=9"],
        &["--measure-links"],
    ];
    let Some(networks) = networks(2 * kinds.len(), 2) else {
        return;
    };
    let cases = kinds.iter().flat_map(|kind| [(kind, 0), (kind, 1)]);
    in_threads(cases.zip(&networks), |((kind, slow), namespaces)| {
        namespaces.limit(slow, 4).unwrap();
        namespaces.limit(1 - slow, 40).unwrap();
        let more = [kind, &["--steps=40", "--parameters=200000"][..]].concat();
        end_alike(Job::new(namespaces).workers(&more));
    });
}

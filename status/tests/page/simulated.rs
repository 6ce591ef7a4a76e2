//! Ranks that only say that they are ranks, each with a server of its own.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use meshwork_collectives::{Group, Rank, ReduceOp, Statistics};
use meshwork_status::{
    Metric, MetricKind, Report, Server, Settings, StatusClient, StatusSource, Target,
};
use serde_json::{Value, json};

/// One of a job that makes twenty operations in a second and waits most of its time.
struct Simulated {
    like: Statistics,
    rank: u32,
    members: Arc<Vec<String>>,
    began: Instant,
}

impl StatusSource for Simulated {
    fn report(&self) -> Report {
        let (mut group, age) = (self.like.clone(), self.began.elapsed());
        group.rank = Rank::new(self.rank);
        group.address = self.members[self.rank as usize].clone();
        group.world = u32::try_from(self.members.len()).unwrap();
        (group.age, group.in_operations) = (age, age.mul_f64(0.75));
        group.traffic[0].operations = 20 * age.as_secs();
        let samples = Metric {
            name: "training_samples_per_second",
            help: "Samples",
            kind: MetricKind::Gauge,
            value: 1234.0,
        };
        Report {
            group,
            numbers: vec![samples],
        }
    }

    fn dump(&self) -> String {
        let operations = (0..8_u64).map(|place| {
            let began = 1_000_000 + 1000 * place;
            format!(
                r#"{{"what":"barrier","site":"a.rs:1","began":{began},"ended":{},"waits":[]}}"#,
                began + 700
            )
        });
        let operations = operations.collect::<Vec<_>>().join(",");
        let rank = self.rank;
        format!(r#"{{"rank":{rank},"written":1010000,"operations":[{operations}]}}"#)
    }

    fn members(&self) -> Vec<String> {
        self.members.to_vec()
    }
}

/// The servers of so many ranks, eight to a host, which find each other in a folder.
pub(crate) struct Ranks {
    pub(crate) servers: Vec<Option<Server>>,
    _folder: tempfile::TempDir,
}

impl Ranks {
    pub(crate) fn start(world: u32) -> Self {
        let mut group = Group::local(1).unwrap().remove(0);
        group
            .all_reduce(&mut [1.0_f32; 256], ReduceOp::Sum)
            .unwrap();
        let like = group.statistics();
        let folder = tempfile::tempdir().unwrap();
        let (members, began) = (Arc::new(members(world)), Instant::now());
        let settings = Settings::new(([127, 0, 0, 1], 0).into()).unwrap();
        let settings = settings.with_folder(folder.path());
        let server = |rank| {
            let source = Simulated {
                like: like.clone(),
                rank,
                members: members.clone(),
                began,
            };
            Some(Server::start(&settings, Arc::new(source)).unwrap())
        };
        Self {
            servers: (0..world).map(server).collect(),
            _folder: folder,
        }
    }

    pub(crate) fn address(&self, rank: usize) -> String {
        self.servers[rank].as_ref().unwrap().address().to_string()
    }
}

/// What was asked of a crowd.
#[derive(Default)]
struct Spoken {
    requests: AtomicU32,
    bytes: AtomicU64,
}

/// The first and the last rank of a thousand, and one listener that speaks for all the others.
pub(crate) struct Crowd {
    pub(crate) first: Server,
    _last: Server,
    spoken: Arc<Spoken>,
    _folder: tempfile::TempDir,
}

impl Crowd {
    pub(crate) fn start(world: u32) -> Self {
        let mut group = Group::local(1).unwrap().remove(0);
        group
            .all_reduce(&mut [1.0_f32; 256], ReduceOp::Sum)
            .unwrap();
        let (members, began) = (Arc::new(members(world)), Instant::now());
        let source = |rank| Simulated {
            like: group.statistics(),
            rank,
            members: members.clone(),
            began,
        };
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings::new(([127, 0, 0, 1], 0).into()).unwrap();
        let like = Server::start(&settings, Arc::new(source(1))).unwrap();
        let line = StatusClient::new(None, Duration::from_secs(60)).unwrap();
        let line = line.fetch(&[Target::new(like.address().to_string())], "/ranks.jsonl");
        let line: Value = serde_json::from_str(line[0].as_ref().unwrap()).unwrap();
        // Each rank is asked at a loopback address of its own.
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        for (rank, member) in (0..).zip(members.iter()).skip(1) {
            let name = format!("status-{}.json", member.replace(':', "_"));
            let note =
                json!({ "status": format!("{}:{port}", address_of(rank)), "member": member });
            fs::write(folder.path().join(name), note.to_string()).unwrap();
        }
        let names = members.clone();
        let spoken = Arc::new(Spoken::default());
        let heard = spoken.clone();
        // It ends with the process.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let bytes = speak(stream.unwrap(), &line, &names, began);
                heard.requests.fetch_add(1, Ordering::Relaxed);
                heard.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
            }
        });
        let settings = settings.with_folder(folder.path());
        // It puts the job together.
        let last = Server::start(&settings, Arc::new(source(world - 1))).unwrap();
        let first = Server::start(&settings, Arc::new(source(0))).unwrap();
        Self {
            first,
            _last: last,
            spoken,
            _folder: folder,
        }
    }

    /// Requests to others than the first and the last so far, and bytes of their answers.
    pub(crate) fn spoken(&self) -> (u32, u64) {
        let (requests, bytes) = (&self.spoken.requests, &self.spoken.bytes);
        (
            requests.load(Ordering::Relaxed),
            bytes.load(Ordering::Relaxed),
        )
    }
}

/// Hosts that all are this one: who listens on loopback is not asked from another.
fn members(world: u32) -> Vec<String> {
    let name = |rank| format!("127.0.1.{}:{}", rank / 8, 4000 + rank % 8);
    (0..world).map(name).collect()
}

/// Answers for the ranks that are asked for, or for the operations of one; the bytes of it.
fn speak(stream: TcpStream, line: &Value, members: &[String], began: Instant) -> usize {
    let mut head = String::new();
    let mut reader = BufReader::new(&stream);
    reader.read_line(&mut head).unwrap();
    let path = head.split(' ').nth(1).unwrap_or_default();
    let number = |name: &str| {
        let query = path.split_once('?')?.1;
        let value = query.split('&').find_map(|part| part.strip_prefix(name))?;
        value.parse::<u32>().ok()
    };
    let ranks = match (number("from="), number("to=")) {
        (Some(from), Some(to)) if path.starts_with("/ranks") => from..to,
        (Some(_) | None, _) if path.starts_with("/ranks") => asked_at(&stream),
        (Some(_) | None, _) => 0..0,
    };
    let age = began.elapsed();
    let said = ranks.map(|rank| format!("{}\n", of(rank, line, members, age)));
    let body: String = said.collect();
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    // Whoever has lost patience is gone.
    let _ = (&stream).write_all(answer.as_bytes());
    answer.len()
}

/// Where a rank of a crowd is asked.
fn address_of(rank: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(FIRST.to_bits() + rank)
}

/// Inverse of [`address_of`], of whoever is asked here.
fn asked_at(stream: &TcpStream) -> Range<u32> {
    let IpAddr::V4(address) = stream.local_addr().unwrap().ip() else {
        panic!("the listener has an IPv4 address");
    };
    let rank = address.to_bits() - FIRST.to_bits();
    rank..rank + 1
}

const FIRST: Ipv4Addr = Ipv4Addr::new(127, 77, 0, 0);

/// A rank like the others, with links to those at powers of two.
fn of(rank: u32, line: &Value, members: &[String], age: Duration) -> Value {
    let world = u32::try_from(members.len()).unwrap();
    let mut value = line.clone();
    value["rank"] = rank.into();
    value["address"] = members[rank as usize].clone().into();
    let seconds = age.as_secs_f64();
    value["age_seconds"] = seconds.into();
    value["in_operations_seconds"] = (seconds * 0.75).into();
    let links = (0..10).flat_map(|bit| {
        [
            (rank + (1 << bit)) % world,
            (rank + 512 * world - (1 << bit)) % world,
        ]
    });
    let links = links.map(|to| {
        let packets = 1000 * age.as_secs();
        json!({
            "rank": to,
            "round_trip_seconds": 0.0001 + f64::from(to) * 1e-6,
            "bytes_sent": 1200 * packets,
            "bytes_received": 1200 * packets,
            "packets_sent": packets,
            "packets_lost": 0,
        })
    });
    value["peers"] = links.collect();
    value
}

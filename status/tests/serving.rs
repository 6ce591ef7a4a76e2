//! A server as others see it: what it says, to whom, and what it costs whoever misuses it.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot set the scene has failed"
)]

#[path = "serving/openmetrics.rs"]
mod openmetrics;

use std::io::{ErrorKind, Read, Write};
use std::iter;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use meshwork_collectives::{Group, Observer, ReduceOp};
use meshwork_status::{
    FetchError, Metric, MetricKind, Report, Server, Settings, StatusClient, StatusSource, Target,
    Token,
};
use meshwork_testing::free_addresses;
use serde_json::Value;

/// Far longer than anything here takes, so that only a hang meets it.
const DEADLINE: Duration = Duration::from_secs(60);

fn loopback() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

/// A rank alone that has reduced 1 KiB, and its server.
fn serving(source: impl FnOnce(Observer) -> Arc<dyn StatusSource>) -> (Group, Server) {
    let mut group = Group::local(1).unwrap().remove(0);
    group
        .all_reduce(&mut [1.0_f32; 256], ReduceOp::Sum)
        .unwrap();
    let settings = Settings::new(loopback()).unwrap();
    let server = Server::start(&settings, source(group.observer())).unwrap();
    (group, server)
}

fn plain() -> (Group, Server) {
    serving(|observer| Arc::new(observer))
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream
}

/// What comes back of these bytes until the connection ends.
fn exchange(address: SocketAddr, request: &str) -> String {
    let mut stream = connect(address);
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => {}
        // What was sent and not read resets the connection, behind the answer.
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
    String::from_utf8(answer).unwrap()
}

fn get(address: SocketAddr, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n");
    exchange(address, &request)
}

#[track_caller]
fn assert_status(answer: &str, status: u16) {
    assert!(
        answer.starts_with(&format!("HTTP/1.1 {status} ")),
        "{answer}"
    );
}

#[track_caller]
fn body(answer: &str) -> &str {
    assert_status(answer, 200);
    answer.split_once("\r\n\r\n").unwrap().1
}

/// A group with two numbers of a program.
struct Program(Observer);

impl StatusSource for Program {
    fn report(&self) -> Report {
        let number = |name, kind, value| Metric {
            name,
            help: "A number of the program",
            kind,
            value,
        };
        Report {
            group: self.0.statistics(),
            numbers: vec![
                number("training_steps", MetricKind::Counter, 7.0),
                number("training_loss", MetricKind::Gauge, -0.5),
            ],
        }
    }

    fn dump(&self) -> String {
        self.0.dump()
    }

    fn members(&self) -> Vec<String> {
        StatusSource::members(&self.0)
    }
}

/// A rank of a view with its place on its host.
struct Placed(Observer, u64, u32);

impl StatusSource for Placed {
    fn report(&self) -> Report {
        let mut group = self.0.statistics();
        (group.view, group.local_rank) = (self.1, self.2);
        Report {
            group,
            numbers: Vec::new(),
        }
    }

    fn dump(&self) -> String {
        self.0.dump()
    }

    fn members(&self) -> Vec<String> {
        StatusSource::members(&self.0)
    }
}

/// Its dump leaves behind what cannot be ended, as the look-up of a name is.
struct Endless(Observer, Mutex<Option<mpsc::Receiver<()>>>);

impl StatusSource for Endless {
    fn report(&self) -> Report {
        self.0.report()
    }

    fn dump(&self) -> String {
        let ended = self.1.lock().unwrap().take().unwrap();
        tokio::task::spawn_blocking(move || ended.recv_timeout(Duration::from_secs(10)));
        self.0.dump()
    }

    fn members(&self) -> Vec<String> {
        StatusSource::members(&self.0)
    }
}

#[test]
fn what_cannot_be_ended_is_not_waited_for() {
    let (end, ended) = mpsc::channel::<()>();
    let ended = Mutex::new(Some(ended));
    let (_group, server) = serving(|observer| Arc::new(Endless(observer, ended)));
    body(&get(server.address(), "/dump.json"));
    drop(server);
    assert!(end.send(()).is_ok(), "it was waited for");
}

/// Two ports in a row of which the second is taken.
fn ports() -> (u16, TcpListener) {
    let mut pairs = iter::repeat_with(|| free_addresses(2)).take(100);
    let found = pairs.find_map(|pair| {
        let [first, second] = [&pair[0], &pair[1]].map(|one| one.parse::<SocketAddr>().unwrap());
        let taken = TcpListener::bind(second).unwrap();
        (first.port() + 1 == second.port()).then_some((first.port(), taken))
    });
    found.unwrap()
}

/// Of two ranks the first was lost, and the other keeps its port.
#[test]
fn a_newcomer_takes_the_port_of_who_was_lost_where_another_has_its_own() {
    let group = Group::local(1).unwrap().remove(0);
    let (first, _taken) = ports();
    let settings = Settings::new(([127, 0, 0, 1], first).into()).unwrap();
    let start = |view, local_rank| {
        let source = Placed(group.observer(), view, local_rank);
        Server::start(&settings, Arc::new(source))
    };
    // At the start a port that is taken is somebody else's.
    let refused = start(1, 1).unwrap_err().to_string();
    assert!(refused.contains("choose another port"), "{refused}");
    let newcomer = start(2, 1).unwrap();
    assert_eq!(newcomer.address().port(), first);
}

#[test]
fn metrics_are_openmetrics_and_say_what_the_statistics_say() {
    let (group, server) = serving(|observer| Arc::new(Program(observer)));
    let answer = get(server.address(), "/metrics");
    assert!(answer.contains("content-type: application/openmetrics-text; version=1.0.0"));
    let found = openmetrics::parse(body(&answer)).unwrap_or_else(|why| panic!("{why}\n{answer}"));
    assert!(
        found.keys().all(|name| name.starts_with("meshwork_")),
        "{found:?}"
    );
    let value = |name: &str, label: Option<(&str, &str)>| {
        let samples = &found[name].samples;
        let sample = samples.iter().find(|(labels, _)| {
            let rank = labels["rank"] == "0";
            rank && label.is_none_or(|(label, value)| labels[label] == value)
        });
        sample.unwrap_or_else(|| panic!("{name}: {samples:?}")).1
    };
    assert_eq!(value("meshwork_world_size", None), 1.0);
    assert_eq!(value("meshwork_failed", None), 0.0);
    assert_eq!(
        value("meshwork_operations", Some(("transport", "memory"))),
        1.0
    );
    let bytes = value("meshwork_operation_bytes", Some(("transport", "memory")));
    assert_eq!(bytes, 1024.0);
    assert_eq!(value("meshwork_training_steps", None), 7.0);
    assert_eq!(value("meshwork_training_loss", None), -0.5);
    assert_eq!(found["meshwork_training_steps"].kind, "counter");
    let age = value("meshwork_age_seconds", None);
    assert!(age > 0.0 && age <= group.statistics().age.as_secs_f64());
}

#[test]
fn json_says_the_same_and_a_dump_is_one_that_doctor_reads() {
    let (_group, server) = plain();
    let answer = get(server.address(), "/status.json");
    let status: Value = serde_json::from_str(body(&answer)).unwrap();
    assert_eq!((&status["rank"], &status["world"]), (&0.into(), &1.into()));
    assert_eq!(status["traffic"][0]["bytes"], 1024);
    assert_eq!(status["process"], std::process::id());
    let answer = get(server.address(), "/dump.json");
    let dump = meshwork_collectives::diagnosis::Dump::from_json(body(&answer)).unwrap();
    assert_eq!(dump.world(), 1);
}

#[test]
fn health_tells_why_a_group_is_over() {
    let (mut group, server) = plain();
    assert_eq!(body(&get(server.address(), "/healthz")), "ok\n");
    group.abort("the disk is full");
    let answer = get(server.address(), "/healthz");
    assert_status(&answer, 503);
    assert!(answer.contains("the disk is full"), "{answer}");
}

#[test]
fn names_of_other_hosts_other_methods_and_other_paths_are_refused() {
    let (_group, server) = plain();
    let address = server.address();
    let ask = |head: &str| exchange(address, &format!("{head}\r\n\r\n"));
    for host in ["evil.example", "127.0.0.1.evil.example", "10.0.0.1"] {
        assert_status(&ask(&format!("GET /metrics HTTP/1.1\r\nHost: {host}")), 421);
    }
    assert_status(&ask("GET /metrics HTTP/1.1"), 421);
    assert_status(&ask("POST /metrics HTTP/1.1\r\nHost: localhost"), 405);
    assert_status(&get(address, "/page/"), 404);
    assert_status(&get(address, "/../etc/passwd"), 404);
    let head = ask("HEAD /healthz HTTP/1.1\r\nHost: localhost");
    assert_eq!(body(&head), "");
}

#[test]
fn the_page_is_given_to_who_reaches_loopback_and_may_do_nothing_but_ask_its_rank() {
    let (_group, server) = plain();
    let address = server.address();
    let page = get(address, "/");
    assert!(body(&page).starts_with("<!doctype html>"));
    let policy = page
        .lines()
        .find_map(|line| line.strip_prefix("content-security-policy: "));
    let policy: Vec<_> = policy.unwrap().split("; ").collect();
    assert_eq!(policy[0], "default-src 'none'");
    assert!(policy.contains(&"frame-ancestors 'none'"));
    let sources = policy.iter().filter(|rule| rule.contains("-src"));
    for rule in sources {
        let (_, from) = rule.split_once(' ').unwrap();
        assert!(["'none'", "'self'"].contains(&from), "{rule}");
    }
    for path in [
        "/",
        "/page/main.js",
        "/job.json",
        "/ranks.jsonl",
        "/operations.jsonl",
    ] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: evil.example\r\n\r\n");
        assert_status(&exchange(address, &request), 421);
        body(&get(address, path));
    }
    assert_status(&get(address, "/ranks.jsonl?from=0&to=9999"), 400);
}

#[test]
fn without_the_token_the_page_shows_itself_and_nothing_of_the_job() {
    let group = Group::local(1).unwrap().remove(0);
    let token = Token::new("0123456789abcdef").unwrap();
    let settings = Settings::with_token(loopback(), token);
    let server = Server::start(&settings, Arc::new(group.observer())).unwrap();
    body(&get(server.address(), "/"));
    body(&get(server.address(), "/page/main.js"));
    for path in [
        "/job.json",
        "/ranks.jsonl",
        "/operations.jsonl",
        "/status.json",
        "/dump.json",
        "/metrics",
        "/healthz",
    ] {
        assert_status(&get(server.address(), path), 401);
    }
}

#[test]
fn whoever_has_the_token_may_ask_and_nobody_else() {
    let group = Group::local(1).unwrap().remove(0);
    let token = Token::new("0123456789abcdef").unwrap();
    let settings = Settings::with_token(loopback(), token.clone());
    let server = Server::start(&settings, Arc::new(group.observer())).unwrap();
    let address = server.address();
    assert_status(&get(address, "/metrics"), 401);
    let ask = |token: &str| {
        let head = "GET /metrics HTTP/1.1\r\nHost: node7.example";
        exchange(
            address,
            &format!("{head}\r\nAuthorization: Bearer {token}\r\n\r\n"),
        )
    };
    assert_status(&ask("0123456789abcdeF"), 401);
    assert_status(&ask("0123456789abcdef"), 200);
    let target = [Target::new(address.to_string())];
    let fetched = |token| {
        StatusClient::new(token, DEADLINE)
            .unwrap()
            .fetch(&target, "/healthz")
    };
    assert_eq!(fetched(Some(token)), [Ok("ok\n".to_owned())]);
    let refused = fetched(None).remove(0).unwrap_err();
    assert!(matches!(refused, FetchError::Refused { status: 401, .. }));
}

#[test]
fn long_requests_end_and_memory_stays_bounded() {
    let (_group, server) = plain();
    let long = "x".repeat(1 << 20);
    let mut stream = connect(server.address());
    let request = format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: {long}\r\n\r\n");
    // The server may close while it is being written.
    let _ = stream.write_all(request.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8(answer).unwrap();
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 431 "),
        "{answer}"
    );
    body(&get(server.address(), "/healthz"));
}

#[test]
fn slow_readers_and_writers_are_cut_off_and_then_others_are_served() {
    let (_group, server) = plain();
    let began = Instant::now();
    // All places are taken by callers that write a byte and no more.
    let mut slow: Vec<TcpStream> = (0..32).map(|_| connect(server.address())).collect();
    for stream in &mut slow {
        stream.write_all(b"G").unwrap();
    }
    body(&get(server.address(), "/healthz"));
    assert!(began.elapsed() < DEADLINE);
    for mut stream in slow {
        let mut rest = Vec::new();
        // They are closed, with or without a word.
        let _ = stream.read_to_end(&mut rest);
        assert!(
            rest.is_empty() || rest.starts_with(b"HTTP/1.1 408"),
            "{rest:?}"
        );
    }
}

#[test]
fn ten_thousand_requests_are_answered_one_after_the_other_while_the_group_works() {
    const REQUESTS: u32 = 10_000;
    const PAUSE: Duration = Duration::from_millis(2);
    let (mut group, server) = plain();
    let target = Target::new(server.address().to_string());
    let targets = vec![target; REQUESTS as usize];
    let began = Instant::now();
    let mut operations = 0_u64;
    let answers = thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let client = StatusClient::new(None, DEADLINE).unwrap();
            let pages = client.fetch(&targets[..100], "/job.json");
            assert!(pages.iter().all(Result::is_ok));
            client.fetch(&targets, "/metrics")
        });
        while !asking.is_finished() {
            group.all_reduce(&mut [1.0_f32; 16], ReduceOp::Sum).unwrap();
            operations += 1;
        }
        asking.join().unwrap()
    });
    for answer in answers {
        openmetrics::parse(&answer.unwrap()).unwrap();
    }
    // All of them are among those that are counted, and they do not stand still meanwhile.
    assert_eq!(group.statistics().operations(), operations + 1);
    assert!(operations > u64::from(REQUESTS), "{operations}");
    // No more than one in 2 ms, however many there are.
    assert!(began.elapsed() >= PAUSE * (REQUESTS - 1));
}

#[test]
fn ranks_that_cannot_be_asked_are_told_apart() {
    let (_group, server) = plain();
    let silent = TcpListener::bind(loopback()).unwrap();
    let gone = TcpListener::bind(loopback()).unwrap().local_addr().unwrap();
    let addresses = [server.address(), silent.local_addr().unwrap(), gone];
    let targets = addresses.map(|address| Target::new(address.to_string()));
    let client = StatusClient::new(None, Duration::from_secs(1)).unwrap();
    let answers = client.fetch(&targets, "/healthz");
    assert!(answers[0].is_ok(), "{answers:?}");
    assert!(matches!(answers[1], Err(FetchError::Silent { .. })));
    assert!(matches!(
        answers[2],
        Err(FetchError::Unreached {
            kind: ErrorKind::ConnectionRefused,
            ..
        })
    ));
}

#[test]
fn a_port_that_is_taken_is_named_and_free_again_when_a_server_ends() {
    let (group, server) = plain();
    let address = server.address();
    let settings = Settings::new(address).unwrap();
    let start = || Server::start(&settings, Arc::new(group.observer()));
    let taken = start().unwrap_err().to_string();
    assert!(taken.contains(&address.to_string()), "{taken}");
    drop(server);
    assert_eq!(start().unwrap().address(), address);
}

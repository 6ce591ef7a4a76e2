//! Kubeflow Trainer's controller, played here: what it hears of a training, and from whom.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot set the scene has failed"
)]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use meshwork_collectives::{Group, Observer, Rank};
use meshwork_status::{Metric, MetricKind, Report, StatusSource, TrainJob, TrainJobReports};
use meshwork_testing::pem;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::Value;

/// Far longer than anything here takes, so that only a hang meets it.
const DEADLINE: Duration = Duration::from_secs(60);
const PATH: &str = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/ml/trainjobs/bert/status";

/// A training of 200 steps.
struct Training {
    group: Observer,
    rank: u32,
    steps: AtomicU64,
}

impl StatusSource for Training {
    fn report(&self) -> Report {
        let mut group = self.group.statistics();
        group.rank = Rank::new(self.rank);
        let number = |name, value| Metric {
            name,
            help: "A number",
            kind: MetricKind::Gauge,
            value,
        };
        let steps = self.steps.load(Ordering::Relaxed) as f64;
        let numbers = vec![
            number("training_steps", steps),
            number("training_total_steps", 200.0),
        ];
        Report { group, numbers }
    }

    fn dump(&self) -> String {
        self.group.dump()
    }

    fn members(&self) -> Vec<String> {
        StatusSource::members(&self.group)
    }
}

/// Its first report leaves behind what cannot be ended, as the look-up of a name is.
struct Endless(Arc<Training>, Mutex<Option<mpsc::Receiver<()>>>);

impl StatusSource for Endless {
    fn report(&self) -> Report {
        if let Some(ended) = self.1.lock().unwrap().take() {
            tokio::task::spawn_blocking(move || ended.recv_timeout(Duration::from_secs(10)));
        }
        self.0.report()
    }

    fn dump(&self) -> String {
        self.0.dump()
    }

    fn members(&self) -> Vec<String> {
        self.0.members()
    }
}

fn training(rank: u32) -> Arc<Training> {
    let group = Group::local(1).unwrap().remove(0);
    Arc::new(Training {
        group: group.observer(),
        rank,
        steps: AtomicU64::new(50),
    })
}

/// What a controller was sent.
struct Sent {
    head: Vec<String>,
    body: Value,
}

impl Sent {
    fn header(&self, name: &str) -> &str {
        let mut values = self.head.iter().filter_map(|line| {
            let (found, value) = line.split_once(": ")?;
            found.eq_ignore_ascii_case(name).then_some(value)
        });
        values.next().unwrap_or_default()
    }
}

/// Listens with a certificate for `localhost`, whose authority it leaves in this folder, and
/// answers with this status.
fn controller(folder: &Path, status: &'static str) -> (u16, mpsc::Receiver<Sent>) {
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    fs::write(folder.join("ca.crt"), pem("CERTIFICATE", own.cert.der())).unwrap();
    let key = PrivatePkcs8KeyDer::from(own.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![own.cert.der().clone()], key.into())
        .unwrap();
    let listener = TcpListener::bind("localhost:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (heard, sent) = mpsc::channel();
    let config = Arc::new(config);
    // It ends with the process.
    thread::spawn(move || {
        for stream in listener.incoming() {
            let connection = ServerConnection::new(config.clone()).unwrap();
            let mut stream = BufReader::new(StreamOwned::new(connection, stream.unwrap()));
            // Whoever does not believe its certificate says nothing.
            let Some(request) = read(&mut stream) else {
                continue;
            };
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\n{{}}");
            stream.get_mut().write_all(answer.as_bytes()).unwrap();
            if heard.send(request).is_err() {
                return;
            }
        }
    });
    (port, sent)
}

fn read(stream: &mut impl BufRead) -> Option<Sent> {
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).ok()?;
        match line.trim_end() {
            "" => break,
            line => head.push(line.to_owned()),
        }
    }
    let mut sent = Sent {
        head,
        body: Value::Null,
    };
    let mut body = vec![0; sent.header("content-length").parse().ok()?];
    stream.read_exact(&mut body).ok()?;
    sent.body = serde_json::from_slice(&body).ok()?;
    Some(sent)
}

fn reports(port: u16, folder: &Path, source: Arc<dyn StatusSource>) -> TrainJobReports {
    let url = format!("https://localhost:{port}{PATH}");
    let train_job = TrainJob::new(&url, folder.join("ca.crt"), folder.join("token")).unwrap();
    TrainJobReports::start(train_job, source).unwrap()
}

#[test]
fn a_trainjob_is_told_how_far_its_training_is_by_the_token_of_its_pod_and_in_the_end_again() {
    let folder = tempfile::tempdir().unwrap();
    let (port, sent) = controller(folder.path(), "200 OK");
    fs::write(folder.path().join("token"), "first\n").unwrap();
    let training = training(0);
    let reports = reports(port, folder.path(), training.clone());
    let first = sent.recv_timeout(DEADLINE).unwrap();
    assert_eq!(first.head[0], format!("POST {PATH} HTTP/1.1"));
    assert_eq!(first.header("authorization"), "Bearer first");
    assert_eq!(first.header("content-type"), "application/json");
    assert_eq!(first.header("host"), format!("localhost:{port}"));
    let status = &first.body["trainerStatus"];
    assert_eq!(status["progressPercentage"], 25);
    assert_eq!(status["metrics"][0]["name"], "steps");
    assert_eq!(status["metrics"][0]["value"], "50");
    assert!(status["lastUpdatedTime"].as_str().unwrap().ends_with('Z'));
    // Kubernetes puts another token in its place.
    fs::write(folder.path().join("token"), "second").unwrap();
    training.steps.store(200, Ordering::Relaxed);
    drop(reports);
    let last = sent.recv_timeout(DEADLINE).unwrap();
    assert_eq!(last.header("authorization"), "Bearer second");
    assert_eq!(last.body["trainerStatus"]["progressPercentage"], 100);
}

#[test]
fn a_controller_that_is_not_who_it_should_be_hears_nothing_and_the_program_ends_in_time() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (port, sent) = controller(folder.path(), "200 OK");
    // Another authority is to be believed.
    controller(other.path(), "200 OK");
    fs::write(other.path().join("token"), "first").unwrap();
    let began = Instant::now();
    drop(reports(port, other.path(), training(0)));
    assert!(began.elapsed() < DEADLINE);
    assert!(sent.try_recv().is_err());
}

#[test]
fn a_controller_that_refuses_or_is_gone_or_silent_disturbs_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let (port, sent) = controller(folder.path(), "403 Forbidden");
    fs::write(folder.path().join("token"), "first").unwrap();
    drop(reports(port, folder.path(), training(0)));
    sent.recv_timeout(DEADLINE).unwrap();
    let silent = TcpListener::bind("localhost:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let began = Instant::now();
    drop(reports(port, folder.path(), training(0)));
    assert!(began.elapsed() < DEADLINE);
    drop(silent);
    drop(reports(port, folder.path(), training(0)));
}

#[test]
fn other_ranks_say_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (port, sent) = controller(folder.path(), "200 OK");
    fs::write(folder.path().join("token"), "first").unwrap();
    drop(reports(port, folder.path(), training(1)));
    assert!(sent.try_recv().is_err());
}

#[test]
fn what_cannot_be_ended_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let (end, ended) = mpsc::channel::<()>();
    let source = Endless(training(0), Mutex::new(Some(ended)));
    // Without a token nobody is dialled.
    drop(reports(1, folder.path(), Arc::new(source)));
    assert!(end.send(()).is_ok(), "it was waited for");
}

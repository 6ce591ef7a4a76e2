//! A real etcd, on this machine and for one test.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::{Need, installed};

/// A running etcd with data of its own; it ends when dropped, and its data with it.
#[derive(Debug)]
pub struct Etcd {
    /// Removed when this is dropped.
    _folder: TempDir,
    process: Child,
    scheme: &'static str,
    port: u16,
}

impl Etcd {
    /// Starts one without TLS; `None` after a skip is said, where it is not installed.
    ///
    /// # Panics
    /// Where it does not start.
    #[must_use]
    #[track_caller]
    pub fn start() -> Option<Self> {
        Self::launch(None)
    }

    /// Starts one with this certificate and key, which are texts of PEM files.
    ///
    /// # Panics
    /// Where it does not start.
    #[must_use]
    #[track_caller]
    pub fn start_with_tls(certificate: &str, key: &str) -> Option<Self> {
        Self::launch(Some([certificate, key]))
    }

    #[track_caller]
    fn launch(tls: Option<[&str; 2]>) -> Option<Self> {
        Need::Etcd.or_skip(installed("etcd"))?;
        let mut said = String::new();
        // A port may be taken between the moment it is found free and the start.
        for _ in 0..3 {
            match Self::try_start(tls) {
                Ok(started) => return Some(started),
                Err(log) => said = log,
            }
        }
        panic!("etcd does not start:\n{said}");
    }

    fn try_start(tls: Option<[&str; 2]>) -> Result<Self, String> {
        let folder = tempfile::tempdir().expect("a folder for data");
        // Port 0 would do for its clients, but not for its gateway, which is one of them.
        let free = TcpListener::bind(("127.0.0.1", 0)).and_then(|port| port.local_addr());
        let port = free.expect("a port of this machine").port();
        let mut command = Command::new("etcd");
        if let Some(texts) = tls {
            for (name, text) in ["cert-file", "key-file"].into_iter().zip(texts) {
                let file = folder.path().join(name);
                std::fs::write(&file, text).expect("a writable folder");
                command.arg(format!("--{name}={}", file.display()));
            }
        }
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://127.0.0.1:{port}");
        // Relative to the folder, as older releases want something like a port.
        let peers = "unix://peers:1";
        let process = command
            .current_dir(folder.path())
            .args([
                "--data-dir=data".to_owned(),
                format!("--listen-client-urls={url}"),
                format!("--advertise-client-urls={url}"),
                format!("--listen-peer-urls={peers}"),
                format!("--initial-advertise-peer-urls={peers}"),
                format!("--initial-cluster=default={peers}"),
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        let mut started = Self {
            _folder: folder,
            process: process.expect("an installed etcd"),
            scheme,
            port,
        };
        let log = started.process.stderr.take().expect("a pipe");
        until_ready(&lines(log)).map(|()| started)
    }

    /// The client URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, self.port)
    }

    /// Posts this to its gateway, as to `kv/range`; gives the answer. Not of one with TLS.
    ///
    /// # Panics
    /// Where that is refused.
    #[track_caller]
    pub fn post(&self, path: &str, body: &Value) -> Value {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("a running etcd");
        let limit = stream.set_read_timeout(Some(START));
        limit.expect("a time that is not zero");
        let body = body.to_string();
        let length = body.len();
        let asked = write!(
            stream,
            "POST /v3/{path} HTTP/1.0\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        asked.expect("an etcd that reads");
        let mut answer = String::new();
        let read = stream.read_to_string(&mut answer);
        read.expect("an etcd that answers in time");
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer of HTTP");
        assert!(head.contains(" 200 "), "{path}: {answer}");
        serde_json::from_str(body).expect("an answer in JSON")
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The lines of a log, which is read to its end.
fn lines(log: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    thread::spawn(move || {
        for line in BufReader::new(log).lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    lines
}

/// Waits until it answers; gives its log if it does not.
fn until_ready(lines: &Receiver<String>) -> Result<(), String> {
    let mut log = String::new();
    loop {
        match lines.recv_timeout(START) {
            Ok(line) if line.contains("ready to serve client requests") => return Ok(()),
            Ok(line) => log += &format!("{line}\n"),
            Err(RecvTimeoutError::Disconnected | RecvTimeoutError::Timeout) => return Err(log),
        }
    }
}

/// How long it may take where others are busy.
const START: Duration = Duration::from_secs(60);

//! A server on this machine that answers as it is told, and remembers what it was asked.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use serde_json::{Value, json};

/// A running server; it ends when dropped.
pub(crate) struct Loopback {
    address: SocketAddr,
    shared: Arc<Shared>,
    listener: Option<JoinHandle<()>>,
}

struct Shared {
    answer: Box<dyn Fn(&Asked) -> Reply + Send + Sync>,
    asked: Mutex<Vec<Asked>>,
    ended: AtomicBool,
}

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) method: String,
    /// Without the query, escapes undone.
    pub(crate) path: String,
    pub(crate) query: Vec<(String, String)>,
    /// By name in small letters.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
    /// The body as it came, for what is no text.
    #[allow(dead_code, reason = "not every binary asks for it")]
    pub(crate) bytes: Vec<u8>,
}

/// What to answer.
#[derive(Clone, Debug)]
#[allow(dead_code, reason = "not every binary plays every fault")]
pub(crate) enum Reply {
    /// Status, extra headers and body.
    Full(u16, Vec<(String, String)>, String),
    /// A good answer that ends before it should.
    CutOff(String),
    /// Nothing, until the other side goes.
    Silence,
}

#[allow(dead_code, reason = "not every binary plays every fault")]
impl Reply {
    pub(crate) fn json(body: &Value) -> Self {
        Self::text(&body.to_string()).with_header("Content-Type", "application/json")
    }

    pub(crate) fn text(body: &str) -> Self {
        Self::Full(200, Vec::new(), body.to_owned())
    }

    pub(crate) fn status(status: u16, body: &str) -> Self {
        Self::Full(status, Vec::new(), body.to_owned())
    }

    pub(crate) fn with_header(self, name: &str, value: &str) -> Self {
        match self {
            Self::Full(status, mut headers, body) => {
                headers.push((name.to_owned(), value.to_owned()));
                Self::Full(status, headers, body)
            }
            other => other,
        }
    }
}

impl Loopback {
    pub(crate) fn start(answer: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port of this machine");
        let address = listener.local_addr().expect("the address of a listener");
        let shared = Arc::new(Shared {
            answer: Box::new(answer),
            asked: Mutex::default(),
            ended: AtomicBool::new(false),
        });
        let listening = Arc::clone(&shared);
        Self {
            address,
            shared,
            listener: Some(thread::spawn(move || listen(&listener, &listening))),
        }
    }

    /// `host:port`.
    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    #[allow(dead_code, reason = "not every binary needs it alone")]
    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What it was asked so far, in order.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.shared.asked.lock().expect("no holder panics").clone()
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        // Wakes the listener, which then sees that it has ended.
        drop(TcpStream::connect(self.address));
        if let Some(listener) = self.listener.take() {
            drop(listener.join());
        }
    }
}

impl Asked {
    /// The value of a parameter.
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        let mut found = self.query.iter().filter(|(key, _)| key == name);
        found.next().map(|(_, value)| value.as_str())
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }
}

/// A kubeconfig for this server and token, in this folder.
pub(crate) fn kubeconfig(folder: &Path, server: &str, token: &str) -> PathBuf {
    kubeconfig_of(folder.join("config"), &json!({"server": server}), token)
}

/// A kubeconfig at this path for this cluster, which its context "broken" does not have.
pub(crate) fn kubeconfig_of(path: PathBuf, cluster: &Value, token: &str) -> PathBuf {
    let content = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "k", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [
            {"name": "c", "context": {"cluster": "k", "user": "u"}},
            {"name": "broken", "context": {"cluster": "none", "user": "u"}},
        ],
    });
    fs::write(&path, content.to_string()).expect("a writable folder");
    path
}

fn listen(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        if shared.ended.load(Ordering::SeqCst) {
            return;
        }
        let Ok(stream) = stream else { continue };
        let shared = Arc::clone(shared);
        // A client that goes away in the middle is its own business.
        thread::spawn(move || drop(serve(stream, &shared)));
    }
}

fn serve(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    let asked = read(&mut BufReader::new(&stream))?;
    let reply = (shared.answer)(&asked);
    shared.asked.lock().expect("no holder panics").push(asked);
    match reply {
        Reply::Silence => io::copy(&mut stream, &mut io::sink()).map(drop),
        Reply::CutOff(body) => {
            let promised = body.len() + 100;
            write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Length: {promised}\r\n\r\n{body}"
            )
        }
        Reply::Full(status, headers, body) => {
            let length = body.len();
            write!(
                stream,
                "HTTP/1.1 {status} Said\r\nContent-Length: {length}\r\n"
            )?;
            for (name, value) in headers {
                write!(stream, "{name}: {value}\r\n")?;
            }
            write!(stream, "Connection: close\r\n\r\n{body}")
        }
    }
}

fn read(stream: &mut impl BufRead) -> io::Result<Asked> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let mut words = line.split_whitespace();
    let (method, target) = (
        words.next().unwrap_or_default(),
        words.next().unwrap_or_default(),
    );
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let mut asked = Asked {
        method: method.to_owned(),
        path: unescaped(path),
        query: pairs
            .map(|(name, value)| (unescaped(name), unescaped(value)))
            .collect(),
        headers: BTreeMap::new(),
        body: String::new(),
        bytes: Vec::new(),
    };
    loop {
        let mut line = String::new();
        stream.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        asked
            .headers
            .insert(name.to_lowercase(), value.trim().to_owned());
    }
    let length = asked
        .header("content-length")
        .and_then(|length| length.parse().ok());
    let mut body = vec![0; length.unwrap_or_default()];
    stream.read_exact(&mut body)?;
    asked.body = String::from_utf8_lossy(&body).into_owned();
    asked.bytes = body;
    Ok(asked)
}

fn unescaped(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let escape = after.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        let value = escape.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        let (unescaped, after) = match (byte, value) {
            (b'%', Some(value)) => (value, &after[2..]),
            (b'+', _) => (b' ', after),
            _ => (byte, after),
        };
        bytes.push(unescaped);
        rest = after;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

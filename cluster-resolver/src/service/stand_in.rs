//! A server on this machine for a test.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// A server that lasts as long as the process.
pub(crate) struct StandIn {
    url: String,
    asked: Arc<AtomicUsize>,
}

impl StandIn {
    /// Answers each request for a target, such as `/path?name=value`, with this status and body.
    pub(crate) fn start(answer: impl Fn(&str) -> (u16, String) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port of this machine");
        let address = listener.local_addr().expect("the address of a listener");
        let asked = Arc::new(AtomicUsize::new(0));
        let (answer, count) = (Arc::new(answer), Arc::clone(&asked));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (answer, count) = (Arc::clone(&answer), Arc::clone(&count));
                // A client that goes away in the middle is its own business.
                thread::spawn(move || drop(serve(stream, &*answer, &count)));
            }
        });
        Self {
            url: format!("http://{address}"),
            asked,
        }
    }

    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    /// How many requests have come.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

fn serve(
    stream: io::Result<TcpStream>,
    answer: &dyn Fn(&str) -> (u16, String),
    count: &AtomicUsize,
) -> io::Result<()> {
    let mut stream = stream?;
    let mut head = BufReader::new(&stream).lines();
    let first = head.next().transpose()?.unwrap_or_default();
    for line in head {
        if line?.is_empty() {
            break;
        }
    }
    count.fetch_add(1, Ordering::SeqCst);
    let (status, body) = answer(first.split(' ').nth(1).unwrap_or_default());
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status} Said\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

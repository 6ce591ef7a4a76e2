//! Asks many ranks at once.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::{Body, Bytes};
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, HOST};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::access::Token;
use crate::error::FetchError;
use crate::look::{Silence, Unanswered};
use crate::process;
use crate::runtime::OwnRuntime;

/// Ranks that are asked at the same time.
const AT_ONCE: usize = 64;
/// The most bytes of an answer.
const LIMIT: usize = 4 << 20;

/// A rank that can be asked, by its address and port.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Target {
    address: String,
    /// As it says itself.
    process: Option<u32>,
    is_guessed: bool,
}

impl Target {
    /// The one at this address and port.
    #[must_use]
    pub fn new(address: impl Into<String>) -> Self {
        Self {
            address: address.into(),
            process: None,
            is_guessed: false,
        }
    }

    /// It may be elsewhere: that nobody listens there does not tell that its process is gone.
    pub(crate) fn guessed(mut self) -> Self {
        self.is_guessed = true;
        self
    }

    pub(crate) fn with_process(mut self, process: Option<u32>) -> Self {
        self.process = process;
        self
    }

    /// Its address and port.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// What it means that it did not say how it fares.
    #[must_use]
    pub fn unanswered(&self, error: &FetchError) -> Unanswered {
        let refused = |kind: io::ErrorKind| kind == io::ErrorKind::ConnectionRefused;
        let silence = match error {
            FetchError::Unreached { kind, .. } if refused(*kind) => match self.is_guessed {
                true => return Unanswered::unasked(),
                false => Silence::Gone,
            },
            FetchError::Silent { .. } if self.is_stopped() => Silence::Stopped,
            FetchError::Unreached { .. }
            | FetchError::Silent { .. }
            | FetchError::Refused { .. }
            | FetchError::NoHttp { .. }
            | FetchError::Unfinished { .. } => Silence::Unknown,
        };
        Unanswered {
            rank: None,
            why: error.to_string(),
            silence,
        }
    }

    /// Whether its process is of this host and stopped.
    fn is_stopped(&self) -> bool {
        let address = self.address.parse().ok();
        let here = address.is_some_and(|address: SocketAddr| address.ip().is_loopback());
        here && self.process.is_some_and(process::is_stopped)
    }
}

/// Asks ranks how they fare.
#[derive(Debug)]
pub struct StatusClient {
    runtime: OwnRuntime,
    token: Option<Token>,
    patience: Duration,
}

impl StatusClient {
    /// One that presents this token, and waits so long for each rank.
    ///
    /// # Errors
    /// What the operating system says when it refuses what sockets need.
    pub fn new(token: Option<Token>, patience: Duration) -> io::Result<Self> {
        Ok(Self {
            runtime: OwnRuntime::new()?,
            token,
            patience,
        })
    }

    /// What each of the ranks says at this path, in their order.
    #[must_use]
    pub fn fetch(&self, targets: &[Target], path: &str) -> Vec<Result<String, FetchError>> {
        let asks = targets.iter().map(|target| Ask {
            target: target.clone(),
            path: path.to_owned(),
            patience: self.patience,
            until: None,
        });
        self.runtime
            .block_on(ask_all(self.token.as_ref(), asks.collect()))
    }
}

/// What a rank is asked.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) target: Target,
    pub(crate) path: String,
    /// How long it may take.
    pub(crate) patience: Duration,
    /// When nobody waits for it any more.
    pub(crate) until: Option<Instant>,
}

/// The answers in the order of what is asked, as many at the same time as is allowed.
pub(crate) async fn ask_all(
    token: Option<&Token>,
    asks: Vec<Ask>,
) -> Vec<Result<String, FetchError>> {
    let mut answers: Vec<_> = asks.iter().map(|_| None).collect();
    let mut running = JoinSet::new();
    for (place, ask) in asks.into_iter().enumerate() {
        if running.len() == AT_ONCE
            && let Some(Ok((place, answer))) = running.join_next().await
        {
            answers[place] = Some(answer);
        }
        let answer = ask.answer(token);
        running.spawn(async move { (place, answer.await) });
    }
    while let Some(Ok((place, answer))) = running.join_next().await {
        answers[place] = Some(answer);
    }
    let answers = answers.into_iter();
    answers
        .map(|answer| answer.expect("each was asked, and nothing that asks can panic"))
        .collect()
}

impl Ask {
    fn answer(
        self,
        token: Option<&Token>,
    ) -> impl Future<Output = Result<String, FetchError>> + Send + 'static {
        let (address, patience) = (self.target.address, self.patience);
        let mut request = Request::get(self.path).header(HOST, &address);
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, token.bearer().as_str());
        }
        let request = request.body(Empty::<Bytes>::new());
        async move {
            let left = self.until.map(|until| until.duration_since(Instant::now()));
            let patience = left.map_or(patience, |left| patience.min(left));
            let answer = async {
                let request = request.map_err(|_| no_http(&address))?;
                exchange(&address, request).await
            };
            match timeout(patience, answer).await {
                Ok(answer) => answer,
                Err(_) => Err(FetchError::Silent {
                    patience,
                    address: address.clone(),
                }),
            }
        }
    }
}

async fn exchange(address: &str, request: Request<Empty<Bytes>>) -> Result<String, FetchError> {
    let stream = TcpStream::connect(address).await;
    let stream = stream.map_err(|error| FetchError::Unreached {
        address: address.to_owned(),
        kind: error.kind(),
    })?;
    converse(address, stream, request).await
}

/// Sends a request over what is open already; the text of a good answer.
pub(crate) async fn converse<S, B>(
    address: &str,
    stream: S,
    request: Request<B>,
) -> Result<String, FetchError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    B: Body<Data = Bytes, Error = Infallible> + Send + 'static,
{
    let connected = http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = connected.map_err(|_| no_http(address))?;
    let connection = tokio::spawn(connection);
    let response = sender.send_request(request).await;
    let text = match response {
        Ok(response) => read(address, response).await,
        Err(_) => Err(no_http(address)),
    };
    connection.abort();
    text
}

async fn read(
    address: &str,
    response: Response<hyper::body::Incoming>,
) -> Result<String, FetchError> {
    let status = response.status();
    let unfinished = || FetchError::Unfinished {
        address: address.to_owned(),
        limit: LIMIT,
    };
    let body = Limited::new(response.into_body(), LIMIT).collect().await;
    let body = body.map_err(|_| unfinished())?.to_bytes();
    let text = String::from_utf8(body.into()).map_err(|_| no_http(address))?;
    match status.is_success() {
        true => Ok(text),
        false => Err(FetchError::Refused {
            address: address.to_owned(),
            status: status.as_u16(),
            text: text.trim().chars().take(200).collect(),
        }),
    }
}

fn no_http(address: &str) -> FetchError {
    let address = address.to_owned();
    FetchError::NoHttp { address }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn what_cannot_be_ended_is_not_waited_for() {
        let client = StatusClient::new(None, Duration::from_secs(1)).unwrap();
        let (end, ended) = mpsc::channel::<()>();
        client
            .runtime
            .spawn_blocking(move || ended.recv_timeout(Duration::from_secs(10)));
        drop(client);
        assert!(end.send(()).is_ok(), "it was waited for");
    }
}

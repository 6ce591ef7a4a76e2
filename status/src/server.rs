//! The server: one thread, which answers one request on each connection.
//!
//! ```text
//!   accept ── at most one in 2 ms ── one of 32 places ── 5 s for request and answer ── closed
//! ```
//!
//! So a slow reader has a place for 5 s, and ten thousand requests take a thread a twentieth of its
//! time; whoever comes in between waits in the kernel's queue.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HOST, WWW_AUTHENTICATE};
use hyper::header::{
    CONTENT_SECURITY_POLICY, HeaderName, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use meshwork_collectives::Statistics;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::access::{self, Denial};
use crate::error::Error;
use crate::folder::Note;
use crate::gather::{Asker, Gatherer, Scope, Subject};
use crate::page::{self, Asset};
use crate::report::StatusSource;
use crate::runtime::OwnRuntime;
use crate::settings::Settings;
use crate::{json, metrics, process};

/// Connections at the same time.
const PLACES: usize = 32;
/// For a request and its answer, however slowly they are written and read.
const LIFE: Duration = Duration::from_secs(5);
/// Between two connections.
const PAUSE: Duration = Duration::from_millis(2);
/// Bytes of a request, which has no body that anybody reads.
const REQUEST: usize = 8 << 10;
/// Between two attempts to accept where the process has no file descriptors left.
const NO_FILES: Duration = Duration::from_millis(100);

/// Serves a rank's status, until it is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    _note: Option<Note>,
}

struct Service {
    settings: Settings,
    source: Arc<dyn StatusSource>,
    gatherer: Gatherer,
}

impl Server {
    /// Listens where the settings say, and answers by what `source` tells.
    ///
    /// # Errors
    /// [`Error::Listen`], [`Error::Port`], [`Error::File`], [`Error::Thread`].
    pub fn start(settings: &Settings, source: Arc<dyn StatusSource>) -> Result<Self, Error> {
        let group = source.report().group;
        let own = settings.address_of(group.local_rank)?;
        let failing = |error: io::Error| Error::Listen {
            address: own,
            kind: error.kind(),
        };
        let listener = listen(settings, own, &group).map_err(failing)?;
        listener.set_nonblocking(true).map_err(failing)?;
        let address = listener.local_addr().map_err(failing)?;
        let folder = settings.folder.as_deref();
        let note = folder.map(|folder| Note::write(folder, &group.address, address));
        let note = note.transpose()?;
        let runtime = OwnRuntime::new().map_err(no_thread)?;
        let listener = {
            let _inside = runtime.enter();
            TcpListener::from_std(listener).map_err(failing)?
        };
        let (stop, stopped) = oneshot::channel();
        let service = Arc::new(Service {
            settings: settings.clone(),
            gatherer: Gatherer::new(settings.clone(), source.clone()),
            source,
        });
        let serve = move || {
            runtime.block_on(async {
                tokio::select! {
                    () = accept(&listener, &service) => {}
                    _ = stopped => {}
                }
            });
        };
        let thread = thread::Builder::new().name("meshwork status".to_owned());
        let thread = thread.spawn(serve).map_err(no_thread)?;
        tracing::info!("the status of {} is at http://{address}/", group.rank);
        Ok(Self {
            address,
            stop: Some(stop),
            thread: Some(thread),
            _note: note,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of it has been reported.
            let _ = thread.join();
        }
    }
}

/// Listens at the port of the rank's place on its host. Once members have changed somebody may be
/// there, as ranks move up and keep the ports that they have: then one below is free.
fn listen(settings: &Settings, own: SocketAddr, group: &Statistics) -> io::Result<StdListener> {
    let refused = match StdListener::bind(own) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && group.view > 1 => error,
        listening => return listening,
    };
    let below = (0..group.local_rank).filter_map(|place| settings.address_of(place).ok());
    let free = below.map(StdListener::bind).find_map(Result::ok);
    free.ok_or(refused)
}

fn no_thread(error: io::Error) -> Error {
    let kind = error.kind();
    Error::Thread { kind }
}

async fn accept(listener: &TcpListener, service: &Arc<Service>) {
    let places = Arc::new(Semaphore::new(PLACES));
    let mut turns = interval(PAUSE);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        turns.tick().await;
        let place = places.clone().acquire_owned().await;
        match listener.accept().await {
            Ok((stream, _)) => {
                let service = service.clone();
                tokio::spawn(async move {
                    let _place = place;
                    // Whoever is too slow is cut off, and nobody misses it.
                    let _ = timeout(LIFE, serve(stream, service)).await;
                });
            }
            Err(error) => {
                tracing::debug!(%error, "a connection to the status was not accepted");
                sleep(NO_FILES).await;
            }
        }
    }
}

async fn serve(stream: TcpStream, service: Arc<Service>) -> Result<(), hyper::Error> {
    let answer = |request: Request<Incoming>| {
        let service = service.clone();
        async move { Ok::<_, Infallible>(service.answer(&request).await) }
    };
    http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(REQUEST)
        .timer(TokioTimer::new())
        .header_read_timeout(LIFE)
        .serve_connection(TokioIo::new(stream), service_fn(answer))
        .await
}

impl Service {
    async fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let path = request.uri().path();
        let header = |name: HeaderName| request.headers().get(name).map(|value| value.as_bytes());
        let (host, presented) = (header(HOST), header(AUTHORIZATION));
        let asset = Asset::at(path);
        match access::check(self.settings.token.as_ref(), host, presented) {
            Ok(()) => {}
            // The page says nothing of the job; it is what asks for the token.
            Err(Denial::Token) if asset.is_some() => {}
            Err(Denial::Token) => {
                let refused = plain(StatusCode::UNAUTHORIZED, "the token is missing or wrong\n");
                return with(refused, WWW_AUTHENTICATE, "Bearer");
            }
            Err(Denial::Host) => {
                let text = "only asked for by the name of loopback: 127.0.0.1, [::1], localhost\n";
                return plain(StatusCode::MISDIRECTED_REQUEST, text);
            }
        }
        if ![Method::GET, Method::HEAD].contains(request.method()) {
            let refused = plain(
                StatusCode::METHOD_NOT_ALLOWED,
                "there is only GET and HEAD\n",
            );
            return with(refused, ALLOW, "GET, HEAD");
        }
        match asset {
            Some(asset) => of_page(asset),
            None => self.told(path, request.uri().query()).await,
        }
    }

    async fn told(&self, path: &str, query: Option<&str>) -> Response<Full<Bytes>> {
        match path {
            "/metrics" => match metrics::text(self.source.report()) {
                Ok(text) => page(StatusCode::OK, metrics::CONTENT_TYPE, text),
                Err(_) => plain(StatusCode::INTERNAL_SERVER_ERROR, "no metrics\n"),
            },
            "/status.json" => {
                let (report, cpu) = (self.source.report(), process::cpu_times());
                page(StatusCode::OK, JSON, json::text(&report, cpu.as_ref()))
            }
            "/dump.json" => page(StatusCode::OK, JSON, self.source.dump()),
            "/job.json" => {
                let job = self.gatherer.job(Asker::of(query)).await;
                page(StatusCode::OK, JSON, job)
            }
            "/ranks.jsonl" => self.lines(Subject::Status, query).await,
            "/operations.jsonl" => self.lines(Subject::Operations, query).await,
            "/healthz" => match self.source.report().group.failure {
                None => plain(StatusCode::OK, "ok\n"),
                Some(failure) => plain(StatusCode::SERVICE_UNAVAILABLE, format!("{failure}\n")),
            },
            _ => plain(
                StatusCode::NOT_FOUND,
                "there is a page at /, and /metrics, /status.json, /dump.json, /job.json, \
                 /ranks.jsonl, /operations.jsonl and /healthz\n",
            ),
        }
    }

    async fn lines(&self, subject: Subject, query: Option<&str>) -> Response<Full<Bytes>> {
        let Some(scope) = Scope::parse(subject, query) else {
            let text = "ranks are asked for as in ?from=0&to=8&hops=2\n";
            return plain(StatusCode::BAD_REQUEST, text);
        };
        let lines = self.gatherer.lines(scope).await;
        page(StatusCode::OK, JSON_LINES, lines)
    }
}

/// A file of the page, which a browser is to trust with nothing.
fn of_page(asset: &'static Asset) -> Response<Full<Bytes>> {
    let response = page(StatusCode::OK, asset.content_type, asset.text);
    let response = with(response, CONTENT_SECURITY_POLICY, page::POLICY);
    let response = with(response, REFERRER_POLICY, "no-referrer");
    with(response, X_FRAME_OPTIONS, "DENY")
}

const JSON_LINES: &str = "application/x-ndjson";
const JSON: &str = "application/json";

fn plain(status: StatusCode, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    page(status, "text/plain; charset=utf-8", text)
}

fn page(
    status: StatusCode,
    content_type: &'static str,
    text: impl Into<Bytes>,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    let response = with(response, CONTENT_TYPE, content_type);
    let response = with(response, CACHE_CONTROL, "no-store");
    with(response, X_CONTENT_TYPE_OPTIONS, "nosniff")
}

fn with(
    mut response: Response<Full<Bytes>>,
    name: HeaderName,
    value: &'static str,
) -> Response<Full<Bytes>> {
    let value = hyper::header::HeaderValue::from_static(value);
    response.headers_mut().insert(name, value);
    response
}

//! Tells Kubeflow Trainer how far a training is, as its TrainJobs show it: KEP-2779, since version
//! 2.2 of Trainer.
//!
//! ```text
//!   a rank of number 0 ── POST, every 5 s, over TLS ──> controller ──> status.trainerStatus
//!                         the token of the pod                         of the TrainJob
//! ```
//!
//! Where the controller does not answer the training goes on, and the next report says it anew.

mod form;

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Request, Uri};
use meshwork_collectives::Rank;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_rustls::TlsConnector;
use zeroize::Zeroizing;

use crate::client::converse;
use crate::error::{Error, FetchError};
use crate::report::StatusSource;
use crate::runtime::OwnRuntime;

/// Between two reports: Trainer asks for no more than one in so long.
const PAUSE: Duration = Duration::from_secs(5);
/// For a report and its answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// For the last report, for which the end of the program waits.
const FAREWELL: Duration = Duration::from_secs(2);

/// Where Kubeflow Trainer is told how far a training is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TrainJob {
    url: Uri,
    /// `host:port`, as it is dialled.
    address: String,
    host: ServerName<'static>,
    authority: PathBuf,
    token: PathBuf,
}

impl TrainJob {
    /// The variable that Trainer sets for the address that takes reports.
    pub const URL_ENV: &'static str = "KUBEFLOW_TRAINER_SERVER_URL";
    /// The variable for the file with the certificate of the address's authority.
    pub const AUTHORITY_ENV: &'static str = "KUBEFLOW_TRAINER_SERVER_CA_CERT";
    /// The variable for the file with the pod's token.
    pub const TOKEN_ENV: &'static str = "KUBEFLOW_TRAINER_SERVER_TOKEN";

    /// At this `https://` address, by these files: they are read for each report, as Kubernetes
    /// puts new ones in their place.
    ///
    /// # Errors
    /// [`Error::TrainJobAddress`]
    pub fn new(
        url: &str,
        authority: impl Into<PathBuf>,
        token: impl Into<PathBuf>,
    ) -> Result<Self, Error> {
        let wrong = || Error::TrainJobAddress {
            value: url.to_owned(),
        };
        let parsed: Uri = url.parse().map_err(|_| wrong())?;
        let host = parsed.host().ok_or_else(wrong)?;
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(bare.to_owned()).map_err(|_| wrong())?;
        if parsed.scheme_str() != Some("https") {
            return Err(wrong());
        }
        let port = parsed.port_u16().unwrap_or(443);
        Ok(Self {
            address: format!("{host}:{port}"),
            host: name,
            url: parsed,
            authority: authority.into(),
            token: token.into(),
        })
    }

    /// What the variables of Trainer say; `None` where none is set.
    ///
    /// # Errors
    /// [`Error::TrainJobVariables`] where some are missing, [`Error::TrainJobAddress`].
    pub fn from_env() -> Result<Option<Self>, Error> {
        Self::from_variables(|name| env::var_os(name))
    }

    fn from_variables(look_up: impl Fn(&str) -> Option<OsString>) -> Result<Option<Self>, Error> {
        let names = [Self::URL_ENV, Self::AUTHORITY_ENV, Self::TOKEN_ENV];
        match names.map(look_up) {
            [None, None, None] => Ok(None),
            [Some(url), Some(authority), Some(token)] => {
                Self::new(&url.to_string_lossy(), authority, token).map(Some)
            }
            values => {
                let missing = names.iter().zip(values);
                let missing = missing.filter(|(_, value)| value.is_none());
                Err(Error::TrainJobVariables {
                    missing: missing.map(|(name, _)| *name).collect(),
                })
            }
        }
    }

    /// Hands one report over.
    async fn report(&self, body: &Value) -> Result<(), ReportError> {
        let token = Zeroizing::new(fs::read_to_string(&self.token).map_err(file(&self.token))?);
        let bearer = Zeroizing::new(format!("Bearer {}", token.trim()));
        let path = self.url.path_and_query().map_or("/", |path| path.as_str());
        let request = Request::post(path)
            .header(HOST, &self.address)
            .header(AUTHORIZATION, bearer.as_str())
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body.to_string())));
        let request = request.map_err(|_| ReportError::Token(self.token.clone()))?;
        let connector = TlsConnector::from(Arc::new(self.trust()?));
        let unreached = |error: io::Error| FetchError::Unreached {
            address: self.address.clone(),
            kind: error.kind(),
        };
        let stream = TcpStream::connect(&self.address).await.map_err(unreached)?;
        let stream = connector.connect(self.host.clone(), stream).await;
        let stream = stream.map_err(ReportError::Tls)?;
        converse(&self.address, stream, request).await?;
        Ok(())
    }

    /// The authorities of the file, and no others.
    fn trust(&self) -> Result<ClientConfig, ReportError> {
        let text = fs::read(&self.authority).map_err(file(&self.authority))?;
        let unusable = || ReportError::Authority(self.authority.clone());
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&text) {
            let certificate = certificate.map_err(|_| unusable())?;
            roots.add(certificate).map_err(|_| unusable())?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider);
        let config = config
            .with_safe_default_protocol_versions()
            .map_err(|_| unusable())?;
        Ok(config.with_root_certificates(roots).with_no_client_auth())
    }
}

/// Reports to Kubeflow Trainer until it is dropped; then once more, for at most 2 s.
#[derive(Debug)]
pub struct TrainJobReports {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl TrainJobReports {
    /// Reports by a thread of its own what `source` tells, as long as its rank is 0.
    ///
    /// # Errors
    /// [`Error::Thread`]
    pub fn start(train_job: TrainJob, source: Arc<dyn StatusSource>) -> Result<Self, Error> {
        let no_thread = |error: io::Error| Error::Thread { kind: error.kind() };
        let runtime = OwnRuntime::new().map_err(no_thread)?;
        let (stop, stopped) = oneshot::channel();
        let mut reporter = Reporter {
            train_job,
            source,
            told: None,
            failing: false,
        };
        let thread = thread::Builder::new().name("meshwork reports".to_owned());
        let thread = thread.spawn(move || reporter.run(&runtime, stopped));
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread.map_err(no_thread)?),
        })
    }
}

impl Drop for TrainJobReports {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of it has been reported.
            let _ = thread.join();
        }
    }
}

struct Reporter {
    train_job: TrainJob,
    source: Arc<dyn StatusSource>,
    /// What Trainer knows.
    told: Option<Value>,
    /// Whether the last report failed, of which the log has a line.
    failing: bool,
}

impl Reporter {
    fn run(&mut self, runtime: &OwnRuntime, mut stopped: oneshot::Receiver<()>) {
        runtime.block_on(async {
            let mut turns = interval(PAUSE);
            turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    _ = turns.tick() => {}
                    _ = &mut stopped => break,
                }
                tokio::select! {
                    () = self.tell(PATIENCE) => {}
                    _ = &mut stopped => break,
                }
            }
            self.tell(FAREWELL).await;
        });
    }

    async fn tell(&mut self, patience: Duration) {
        let report = self.source.report();
        if report.group.rank != Rank::CHIEF {
            return;
        }
        let status = form::status(&report);
        if self.told.as_ref() == Some(&status) {
            return;
        }
        let body = form::request(&status, jiff::Timestamp::now());
        let error = match timeout(patience, self.train_job.report(&body)).await {
            Ok(Ok(())) => {
                (self.told, self.failing) = (Some(status), false);
                return;
            }
            Ok(Err(error)) => error,
            Err(_) => ReportError::Asked(FetchError::Silent {
                address: self.train_job.address.clone(),
                patience,
            }),
        };
        if !std::mem::replace(&mut self.failing, true) {
            tracing::warn!("the TrainJob is not told how far the training is: {error}");
        }
    }
}

/// Why a report did not arrive. The training goes on.
#[derive(Debug, thiserror::Error)]
enum ReportError {
    #[error("{} cannot be used: {kind}", path.display())]
    File { path: PathBuf, kind: io::ErrorKind },
    #[error("{} holds no token", .0.display())]
    Token(PathBuf),
    #[error("{} holds no certificate of an authority", .0.display())]
    Authority(PathBuf),
    #[error("no TLS: {0}")]
    Tls(io::Error),
    #[error(transparent)]
    Asked(#[from] FetchError),
}

fn file(path: &Path) -> impl Fn(io::Error) -> ReportError {
    move |error| ReportError::File {
        path: path.to_owned(),
        kind: error.kind(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_without_encryption_or_host_are_refused() {
        for url in [
            "http://trainer:8443/x",
            "trainer",
            "https://",
            "",
            "/status",
        ] {
            let refused = TrainJob::new(url, "ca", "token").unwrap_err();
            let value = url.to_owned();
            assert_eq!(refused, Error::TrainJobAddress { value });
        }
        let address = |url| TrainJob::new(url, "ca", "token").unwrap().address;
        assert_eq!(
            address("https://trainer.kubeflow.svc/x"),
            "trainer.kubeflow.svc:443"
        );
        assert_eq!(address("https://[::1]:8443/x"), "[::1]:8443");
    }

    #[test]
    fn variables_that_are_missing_are_named() {
        let names = [
            TrainJob::URL_ENV,
            TrainJob::AUTHORITY_ENV,
            TrainJob::TOKEN_ENV,
        ];
        let with = |set: &[&str]| {
            TrainJob::from_variables(|name| set.contains(&name).then(|| "https://a/b".into()))
        };
        assert_eq!(with(&[]).unwrap(), None);
        assert!(with(&names).unwrap().is_some());
        for (place, name) in names.into_iter().enumerate() {
            let mut others = names.to_vec();
            others.remove(place);
            let missing = vec![name];
            let refused = with(&others).unwrap_err();
            assert_eq!(refused, Error::TrainJobVariables { missing });
            assert_eq!(
                with(&[name]).unwrap_err(),
                Error::TrainJobVariables { missing: others }
            );
        }
    }
}

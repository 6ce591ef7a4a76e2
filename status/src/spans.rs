//! Sends the spans of this process to a collector of OpenTelemetry, by OTLP over HTTP.
//!
//! ```text
//!   a span ends ── queue of 2,048 ──> a thread ── batches of 512, or every 5 s ──> collector
//!                   full: dropped                  an answer within 10 s, or lost
//! ```
//!
//! The numbers are those of OpenTelemetry, whose variables change them. Whoever works puts a span
//! into the queue and waits for nothing.

use std::env;
use std::panic;
use std::thread;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{
    OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TIMEOUT, OTEL_EXPORTER_OTLP_TIMEOUT_DEFAULT,
    OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_TIMEOUT, SpanExporter,
    WithHttpConfig,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::{
    EnvResourceDetector, SdkProvidedResourceDetector, TelemetryResourceDetector,
};
use opentelemetry_sdk::trace::SdkTracerProvider;
use reqwest::blocking::Client;
use rustls::crypto::{CryptoProvider, ring};
use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_opentelemetry::OpenTelemetryLayer;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::registry::LookupSpan;

use crate::error::Error;

/// For what is left in the queue when a process ends.
const FAREWELL: Duration = Duration::from_secs(2);

/// Whose spans they are, as attributes of the resource that they belong to.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SpanOrigin {
    /// `meshwork.rank`: the rank with which the process begins, where it is known by then.
    pub rank: Option<u32>,
    /// `meshwork.world`: how many ranks the job begins with.
    pub world: Option<u32>,
    /// `meshwork.job`: a word that all ranks of the job have and other jobs have not.
    pub job: Option<String>,
}

/// Sends spans to a collector, until it is dropped: then what is left is sent, for at most 2 s.
///
/// ```no_run
/// use meshwork_status::{SpanExport, SpanOrigin};
/// use tracing_subscriber::prelude::*;
///
/// # fn main() -> Result<(), meshwork_status::Error> {
/// let origin = SpanOrigin { rank: Some(0), world: Some(4), job: Some("bert-7".to_owned()) };
/// let export = SpanExport::from_env(&origin)?;
/// tracing_subscriber::registry().with(export.as_ref().map(SpanExport::layer)).init();
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct SpanExport {
    provider: SdkTracerProvider,
}

impl SpanExport {
    /// To the collector that `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` names, or else
    /// `OTEL_EXPORTER_OTLP_ENDPOINT`; `None` where neither is set.
    ///
    /// The other variables of OpenTelemetry for exporters, sampling, queues and resources hold too:
    /// `OTEL_SERVICE_NAME` is the name of the service, and what `OTEL_RESOURCE_ATTRIBUTES` says
    /// comes before `origin`.
    ///
    /// # Errors
    /// [`Error::Collector`], [`Error::Thread`].
    pub fn from_env(origin: &SpanOrigin) -> Result<Option<Self>, Error> {
        let names = [
            OTEL_EXPORTER_OTLP_TRACES_ENDPOINT,
            OTEL_EXPORTER_OTLP_ENDPOINT,
        ];
        let mut endpoints = names.iter().filter_map(env::var_os);
        let Some(endpoint) = endpoints.find(|value| !value.is_empty()) else {
            return Ok(None);
        };
        let client = client(&endpoint.to_string_lossy())?;
        let exporter = SpanExporter::builder().with_http().with_http_client(client);
        let exporter = exporter.build().map_err(|error| Error::Collector {
            said: error.to_string(),
        })?;
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource(origin))
            .build();
        Ok(Some(Self { provider }))
    }

    /// What a subscriber of `tracing` is to have: it takes Meshwork's spans of all levels down to
    /// debugging, which operations are at, and the program's own of information and above.
    ///
    /// Other layers of the subscriber need filters of their own to show less than that.
    pub fn layer<S>(&self) -> impl Layer<S> + Send + Sync + use<S>
    where
        S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
    {
        let taken = Targets::new()
            .with_default(LevelFilter::INFO)
            .with_target("meshwork", LevelFilter::DEBUG);
        // Operations know the line that calls them; that of the library tells nobody anything.
        OpenTelemetryLayer::new(self.provider.tracer("meshwork"))
            .with_location(false)
            .with_filter(taken)
    }
}

impl Drop for SpanExport {
    fn drop(&mut self) {
        // It says itself what could not be sent.
        let _ = self.provider.shutdown_with_timeout(FAREWELL);
    }
}

/// What the environment says comes last, and so counts.
fn resource(origin: &SpanOrigin) -> Resource {
    let number = |name, value: Option<u32>| Some(KeyValue::new(name, i64::from(value?)));
    let job = origin.job.clone();
    let own = [
        number("meshwork.rank", origin.rank),
        number("meshwork.world", origin.world),
        job.map(|job| KeyValue::new("meshwork.job", job)),
    ];
    Resource::builder_empty()
        .with_attributes(own.into_iter().flatten())
        .with_detectors(&[
            Box::new(SdkProvidedResourceDetector),
            Box::new(TelemetryResourceDetector),
            Box::new(EnvResourceDetector::new()),
        ])
        .build()
}

/// Made on a thread of its own, as it makes a runtime, which cannot be done inside another.
fn client(endpoint: &str) -> Result<Client, Error> {
    if CryptoProvider::get_default().is_none() {
        // Where another thread chose one meanwhile, that one serves as well.
        drop(ring::default_provider().install_default());
    }
    let mut builder = Client::builder().timeout(timeout());
    if !endpoint.starts_with("https:") {
        // Whoever speaks without TLS needs no certificates of the system.
        builder = builder.tls_certs_only([]);
    }
    let thread = thread::Builder::new().spawn(|| builder.build());
    let thread = thread.map_err(|error| Error::Thread { kind: error.kind() })?;
    let built = thread
        .join()
        .unwrap_or_else(|cause| panic::resume_unwind(cause));
    built.map_err(|error| Error::Collector {
        said: error.to_string(),
    })
}

/// As the exporter reads it, whose client this is.
fn timeout() -> Duration {
    let names = [
        OTEL_EXPORTER_OTLP_TRACES_TIMEOUT,
        OTEL_EXPORTER_OTLP_TIMEOUT,
    ];
    let values = names.iter().filter_map(|name| env::var(name).ok());
    let mut numbers = values.filter_map(|value| value.parse().ok());
    match numbers.next() {
        Some(milliseconds) => Duration::from_millis(milliseconds),
        None => OTEL_EXPORTER_OTLP_TIMEOUT_DEFAULT,
    }
}

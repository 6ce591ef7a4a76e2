//! Requests over HTTP, and where they may go: credentials stay with their server.

use std::fmt::{self, Debug};
use std::sync::OnceLock;
use std::time::Duration;

use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Certificate, Client, ClientBuilder, Method, Response, Url};
use serde_json::Value;

use super::call::{Attempt, Call};
use super::secret::Secret;
use super::{MOST_BYTES, RETRIED, answer, error_kind, tls};
use crate::error::{ServiceError, ServiceErrorKind};
use crate::text::url_without_secrets;

/// A client that follows redirects on one server only, and never says a password in an error.
#[derive(Clone, Debug)]
pub(crate) struct Http {
    proxies: Proxies,
    /// For servers without TLS: it reads none of the system's certificates.
    plain: Client,
    trusting: OnceLock<Client>,
}

/// Where a service is, as the program said it; `Debug` shows no password of it.
#[derive(Clone, Eq, PartialEq)]
pub(crate) struct Endpoint(String);

/// Whether requests go through the proxies of the environment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Proxies {
    Used,
    PassedBy,
}

/// What to ask.
#[derive(Clone, Debug)]
pub(crate) struct Request<'a> {
    method: Method,
    url: Url,
    body: Option<&'a Value>,
    token: Option<&'a Secret>,
    /// What stands before the token.
    scheme: &'static str,
    metadata: Metadata,
}

/// Whether a request is one for the metadata server, which takes only those marked so.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Metadata {
    Yes,
    No,
}

/// An answer with a status from 200 to 299.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) url: String,
    pub(crate) body: Vec<u8>,
}

impl Endpoint {
    pub(crate) fn new(url: impl Into<String>) -> Self {
        Self(url.into())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// As errors show it.
    pub(crate) fn shown(&self) -> String {
        url_without_secrets(&self.0)
    }
}

impl Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        url_without_secrets(&self.0).fmt(f)
    }
}

impl<'a> Request<'a> {
    pub(crate) fn get(url: Url) -> Self {
        Self {
            method: Method::GET,
            url,
            body: None,
            token: None,
            scheme: "Bearer ",
            metadata: Metadata::No,
        }
    }

    pub(crate) fn post(url: Url) -> Self {
        Self {
            method: Method::POST,
            ..Self::get(url)
        }
    }

    pub(crate) fn with_body(mut self, body: &'a Value) -> Self {
        self.body = Some(body);
        self
    }

    pub(crate) fn with_token(mut self, token: Option<&'a Secret>) -> Self {
        self.token = token;
        self
    }

    /// The token alone, as etcd takes it.
    pub(crate) fn with_bare_token(mut self, token: Option<&'a Secret>) -> Self {
        self.scheme = "";
        self.with_token(token)
    }

    /// Adds to the query part of the URL, escaped as needed.
    pub(crate) fn with_query(mut self, name: &str, value: &str) -> Self {
        self.url.query_pairs_mut().append_pair(name, value);
        self
    }

    pub(crate) fn of_metadata_server(mut self) -> Self {
        self.metadata = Metadata::Yes;
        self
    }
}

impl Http {
    /// A client that goes through the proxies of the environment.
    pub(crate) fn new() -> Result<Self, ServiceError> {
        Self::with(Proxies::Used)
    }

    /// A client for the servers of this network.
    pub(crate) fn without_proxy() -> Result<Self, ServiceError> {
        Self::with(Proxies::PassedBy)
    }

    /// A client for the servers of this network that have a certificate of these authorities, and
    /// of no others; `None` where these cannot be used.
    pub(crate) fn trusting(authorities: Vec<Certificate>) -> Result<Option<Self>, ServiceError> {
        let http = Self::without_proxy()?;
        let builder = Client::builder().tls_certs_only(authorities);
        let Ok(client) = build(http.proxies, builder) else {
            return Ok(None);
        };
        Ok(http.trusting.set(client).is_ok().then_some(http))
    }

    fn with(proxies: Proxies) -> Result<Self, ServiceError> {
        tls::choose_provider();
        Ok(Self {
            proxies,
            plain: build(proxies, Client::builder().tls_certs_only([]))?,
            trusting: OnceLock::new(),
        })
    }

    fn client(&self, url: &Url) -> Result<&Client, ServiceError> {
        if url.scheme() != "https" {
            return Ok(&self.plain);
        }
        if let Some(client) = self.trusting.get() {
            return Ok(client);
        }
        let client = build(self.proxies, Client::builder())?;
        Ok(self.trusting.get_or_init(|| client))
    }

    /// Asks until there is an answer or the deadline has come.
    pub(crate) async fn ask(
        &self,
        call: &Call,
        request: &Request<'_>,
    ) -> Result<Reply, ServiceError> {
        let url = shown(&request.url);
        call.retry(&url, || self.attempt(request, &url)).await
    }

    /// [`ask`](Self::ask), and reads the answer as JSON.
    pub(crate) async fn json(
        &self,
        call: &Call,
        request: &Request<'_>,
    ) -> Result<(String, Value), ServiceError> {
        let Reply { url, body } = self.ask(call, request).await?;
        let value = answer::parse(&url, &body, request.token)?;
        Ok((url, value))
    }

    pub(crate) async fn attempt(
        &self,
        request: &Request<'_>,
        url: &str,
    ) -> Result<Attempt<Reply>, ServiceError> {
        let (method, target) = (request.method.clone(), request.url.clone());
        let mut outgoing = self.client(&target)?.request(method, target);
        if request.metadata == Metadata::Yes {
            outgoing = outgoing.header("Metadata-Flavor", "Google");
        } else {
            outgoing = outgoing.header(ACCEPT, "application/json");
        }
        if let Some(token) = request.token {
            outgoing = outgoing.header(AUTHORIZATION, authorization(request.scheme, token));
        }
        if let Some(body) = request.body {
            let body = body.to_string();
            outgoing = outgoing.header(CONTENT_TYPE, "application/json").body(body);
        }
        let response = match outgoing.send().await {
            Ok(response) => response,
            Err(error) => return Ok(Attempt::Again(error_kind::of_chain(&error), None)),
        };
        let status = response.status().as_u16();
        if RETRIED.contains(&status) {
            let pause = retry_after(&response);
            return Ok(Attempt::Again(ServiceErrorKind::Busy(status), pause));
        }
        let succeeded = response.status().is_success();
        let body = match bounded(response).await {
            Ok(body) => body,
            Err(kind) if succeeded => return Ok(Attempt::unread(kind)),
            Err(_) => Vec::new(),
        };
        let url = url.to_owned();
        if succeeded {
            return Ok(Attempt::Done(Reply { url, body }));
        }
        let said = answer::said(&body, request.token);
        Err(ServiceError::Refused { url, status, said })
    }
}

fn build(proxies: Proxies, builder: ClientBuilder) -> Result<Client, ServiceError> {
    let same_server = Policy::custom(|attempt| {
        let first = attempt.previous().first().map(Url::origin);
        let hops = attempt.previous().len();
        if first == Some(attempt.url().origin()) && hops <= MOST_REDIRECTS {
            attempt.follow()
        } else {
            attempt.stop()
        }
    });
    let builder = match proxies {
        Proxies::Used => builder,
        Proxies::PassedBy => builder.no_proxy(),
    };
    let client = builder.redirect(same_server).user_agent(USER_AGENT).build();
    client.map_err(|_| ServiceError::NoTls)
}

/// Reads the address of a service.
pub(crate) fn base_url(text: &str) -> Result<Url, ServiceError> {
    let url: Option<Url> = text.parse().ok();
    let url = url.filter(|url| url.has_host() && matches!(url.scheme(), "http" | "https"));
    url.ok_or_else(|| ServiceError::Url {
        url: url_without_secrets(text),
    })
}

/// The URL below this one with these path segments, each escaped as needed.
pub(crate) fn below<'a>(
    base: &Url,
    segments: impl IntoIterator<Item = &'a str>,
) -> Result<Url, ServiceError> {
    let mut url = base.clone();
    match url.path_segments_mut() {
        Ok(mut path) => drop(path.pop_if_empty().extend(segments)),
        Err(()) => {
            return Err(ServiceError::Url { url: shown(base) });
        }
    }
    Ok(url)
}

/// The URL as errors and explanations show it.
pub(crate) fn shown(url: &Url) -> String {
    url_without_secrets(url.as_str())
}

fn authorization(scheme: &'static str, token: &Secret) -> HeaderValue {
    // A token with characters that no header has is refused by the service, as any wrong one.
    let text = format!("{scheme}{}", token.expose());
    let mut value = HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("Bearer"));
    value.set_sensitive(true);
    value
}

async fn bounded(mut response: Response) -> Result<Vec<u8>, ServiceErrorKind> {
    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(part)) if body.len() + part.len() > MOST_BYTES => {
                return Err(ServiceErrorKind::TooLong);
            }
            Ok(Some(part)) => body.extend_from_slice(&part),
            Ok(None) => return Ok(body),
            Err(error) => return Err(error_kind::of_chain(&error)),
        }
    }
}

fn retry_after(response: &Response) -> Option<Duration> {
    let header = response.headers().get(RETRY_AFTER)?;
    header.to_str().ok()?.parse().ok().map(Duration::from_secs)
}

/// How this project names itself to services.
const USER_AGENT: &str = concat!("meshwork/", env!("CARGO_PKG_VERSION"));

/// Redirects of one request.
const MOST_REDIRECTS: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_escaped_and_stay_below_the_base() {
        let base = base_url("https://host/compute/v1/").unwrap();
        let url = below(&base, ["projects", "a/b?c", "zones", "ü"]).unwrap();
        assert_eq!(
            url.as_str(),
            "https://host/compute/v1/projects/a%2Fb%3Fc/zones/%C3%BC"
        );
        let bare = base_url("http://host:1").unwrap();
        assert_eq!(below(&bare, ["v1"]).unwrap().as_str(), "http://host:1/v1");
    }

    #[test]
    fn what_is_no_url_of_a_service_is_refused_without_its_password() {
        for (text, shown) in [
            ("host:80", "host:80"),
            ("ftp://me:pass@host/x", "ftp://host/x"),
            ("", ""),
        ] {
            let url = shown.to_owned();
            assert_eq!(base_url(text), Err(ServiceError::Url { url }), "{text}");
        }
    }

    #[test]
    fn an_endpoint_shows_no_password() {
        let endpoint = Endpoint::new("https://me:pass@host/x?key=k");
        assert_eq!(format!("{endpoint:?}"), "\"https://host/x\"");
    }

    #[test]
    fn the_header_with_the_token_shows_none() {
        let token = Secret::new("ya29.secret");
        assert!(!format!("{:?}", authorization("Bearer ", &token)).contains("ya29"));
    }
}

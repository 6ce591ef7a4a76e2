//! What the resolvers for Google's clouds share: the metadata server and credentials.

pub(crate) mod credentials;
pub(crate) mod metadata;

pub use credentials::GoogleCredentials;
pub use metadata::metadata_url;

use reqwest::Url;

use crate::error::{Error, ServiceError};
use crate::service::call::Call;
use crate::service::http::{Endpoint, Http, Request, base_url};
use crate::service::retry::RetryPolicy;
use crate::service::secret::Secret;
use crate::variables::Variables;
use credentials::TokenSource;

/// How Google's services are reached, as the program said it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Settings {
    pub(crate) variables: Variables,
    pub(crate) credentials: GoogleCredentials,
    pub(crate) retry: RetryPolicy,
    pub(crate) metadata_url: Option<Endpoint>,
}

/// One round of questions to Google's services, with one deadline.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) call: Call,
    http: Http,
    metadata_http: Http,
    metadata: Url,
    token_source: TokenSource,
    token: Option<Secret>,
}

impl Settings {
    /// These settings with the variables as they are now.
    pub(crate) fn snapshot(&self) -> Self {
        Self {
            variables: self.variables.snapshot(),
            ..self.clone()
        }
    }

    /// A round that begins now; nothing is asked yet.
    pub(crate) fn begin(&self) -> Result<Session, Error> {
        let metadata = match &self.metadata_url {
            Some(url) => url.as_str().to_owned(),
            None => metadata_url(&self.variables)?,
        };
        Ok(Session {
            call: Call::begin(self.retry),
            http: Http::new()?,
            metadata_http: Http::without_proxy()?,
            metadata: base_url(&metadata)?,
            token_source: self.credentials.source(&self.variables)?,
            token: None,
        })
    }
}

impl Session {
    /// The client for servers of this network, which the metadata server is one of.
    pub(crate) fn local_http(&self) -> &Http {
        &self.metadata_http
    }

    /// Asks a service that wants no credentials.
    pub(crate) async fn open(&self, url: Url) -> Result<(String, serde_json::Value), ServiceError> {
        self.http.json(&self.call, &Request::get(url)).await
    }

    /// Asks a service with the account's token, which is fetched for the first question.
    pub(crate) async fn authorized(
        &mut self,
        request: Request<'_>,
    ) -> Result<(String, serde_json::Value), ServiceError> {
        self.sign_in().await?;
        self.signed(request).await
    }

    /// Fetches the account's token, once.
    pub(crate) async fn sign_in(&mut self) -> Result<(), ServiceError> {
        if self.token.is_none() {
            self.token = self.fetch_token().await?;
        }
        Ok(())
    }

    /// Asks a service with the token that [`sign_in`](Self::sign_in) fetched.
    pub(crate) async fn signed(
        &self,
        request: Request<'_>,
    ) -> Result<(String, serde_json::Value), ServiceError> {
        let request = request.with_token(self.token.as_ref());
        self.http.json(&self.call, &request).await
    }
}

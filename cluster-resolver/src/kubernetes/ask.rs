//! Questions to the API server.

use http::header::{ACCEPT, HeaderValue};
use http_body_util::BodyExt;
use kube_client::client::{Body, Client};
use kube_client::core::params::ListParams;
use kube_client::core::request::Request;
use serde_json::Value;

use super::KubernetesResolver;
use super::access::{self, Way};
use super::pods::Pod;
use crate::error::{AccessProblem, Error, ServiceError, ServiceErrorKind};
use crate::explanation::{Explanation, Origin, Question};
use crate::service::answer::{self, Answer};
use crate::service::call::{Attempt, Call};
use crate::service::secret::Secret;
use crate::service::{MOST_BYTES, RETRIED, error_kind, tls};
use crate::text::url_without_secrets;

/// Which pods are looked at.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) enum Namespace {
    /// Inside a cluster those of the own namespace, else all.
    #[default]
    Usual,
    All,
    Named(String),
}

/// One round of questions, which share a deadline; nothing has been asked yet.
#[derive(Debug)]
pub(super) struct Session {
    call: Call,
    pub(super) way: Way,
    namespace: Namespace,
}

/// A server that can be asked.
pub(super) struct Server {
    pub(super) call: Call,
    pub(super) client: Client,
    base: String,
    pub(super) path: String,
    /// The namespace of this process, where it is inside the cluster.
    pub(super) home: Option<String>,
    /// What may not be repeated in an error.
    secrets: Vec<Secret>,
}

impl KubernetesResolver {
    pub(super) fn begin(&self, evidence: &mut Explanation) -> Result<Session, Error> {
        let way = self.access.way(&self.variables, evidence)?;
        for (job, selectors) in self.selectors() {
            let field = format!("selectors of {job}");
            let origin = Origin::program().field(field);
            evidence.read(Question::Cluster, origin, selectors.join(" | "));
        }
        Ok(Session {
            call: Call::begin(self.retry),
            way,
            namespace: self.namespace.clone(),
        })
    }
}

impl Session {
    pub(super) async fn connect(self) -> Result<Server, ServiceError> {
        tls::choose_provider();
        let config = self.way.config().await?;
        let home = match self.way {
            Way::Inside { .. } => Some(config.default_namespace.clone()),
            Way::Kubeconfig { .. } => None,
        };
        let namespace = match &self.namespace {
            Namespace::Named(name) => Some(name),
            Namespace::Usual => home.as_ref(),
            Namespace::All => None,
        };
        let path = match namespace {
            Some(namespace) => format!("/api/v1/namespaces/{namespace}/pods"),
            None => "/api/v1/pods".to_owned(),
        };
        let base = url_without_secrets(&config.cluster_url.to_string());
        let base = base.trim_end_matches('/').to_owned();
        let secrets = access::secrets(&config);
        let client = Client::try_from(config).map_err(|_| ServiceError::ClusterAccess {
            place: self.way.place(),
            problem: AccessProblem::BadCredentials,
        })?;
        Ok(Server {
            call: self.call,
            client,
            base,
            path,
            home,
            secrets,
        })
    }
}

impl Server {
    /// All pods that this selector chooses, and the URL that they were asked of.
    pub(super) async fn list(&self, selector: &str) -> Result<(Vec<Pod>, String), ServiceError> {
        let (pods, _) = self.list_at(selector).await?;
        Ok((pods, self.url()))
    }

    /// All pods that this selector chooses, and the version of the list.
    pub(super) async fn list_at(&self, selector: &str) -> Result<(Vec<Pod>, String), ServiceError> {
        let url = self.url();
        let mut pauses = self.call.pauses(&url);
        let mut pods = Vec::new();
        let mut lists = 0;
        let mut next: Option<String> = None;
        loop {
            let mut params = ListParams::default().labels(selector).limit(PAGE);
            params.continue_token = next.take();
            let first = params.continue_token.is_none();
            lists += u32::from(first);
            let body = match self.ask(&params).await {
                // The rest of the list is kept for some minutes only: from the beginning then.
                Err(ServiceError::Refused { status: 410, .. }) if !first => {
                    let pause = pauses.next().filter(|&pause| pause < self.call.left());
                    let expired = || self.call.ended(&url, lists, ServiceErrorKind::Busy(410));
                    tokio::time::sleep(pause.ok_or_else(expired)?).await;
                    pods.clear();
                    continue;
                }
                body => body?,
            };
            let value = self.read(&body)?;
            let list = Answer::new(&url, &value);
            list.object()?;
            for pod in list.at("items").list()? {
                pods.push(Pod::read(&pod)?);
            }
            let metadata = list.at("metadata");
            let more = metadata.at("continue").optional_text()?;
            match more.filter(|more| !more.is_empty()) {
                Some(more) => next = Some(more.to_owned()),
                None => {
                    let version = metadata.at("resourceVersion").optional_text()?;
                    return Ok((pods, version.unwrap_or_default().to_owned()));
                }
            }
        }
    }

    async fn ask(&self, params: &ListParams) -> Result<Vec<u8>, ServiceError> {
        let url = self.url();
        let request = || Request::new(&self.path).list(params);
        self.call
            .retry(&url, async || {
                let body = match self.send(request()).await? {
                    Attempt::Done(body) => body,
                    Attempt::Again(problem, pause) => return Ok(Attempt::Again(problem, pause)),
                };
                let body = bounded(body, MOST_BYTES).await;
                Ok(body.map_or_else(Attempt::unread, Attempt::Done))
            })
            .await
    }

    /// Reads JSON that the server sent.
    pub(super) fn read(&self, body: &[u8]) -> Result<Value, ServiceError> {
        answer::parse(&self.url(), body, &self.secrets)
    }

    /// Asks once. Refusals are read here rather than by the client, which would log them whole.
    pub(super) async fn send(
        &self,
        request: Result<http::Request<Vec<u8>>, kube_client::core::request::Error>,
    ) -> Result<Attempt<Body>, ServiceError> {
        let url = self.url();
        let Ok(mut request) = request else {
            return Err(ServiceError::Url { url });
        };
        let json = HeaderValue::from_static("application/json");
        request.headers_mut().insert(ACCEPT, json);
        let response = match self.client.send(request.map(Body::from)).await {
            Ok(response) => response,
            // A plugin or an identity provider of the kubeconfig gives no token.
            Err(kube_client::Error::Auth(_)) => {
                let (status, said) = (401, String::new());
                return Err(ServiceError::Refused { url, status, said });
            }
            Err(error) => return Ok(Attempt::Again(error_kind::of_chain(&error), None)),
        };
        let status = response.status();
        if status.is_success() {
            return Ok(Attempt::Done(response.into_body()));
        }
        let status = status.as_u16();
        if RETRIED.contains(&status) {
            return Ok(Attempt::Again(ServiceErrorKind::Busy(status), None));
        }
        let body = bounded(response.into_body(), MOST_BYTES).await;
        let said = answer::said(&body.unwrap_or_default(), &self.secrets);
        Err(ServiceError::Refused { url, status, said })
    }

    /// The URL as errors and explanations show it.
    pub(super) fn url(&self) -> String {
        format!("{}{}", self.base, self.path)
    }
}

/// Reads a body that has at most this many bytes.
async fn bounded(mut body: Body, most: usize) -> Result<Vec<u8>, ServiceErrorKind> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| error_kind::of_chain(&error))?;
        // Trailers are of no interest.
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if data.len() > most - bytes.len() {
            return Err(ServiceErrorKind::TooLong);
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes)
}

/// Pods of one page.
const PAGE: u32 = 500;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::call;

    #[test]
    fn a_body_has_at_most_as_many_bytes_as_are_allowed() {
        let read = |most| {
            let body = Body::from(vec![7; 10]);
            call::run(async { Ok(bounded(body, most).await) }).unwrap()
        };
        assert_eq!(read(10), Ok(vec![7; 10]));
        assert_eq!(read(9), Err(ServiceErrorKind::TooLong));
    }
}

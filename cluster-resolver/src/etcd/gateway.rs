//! Requests to etcd's JSON gateway: tokens, several client URLs, and refusals by what was tried.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use reqwest::{Certificate, Url};
use serde_json::{Value, json};

use super::form::{self, Found};
use super::settings::{Authorities, Settings, User};
use super::{EtcdError, EtcdOperation, ServiceError};
use crate::error::ServiceErrorKind;
use crate::service::answer::{self, Answer};
use crate::service::call::{Attempt, Call};
use crate::service::http::{Http, Reply, Request, below, shown};
use crate::service::retry::RetryPolicy;
use crate::service::secret::{self, Secret};

/// A client for one runtime.
#[derive(Debug)]
pub(super) struct Gateway<'a> {
    settings: &'a Settings,
    /// Another one once other authorities are trusted.
    http: Mutex<Arc<Http>>,
    urls: Vec<Url>,
    /// The number of the URL that is asked first: one that answered.
    first: AtomicUsize,
    token: Option<Secret>,
}

/// One request: what it is for, and what it says.
#[derive(Clone, Copy, Debug)]
struct Question<'a> {
    operation: EtcdOperation,
    key: &'a str,
    path: [&'a str; 2],
    body: &'a Value,
}

/// What became of a lease.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Lease {
    Lives,
    Lost,
}

impl<'a> Gateway<'a> {
    pub(super) fn new(settings: &'a Settings) -> Result<Self, EtcdError> {
        let http = match &settings.authorities {
            None => Http::without_proxy()?,
            Some(authorities) => trusting(&authorities.pem)?,
        };
        Ok(Self {
            settings,
            http: Mutex::new(Arc::new(http)),
            urls: settings.urls()?,
            first: AtomicUsize::new(0),
            token: None,
        })
    }

    /// What is registered now.
    pub(super) async fn list(&mut self, retry: RetryPolicy) -> Result<Found, EtcdError> {
        let (prefix, body) = (&self.settings.prefix, form::range(&self.settings.prefix));
        let question = Question {
            operation: EtcdOperation::List,
            key: prefix,
            path: ["kv", "range"],
            body: &body,
        };
        self.ask(Call::begin(retry), question, form::found).await
    }

    /// Writes an address with a lease of its own; gives the lease.
    pub(super) async fn register(
        &mut self,
        address: &str,
        retry: RetryPolicy,
    ) -> Result<String, EtcdError> {
        let call = Call::begin(retry);
        let key = self.settings.key(address);
        let time_to_live = self.settings.time_to_live.as_secs().to_string();
        let granting = json!({"TTL": time_to_live});
        let question = Question {
            operation: EtcdOperation::Register,
            key: &key,
            path: ["lease", "grant"],
            body: &granting,
        };
        let lease = self.ask(call, question, |answer| {
            answer.at("ID").full_text().map(str::to_owned)
        });
        let lease = lease.await?;
        let writing = form::put(&key, address, &lease);
        let question = Question {
            path: ["kv", "put"],
            body: &writing,
            ..question
        };
        self.ask(call, question, |answer| answer.at("header").object())
            .await?;
        Ok(lease)
    }

    /// Says that the owner of the lease is still there.
    pub(super) async fn keep_alive(
        &mut self,
        key: &str,
        lease: &str,
        retry: RetryPolicy,
    ) -> Result<Lease, EtcdError> {
        let body = json!({"ID": lease});
        let question = Question {
            operation: EtcdOperation::KeepAlive,
            key,
            path: ["lease", "keepalive"],
            body: &body,
        };
        let read = |answer: &Answer<'_>| {
            let result = answer.at("result");
            result.at("header").object()?;
            // Zero is left out of the answer, and is what a lease has that is gone.
            let left = result.at("TTL");
            Ok(match left.is_present() && left.count()? > 0 {
                true => Lease::Lives,
                false => Lease::Lost,
            })
        };
        self.ask(Call::begin(retry), question, read).await
    }

    /// Ends the lease, and with it what was written.
    pub(super) async fn revoke(
        &mut self,
        key: &str,
        lease: &str,
        retry: RetryPolicy,
    ) -> Result<(), EtcdError> {
        let body = json!({"ID": lease});
        let question = Question {
            operation: EtcdOperation::Remove,
            key,
            path: ["lease", "revoke"],
            body: &body,
        };
        self.ask(Call::begin(retry), question, |answer| {
            answer.at("header").object()
        })
        .await
    }

    /// Asks with a token where there is a user; with another one where etcd has forgotten it.
    async fn ask<T>(
        &mut self,
        call: Call,
        question: Question<'_>,
        read: impl Fn(&Answer<'_>) -> Result<T, ServiceError>,
    ) -> Result<T, EtcdError> {
        let had_token = self.token.is_some();
        let mut reply = self.ask_as_user(call, question).await?;
        if had_token && is_forgotten(&reply) {
            self.token = None;
            reply = self.ask_as_user(call, question).await?;
        }
        let read = reply.and_then(|Reply { url, body }| {
            let value = answer::parse(&url, &body, self.token.as_ref())?;
            read(&Answer::new(&url, &value))
        });
        read.map_err(|problem| explained(question, problem))
    }

    /// Gets a token first, where there is a user and none is there yet.
    async fn ask_as_user(
        &mut self,
        call: Call,
        question: Question<'_>,
    ) -> Result<Result<Reply, ServiceError>, EtcdError> {
        if let (Some(user), None) = (&self.settings.user, &self.token) {
            self.token = Some(self.sign_in(call, question, user).await?);
        }
        Ok(self.post(call, question, self.token.as_ref()).await)
    }

    async fn sign_in(
        &self,
        call: Call,
        about: Question<'_>,
        user: &User,
    ) -> Result<Secret, EtcdError> {
        let password = user.password();
        let body = json!({"name": user.name, "password": password.expose()});
        let question = Question {
            operation: EtcdOperation::SignIn,
            path: ["auth", "authenticate"],
            body: &body,
            ..about
        };
        let reply = match self.post(call, question, None).await {
            Err(ServiceError::Refused {
                url,
                said,
                status: 400 | 401 | 412,
            }) => {
                return Err(EtcdError::SignIn {
                    endpoint: url,
                    user: user.name.clone(),
                    said: secret::removed([&password], &said),
                });
            }
            reply => reply.map_err(|problem| explained(question, problem))?,
        };
        // The answer is a secret, so no part of it may get into an error.
        let malformed = || ServiceError::Field {
            url: reply.url.clone(),
            field: "token".to_owned(),
            found: "not shown".to_owned(),
            expected: "a token",
        };
        let answer: Option<Value> = serde_json::from_slice(&reply.body).ok();
        let token = answer.as_ref().and_then(|answer| answer["token"].as_str());
        let token = token.filter(|token| !token.is_empty());
        let token = token.ok_or_else(|| explained(question, malformed()))?;
        Ok(Secret::new(token))
    }

    /// Asks one URL after the other until one answers.
    async fn post(
        &self,
        call: Call,
        question: Question<'_>,
        token: Option<&Secret>,
    ) -> Result<Reply, ServiceError> {
        let mut requests = Vec::new();
        for url in &self.urls {
            let [service, method] = question.path;
            let url = below(url, ["v3", service, method])?;
            let text = shown(&url);
            let request = Request::post(url).with_body(question.body);
            requests.push((request.with_bare_token(token), text));
        }
        let all: Vec<&str> = requests.iter().map(|(_, url)| url.as_str()).collect();
        let attempt = || async {
            let at = self.first.load(Ordering::Relaxed) % requests.len();
            let (request, url) = &requests[at];
            // One that does not answer in time is left behind, too: this is undone if it does.
            self.first.store(at + 1, Ordering::Relaxed);
            let http = self.http().clone();
            let attempt = http.attempt(request, url).await;
            if matches!(attempt, Ok(Attempt::Again(ServiceErrorKind::NoTrust, _))) {
                self.trust_again();
            }
            if !matches!(attempt, Ok(Attempt::Again(..))) {
                self.first.store(at, Ordering::Relaxed);
            }
            attempt
        };
        call.retry(&all.join(", "), attempt).await
    }

    /// Trusts the authorities that their file holds now, if it can be used.
    fn trust_again(&self) {
        let authorities = self.settings.authorities.as_ref();
        let pem = authorities.and_then(Authorities::read_again);
        if let Some(http) = pem.and_then(|pem| trusting(&pem).ok()) {
            *self.http() = Arc::new(http);
        }
    }

    fn http(&self) -> MutexGuard<'_, Arc<Http>> {
        // Nothing that holds the lock can panic.
        self.http.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client for an etcd with a certificate of these authorities.
fn trusting(pem: &[u8]) -> Result<Http, EtcdError> {
    let authorities = Certificate::from_pem_bundle(pem).ok();
    let authorities = authorities.filter(|found| !found.is_empty());
    let authorities = authorities.ok_or(EtcdError::Authorities)?;
    Http::trusting(authorities)?.ok_or(EtcdError::Authorities)
}

/// Whether etcd does not know the token any more.
fn is_forgotten(reply: &Result<Reply, ServiceError>) -> bool {
    matches!(reply, Err(ServiceError::Refused { status, said, .. })
        if *status == 401 || said.ends_with(OLD_TOKEN))
}

/// The error for what etcd says no to.
fn explained(question: Question<'_>, problem: ServiceError) -> EtcdError {
    let (operation, key) = (question.operation, question.key.to_owned());
    match problem {
        ServiceError::Refused {
            url: endpoint,
            said,
            ..
        } if said.ends_with(NO_USER) => EtcdError::NoUser {
            operation,
            key,
            endpoint,
        },
        ServiceError::Refused {
            url: endpoint,
            status: 403,
            ..
        } => EtcdError::Forbidden {
            operation,
            key,
            endpoint,
        },
        ServiceError::Refused {
            url: endpoint,
            status: 404 | 405,
            said,
        } if !said.starts_with(ETCD) => EtcdError::NoGateway { endpoint },
        problem => EtcdError::Service {
            operation,
            key,
            problem,
        },
    }
}

/// How everything begins that etcd itself says no with.
const ETCD: &str = "etcdserver: ";
/// What it says to a request without a token.
const NO_USER: &str = "user name is empty";
/// What it says to a token from before its users were changed.
const OLD_TOKEN: &str = "revision of auth store is old";

//! Access tokens: where they come from, and that nobody sees them.

use std::path::PathBuf;

use google_cloud_auth::credentials::{
    AccessTokenCredentials, external_account, impersonated, service_account, user_account,
};
use google_cloud_auth::errors::CredentialsError;
use serde_json::Value;

use super::Session;
use crate::error::{CredentialsProblem, Error, ServiceError, ServiceErrorKind};
use crate::service::call::Attempt;
use crate::service::secret::Secret;
use crate::variables::Variables;

/// Whose rights the questions to Google's services have.
///
/// `Debug` shows no token.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct GoogleCredentials {
    kind: Kind,
}

#[derive(Clone, Debug, Default, Eq, PartialEq)]
enum Kind {
    #[default]
    ApplicationDefault,
    File(PathBuf),
    Machine,
    Token(Secret),
    Anonymous,
}

/// Where the token comes from, once the environment has been read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum TokenSource {
    File(PathBuf),
    Machine,
    Token(Secret),
    Anonymous,
}

impl GoogleCredentials {
    /// Google's rule: the file that `GOOGLE_APPLICATION_CREDENTIALS` names, else the one that
    /// `gcloud auth application-default login` wrote, else the account of this machine.
    #[must_use]
    pub fn application_default() -> Self {
        Self::default()
    }

    /// This file: the key of a service account, or any other kind of Google's credentials.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self {
            kind: Kind::File(path.into()),
        }
    }

    /// The account of this machine, which its metadata server knows.
    #[must_use]
    pub fn machine() -> Self {
        Self {
            kind: Kind::Machine,
        }
    }

    /// This access token.
    pub fn token(token: impl Into<String>) -> Self {
        Self {
            kind: Kind::Token(Secret::new(token)),
        }
    }

    /// Nobody, as stand-ins of the services may want it.
    #[must_use]
    pub fn anonymous() -> Self {
        Self {
            kind: Kind::Anonymous,
        }
    }

    pub(super) fn source(&self, variables: &Variables) -> Result<TokenSource, Error> {
        Ok(match &self.kind {
            Kind::File(path) => TokenSource::File(path.clone()),
            Kind::Machine => TokenSource::Machine,
            Kind::Token(token) => TokenSource::Token(token.clone()),
            Kind::Anonymous => TokenSource::Anonymous,
            Kind::ApplicationDefault => match application_default_file(variables)? {
                Some(path) => TokenSource::File(path),
                None => TokenSource::Machine,
            },
        })
    }
}

impl Session {
    pub(super) async fn fetch_token(&self) -> Result<Option<Secret>, ServiceError> {
        match &self.token_source {
            TokenSource::Anonymous => Ok(None),
            TokenSource::Token(token) => Ok(Some(token.clone())),
            TokenSource::Machine => self.machine_token().await.map(Some),
            TokenSource::File(path) => self.file_token(path).await.map(Some),
        }
    }

    async fn file_token(&self, path: &PathBuf) -> Result<Secret, ServiceError> {
        let name = path.display().to_string();
        let failed = |problem| ServiceError::Credentials {
            source_name: name.clone(),
            problem,
        };
        let text = std::fs::read_to_string(path)
            .map_err(|error| failed(CredentialsProblem::Unreadable(error.kind())))?;
        let content: Value =
            serde_json::from_str(&text).map_err(|_| failed(CredentialsProblem::NotJson))?;
        let credentials = credentials_in(content).map_err(&failed)?;
        let token = self
            .call
            .retry(&name, async || match credentials.access_token().await {
                Ok(token) => Ok(Attempt::Done(Secret::new(token.token))),
                Err(error) if is_transient(&error) => {
                    Ok(Attempt::Again(ServiceErrorKind::NoToken, None))
                }
                Err(_) => Err(failed(CredentialsProblem::Rejected)),
            });
        token.await
    }
}

/// The file that application default credentials are in, if they are in one.
fn application_default_file(variables: &Variables) -> Result<Option<PathBuf>, Error> {
    if let Some(path) = variables.read_nonempty("GOOGLE_APPLICATION_CREDENTIALS")? {
        return Ok(Some(path.into()));
    }
    let folder = match variables.read_nonempty("CLOUDSDK_CONFIG")? {
        Some(folder) => PathBuf::from(folder),
        None => match variables.read_nonempty("HOME")? {
            Some(home) => PathBuf::from(home).join(".config").join("gcloud"),
            None => return Ok(None),
        },
    };
    let file = folder.join("application_default_credentials.json");
    Ok(file.exists().then_some(file))
}

fn credentials_in(content: Value) -> Result<AccessTokenCredentials, CredentialsProblem> {
    let scopes = [SCOPE];
    let built = match content.get("type").and_then(Value::as_str) {
        Some("service_account") => {
            service_account::Builder::new(content).build_access_token_credentials()
        }
        Some("authorized_user") => {
            user_account::Builder::new(content).build_access_token_credentials()
        }
        Some("external_account") => external_account::Builder::new(content)
            .with_scopes(scopes)
            .build_access_token_credentials(),
        Some("impersonated_service_account") => impersonated::Builder::new(content)
            .with_scopes(scopes)
            .build_access_token_credentials(),
        _ => return Err(CredentialsProblem::UnknownKind),
    };
    built.map_err(|_| CredentialsProblem::Malformed)
}

fn is_transient(error: &CredentialsError) -> bool {
    error.is_transient()
}

/// The right to read what the account may read.
pub(super) const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn application_default_credentials_are_looked_for_in_google_s_order() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        let source = |variables: &[(&str, &str)]| {
            let variables = Variables::fixed(variables.iter().copied());
            GoogleCredentials::application_default()
                .source(&variables)
                .unwrap()
        };
        let well_known = folder.path().join("application_default_credentials.json");
        let config = ("CLOUDSDK_CONFIG", &*folder.path().display().to_string());
        assert_eq!(source(&[]), TokenSource::Machine);
        assert_eq!(source(&[config]), TokenSource::Machine);
        std::fs::write(&well_known, "{}").unwrap();
        assert_eq!(source(&[config]), TokenSource::File(well_known.clone()));
        let named = ("GOOGLE_APPLICATION_CREDENTIALS", &*at("key.json"));
        assert_eq!(
            source(&[config, named]),
            TokenSource::File(at("key.json").into())
        );
        let unnamed = ("GOOGLE_APPLICATION_CREDENTIALS", "");
        assert_eq!(source(&[config, unnamed]), TokenSource::File(well_known));
    }

    #[test]
    fn no_output_shows_a_token() {
        let shown = format!("{:?}", GoogleCredentials::token("ya29.secret"));
        assert!(!shown.contains("ya29"), "{shown}");
    }

    #[test]
    fn a_file_of_another_kind_is_refused() {
        let refused = |content: Value, problem| {
            assert_eq!(credentials_in(content).map(drop), Err(problem));
        };
        refused(serde_json::json!({}), CredentialsProblem::UnknownKind);
        refused(serde_json::json!([1]), CredentialsProblem::UnknownKind);
        refused(
            serde_json::json!({"type": "x"}),
            CredentialsProblem::UnknownKind,
        );
        let incomplete = serde_json::json!({"type": "authorized_user"});
        refused(incomplete, CredentialsProblem::Malformed);
    }
}

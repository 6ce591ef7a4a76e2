//! How etcd is reached, as the program or the variables say it.

use std::fmt::{self, Debug};
use std::fs;
use std::time::Duration;

use reqwest::Url;

use super::EtcdMembers;
use crate::error::{Error, EtcdError};
use crate::service::http::{Endpoint, base_url, shown};
use crate::service::retry::RetryPolicy;
use crate::service::secret::Secret;
use crate::variables::Variables;

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Settings {
    pub(super) endpoints: Vec<Endpoint>,
    /// Without a slash at the end.
    pub(super) prefix: String,
    pub(super) user: Option<User>,
    /// A PEM file.
    pub(super) authorities: Option<Vec<u8>>,
    pub(super) retry: RetryPolicy,
    pub(super) time_to_live: Duration,
}

/// A user of etcd.
#[derive(Clone, Eq, PartialEq)]
pub(super) struct User {
    pub(super) name: String,
    pub(super) password: Secret,
}

impl User {
    /// A password read from a file has the line break at the file's end, which is no part of it.
    pub(super) fn new(name: impl Into<String>, password: impl Into<String>) -> Self {
        let password: String = password.into();
        Self {
            name: name.into(),
            password: Secret::new(password.trim_end_matches(['\r', '\n'])),
        }
    }
}

impl Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(f)
    }
}

impl Settings {
    /// Refuses what cannot be or should not be, before anything is sent.
    pub(super) fn check(&self) -> Result<(), EtcdError> {
        if !self.prefix.starts_with('/') {
            let prefix = self.prefix.clone();
            return Err(EtcdError::Prefix { prefix });
        }
        if self.time_to_live < EtcdMembers::LEAST_TIME_TO_LIVE {
            return Err(EtcdError::TimeToLive {
                given: self.time_to_live,
                least: EtcdMembers::LEAST_TIME_TO_LIVE,
            });
        }
        for url in self.urls()? {
            if let Some(user) = self.user.as_ref().filter(|_| !is_private(&url)) {
                return Err(EtcdError::PasswordInClear {
                    user: user.name.clone(),
                    endpoint: shown(&url),
                });
            }
        }
        Ok(())
    }

    /// The client URLs, of which there is at least one.
    pub(super) fn urls(&self) -> Result<Vec<Url>, EtcdError> {
        if self.endpoints.is_empty() {
            // The same as for an empty text.
            base_url("")?;
        }
        let urls = self.endpoints.iter().map(|url| base_url(url.as_str()));
        Ok(urls.collect::<Result<_, _>>()?)
    }

    /// The client URLs as errors show them.
    pub(super) fn shown(&self) -> String {
        let urls = self.endpoints.iter().map(Endpoint::shown);
        urls.collect::<Vec<_>>().join(", ")
    }

    /// The key for an address.
    pub(super) fn key(&self, address: &str) -> String {
        format!("{}/{address}", self.prefix)
    }
}

/// Whether what is sent there is encrypted, or stays on this machine.
fn is_private(url: &Url) -> bool {
    let host = url.host_str().map(|host| host.trim_matches(['[', ']']));
    let is_loopback = host.is_some_and(|host| {
        let address = host.parse::<std::net::IpAddr>();
        host == "localhost" || address.is_ok_and(|address| address.is_loopback())
    });
    url.scheme() == "https" || is_loopback
}

pub(super) fn read(variables: &Variables) -> Result<Option<EtcdMembers>, Error> {
    let Some(endpoints) = variables.read_nonempty(EtcdMembers::ENDPOINTS_ENV)? else {
        return Ok(None);
    };
    let endpoints = endpoints.split(',').map(str::trim);
    let endpoints = endpoints.filter(|url| !url.is_empty()).map(str::to_owned);
    let prefix = needed(
        variables,
        EtcdMembers::PREFIX_ENV,
        EtcdMembers::ENDPOINTS_ENV,
    )?;
    let mut members = EtcdMembers::new(endpoints, prefix);
    if let Some(user) = variables.read_nonempty(EtcdMembers::USER_ENV)? {
        let (variable, because) = (EtcdMembers::PASSWORD_FILE_ENV, EtcdMembers::USER_ENV);
        let password = file(variable, &needed(variables, variable, because)?)?;
        let password = String::from_utf8(password).map_err(|_| Error::NotUnicode {
            variable: variable.to_owned(),
        })?;
        members = members.with_user(user, password);
    }
    let variable = EtcdMembers::AUTHORITY_FILE_ENV;
    if let Some(path) = variables.read_nonempty(variable)? {
        members = members.with_authorities(file(variable, &path)?);
    }
    Ok(Some(members))
}

fn needed(
    variables: &Variables,
    variable: &'static str,
    because: &'static str,
) -> Result<String, Error> {
    let value = variables.read_nonempty(variable)?;
    Ok(value.ok_or(EtcdError::Unset { variable, because })?)
}

fn file(variable: &'static str, path: &str) -> Result<Vec<u8>, EtcdError> {
    fs::read(path).map_err(|error| EtcdError::File {
        variable,
        file: path.into(),
        kind: error.kind(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_break_at_the_end_of_a_file_is_no_part_of_the_password() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        let job = || EtcdMembers::new(["https://etcd:2379"], "/job");
        for (content, password) in [
            ("open sesame\n", "open sesame"),
            ("open sesame\r\n", "open sesame"),
            ("open\nsesame ", "open\nsesame "),
        ] {
            fs::write(&path, content).unwrap();
            let given = job().with_user("u", fs::read_to_string(&path).unwrap());
            let kept = given.settings.user.as_ref().unwrap().password.expose();
            assert_eq!(kept, password);
            let variables = Variables::fixed([
                (EtcdMembers::ENDPOINTS_ENV, "https://etcd:2379"),
                (EtcdMembers::PREFIX_ENV, "/job"),
                (EtcdMembers::USER_ENV, "u"),
                (EtcdMembers::PASSWORD_FILE_ENV, path.to_str().unwrap()),
            ]);
            assert_eq!(read(&variables), Ok(Some(given)));
        }
    }
}

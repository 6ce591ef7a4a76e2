//! How etcd is reached, as the program or the variables say it.

use std::fmt::{self, Debug};
use std::fs;
use std::path::PathBuf;
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
    pub(super) authorities: Option<Authorities>,
    pub(super) retry: RetryPolicy,
    pub(super) time_to_live: Duration,
}

/// A user of etcd.
#[derive(Clone, Eq, PartialEq)]
pub(super) struct User {
    pub(super) name: String,
    password: Secret,
    file: Origin,
}

/// The authorities for etcd's certificate.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Authorities {
    /// The text of a PEM file.
    pub(super) pem: Vec<u8>,
    file: Origin,
}

/// The file from which something was read, if it was, and in which it may be replaced. Settings are
/// equal that say the same, wherever it was read.
#[derive(Clone, Debug, Default)]
struct Origin(Option<PathBuf>);

impl PartialEq for Origin {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Origin {}

impl Origin {
    fn read(&self) -> Option<Vec<u8>> {
        fs::read(self.0.as_ref()?).ok()
    }
}

impl User {
    /// A password read from a file has the line break at the file's end, which is no part of it.
    pub(super) fn new(name: impl Into<String>, password: impl Into<String>) -> Self {
        let password: String = password.into();
        Self {
            name: name.into(),
            password: password_in(&password),
            file: Origin::default(),
        }
    }

    /// As its file says now; as it was where that cannot be read.
    pub(super) fn password(&self) -> Secret {
        let read = self.file.read();
        let read = read.and_then(|text| String::from_utf8(text).ok());
        read.map_or_else(|| self.password.clone(), |text| password_in(&text))
    }
}

impl Authorities {
    pub(super) fn new(pem: impl Into<Vec<u8>>) -> Self {
        Self {
            pem: pem.into(),
            file: Origin::default(),
        }
    }

    /// What their file holds now, if they are from one that can be read.
    pub(super) fn read_again(&self) -> Option<Vec<u8>> {
        self.file.read()
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
        let path = needed(variables, variable, because)?;
        let password = file(variable, &path)?;
        let password = String::from_utf8(password).map_err(|_| Error::NotUnicode {
            variable: variable.to_owned(),
        })?;
        members.settings.user = Some(User {
            file: Origin(Some(path.into())),
            ..User::new(user, password)
        });
    }
    let variable = EtcdMembers::AUTHORITY_FILE_ENV;
    if let Some(path) = variables.read_nonempty(variable)? {
        members.settings.authorities = Some(Authorities {
            pem: file(variable, &path)?,
            file: Origin(Some(path.into())),
        });
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

fn password_in(text: &str) -> Secret {
    Secret::new(text.trim_end_matches(['\r', '\n']))
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
            let kept = given.settings.user.as_ref().unwrap().password();
            assert_eq!(kept.expose(), password);
            let variables = Variables::fixed([
                (EtcdMembers::ENDPOINTS_ENV, "https://etcd:2379"),
                (EtcdMembers::PREFIX_ENV, "/job"),
                (EtcdMembers::USER_ENV, "u"),
                (EtcdMembers::PASSWORD_FILE_ENV, path.to_str().unwrap()),
            ]);
            assert_eq!(read(&variables), Ok(Some(given)));
        }
    }

    #[test]
    fn files_are_read_again_where_they_have_been_replaced_and_can_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "first\n").unwrap();
        let variables = Variables::fixed([
            (EtcdMembers::ENDPOINTS_ENV, "https://etcd:2379"),
            (EtcdMembers::PREFIX_ENV, "/job"),
            (EtcdMembers::USER_ENV, "u"),
            (EtcdMembers::PASSWORD_FILE_ENV, path.to_str().unwrap()),
            (EtcdMembers::AUTHORITY_FILE_ENV, path.to_str().unwrap()),
        ]);
        let settings = read(&variables).unwrap().unwrap().settings;
        let (user, authorities) = (settings.user.unwrap(), settings.authorities.unwrap());
        fs::write(&path, "second\n").unwrap();
        assert_eq!(user.password().expose(), "second");
        assert_eq!(authorities.read_again().unwrap(), b"second\n");
        fs::write(&path, [0xff]).unwrap();
        assert_eq!(user.password().expose(), "first");
        fs::remove_file(&path).unwrap();
        assert_eq!(user.password().expose(), "first");
        assert_eq!(authorities.read_again(), None);
    }
}

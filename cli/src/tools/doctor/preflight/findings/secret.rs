//! Whether all ranks have the same job secret, or certificates that the others believe. It is
//! judged by whether they let each other in: the handshake proves that both have what it takes, and
//! nothing that is printed here is made of it.

use std::fmt::{self, Display};

use meshwork_collectives::{
    Certificates, Error, JobSecret, JoinError, UnauthenticatedCause, UnauthenticatedPeer,
};

use super::{Facts, Finding, Level, fine, wrong};

/// Where this process has from by what it proves who it is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(in super::super) enum SecretSource {
    Variable,
    File(String),
    /// The file with its certificate.
    Certificate(String),
}

impl SecretSource {
    /// As [`JobIdentity::from_env`](meshwork_collectives::JobIdentity::from_env) looks for it.
    pub(in super::super) fn of_environment() -> Option<Self> {
        let path = |name| std::env::var_os(name).map(|path| path.to_string_lossy().into_owned());
        if let Some(chain) = path(Certificates::CHAIN_ENV) {
            return Some(Self::Certificate(chain));
        }
        if std::env::var_os(JobSecret::ENV).is_some() {
            return Some(Self::Variable);
        }
        path(JobSecret::FILE_ENV).map(Self::File)
    }
}

impl Display for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable => f.write_str(JobSecret::ENV),
            Self::File(path) | Self::Certificate(path) => f.write_str(path),
        }
    }
}

/// Nothing where the ranks did not get so far as to prove what they have.
pub(super) fn secret(facts: &Facts) -> Option<Finding> {
    let source = facts.secret.as_ref()?;
    match &facts.not_joined {
        None if facts.members.len() == 1 => None,
        None => Some(fine(
            source.subject(),
            all_alike(facts.members.len(), source),
        )),
        Some(Error::Join(JoinError::OtherJob { peer })) => Some(another(&peer.to_string(), source)),
        Some(Error::Join(JoinError::NotJoined { refused, .. })) => {
            let others = refused.iter().filter(is_of_other_job);
            let others: Vec<_> = others.map(|peer| name(facts, peer)).collect();
            (!others.is_empty()).then(|| another(&others.join(", "), source))
        }
        Some(_) => None,
    }
}

fn all_alike(ranks: usize, source: &SecretSource) -> String {
    match source {
        SecretSource::Variable | SecretSource::File(_) => {
            format!("all {ranks} ranks have the same job secret; this one has it from {source}")
        }
        SecretSource::Certificate(path) => format!(
            "all {ranks} ranks believe each other's certificates; that of this one is in {path}"
        ),
    }
}

fn another(others: &str, source: &SecretSource) -> Finding {
    let (what, remedy) = match source {
        SecretSource::Variable | SecretSource::File(_) => (
            format!(
                "{others} and this rank, which has it from {source}, have different job secrets"
            ),
            format!(
                "copy one file to all hosts and name it in {}; where {} is set too, it counts",
                JobSecret::FILE_ENV,
                JobSecret::ENV
            ),
        ),
        SecretSource::Certificate(path) => (
            format!(
                "{others} and this rank, whose certificate is in {path}, do not believe each other"
            ),
            format!(
                "give all ranks the authorities of all in {}, and none of them a job secret only",
                Certificates::AUTHORITY_ENV
            ),
        ),
    };
    wrong(Level::Problem, source.subject(), what, remedy)
}

impl SecretSource {
    fn subject(&self) -> &'static str {
        match self {
            Self::Variable | Self::File(_) => "secret",
            Self::Certificate(_) => "certificates",
        }
    }
}

fn is_of_other_job(peer: &&UnauthenticatedPeer) -> bool {
    peer.cause() == UnauthenticatedCause::OtherJob
}

/// The member at the address from which somebody called, if one is.
fn name(facts: &Facts, peer: &UnauthenticatedPeer) -> String {
    let address = peer.address();
    let is_there = |found: &Vec<_>| found.contains(&address);
    let mut members = facts.members.iter();
    match members.find(|member| member.found.as_ref().is_ok_and(is_there)) {
        Some(member) => format!("{} ({})", member.rank, member.address),
        None => format!("the process at {address}"),
    }
}

//! Whether all ranks have the same job secret. It is judged by whether they let each other in: the
//! handshake proves that both have it, and nothing that is printed here is made of it.

use std::fmt::{self, Display};

use meshwork_collectives::{
    Error, JobSecret, JoinError, UnauthenticatedCause, UnauthenticatedPeer,
};

use super::{Facts, Finding, Level, fine, wrong};

/// Where this process has its secret from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(in super::super) enum SecretSource {
    Variable,
    File(String),
}

impl SecretSource {
    /// As [`JobSecret::from_env`] looks for it.
    pub(in super::super) fn of_environment() -> Option<Self> {
        if std::env::var_os(JobSecret::ENV).is_some() {
            return Some(Self::Variable);
        }
        let path = std::env::var_os(JobSecret::FILE_ENV)?;
        Some(Self::File(path.to_string_lossy().into_owned()))
    }
}

impl Display for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable => f.write_str(JobSecret::ENV),
            Self::File(path) => f.write_str(path),
        }
    }
}

/// Nothing where the ranks did not get so far as to prove what they have.
pub(super) fn secret(facts: &Facts) -> Option<Finding> {
    let source = facts.secret.as_ref()?;
    match &facts.not_joined {
        None if facts.members.len() == 1 => None,
        None => Some(fine(
            "secret",
            format!(
                "all {} ranks have the same job secret; this one has it from {source}",
                facts.members.len()
            ),
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

fn another(others: &str, source: &SecretSource) -> Finding {
    wrong(
        Level::Problem,
        "secret",
        format!("{others} and this rank, which has it from {source}, have different job secrets"),
        format!(
            "copy one file to all hosts and name it in {}; where {} is set too, it counts",
            JobSecret::FILE_ENV,
            JobSecret::ENV
        ),
    )
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

//! Certificates that the user's own authority has issued.

mod verify;

use std::fmt::{self, Debug};
use std::fs;
use std::path::{Path, PathBuf};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use zeroize::Zeroizing;

use super::{Credentials, Role, certificate, private};
use crate::{ConfigError, Rank};

/// Certificates of the user's own authority, as PEM files, in place of those that processes derive
/// from the job secret.
///
/// Each rank has a certificate of its own for [`Certificates::name`] of its rank, as a DNS name,
/// and for both the server's and the client's part of TLS. The files are read when this process
/// begins to join and every five minutes from then on, so whoever renews certificates just replaces
/// them; connections that stand are not touched. Where files cannot be used, or others would refuse
/// them, those before stay in use.
///
/// ```
/// use meshwork_collectives::{Certificates, Rank};
///
/// assert_eq!(
///     Certificates::name("night-run", Rank::new(3)),
///     "rank-3.night-run.meshwork.invalid"
/// );
/// ```
#[derive(Clone)]
pub struct Certificates {
    job: String,
    authority: PathBuf,
    chain: PathBuf,
    key: PathBuf,
}

impl Certificates {
    /// The files of one rank: the certificates of the authorities to trust; the rank's certificate,
    /// then those between it and an authority; the rank's private key (PKCS #8, SEC 1 or PKCS #1).
    /// `job` is a word for the job, the same on all ranks: letters, digits and hyphens, at most 63.
    ///
    /// # Errors
    /// [`ConfigError::JobName`] for another word; [`ConfigError::Certificate`] for a file that
    /// cannot be read or has no certificate or key; [`ConfigError::FileMode`] for a private key
    /// that others can read.
    pub fn new(
        job: impl Into<String>,
        authority: impl AsRef<Path>,
        chain: impl AsRef<Path>,
        key: impl AsRef<Path>,
    ) -> Result<Self, ConfigError> {
        let job = job.into();
        let message_counts = |job: &str| {
            job.bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        let edges = job.starts_with('-') || job.ends_with('-');
        if job.is_empty() || job.len() > 63 || edges || !message_counts(&job) {
            return Err(ConfigError::JobName { job });
        }
        let certificates = Self {
            job,
            authority: authority.as_ref().to_owned(),
            chain: chain.as_ref().to_owned(),
            key: key.as_ref().to_owned(),
        };
        certificates.read().map(|_| certificates)
    }

    /// The DNS name that the certificate of a rank is for. It never resolves: it names a rank, not
    /// a host.
    #[must_use]
    pub fn name(job: &str, rank: Rank) -> String {
        certificate::host(job, Role::Rank(rank))
    }

    /// The DNS name that the certificates of all ranks are for besides, where newcomers that know
    /// members only by their addresses are to ask them.
    #[must_use]
    pub fn member_name(job: &str) -> String {
        certificate::host(job, Role::Member)
    }

    pub(super) fn job(&self) -> &str {
        &self.job
    }

    /// What the files hold now.
    pub(super) fn read(&self) -> Result<Credentials, ConfigError> {
        Ok(Credentials {
            roots: certificates(&self.authority)?,
            chain: certificates(&self.chain)?,
            key: private_key(&self.key)?,
        })
    }
}

impl Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates")
            .field("job", &self.job)
            .field("chain", &self.chain)
            .finish_non_exhaustive()
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let text = fs::read(path).map_err(|_| unreadable(path))?;
    certificates_in(&text).ok_or_else(|| unusable(path, "no certificate"))
}

fn private_key(path: &Path) -> Result<Zeroizing<PrivateKeyDer<'static>>, ConfigError> {
    let text = private::read(path, |_| unreadable(path))?;
    private_key_in(&text).ok_or_else(|| unusable(path, "no private key"))
}

fn certificates_in(text: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    found.ok().filter(|found| !found.is_empty())
}

fn private_key_in(text: &[u8]) -> Option<Zeroizing<PrivateKeyDer<'static>>> {
    PrivateKeyDer::from_pem_slice(text).ok().map(Into::into)
}

/// What one file holds that need not hold anything, as fuzz targets have it.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn credentials_in(text: &[u8]) -> Option<Credentials> {
    let certificates = certificates_in(text)?;
    Some(Credentials {
        roots: certificates.clone(),
        chain: certificates,
        key: private_key_in(text)?,
    })
}

fn unreadable(path: &Path) -> ConfigError {
    unusable(path, "no file that can be read")
}

fn unusable(path: &Path, what: &'static str) -> ConfigError {
    ConfigError::Certificate {
        path: path.display().to_string(),
        what,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_are_no_part_of_a_name_are_refused() {
        for job in ["", "-a", "a-", "a.b", "a b", "ä", &"a".repeat(64)] {
            let refused = Certificates::new(job, "x", "x", "x").unwrap_err();
            let job = job.to_owned();
            assert_eq!(refused, ConfigError::JobName { job });
        }
    }

    #[test]
    fn files_without_what_they_should_hold_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let empty = folder.path().join("empty.pem");
        fs::write(&empty, "nothing\n").unwrap();
        let missing = folder.path().join("missing.pem");
        for (path, what) in [
            (&empty, "no certificate"),
            (&missing, "no file that can be read"),
        ] {
            let refused = Certificates::new("job", path, path, path).unwrap_err();
            let path = path.display().to_string();
            assert_eq!(refused, ConfigError::Certificate { path, what });
        }
    }
}

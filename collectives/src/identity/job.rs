//! By what a process proves that it belongs to its job, and where it has that from.

use std::env;
use std::ffi::OsString;

use super::{Certificates, JobSecret};
use crate::ConfigError;

/// By what a process proves that it belongs to its job: a secret that all share, or certificates
/// of the user's own authority.
///
/// ```
/// use meshwork_collectives::{GroupConfig, JobIdentity, JobSecret, Rank};
///
/// let identity = JobIdentity::from(JobSecret::generate()?); // or JobIdentity::from_env()?
/// let config = GroupConfig::new(["10.0.0.1:4000"], Rank::CHIEF, identity)?;
/// # assert_eq!(config.rank(), Rank::CHIEF);
/// # Ok::<(), meshwork_collectives::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum JobIdentity {
    /// Whoever knows it can be any rank.
    Secret(JobSecret),
    /// Each rank has a key of its own. A launcher that only has a secret is not believed.
    Certificates(Certificates),
}

impl JobIdentity {
    /// What the environment names: certificates where all four variables of [`Certificates`] are
    /// set, and otherwise the job secret. Certificates come first, as a launcher sets a secret
    /// without being asked.
    ///
    /// # Errors
    /// [`ConfigError::CertificatesIncomplete`] where some of the four are not set; those of
    /// [`Certificates::new`] and [`JobSecret::from_env`].
    pub fn from_env() -> Result<Self, ConfigError> {
        match Certificates::from_env()? {
            Some(certificates) => Ok(certificates.into()),
            None => Ok(JobSecret::from_env()?.into()),
        }
    }
}

impl From<JobSecret> for JobIdentity {
    fn from(secret: JobSecret) -> Self {
        Self::Secret(secret)
    }
}

impl From<Certificates> for JobIdentity {
    fn from(certificates: Certificates) -> Self {
        Self::Certificates(certificates)
    }
}

impl Certificates {
    /// The environment variable for the word that names the job.
    pub const JOB_ENV: &'static str = "MESHWORK_CERTIFICATE_JOB";
    /// The environment variable for the file with the certificates of the authorities to trust.
    pub const AUTHORITY_ENV: &'static str = "MESHWORK_CERTIFICATE_AUTHORITY_FILE";
    /// The environment variable for the file with the rank's certificate and those between it and
    /// an authority.
    pub const CHAIN_ENV: &'static str = "MESHWORK_CERTIFICATE_FILE";
    /// The environment variable for the file with the rank's private key.
    pub const KEY_ENV: &'static str = "MESHWORK_CERTIFICATE_KEY_FILE";

    /// Those that the environment names; `None` where it names nothing of the kind.
    ///
    /// # Errors
    /// [`ConfigError::CertificatesIncomplete`]; those of [`Certificates::new`].
    pub fn from_env() -> Result<Option<Self>, ConfigError> {
        Self::from_variables(|name| env::var_os(name))
    }

    fn from_variables(
        look_up: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Option<Self>, ConfigError> {
        let names = [
            Self::JOB_ENV,
            Self::AUTHORITY_ENV,
            Self::CHAIN_ENV,
            Self::KEY_ENV,
        ];
        match names.map(look_up) {
            [None, None, None, None] => Ok(None),
            [Some(job), Some(authority), Some(chain), Some(key)] => {
                let job = job.to_string_lossy();
                Self::new(job, authority, chain, key).map(Some)
            }
            values => {
                let missing = names.iter().zip(values);
                let missing = missing.filter(|(_, value)| value.is_none());
                Err(ConfigError::CertificatesIncomplete {
                    missing: missing.map(|(name, _)| *name).collect(),
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_of_the_variables_are_not_enough_and_those_missing_are_named() {
        let all = [
            Certificates::JOB_ENV,
            Certificates::AUTHORITY_ENV,
            Certificates::CHAIN_ENV,
            Certificates::KEY_ENV,
        ];
        for set in 0_u32..16 {
            let is_set = |name: &str| {
                let place = all.iter().position(|known| *known == name).unwrap();
                set >> place & 1 == 1
            };
            let found = Certificates::from_variables(|name| is_set(name).then(|| "x".into()));
            let missing: Vec<_> = all.into_iter().filter(|name| !is_set(name)).collect();
            match missing.len() {
                0 => {
                    let path = "x".to_owned();
                    let what = "no file that can be read";
                    assert_eq!(found.unwrap_err(), ConfigError::Certificate { path, what });
                }
                4 => assert!(found.unwrap().is_none()),
                1..4 | 5.. => {
                    let refused = found.unwrap_err();
                    let told = refused.to_string();
                    assert!(missing.iter().all(|name| told.contains(name)), "{told}");
                    assert_eq!(refused, ConfigError::CertificatesIncomplete { missing });
                }
            }
        }
    }
}

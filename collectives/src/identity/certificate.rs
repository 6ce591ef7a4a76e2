//! The certificates of a job: what they say, who signs them, and how long they last.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyUsagePurpose, SanType,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use zeroize::Zeroizing;

use super::key::{Key, page};
use crate::{ConfigError, JobSecret, Rank};

/// What a certificate says its holder is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Role {
    /// A member of the group.
    Rank(Rank),
    /// Any member: what a newcomer demands of whom it knows only the address. Every member's
    /// certificate is for this too, and none for it alone.
    Member,
    /// The process that started the members: it may report a loss and nothing else.
    Launcher,
}

/// What a process shows, and whom it believes.
#[derive(Eq, PartialEq)]
pub(crate) struct Credentials {
    /// The authorities that it believes.
    pub(crate) roots: Vec<CertificateDer<'static>>,
    /// Its certificate, then those between it and an authority.
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: Zeroizing<PrivateKeyDer<'static>>,
}

/// The private CA that every process of a job derives from the job secret for itself.
pub(crate) struct Authority {
    job: String,
    issuer: Issuer<'static, Key>,
    certificate: CertificateDer<'static>,
}

impl Authority {
    pub(crate) fn derive(secret: &JobSecret) -> Result<Self, ConfigError> {
        let job = secret.job();
        let mut seed = page()?;
        seed.copy_from_slice(&*secret.derive::<32>(b"certificate authority key"));
        let key = Key::from_seed(seed)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = name(&format!("meshwork job {job}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        // The same bytes in every process of the job, whatever its clock: the CA lasts as long as
        // its secret is used, the certificates it signs are short-lived.
        params.serial_number = Some(1_u64.into());
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(4096, 1, 1);
        let certificate = params
            .self_signed(&key)
            .map_err(refused("signing the job's CA"))?
            .der()
            .clone();
        Ok(Self {
            job,
            issuer: Issuer::new(params, key),
            certificate,
        })
    }

    pub(super) fn job(&self) -> &str {
        &self.job
    }

    /// A new certificate for `role`, and its authority.
    pub(crate) fn credentials(
        &self,
        role: Role,
        now: SystemTime,
    ) -> Result<Credentials, ConfigError> {
        let (certificate, key) = self.certify(role, now)?;
        Ok(Credentials {
            roots: vec![self.certificate.clone()],
            chain: vec![certificate],
            key,
        })
    }

    #[cfg(test)]
    pub(crate) fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// A certificate for `role` with a fresh key, valid from an hour ago, for clocks that differ,
    /// until a day from now: it is only shown when a connection begins.
    pub(crate) fn certify(
        &self,
        role: Role,
        now: SystemTime,
    ) -> Result<(CertificateDer<'static>, Zeroizing<PrivateKeyDer<'static>>), ConfigError> {
        const HOUR: Duration = Duration::from_secs(3600);
        let key = Key::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name = name(&format!("{} of meshwork job {}", called(role), self.job));
        params.subject_alt_names = self.names(role)?;
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let since_epoch = now
            .duration_since(UNIX_EPOCH)
            .map_err(|_| ConfigError::Identity {
                what: "reading the clock, which is before 1970,",
            })?;
        let now = rcgen::date_time_ymd(1970, 1, 1) + since_epoch;
        params.not_before = now - HOUR;
        params.not_after = now + 24 * HOUR;
        let certificate = params
            .signed_by(&key, &self.issuer)
            .map_err(refused("signing the certificate"))?;
        Ok((certificate.der().clone(), key.to_der()))
    }

    /// What a certificate of `role` is valid for.
    fn names(&self, role: Role) -> Result<Vec<SanType>, ConfigError> {
        let roles = match role {
            Role::Rank(_) => vec![role, Role::Member],
            Role::Member | Role::Launcher => vec![role],
        };
        let name = |role| {
            let name = host(&self.job, role).try_into();
            name.map(SanType::DnsName)
                .map_err(refused("naming the certificate"))
        };
        roles.into_iter().map(name).collect()
    }
}

/// The name that a certificate of `role` in this job is valid for.
pub(super) fn server_name(job: &str, role: Role) -> Result<ServerName<'static>, ConfigError> {
    ServerName::try_from(host(job, role)).map_err(|_| ConfigError::Identity {
        what: "naming a peer",
    })
}

/// `.invalid` never resolves (RFC 6761): these are names of ranks, not of hosts.
pub(super) fn host(job: &str, role: Role) -> String {
    match role {
        Role::Rank(rank) => format!("rank-{}.{job}.meshwork.invalid", rank.number()),
        Role::Member => format!("member.{job}.meshwork.invalid"),
        Role::Launcher => format!("launcher.{job}.meshwork.invalid"),
    }
}

fn called(role: Role) -> String {
    match role {
        Role::Rank(rank) => rank.to_string(),
        Role::Member => "member".to_owned(),
        Role::Launcher => "launcher".to_owned(),
    }
}

fn name(common: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common);
    name
}

fn refused(what: &'static str) -> impl Fn(rcgen::Error) -> ConfigError {
    move |_| ConfigError::Identity { what }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_process_of_a_job_derives_the_same_authority() {
        let secret = JobSecret::generate().unwrap();
        let first = Authority::derive(&secret).unwrap();
        let second = Authority::derive(&secret).unwrap();
        assert_eq!(first.certificate(), second.certificate());
        let other = Authority::derive(&JobSecret::generate().unwrap()).unwrap();
        assert_ne!(first.certificate(), other.certificate());
    }

    #[test]
    fn two_certificates_of_one_rank_have_different_keys() {
        let authority = Authority::derive(&JobSecret::generate().unwrap()).unwrap();
        let role = Role::Rank(Rank::new(1));
        let now = SystemTime::now();
        let (_, first) = authority.certify(role, now).unwrap();
        let (_, second) = authority.certify(role, now).unwrap();
        assert_ne!(first.secret_der(), second.secret_der());
    }
}

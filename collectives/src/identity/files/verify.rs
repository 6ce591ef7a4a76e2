//! Whether a rank's certificates prove what they have to: what the others will find, found before
//! they are asked, with the file at fault.

use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::UnixTime;
use rustls::server::WebPkiClientVerifier;
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, RootCertStore};

use super::{Certificates, certificate};
use crate::identity::{Credentials, Role};
use crate::{CertificateProblem, ConfigError, Rank};

impl Certificates {
    /// Whether others that trust the same authorities would believe now that this is `rank`.
    ///
    /// # Errors
    /// [`ConfigError::CertificateProof`] with what they would find; those of
    /// [`Certificates::new`].
    pub fn verify(&self, rank: Rank) -> Result<(), ConfigError> {
        self.read_as(rank, SystemTime::now()).map(drop)
    }

    /// What the files hold now, if others would believe at this time that it is `rank`'s.
    pub(in crate::identity) fn read_as(
        &self,
        rank: Rank,
        now: SystemTime,
    ) -> Result<Credentials, ConfigError> {
        let credentials = self.read()?;
        self.prove(&credentials, rank, now)?;
        Ok(credentials)
    }

    fn prove(
        &self,
        credentials: &Credentials,
        rank: Rank,
        now: SystemTime,
    ) -> Result<(), ConfigError> {
        let fault = |path: &Path, problem| ConfigError::CertificateProof {
            path: path.display().to_string(),
            name: Self::name(&self.job, rank),
            problem,
        };
        let provider = rustls::crypto::ring::default_provider();
        let key = credentials.key.clone_key();
        if let Err(error) = CertifiedKey::from_der(credentials.chain.clone(), key, &provider) {
            let (path, problem) = match error {
                rustls::Error::InconsistentKeys(_) => (&self.key, CertificateProblem::OtherKey),
                rustls::Error::InvalidCertificate(_) => {
                    (&self.chain, CertificateProblem::Malformed)
                }
                _ => (&self.key, CertificateProblem::Malformed),
            };
            return Err(fault(path, problem));
        }
        let mut roots = RootCertStore::empty();
        for root in &credentials.roots {
            let added = roots.add(root.clone());
            added.map_err(|_| fault(&self.authority, CertificateProblem::Malformed))?;
        }
        let (roots, provider) = (Arc::new(roots), Arc::new(provider));
        let unusable = |_| fault(&self.authority, CertificateProblem::Malformed);
        let servers = WebPkiServerVerifier::builder_with_provider(roots.clone(), provider.clone());
        let servers = servers.build().map_err(unusable)?;
        let clients = WebPkiClientVerifier::builder_with_provider(roots, provider);
        let clients = clients.build().map_err(unusable)?;
        let name = certificate::server_name(&self.job, Role::Rank(rank))?;
        let (own, between) = credentials
            .chain
            .split_first()
            .expect("a file without a certificate is no chain");
        // Before 1970 nothing is valid yet.
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = UnixTime::since_unix_epoch(now);
        servers
            .verify_server_cert(own, between, &name, &[], now)
            .map(|_| ())
            .and_then(|()| clients.verify_client_cert(own, between, now).map(|_| ()))
            .map_err(|error| fault(&self.chain, problem(&error)))
    }
}

fn problem(error: &rustls::Error) -> CertificateProblem {
    use CertificateError::{
        BadSignature, Expired, ExpiredContext, InvalidPurpose, InvalidPurposeContext,
        NotValidForName, NotValidForNameContext, NotValidYet, NotValidYetContext, UnknownIssuer,
    };
    let rustls::Error::InvalidCertificate(found) = error else {
        return CertificateProblem::Malformed;
    };
    match found {
        Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. } => {
            CertificateProblem::Expired
        }
        NotValidForName | NotValidForNameContext { .. } => CertificateProblem::OtherName,
        InvalidPurpose | InvalidPurposeContext { .. } => CertificateProblem::Purpose,
        // An authority of the same name with another key is another.
        UnknownIssuer | BadSignature => CertificateProblem::UnknownAuthority,
        _ => CertificateProblem::Malformed,
    }
}

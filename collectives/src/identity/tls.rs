//! Mutual TLS 1.3 under one authority: what this process shows, and whom it believes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ConnectionError, TransportErrorCode};
use rustls::client::{Resumption, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::cipher_suite;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{CertificateError, ClientConfig, RootCertStore, ServerConfig};

use super::{Authority, Certificates, Credentials, JobIdentity, Role, certificate};
use crate::{ConfigError, JobSecret, JoinError, Member, UnauthenticatedCause};

/// This process's certificate, and how it recognises others: mutual TLS 1.3 under one CA.
pub(crate) struct Identity {
    source: Source,
    role: Role,
    current: Mutex<Current>,
}

/// Where certificates come from.
enum Source {
    /// Every process of the job signs its own.
    Secret(Box<Authority>),
    /// Somebody else's authority signs them, and puts new ones in their place in time.
    Files(Certificates),
}

/// What connections begin with at the moment.
struct Current {
    since: SystemTime,
    credentials: Credentials,
    server: Arc<QuicServerConfig>,
    client: Arc<QuicClientConfig>,
    tcp_server: Arc<ServerConfig>,
    tcp_client: Arc<ClientConfig>,
}

/// How long a certificate of a secret is shown before it is replaced, long before the day is over
/// that it lasts. Files are read at each look, as theirs may last an hour.
pub(crate) const RENEWAL: Duration = Duration::from_secs(3600);

impl Identity {
    /// For a process that holds the job secret.
    pub(crate) fn new(secret: &JobSecret, role: Role) -> Result<Self, ConfigError> {
        Self::of(Source::Secret(Box::new(Authority::derive(secret)?)), role)
    }

    /// For a process that has a secret or the user's certificates.
    pub(crate) fn of_job(identity: &JobIdentity, role: Role) -> Result<Self, ConfigError> {
        match identity {
            JobIdentity::Secret(secret) => Self::new(secret, role),
            JobIdentity::Certificates(files) => Self::of(Source::Files(files.clone()), role),
        }
    }

    fn of(source: Source, role: Role) -> Result<Self, ConfigError> {
        let now = SystemTime::now();
        let current = Current::new(source.credentials(role, now)?, now)?;
        Ok(Self {
            source,
            role,
            current: Mutex::new(current),
        })
    }

    /// What a connection that others begin is answered with.
    pub(crate) fn server(&self) -> Arc<QuicServerConfig> {
        self.current().server.clone()
    }

    /// What a connection to others begins with.
    pub(crate) fn client(&self) -> Arc<QuicClientConfig> {
        self.current().client.clone()
    }

    /// The same as [`Identity::server`] for a connection over TCP.
    pub(crate) fn tcp_server(&self) -> Arc<ServerConfig> {
        self.current().tcp_server.clone()
    }

    /// The same as [`Identity::client`] for a connection over TCP.
    pub(crate) fn tcp_client(&self) -> Arc<ClientConfig> {
        self.current().tcp_client.clone()
    }

    /// Takes a new certificate if this one has been shown for long, or if files hold others now,
    /// and says whether it did. Connections that stand are not touched: they have proved who they
    /// are.
    ///
    /// # Errors
    /// Those of [`Identity::of_job`], as for files whose certificate is over by now, though they
    /// were not replaced; the old one is kept.
    pub(crate) fn renew(&self, now: SystemTime) -> Result<bool, ConfigError> {
        if matches!(self.source, Source::Secret(_)) && !self.current().is_old(now) {
            return Ok(false);
        }
        let credentials = self.source.credentials(self.role, now)?;
        if credentials == self.current().credentials {
            return Ok(false);
        }
        *self.current() = Current::new(credentials, now)?;
        Ok(true)
    }

    /// The name to demand of a peer in the handshake.
    pub(crate) fn server_name(&self, role: Role) -> Result<ServerName<'static>, ConfigError> {
        certificate::server_name(self.source.job(), role)
    }

    /// Whether a peer whose certificate chain the handshake has verified is `role`.
    pub(crate) fn is(&self, connection: &quinn::Connection, role: Role) -> bool {
        let identity = connection.peer_identity();
        let chain = identity.and_then(|any| any.downcast::<Vec<CertificateDer<'static>>>().ok());
        chain.is_some_and(|chain| self.proves(&chain, role))
    }

    /// The same of a certificate chain, its owner's first.
    pub(crate) fn proves(&self, chain: &[CertificateDer<'_>], role: Role) -> bool {
        let Some(leaf) = chain.first() else {
            return false;
        };
        let (Ok(leaf), Ok(name)) = (ParsedCertificate::try_from(leaf), self.server_name(role))
        else {
            return false;
        };
        verify_server_name(&leaf, &name).is_ok()
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        // Nothing that holds the lock can panic half-way through a change.
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Source {
    fn job(&self) -> &str {
        match self {
            Self::Secret(authority) => authority.job(),
            Self::Files(certificates) => certificates.job(),
        }
    }

    fn credentials(&self, role: Role, now: SystemTime) -> Result<Credentials, ConfigError> {
        match (self, role) {
            (Self::Secret(authority), _) => authority.credentials(role, now),
            // A better error than the one that others would cause by refusing it.
            (Self::Files(certificates), Role::Rank(rank)) => certificates.read_as(rank, now),
            (Self::Files(certificates), Role::Member | Role::Launcher) => certificates.read(),
        }
    }
}

impl Current {
    fn new(credentials: Credentials, since: SystemTime) -> Result<Self, ConfigError> {
        let mut roots = RootCertStore::empty();
        for root in &credentials.roots {
            roots
                .add(root.clone())
                .map_err(refused("trusting the job's CA"))?;
        }
        let roots = Arc::new(roots);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let quic_server = server(&provider, &roots, &credentials)?;
        let quic_client = client(&provider, &roots, &credentials)?;
        let bulk = Arc::new(fastest_first());
        let mut tcp_server = server(&bulk, &roots, &credentials)?;
        let mut tcp_client = client(&bulk, &roots, &credentials)?;
        tcp_server.alpn_protocols = vec![TCP_ALPN.to_vec()];
        tcp_client.alpn_protocols = vec![TCP_ALPN.to_vec()];
        // Records are sealed by ourselves: see `tls::record`.
        tcp_server.enable_secret_extraction = true;
        tcp_client.enable_secret_extraction = true;
        Ok(Self {
            since,
            credentials,
            server: Arc::new(quic_server.try_into().map_err(no_initial_cipher)?),
            client: Arc::new(quic_client.try_into().map_err(no_initial_cipher)?),
            tcp_server: Arc::new(tcp_server),
            tcp_client: Arc::new(tcp_client),
        })
    }

    fn is_old(&self, now: SystemTime) -> bool {
        // A clock that was set back says as little of the time as one that was set forward.
        let shown = match now.duration_since(self.since) {
            Ok(ahead) => ahead,
            Err(behind) => behind.duration(),
        };
        shown >= RENEWAL
    }
}

/// Whether a process could show these credentials and believe their authorities, and be shown them.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn usable(credentials: Credentials) -> bool {
    let leaf = credentials.chain.first().map(ParsedCertificate::try_from);
    let shown = leaf.is_some_and(|leaf| leaf.is_ok());
    Current::new(credentials, SystemTime::UNIX_EPOCH).is_ok() && shown
}

/// Why two processes did not believe each other.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Distrust {
    /// They have different authorities.
    OtherJob,
    /// They have one authority, and the one that was called is not the rank that was to be there.
    OtherRank,
    /// A certificate is not valid at this time.
    Expired,
}

impl Distrust {
    /// The same of a caller that was not let in.
    pub(crate) fn cause(self) -> UnauthenticatedCause {
        match self {
            Self::OtherJob => UnauthenticatedCause::OtherJob,
            Self::OtherRank => UnauthenticatedCause::OtherRank,
            Self::Expired => UnauthenticatedCause::Expired,
        }
    }

    /// The same of a member that was called.
    pub(crate) fn error(self, peer: Member) -> JoinError {
        match self {
            Self::OtherJob => JoinError::OtherJob { peer },
            Self::OtherRank => JoinError::OtherRank { peer },
            Self::Expired => JoinError::Expired { peer },
        }
    }
}

/// Why a handshake failed, if one side did not believe the other. Either side may be the one that
/// noticed: it says so in a TLS alert.
pub(crate) fn distrust(error: &ConnectionError) -> Option<Distrust> {
    // Alerts of RFC 8446, section 6.2: what rustls sends for a chain that does not verify.
    const OTHER_JOB: [u8; 4] = [46, 48, 49, 51];
    // Names are looked at behind the chain, and only by whoever calls.
    const OTHER_RANK: u8 = 42;
    const EXPIRED: u8 = 45;
    let code = match error {
        // Bytes that are no certificate end in the alert of another name, but say nothing of one.
        ConnectionError::TransportError(error) if error.reason == unreadable() => {
            return Some(Distrust::OtherJob);
        }
        ConnectionError::ConnectionClosed(close) if close.reason == unreadable().as_bytes() => {
            return Some(Distrust::OtherJob);
        }
        ConnectionError::TransportError(error) => error.code,
        ConnectionError::ConnectionClosed(close) => close.error_code,
        _ => return None,
    };
    let is = |alert: u8| code == TransportErrorCode::crypto(alert);
    if is(EXPIRED) {
        return Some(Distrust::Expired);
    }
    if is(OTHER_RANK) {
        return Some(Distrust::OtherRank);
    }
    OTHER_JOB.into_iter().any(is).then_some(Distrust::OtherJob)
}

/// What quinn says of a certificate that is none.
fn unreadable() -> String {
    rustls::Error::InvalidCertificate(CertificateError::BadEncoding).to_string()
}

/// The same of a handshake over TCP, as far as this side noticed.
pub(crate) fn distrust_over_tcp(error: &rustls::Error) -> Option<Distrust> {
    use CertificateError::{
        Expired, ExpiredContext, NotValidForName, NotValidForNameContext, NotValidYet,
        NotValidYetContext,
    };
    match error {
        rustls::Error::InvalidCertificate(
            Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. },
        ) => Some(Distrust::Expired),
        rustls::Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. }) => {
            Some(Distrust::OtherRank)
        }
        rustls::Error::InvalidCertificate(_) => Some(Distrust::OtherJob),
        _ => None,
    }
}

/// The cipher that takes the least time for a byte stands first.
fn fastest_first() -> CryptoProvider {
    CryptoProvider {
        cipher_suites: vec![
            cipher_suite::TLS13_AES_128_GCM_SHA256,
            cipher_suite::TLS13_AES_256_GCM_SHA384,
            cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        ],
        ..rustls::crypto::ring::default_provider()
    }
}

fn server(
    provider: &Arc<CryptoProvider>,
    roots: &Arc<RootCertStore>,
    credentials: &Credentials,
) -> Result<ServerConfig, ConfigError> {
    let clients = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone())
        .build()
        .map_err(|_| ConfigError::Identity {
            what: "setting up the verification of peers",
        })?;
    let mut config = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(refused("choosing TLS 1.3"))?
        .with_client_cert_verifier(clients)
        .with_single_cert(credentials.chain.clone(), credentials.key.clone_key())
        .map_err(refused("using this process's certificate"))?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    // Each connection proves its rank anew: no session is ever resumed.
    config.send_tls13_tickets = 0;
    Ok(config)
}

fn client(
    provider: &Arc<CryptoProvider>,
    roots: &Arc<RootCertStore>,
    credentials: &Credentials,
) -> Result<ClientConfig, ConfigError> {
    let mut config = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(refused("choosing TLS 1.3"))?
        .with_root_certificates(roots.clone())
        .with_client_auth_cert(credentials.chain.clone(), credentials.key.clone_key())
        .map_err(refused("using this process's certificate"))?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = Resumption::disabled();
    // The name of a rank is nobody's business on the way, and the acceptor has one certificate.
    config.enable_sni = false;
    Ok(config)
}

pub(crate) const ALPN: &[u8] = b"meshwork/1";
/// Over TCP another protocol is spoken, so that nobody can pass the bytes of one on as the other's.
pub(crate) const TCP_ALPN: &[u8] = b"meshwork-bulk/1";

fn refused(what: &'static str) -> impl Fn(rustls::Error) -> ConfigError {
    move |_| ConfigError::Identity { what }
}

fn no_initial_cipher(_: quinn::crypto::rustls::NoInitialCipherSuite) -> ConfigError {
    ConfigError::Identity {
        what: "finding the cipher suite that QUIC begins with",
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use meshwork_testing::pem;
    use quinn::ConnectionClose;

    use super::*;
    use crate::{CertificateProblem, Rank};

    const DAY: Duration = Duration::from_secs(86_400);

    /// Issues a certificate for a rank, from this time on, into the same files each time.
    fn issue(authority: &Authority, folder: &Path, rank: u32, from: SystemTime) -> Certificates {
        let role = Role::Rank(Rank::new(rank));
        let issued = authority.credentials(role, from).unwrap();
        let file = |name: &str, label: &str, der: &[u8]| {
            let path = folder.join(name);
            fs::write(&path, pem(label, der)).unwrap();
            #[cfg(unix)]
            fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600))
                .unwrap();
            path
        };
        let root = file("root", "CERTIFICATE", &issued.roots[0]);
        let chain = file("chain", "CERTIFICATE", &issued.chain[0]);
        let key = file("key", "PRIVATE KEY", issued.key.secret_der());
        Certificates::new(authority.job(), root, chain, key).unwrap()
    }

    /// They may last an hour, and are replaced when half of it is over.
    #[test]
    fn files_that_were_replaced_are_taken_at_the_next_look_unless_they_are_unusable() {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::derive(&JobSecret::generate().unwrap()).unwrap();
        let now = SystemTime::now();
        let issue = || issue(&authority, folder.path(), 0, now);
        let identity = Identity::of_job(&issue().into(), Role::Rank(Rank::CHIEF)).unwrap();
        let first = identity.client();
        assert_eq!(identity.renew(now + RENEWAL / 12), Ok(false));
        assert_eq!(identity.renew(now + 2 * RENEWAL), Ok(false));
        assert!(Arc::ptr_eq(&first, &identity.client()));
        issue();
        let later = now + RENEWAL / 2;
        assert_eq!(identity.renew(later), Ok(true));
        let second = identity.client();
        assert!(!Arc::ptr_eq(&first, &second));
        assert_eq!(identity.renew(later), Ok(false));
        let key = fs::read(folder.path().join("key")).unwrap();
        issue();
        fs::write(folder.path().join("key"), key).unwrap();
        // The certificate is there already, and its key is not.
        assert!(identity.renew(later).is_err());
        fs::write(folder.path().join("chain"), "nothing").unwrap();
        assert!(identity.renew(later).is_err());
        assert!(Arc::ptr_eq(&second, &identity.client()));
    }

    #[test]
    fn files_that_others_would_refuse_are_not_taken_in_place_of_those_before() {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::derive(&JobSecret::generate().unwrap()).unwrap();
        let now = SystemTime::now();
        let issue = |rank, from| issue(&authority, folder.path(), rank, from);
        let identity = Identity::of_job(&issue(0, now).into(), Role::Rank(Rank::CHIEF)).unwrap();
        let first = identity.client();
        let refused = |now| match identity.renew(now) {
            Err(ConfigError::CertificateProof { problem, .. }) => problem,
            other => panic!("{other:?}"),
        };
        // They were not replaced, and are over.
        assert_eq!(refused(now + 2 * DAY), CertificateProblem::Expired);
        issue(1, now);
        assert_eq!(refused(now), CertificateProblem::OtherName);
        issue(0, now - 2 * DAY);
        assert_eq!(refused(now), CertificateProblem::Expired);
        assert!(Arc::ptr_eq(&first, &identity.client()));
    }

    #[test]
    fn a_certificate_is_replaced_once_it_has_been_shown_for_long() {
        let secret = JobSecret::generate().unwrap();
        let identity = Identity::new(&secret, Role::Rank(Rank::CHIEF)).unwrap();
        let (now, first) = (SystemTime::now(), identity.client());
        assert_eq!(identity.renew(now + RENEWAL / 2), Ok(false));
        assert!(Arc::ptr_eq(&first, &identity.client()));
        assert_eq!(identity.renew(now + 2 * RENEWAL), Ok(true));
        assert!(!Arc::ptr_eq(&first, &identity.client()));
        assert_eq!(identity.renew(now + 2 * RENEWAL), Ok(false));
    }

    #[test]
    fn a_certificate_is_replaced_too_where_the_clock_was_in_the_future_and_is_set_back() {
        let secret = JobSecret::generate().unwrap();
        let identity = Identity::new(&secret, Role::Rank(Rank::CHIEF)).unwrap();
        let (now, first) = (SystemTime::now(), identity.client());
        assert_eq!(identity.renew(now - RENEWAL / 2), Ok(false));
        assert!(Arc::ptr_eq(&first, &identity.client()));
        assert_eq!(identity.renew(now - 2 * RENEWAL), Ok(true));
        assert!(!Arc::ptr_eq(&first, &identity.client()));
        assert_eq!(identity.renew(now - 2 * RENEWAL), Ok(false));
    }

    #[test]
    fn another_rank_is_told_apart_from_another_job_and_from_what_is_no_certificate() {
        let of = |alert, reason: &str| {
            let code = TransportErrorCode::crypto(alert);
            let mut error = ConnectionError::TransportError(code.into());
            if let ConnectionError::TransportError(error) = &mut error {
                reason.clone_into(&mut error.reason);
            }
            distrust(&error)
        };
        assert_eq!(of(42, ""), Some(Distrust::OtherRank));
        assert_eq!(of(42, &unreadable()), Some(Distrust::OtherJob));
        let told = |reason: &str| {
            distrust(&ConnectionError::ConnectionClosed(ConnectionClose {
                error_code: TransportErrorCode::crypto(42),
                frame_type: None,
                reason: reason.to_owned().into(),
            }))
        };
        assert_eq!(told("bad name"), Some(Distrust::OtherRank));
        assert_eq!(told(&unreadable()), Some(Distrust::OtherJob));
        assert_eq!(of(45, ""), Some(Distrust::Expired));
        for alert in [46, 48, 49, 51] {
            assert_eq!(of(alert, ""), Some(Distrust::OtherJob), "{alert}");
        }
        assert_eq!(of(80, ""), None);
    }

    #[test]
    fn distrust_over_tcp_is_told_apart_from_other_failures() {
        use CertificateError::{Expired, NotValidForName, UnknownIssuer};
        let told = |error| distrust_over_tcp(&error);
        let of = |error| told(rustls::Error::InvalidCertificate(error));
        assert_eq!(of(Expired), Some(Distrust::Expired));
        assert_eq!(of(NotValidForName), Some(Distrust::OtherRank));
        assert_eq!(of(UnknownIssuer), Some(Distrust::OtherJob));
        assert_eq!(told(rustls::Error::DecryptError), None);
    }
}

use std::sync::Arc;
use std::time::SystemTime;

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ConnectionError, TransportErrorCode};
use rustls::client::{Resumption, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use super::{Authority, Role};
use crate::{Error, JobSecret};

/// This process's certificate, and how it recognises others: mutual TLS 1.3 under the job's CA.
pub(crate) struct Identity {
    authority: Authority,
    pub(crate) server: Arc<QuicServerConfig>,
    pub(crate) client: Arc<QuicClientConfig>,
}

impl Identity {
    pub(crate) fn new(secret: &JobSecret, role: Role) -> Result<Self, Error> {
        let authority = Authority::derive(secret)?;
        let mut roots = RootCertStore::empty();
        roots
            .add(authority.certificate().clone())
            .map_err(refused("trusting the job's CA"))?;
        let roots = Arc::new(roots);
        let (certificate, key) = authority.certify(role, SystemTime::now())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let server = server(&provider, &roots, (certificate.clone(), key.clone_key()))?;
        let client = client(&provider, &roots, (certificate, key))?;
        Ok(Self {
            authority,
            server,
            client,
        })
    }

    /// The name to demand of a peer in the handshake.
    pub(crate) fn server_name(&self, role: Role) -> Result<ServerName<'static>, Error> {
        self.authority.server_name(role)
    }

    /// Whether a peer whose certificate chain the handshake has verified is `role`.
    pub(crate) fn is(&self, connection: &quinn::Connection, role: Role) -> bool {
        let identity = connection.peer_identity();
        let chain = identity.and_then(|any| any.downcast::<Vec<CertificateDer<'static>>>().ok());
        let Some(leaf) = chain.as_ref().and_then(|chain| chain.first()) else {
            return false;
        };
        let (Ok(leaf), Ok(name)) = (ParsedCertificate::try_from(leaf), self.server_name(role))
        else {
            return false;
        };
        verify_server_name(&leaf, &name).is_ok()
    }
}

/// Whether a handshake failed because the two sides hold different job secrets. Either side may
/// be the one that noticed: it says so in a TLS alert.
pub(crate) fn is_other_job(error: &ConnectionError) -> bool {
    // Alerts of RFC 8446, section 6.2: what rustls sends for a chain that does not verify.
    const ALERTS: [u8; 5] = [42, 46, 48, 49, 51];
    let code = match error {
        ConnectionError::TransportError(error) => error.code,
        ConnectionError::ConnectionClosed(close) => close.error_code,
        _ => return false,
    };
    ALERTS
        .into_iter()
        .any(|alert| code == TransportErrorCode::crypto(alert))
}

type Credentials = (
    CertificateDer<'static>,
    rustls::pki_types::PrivateKeyDer<'static>,
);

fn server(
    provider: &Arc<CryptoProvider>,
    roots: &Arc<RootCertStore>,
    (certificate, key): Credentials,
) -> Result<Arc<QuicServerConfig>, Error> {
    let clients = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone())
        .build()
        .map_err(|_| Error::Identity {
            what: "setting up the verification of peers",
        })?;
    let mut config = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(refused("choosing TLS 1.3"))?
        .with_client_cert_verifier(clients)
        .with_single_cert(vec![certificate], key)
        .map_err(refused("using this process's certificate"))?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    // Each connection proves its rank anew: no session is ever resumed.
    config.send_tls13_tickets = 0;
    QuicServerConfig::try_from(config)
        .map(Arc::new)
        .map_err(no_initial_cipher)
}

fn client(
    provider: &Arc<CryptoProvider>,
    roots: &Arc<RootCertStore>,
    (certificate, key): Credentials,
) -> Result<Arc<QuicClientConfig>, Error> {
    let mut config = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(refused("choosing TLS 1.3"))?
        .with_root_certificates(roots.clone())
        .with_client_auth_cert(vec![certificate], key)
        .map_err(refused("using this process's certificate"))?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = Resumption::disabled();
    // The name of a rank is nobody's business on the way, and the acceptor has one certificate.
    config.enable_sni = false;
    QuicClientConfig::try_from(config)
        .map(Arc::new)
        .map_err(no_initial_cipher)
}

const ALPN: &[u8] = b"meshwork/1";

fn refused(what: &'static str) -> impl Fn(rustls::Error) -> Error {
    move |_| Error::Identity { what }
}

fn no_initial_cipher(_: quinn::crypto::rustls::NoInitialCipherSuite) -> Error {
    Error::Identity {
        what: "finding the cipher suite that QUIC begins with",
    }
}

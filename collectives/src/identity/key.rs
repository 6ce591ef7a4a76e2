use rcgen::{PKCS_ED25519, PublicKeyData, SignatureAlgorithm, SigningKey};
use ring::signature::{Ed25519KeyPair, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use zeroize::Zeroizing;

use super::fill_random;
use super::page::Page;
use crate::{ConfigError, SystemError};

/// An Ed25519 key that certificates are signed with: what stays in memory of it is its seed.
pub(super) struct Key {
    seed: Page,
    public: Vec<u8>,
}

impl Key {
    /// Any 32 bytes are the seed of one.
    pub(super) fn from_seed(seed: Page) -> Result<Self, ConfigError> {
        let refused = |_| ConfigError::Identity {
            what: "deriving a key",
        };
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(refused)?;
        Ok(Self {
            public: pair.public_key().as_ref().to_vec(),
            seed,
        })
    }

    pub(super) fn generate() -> Result<Self, ConfigError> {
        let mut seed = page()?;
        fill_random(&mut seed)?;
        Self::from_seed(seed)
    }

    /// As TLS takes it: the seed behind the fixed 16 bytes of PKCS #8 (RFC 8410, section 7).
    pub(super) fn to_der(&self) -> Zeroizing<PrivateKeyDer<'static>> {
        const WRAPPING: [u8; 16] = [
            0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22,
            0x04, 0x20,
        ];
        let der = [&WRAPPING[..], &self.seed].concat();
        PrivateKeyDer::from(PrivatePkcs8KeyDer::from(der)).into()
    }
}

impl PublicKeyData for Key {
    fn der_bytes(&self) -> &[u8] {
        &self.public
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ED25519
    }
}

impl SigningKey for Key {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        let pair = Ed25519KeyPair::from_seed_unchecked(&self.seed);
        let pair = pair.map_err(|_| rcgen::Error::RemoteKeyError)?;
        Ok(pair.sign(message).as_ref().to_vec())
    }
}

/// Memory for a secret.
pub(super) fn page() -> Result<Page, ConfigError> {
    let refused =
        |error: std::io::Error| SystemError::new("taking memory for a secret", error.kind());
    Ok(Page::new().map_err(refused)?)
}

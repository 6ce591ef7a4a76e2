//! By what a rank proves that it may use a relay. Whoever has it can use that relay, and nothing
//! else: neither the job secret nor a key of it can be worked out from it.

use std::env;
use std::fmt::{self, Debug};
use std::sync::Arc;

use ring::hmac;
use zeroize::Zeroizing;

use super::datagram::{Cookie, Nonce, Proof};
use crate::{ConfigError, JobSecret};

/// What a relay knows of a job, and what its ranks prove to know: derived from the job secret,
/// which cannot be found from it.
///
/// ```
/// use meshwork_collectives::{JobSecret, RelayToken};
///
/// let secret = JobSecret::generate()?;
/// let token = RelayToken::from_hex(&RelayToken::of(&secret).to_hex())?;
/// assert!(!format!("{token:?}").contains(&*token.to_hex()));
/// # Ok::<(), meshwork_collectives::Error>(())
/// ```
#[derive(Clone)]
pub struct RelayToken(Arc<Zeroizing<[u8; 32]>>);

impl RelayToken {
    /// The environment variable with the token of a relay: 64 hexadecimal digits.
    pub const ENV: &'static str = "MESHWORK_RELAY_TOKEN";

    /// That of a job.
    #[must_use]
    pub fn of(secret: &JobSecret) -> Self {
        Self(Arc::new(secret.relay_token()))
    }

    /// The token in [`Self::ENV`], if it is set.
    ///
    /// # Errors
    /// Those of [`from_hex`](Self::from_hex).
    pub fn from_env() -> Result<Option<Self>, ConfigError> {
        let digits = env::var_os(Self::ENV);
        let digits = digits.map(|digits| Zeroizing::new(digits.to_string_lossy().into_owned()));
        digits.map(|digits| Self::from_hex(&digits)).transpose()
    }

    /// Reads 64 hexadecimal digits; inverse of [`to_hex`](Self::to_hex).
    ///
    /// # Errors
    /// [`ConfigError::RelayTokenMalformed`]
    pub fn from_hex(digits: &str) -> Result<Self, ConfigError> {
        let malformed = || ConfigError::RelayTokenMalformed {
            length: digits.chars().count(),
        };
        let mut bytes = Zeroizing::new([0; 32]);
        if digits.len() != 2 * bytes.len() || !digits.bytes().all(|one| one.is_ascii_hexdigit()) {
            return Err(malformed());
        }
        for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
            *byte = u8::from_str_radix(&digits[at..at + 2], 16).map_err(|_| malformed())?;
        }
        Ok(Self(Arc::new(bytes)))
    }

    /// The 64 digits to hand to a relay; inverse of [`from_hex`](Self::from_hex).
    #[must_use]
    pub fn to_hex(&self) -> Zeroizing<String> {
        let digits = self.0.iter().map(|byte| format!("{byte:02x}"));
        Zeroizing::new(digits.collect())
    }

    /// That a rank with it has asked with this nonce and has got this cookie.
    pub(super) fn of_rank(&self, member: u32, nonce: &Nonce, cookie: &Cookie) -> Proof {
        let parts: [&[u8]; 4] = [b"rank", &member.to_le_bytes(), nonce, cookie];
        self.proof(&parts)
    }

    /// As [`of_rank`](Self::of_rank), compared in constant time.
    pub(super) fn is_of_rank(
        &self,
        member: u32,
        nonce: &Nonce,
        cookie: &Cookie,
        told: &Proof,
    ) -> bool {
        let parts: [&[u8]; 4] = [b"rank", &member.to_le_bytes(), nonce, cookie];
        hmac::verify(&self.key(), &parts.concat(), told).is_ok()
    }

    /// That a relay with it has given this session.
    pub(super) fn of_relay(&self, nonce: &Nonce, session: u64) -> Proof {
        let parts: [&[u8]; 3] = [b"relay", nonce, &session.to_le_bytes()];
        self.proof(&parts)
    }

    /// As [`of_relay`](Self::of_relay), compared in constant time.
    pub(super) fn is_of_relay(&self, nonce: &Nonce, session: u64, told: &Proof) -> bool {
        let parts: [&[u8]; 3] = [b"relay", nonce, &session.to_le_bytes()];
        hmac::verify(&self.key(), &parts.concat(), told).is_ok()
    }

    fn proof(&self, parts: &[&[u8]]) -> Proof {
        let mut proof = Proof::default();
        proof.copy_from_slice(hmac::sign(&self.key(), &parts.concat()).as_ref());
        proof
    }

    fn key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &**self.0)
    }
}

impl Debug for RelayToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RelayToken")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_the_jobs_and_not_its_secret() {
        let [one, other] = [0, 1].map(|_| JobSecret::generate().unwrap());
        let token = RelayToken::of(&one);
        assert_eq!(*token.to_hex(), *RelayToken::of(&one).to_hex());
        assert_ne!(*token.to_hex(), *RelayToken::of(&other).to_hex());
        assert_ne!(*token.to_hex(), *one.to_hex());
        let again = RelayToken::from_hex(&token.to_hex()).unwrap();
        let (nonce, cookie) = ([7; 16], [8; 16]);
        let proof = again.of_rank(3, &nonce, &cookie);
        assert!(token.is_of_rank(3, &nonce, &cookie, &proof));
        assert!(!token.is_of_rank(4, &nonce, &cookie, &proof));
        assert!(!RelayToken::of(&other).is_of_rank(3, &nonce, &cookie, &proof));
        assert!(token.is_of_relay(&nonce, 9, &again.of_relay(&nonce, 9)));
        assert!(!token.is_of_relay(&nonce, 8, &again.of_relay(&nonce, 9)));
    }

    #[test]
    fn texts_that_are_no_token_are_refused_and_not_shown() {
        let not_ascii = "ä".repeat(32);
        for wrong in ["", "ab", &"z".repeat(64), &not_ascii] {
            let length = wrong.chars().count();
            let refused = RelayToken::from_hex(wrong).unwrap_err();
            assert_eq!(refused, ConfigError::RelayTokenMalformed { length });
            assert!(wrong.len() < 3 || !refused.to_string().contains(wrong));
        }
    }
}

//! The job secret: reading it, keeping it out of sight, and deriving keys from it.

use std::env;
use std::fmt::{self, Debug};
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use ring::hkdf;
use zeroize::Zeroizing;

use super::key::page;
use super::page::Page;
use super::{fill_random, private};
use crate::ConfigError;

/// What all processes of one job share, and nobody else knows: 256 random bits.
///
/// Neither `Debug` nor any error shows it. All clones have one page of memory, which is wiped with
/// the last of them and which core dumps leave out (Linux).
///
/// ```
/// use meshwork_collectives::JobSecret;
///
/// let secret = JobSecret::generate()?;
/// assert_eq!(JobSecret::from_hex(&secret.to_hex())?.job(), secret.job());
/// assert!(!format!("{secret:?}").contains(&*secret.to_hex()));
/// # Ok::<(), meshwork_collectives::Error>(())
/// ```
#[derive(Clone)]
pub struct JobSecret(Arc<Page>);

impl JobSecret {
    /// The environment variable that hands the secret to a process, and to all that it starts:
    /// 64 hexadecimal digits.
    pub const ENV: &'static str = "MESHWORK_JOB_SECRET";

    /// The environment variable that names a file with the secret, read when [`Self::ENV`] is not
    /// set: 64 hexadecimal digits, white space around them ignored. It is for its owner alone (mode
    /// 600 or less).
    pub const FILE_ENV: &'static str = "MESHWORK_JOB_SECRET_FILE";

    /// A new secret from the operating system's randomness.
    ///
    /// # Errors
    /// [`ConfigError::Identity`] when there is none to be had,
    /// [`ConfigError::System`] without memory for it.
    pub fn generate() -> Result<Self, ConfigError> {
        let mut bytes = page()?;
        fill_random(&mut bytes)?;
        Ok(Self(Arc::new(bytes)))
    }

    /// The secret that the launcher or the user handed over in the environment.
    ///
    /// # Errors
    /// [`ConfigError::SecretMissing`], [`ConfigError::SecretFile`], [`ConfigError::FileMode`];
    /// those of [`JobSecret::from_hex`].
    pub fn from_env() -> Result<Self, ConfigError> {
        if let Some(digits) = env::var_os(Self::ENV) {
            return Self::from_hex(&Zeroizing::new(digits.to_string_lossy().into_owned()));
        }
        let path = env::var_os(Self::FILE_ENV).ok_or(ConfigError::SecretMissing)?;
        Self::from_file(Path::new(&path))
    }

    /// The secret in a file as [`Self::FILE_ENV`] names one.
    ///
    /// # Errors
    /// [`ConfigError::SecretFile`], [`ConfigError::FileMode`]; those of [`JobSecret::from_hex`].
    pub fn from_file(path: &Path) -> Result<Self, ConfigError> {
        let unreadable = |kind| ConfigError::SecretFile {
            path: path.to_string_lossy().into_owned(),
            kind,
        };
        let digits = private::read(path, unreadable)?;
        let digits = str::from_utf8(&digits).map_err(|_| unreadable(io::ErrorKind::InvalidData))?;
        Self::from_hex(digits.trim())
    }

    /// The secret that somebody writes to an end, such as standard input: digits as in a file.
    ///
    /// ```
    /// use meshwork_collectives::JobSecret;
    ///
    /// let secret = JobSecret::generate()?;
    /// let input = format!("{}\n", *secret.to_hex());
    /// assert_eq!(JobSecret::from_reader(input.as_bytes())?.job(), secret.job());
    /// # Ok::<(), meshwork_collectives::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ConfigError::SecretUnread`]; those of [`JobSecret::from_hex`].
    pub fn from_reader(input: impl Read) -> Result<Self, ConfigError> {
        // All at once, as memory that a growing list leaves behind is not wiped.
        let mut content = Zeroizing::new(Vec::with_capacity(LONGEST_INPUT + 32));
        let unread = |kind| ConfigError::SecretUnread { kind };
        let read = input.take(LONGEST_INPUT as u64).read_to_end(&mut content);
        read.map_err(|error| unread(error.kind()))?;
        let digits = str::from_utf8(&content).map_err(|_| unread(io::ErrorKind::InvalidData))?;
        Self::from_hex(digits.trim())
    }

    /// Reads 64 hexadecimal digits; inverse of [`JobSecret::to_hex`].
    ///
    /// # Errors
    /// [`ConfigError::SecretMalformed`], [`ConfigError::System`]
    /// without memory for it.
    pub fn from_hex(digits: &str) -> Result<Self, ConfigError> {
        let wrong = digits
            .chars()
            .filter(|digit| !digit.is_ascii_hexdigit())
            .count();
        if wrong > 0 || digits.len() != 64 {
            return Err(ConfigError::SecretMalformed {
                length: digits.chars().count(),
                wrong,
            });
        }
        let mut bytes = page()?;
        for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
            *byte = 16 * value(pair[0]) + value(pair[1]);
        }
        Ok(Self(Arc::new(bytes)))
    }

    /// The 64 digits to hand to another process of the job; inverse of [`JobSecret::from_hex`].
    #[must_use]
    pub fn to_hex(&self) -> Zeroizing<String> {
        Zeroizing::new(hex(&self.0))
    }

    /// A name of the job that may be shown: it tells two jobs apart and gives nothing away.
    #[must_use]
    pub fn job(&self) -> String {
        hex(&*self.derive::<8>(b"job name"))
    }

    /// What lets a rank use a relay, and says nothing of the secret.
    pub(crate) fn relay_token(&self) -> Zeroizing<[u8; 32]> {
        self.derive(b"relay token")
    }

    /// `N` bytes for one purpose, by HKDF-SHA256 (RFC 5869); purposes are independent.
    pub(super) fn derive<const N: usize>(&self, purpose: &[u8]) -> Zeroizing<[u8; N]> {
        struct Length(usize);
        impl hkdf::KeyType for Length {
            fn len(&self) -> usize {
                self.0
            }
        }
        let extracted =
            hkdf::Salt::new(hkdf::HKDF_SHA256, b"meshwork job secret v1").extract(&self.0);
        let mut derived = Zeroizing::new([0; N]);
        extracted
            .expand(&[purpose], Length(N))
            .and_then(|expanded| expanded.fill(&mut *derived))
            .expect("HKDF-SHA256 gives up to 8,160 bytes, and the buffer has the length asked for");
        derived
    }
}

impl Debug for JobSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobSecret(of job {})", self.job())
    }
}

/// Bytes that are read of an input: the digits, and white space around them.
const LONGEST_INPUT: usize = 1024;

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .map(|nibble| char::from(DIGITS[usize::from(nibble)]))
        .collect()
}

/// The value of a hexadecimal digit, as checked by the caller.
fn value(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_digits_of_either_case_are_the_same_secret() {
        let digits = "00ff0123456789abcdefABCDEF00112233445566778899aabbccddeeff000102";
        let secret = JobSecret::from_hex(digits).unwrap();
        assert_eq!(*secret.to_hex(), digits.to_lowercase());
    }

    #[test]
    fn malformed_digits_are_counted_and_not_shown() {
        for (digits, length, wrong) in [
            ("", 0, 0),
            ("ab", 2, 0),
            (&"z".repeat(64), 64, 64),
            (&"ä".repeat(32), 32, 32),
        ] {
            let refused = JobSecret::from_hex(digits).unwrap_err();
            assert_eq!(refused, ConfigError::SecretMalformed { length, wrong });
            assert!(digits.len() < 3 || !refused.to_string().contains(digits));
        }
    }

    #[test]
    fn an_input_is_read_to_its_end_and_no_further_than_a_secret_goes() {
        let digits = "ab".repeat(32);
        let given = format!("  {digits}\n\n");
        let secret = JobSecret::from_reader(given.as_bytes()).unwrap();
        assert_eq!(*secret.to_hex(), digits);
        let long = JobSecret::from_reader(io::repeat(b'a')).unwrap_err();
        let (length, wrong) = (LONGEST_INPUT, 0);
        assert_eq!(long, ConfigError::SecretMalformed { length, wrong });
        let empty = JobSecret::from_reader(io::empty()).unwrap_err();
        let (length, wrong) = (0, 0);
        assert_eq!(empty, ConfigError::SecretMalformed { length, wrong });
        let kind = io::ErrorKind::InvalidData;
        let bytes = JobSecret::from_reader(&[0xff; 64][..]).unwrap_err();
        assert_eq!(bytes, ConfigError::SecretUnread { kind });
    }

    #[test]
    fn secrets_and_purposes_give_independent_keys() {
        let (a, b) = (
            JobSecret::generate().unwrap(),
            JobSecret::generate().unwrap(),
        );
        assert_ne!(a.job(), b.job());
        assert_ne!(*a.derive::<8>(b"job name"), *a.derive::<8>(b"another"));
        assert_eq!(a.job(), a.clone().job());
    }
}

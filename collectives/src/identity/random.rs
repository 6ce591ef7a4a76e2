use ring::rand::{SecureRandom, SystemRandom};

use crate::ConfigError;

/// Random bytes of the operating system.
pub(crate) fn fill_random(bytes: &mut [u8]) -> Result<(), ConfigError> {
    let filled = SystemRandom::new().fill(bytes);
    filled.map_err(|_| ConfigError::Identity {
        what: "reading random bytes",
    })
}

//! Where a status was left out, nobody is to wait for it.

use crate::Error;

/// Refuses to leave out what was asked for.
pub(super) fn check_env() -> Result<(), Error> {
    match std::env::var_os("MESHWORK_STATUS") {
        Some(_) => Err(Error::WithoutStatus),
        None => Ok(()),
    }
}

//! Times on the command line.

use std::num::ParseFloatError;
use std::time::{Duration, TryFromFloatSecsError};

#[derive(Debug, thiserror::Error)]
pub(crate) enum SecondsError {
    #[error("it takes a number of seconds, such as 5 or 0.5")]
    Number(#[source] ParseFloatError),
    #[error("it takes a number of seconds from 0 up")]
    Range(#[source] TryFromFloatSecsError),
}

pub(crate) fn seconds(text: &str) -> Result<Duration, SecondsError> {
    let seconds = text.parse().map_err(SecondsError::Number)?;
    Duration::try_from_secs_f64(seconds).map_err(SecondsError::Range)
}

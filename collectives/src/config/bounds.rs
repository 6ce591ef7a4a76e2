//! Waits that are bounded whatever a job asks for.

use std::time::Duration;

/// From a caller's first packet until it is a member.
const JOINING: Duration = Duration::from_secs(10);
/// Others are tried directly before they are by a relay.
const DIRECTLY: Duration = Duration::from_secs(5);

/// How long what may take at the most. Programs have the default; tests wait for less where they
/// have to wait until it is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) joining: Duration,
    pub(crate) directly: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            joining: JOINING,
            directly: DIRECTLY,
        }
    }
}

//! Questions to services: one deadline over all attempts, pauses between them, answers with a
//! limited size, and errors that name the URL and never a secret.
//!
//! Everything that asks is blocking outside and asynchronous inside: `call::run` lends the caller a
//! thread of its own, so a resolver may also be asked from inside an asynchronous runtime.

pub(crate) mod error;

#[cfg(feature = "service")]
pub(crate) mod address;
#[cfg(feature = "service")]
pub(crate) mod answer;
#[cfg(feature = "service")]
pub(crate) mod call;
#[cfg(feature = "google")]
pub(crate) mod http;
#[cfg(feature = "service")]
pub(crate) mod order;
#[cfg(feature = "service")]
pub(crate) mod patience;
#[cfg(feature = "service")]
pub(crate) mod secret;
#[cfg(feature = "service")]
pub(crate) mod seen;
#[cfg(feature = "service")]
pub(crate) mod tls;
#[cfg(feature = "service")]
pub(crate) mod trouble;

/// Statuses that say "not now".
#[cfg(feature = "service")]
pub(crate) const RETRIED: [u16; 6] = [408, 429, 500, 502, 503, 504];

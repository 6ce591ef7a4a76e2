//! Questions to services: one deadline over all attempts, pauses between them, answers with a
//! limited size, and errors that name the URL and never a secret.
//!
//! Everything that asks is blocking outside and asynchronous inside: `call::run` lends the caller a
//! thread of its own, so a resolver may also be asked from inside an asynchronous runtime.

pub(crate) mod answer;
pub(crate) mod call;
pub(crate) mod error_kind;
#[cfg(any(feature = "etcd", feature = "google"))]
pub(crate) mod http;
pub(crate) mod order;
pub(crate) mod retry;
pub(crate) mod secret;
#[cfg(any(feature = "kubernetes", feature = "tpu"))]
#[cfg(test)]
pub(crate) mod stand_in;
pub(crate) mod tls;

/// Bytes of the longest answer: one of a thousand instances has about half a megabyte.
pub(crate) const MOST_BYTES: usize = 64 << 20;

/// Statuses that say "not now".
pub(crate) const RETRIED: [u16; 6] = [408, 429, 500, 502, 503, 504];

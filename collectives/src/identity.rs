//! Who a process is: the job secret, the private CA derived from it, and a rank's certificate.
//!
//! ```text
//!   job secret ──HKDF──> key of the job's CA ──signs──> this process's certificate
//!   (never on the wire)  (in every process)             "rank 2 of job 3fa9…", fresh key, one day
//! ```
//!
//! Whoever holds the secret can be any rank of the job, so it is handed over like a password. Two
//! processes with different secrets have different CAs and refuse each other in the TLS handshake,
//! before either has sent anything of its own. Instead of the secret's CA there can be the user's,
//! with certificates in [files](Certificates).

mod certificate;
mod files;
mod job;
mod key;
mod page;
mod private;
mod random;
mod secret;
mod tls;

#[cfg(test)]
pub(crate) use certificate::Credentials;
#[cfg(not(test))]
use certificate::Credentials;
pub(crate) use certificate::{Authority, Role};
pub use files::Certificates;
#[cfg(any(test, feature = "testing"))]
pub(crate) use files::credentials_in;
pub use job::JobIdentity;
pub(crate) use random::fill_random;
pub use secret::JobSecret;
#[cfg(test)]
pub(crate) use tls::ALPN;
#[cfg(any(test, feature = "testing"))]
pub(crate) use tls::usable;
pub(crate) use tls::{Distrust, Identity, RENEWAL, TCP_ALPN, distrust, distrust_over_tcp};

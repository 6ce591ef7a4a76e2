//! A relay: carries packets between ranks that do not reach each other, as behind address
//! translation, without being able to read or forge them.
//!
//! ```text
//!   rank 0 ── QUIC, sealed from end to end ─────────────────── rank 1
//!     │  endpoint                                    endpoint    │
//!     │    │ a socket on this machine for each peer     │        │
//!     └── client ── Data(session, to, packet) ──> relay ──> client
//! ```
//!
//! A rank registers with a token that is derived from the job secret, and gets a session. What it
//! then sends goes to the rank that it names, with its own number in place of that one's, and to
//! nobody else. To quinn a peer behind a relay is an address on this machine, one for each: nothing
//! above knows of it. `datagram` and `table` are pure; the table is what the relay knows.

mod client;
mod datagram;
mod server;
mod table;
mod token;

pub(crate) use client::{Registrant, RelayClient};
#[cfg(any(test, feature = "testing"))]
pub(crate) use datagram::decode_any as decode_datagram;
pub use server::Relay;
pub use table::{RelayEvent, RelayLimits};
pub use token::RelayToken;

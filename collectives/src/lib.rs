//! x
#![allow(dead_code, unused_imports)]
mod contract;
mod error;
mod identity;
mod membership;
mod rank;
pub mod schedule;
mod wire;
pub use contract::Call;
pub use error::*;
pub use identity::JobSecret;
pub use rank::Rank;
pub use schedule::Algorithm;
pub use wire::WireError;

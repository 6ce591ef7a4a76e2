//! `meshwork relay`: carries packets between ranks that do not reach each other.

use std::convert::Infallible;
use std::net::SocketAddr;

use clap::Args;
use meshwork_collectives::{
    ConfigError, Error, JobSecret, Relay as Listening, RelayLimits, RelayToken,
};

use crate::complain;

#[derive(Args, Debug)]
pub(crate) struct Relay {
    /// Where ranks reach it, as in 0.0.0.0:4400; over UDP
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: SocketAddr,

    /// How many ranks may be registered at a time
    #[arg(long, value_name = "N", default_value_t = RelayLimits::default().ranks)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    ranks: u32,

    /// How many megabits a second each of them may send
    #[arg(long, value_name = "MBIT", default_value_t = 1000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    rate: u64,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum RelayError {
    #[error(
        "MESHWORK_RELAY_TOKEN is not set: `meshwork relay-token` prints it where the job secret is"
    )]
    NoToken,
    #[error(transparent)]
    Group(#[from] Error),
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// Carries packets until it is ended.
pub(crate) fn run(wanted: &Relay) -> Result<Infallible, RelayError> {
    let token = RelayToken::from_env()?.ok_or(RelayError::NoToken)?;
    let limits = RelayLimits {
        ranks: wanted.ranks,
        bytes_per_second: wanted.rate * 1_000_000 / 8,
    };
    let relay = Listening::bind(wanted.listen, token, limits)?;
    complain("relay", &format!("listens on {}", relay.address()));
    Ok(relay
        .run(|event| complain("relay", &event.to_string()))
        .map_err(Error::from)?)
}

/// The token of the job whose secret the environment names.
pub(crate) fn token() -> Result<String, ConfigError> {
    let token = RelayToken::of(&JobSecret::from_env()?);
    Ok(format!("{}\n", *token.to_hex()))
}

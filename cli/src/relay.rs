//! `meshwork relay`: carries packets between ranks that do not reach each other.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::sync_channel;
use std::thread;

use clap::Args;
use meshwork_collectives::{
    ConfigError, Error, JobSecret, Relay as Listening, RelayLimits, RelayToken,
};

use crate::complain;

/// Lines that wait for whoever reads standard error.
const WAITING: usize = 64;

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
    #[error("no thread could be started that says what happens")]
    NoThread(#[source] io::Error),
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
    let mut tell = teller(|line| complain("relay", line)).map_err(RelayError::NoThread)?;
    Ok(relay
        .run(|event| tell(event.to_string()))
        .map_err(Error::from)?)
}

/// Says lines by a thread of its own: ranks do not wait where nobody reads them. Those for which
/// there is no room are counted, which is said before the next.
fn teller(say: impl Fn(&str) + Send + 'static) -> io::Result<impl FnMut(String)> {
    let (sender, lines) = sync_channel::<(String, u64)>(WAITING);
    let says = move || {
        for (line, lost) in lines {
            if lost > 0 {
                say(&format!("{lost} lines were left out, as nobody read them"));
            }
            say(&line);
        }
    };
    thread::Builder::new().name("lines".into()).spawn(says)?;
    let mut lost = 0;
    Ok(move |line| {
        let sent = sender.try_send((line, lost));
        lost = sent.map_or(lost + 1, |()| 0);
    })
}

/// The token of the job whose secret the environment names.
pub(crate) fn token() -> Result<String, ConfigError> {
    let token = RelayToken::of(&JobSecret::from_env()?);
    Ok(format!("{}\n", *token.to_hex()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn lines_that_nobody_reads_are_counted_and_hold_nobody_up() {
        const TOLD: usize = 3 * WAITING;

        let (said, lines) = sync_channel(0);
        let mut tell = teller(move |line| drop(said.send(line.to_owned()))).unwrap();
        (0..TOLD).for_each(|number| tell(number.to_string()));
        let line = || lines.recv_timeout(Duration::from_secs(20)).unwrap();
        for number in 0..WAITING {
            assert_eq!(line(), number.to_string());
        }
        // For which there is room again.
        tell("the last".to_owned());
        let mut known = WAITING;
        let mut next = line();
        while next != "the last" {
            let lost = next.split_once(" lines were left out");
            known += lost.map_or(1, |(lost, _)| lost.parse::<usize>().unwrap());
            next = line();
        }
        assert_eq!(known, TOLD);
    }
}

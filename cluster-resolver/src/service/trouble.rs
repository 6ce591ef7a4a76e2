use std::error::Error;
use std::io::{self, ErrorKind};

use super::error::Trouble;

/// What the error of a client means, read from the chain of its causes: the clients' own types for
/// most of them are private.
pub(crate) fn of_chain(error: &(dyn Error + 'static)) -> Trouble {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(trouble) = of_one(error) {
            return trouble;
        }
        cause = error.source();
    }
    Trouble::BrokenOff
}

fn of_one(error: &(dyn Error + 'static)) -> Option<Trouble> {
    if error.is::<rustls::Error>() {
        return Some(Trouble::NoTrust);
    }
    // A failed look-up is an error of the system without a kind of its own.
    if error.to_string().starts_with("dns error") {
        return Some(Trouble::NoAddress);
    }
    let error = error.downcast_ref::<io::Error>()?;
    if error
        .get_ref()
        .is_some_and(|inner| inner.is::<rustls::Error>())
    {
        return Some(Trouble::NoTrust);
    }
    match error.kind() {
        ErrorKind::TimedOut => Some(Trouble::TooSlow),
        ErrorKind::ConnectionRefused
        | ErrorKind::HostUnreachable
        | ErrorKind::NetworkUnreachable
        | ErrorKind::AddrNotAvailable => Some(Trouble::NoConnection),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Wrapped {
        text: &'static str,
        source: io::Error,
    }

    #[track_caller]
    fn check(text: &'static str, source: io::Error, trouble: Trouble) {
        assert_eq!(of_chain(&Wrapped { text, source }), trouble);
    }

    #[test]
    fn the_first_cause_that_is_known_counts() {
        check(
            "client",
            ErrorKind::ConnectionRefused.into(),
            Trouble::NoConnection,
        );
        check("client", ErrorKind::TimedOut.into(), Trouble::TooSlow);
        check(
            "client",
            ErrorKind::ConnectionReset.into(),
            Trouble::BrokenOff,
        );
        check(
            "dns error",
            io::Error::other("no such name"),
            Trouble::NoAddress,
        );
        let distrust = io::Error::other(rustls::Error::DecryptError);
        check("client", distrust, Trouble::NoTrust);
    }
}

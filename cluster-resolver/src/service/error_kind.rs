use std::error::Error;
use std::io::{self, ErrorKind};

use crate::error::ServiceErrorKind;

/// What the error of a client means, read from the chain of its causes: the clients' own types for
/// most of them are private.
pub(crate) fn of_chain(error: &(dyn Error + 'static)) -> ServiceErrorKind {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(kind) = of_one(error) {
            return kind;
        }
        cause = error.source();
    }
    ServiceErrorKind::BrokenOff
}

fn of_one(error: &(dyn Error + 'static)) -> Option<ServiceErrorKind> {
    if error.is::<rustls::Error>() {
        return Some(ServiceErrorKind::NoTrust);
    }
    // A failed look-up is an error of the system without a kind of its own.
    if error.to_string().starts_with("dns error") {
        return Some(ServiceErrorKind::NoAddress);
    }
    let mut error = error.downcast_ref::<io::Error>()?;
    // Clients wrap one in another, and such a cause is not in the chain.
    while let Some(inner) = error.get_ref() {
        if inner.is::<rustls::Error>() {
            return Some(ServiceErrorKind::NoTrust);
        }
        let Some(wrapped) = inner.downcast_ref() else {
            break;
        };
        error = wrapped;
    }
    match error.kind() {
        ErrorKind::TimedOut => Some(ServiceErrorKind::TooSlow),
        ErrorKind::ConnectionRefused
        | ErrorKind::HostUnreachable
        | ErrorKind::NetworkUnreachable
        | ErrorKind::AddrNotAvailable => Some(ServiceErrorKind::NoConnection),
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
    fn check(text: &'static str, source: io::Error, kind: ServiceErrorKind) {
        assert_eq!(of_chain(&Wrapped { text, source }), kind);
    }

    #[test]
    fn the_first_cause_that_is_known_counts() {
        check(
            "client",
            ErrorKind::ConnectionRefused.into(),
            ServiceErrorKind::NoConnection,
        );
        check(
            "client",
            ErrorKind::TimedOut.into(),
            ServiceErrorKind::TooSlow,
        );
        check(
            "client",
            ErrorKind::ConnectionReset.into(),
            ServiceErrorKind::BrokenOff,
        );
        check(
            "dns error",
            io::Error::other("no such name"),
            ServiceErrorKind::NoAddress,
        );
        let distrust = || io::Error::other(rustls::Error::DecryptError);
        check("client", distrust(), ServiceErrorKind::NoTrust);
        let wrapped = io::Error::other(distrust());
        check("client", wrapped, ServiceErrorKind::NoTrust);
        let refused = io::Error::other(io::Error::from(ErrorKind::ConnectionRefused));
        check("client", refused, ServiceErrorKind::NoConnection);
    }
}

//! Who may ask.
//!
//! A page in a browser of this host can make requests to loopback, and read the answers if its own
//! name is made to lead here (DNS rebinding). The name that it asks for is then not this host's, so
//! without a token other names are refused.

use std::fmt;
use std::net::IpAddr;

use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// What whoever asks must present, in the header `Authorization: Bearer …`.
#[derive(Clone)]
pub struct Token(Zeroizing<String>);

/// Bytes that a token has: enough not to be guessed, and few enough for a header.
pub(crate) const LENGTHS: std::ops::RangeInclusive<usize> = 16..=512;

/// Why a request is not answered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Denial {
    /// The token is missing or wrong.
    Token,
    /// Another host's name was asked for.
    Host,
}

impl Token {
    /// A token of 16 to 512 visible ASCII characters; `None` for any other text.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let fits =
            LENGTHS.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
        fits.then(|| Self(Zeroizing::new(text.to_owned())))
    }

    /// The value of the header that presents it.
    pub(crate) fn bearer(&self) -> Zeroizing<String> {
        Zeroizing::new(format!("Bearer {}", *self.0))
    }

    /// Compared in a time that does not tell how much of it is right.
    fn is_presented(&self, authorization: Option<&[u8]>) -> bool {
        authorization.is_some_and(|found| self.bearer().as_bytes().ct_eq(found).into())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Whether a request with these headers is answered.
pub(crate) fn check(
    token: Option<&Token>,
    host: Option<&[u8]>,
    authorization: Option<&[u8]>,
) -> Result<(), Denial> {
    match token {
        // No page of a browser can present it.
        Some(token) if token.is_presented(authorization) => Ok(()),
        Some(_) => Err(Denial::Token),
        None if host.is_some_and(is_own) => Ok(()),
        None => Err(Denial::Host),
    }
}

/// Whether a host header, or another address, names loopback itself, with any port.
pub(crate) fn is_own(host: &[u8]) -> bool {
    let Ok(host) = std::str::from_utf8(host) else {
        return false;
    };
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map(|parts| parts.0),
        None => host.split(':').next(),
    };
    name.is_some_and(|name| {
        let address = name
            .parse()
            .is_ok_and(|address: IpAddr| address.is_loopback());
        address || name.eq_ignore_ascii_case("localhost")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_token_only_loopback_may_be_asked_for() {
        for (host, expected) in [
            ("localhost", true),
            ("LocalHost:9464", true),
            ("127.0.0.1:9464", true),
            ("127.9.9.9", true),
            ("[::1]:9464", true),
            ("10.0.0.1:9464", false),
            ("[::2]", false),
            ("[::1", false),
            ("evil.example:9464", false),
            ("localhost.evil.example", false),
            ("127.0.0.1.evil.example", false),
            ("", false),
        ] {
            let checked = check(None, Some(host.as_bytes()), None);
            assert_eq!(checked.is_ok(), expected, "{host}");
        }
        assert_eq!(check(None, None, None), Err(Denial::Host));
        assert_eq!(check(None, Some(&[0xff]), None), Err(Denial::Host));
    }

    #[test]
    fn with_a_token_nothing_else_is_asked_for() {
        let token = Token::new("0123456789abcdef").unwrap();
        let checked = |presented| check(Some(&token), Some(b"any.example"), presented);
        assert_eq!(checked(Some(&b"Bearer 0123456789abcdef"[..])), Ok(()));
        for wrong in [
            &b"Bearer 0123456789abcdeF"[..],
            b"Bearer 0123456789abcde",
            b"Bearer 0123456789abcdef ",
            b"Basic 0123456789abcdef",
            b"0123456789abcdef",
            b"",
        ] {
            assert_eq!(checked(Some(wrong)), Err(Denial::Token));
        }
        assert_eq!(checked(None), Err(Denial::Token));
    }

    #[test]
    fn tokens_are_long_visible_and_never_shown() {
        let long = "x".repeat(513);
        for text in ["", "short", "0123456789 abcdef", "0123456789abcdé", &long] {
            assert!(Token::new(text).is_none(), "{text}");
        }
        let token = Token::new("0123456789abcdef").unwrap();
        assert_eq!(format!("{token:?}"), "Token(..)");
    }
}

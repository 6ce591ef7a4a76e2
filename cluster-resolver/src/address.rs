//! The form of an address that another process can connect to.

use std::fmt::{self, Display};
use std::net::Ipv6Addr;

use crate::text::Quoted;

/// Why an address cannot be connected to. Shown, it says what to write instead.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum AddressProblem {
    /// It names a protocol, such as `grpc://`.
    Scheme,
    /// It has no port.
    NoPort,
    /// It has nothing before the port.
    NoHost,
    /// The port is no number from 1 to 65535.
    Port {
        /// The text in its place.
        port: String,
    },
    /// It has several colons and no brackets, so the port cannot be told from an IPv6 host.
    Unbracketed,
    /// It has an opening bracket and no closing one.
    OpenBracket,
    /// Its brackets do not hold an IPv6 address.
    NotIpv6 {
        /// The text in them.
        host: String,
    },
    /// The host has a character that no host name has.
    HostCharacter {
        /// The character.
        character: char,
    },
}

impl Display for AddressProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scheme => {
                f.write_str("names a protocol: write host:port alone, such as 10.0.0.1:2222")
            }
            Self::NoPort => f.write_str("has no port: write host:port, such as 10.0.0.1:2222"),
            Self::NoHost => f.write_str("has no host: write host:port, such as 10.0.0.1:2222"),
            Self::Port { port } => {
                write!(
                    f,
                    "has the port {}: use a number from 1 to 65535",
                    Quoted(port)
                )
            }
            Self::Unbracketed => {
                f.write_str("has several colons: put an IPv6 host in brackets, such as [::1]:2222")
            }
            Self::OpenBracket => {
                f.write_str("has no closing bracket: write an IPv6 host such as [::1]:2222")
            }
            Self::NotIpv6 { host } => write!(
                f,
                "has {} in brackets, which is no IPv6 address: write it such as [::1]:2222",
                Quoted(host)
            ),
            Self::HostCharacter { character } => {
                write!(f, "has {character:?} in its host: remove it")
            }
        }
    }
}

/// Host and port, written so that equal ones compare equal: host names in lower case, IPv6
/// addresses in their shortest form.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Endpoint {
    host: String,
    port: u16,
}

/// Reads `host:port` or `[ipv6]:port`. Whether the host exists is not asked.
pub(crate) fn parse(address: &str) -> Result<Endpoint, AddressProblem> {
    if address.contains("://") {
        return Err(AddressProblem::Scheme);
    }
    match address.strip_prefix('[') {
        Some(rest) => parse_bracketed(rest),
        None => parse_named(address),
    }
}

fn parse_bracketed(rest: &str) -> Result<Endpoint, AddressProblem> {
    let (host, rest) = rest.split_once(']').ok_or(AddressProblem::OpenBracket)?;
    let host: Ipv6Addr = host.parse().map_err(|_| AddressProblem::NotIpv6 {
        host: host.to_owned(),
    })?;
    let port = rest.strip_prefix(':').ok_or(AddressProblem::NoPort)?;
    Ok(Endpoint {
        host: host.to_string(),
        port: parse_port(port)?,
    })
}

fn parse_named(address: &str) -> Result<Endpoint, AddressProblem> {
    let (host, port) = address.split_once(':').ok_or(AddressProblem::NoPort)?;
    if port.contains(':') {
        return Err(AddressProblem::Unbracketed);
    }
    if host.is_empty() {
        return Err(AddressProblem::NoHost);
    }
    if let Some(character) = host.chars().find(|&character| !belongs_in_host(character)) {
        return Err(AddressProblem::HostCharacter { character });
    }
    Ok(Endpoint {
        host: host.to_lowercase(),
        port: parse_port(port)?,
    })
}

fn parse_port(port: &str) -> Result<u16, AddressProblem> {
    let digits = port.bytes().all(|byte| byte.is_ascii_digit());
    let number = if digits { port.parse().ok() } else { None };
    match number {
        Some(number) if number > 0 => Ok(number),
        _ if port.is_empty() => Err(AddressProblem::NoPort),
        _ => Err(AddressProblem::Port {
            port: port.to_owned(),
        }),
    }
}

/// Resolvers know more than DNS, so only what never stands in a host is refused.
fn belongs_in_host(character: char) -> bool {
    !character.is_whitespace() && !character.is_control() && !"/\\@?#[]\"',;".contains(character)
}

/// `host:port`, with brackets around a host that is an IPv6 address.
pub(crate) fn join(host: &str, port: u16) -> String {
    if host.parse::<Ipv6Addr>().is_ok() {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// An address as a user or an answer gives it, `host`, `host:port`, `[ipv6]`, `[ipv6]:port` or a
/// bare IPv6 address, with this port if it has none.
#[cfg(feature = "tpu")]
pub(crate) fn with_default_port(address: &str, port: u16) -> Result<String, AddressProblem> {
    let bracketed = address.starts_with('[');
    let complete = if address.parse::<Ipv6Addr>().is_ok() {
        join(address, port)
    } else if (bracketed && address.ends_with(']')) || (!bracketed && !address.contains(':')) {
        format!("{address}:{port}")
    } else {
        address.to_owned()
    };
    parse(&complete)?;
    Ok(complete)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(address: &str, host: &str, port: u16) {
        let host = host.to_owned();
        assert_eq!(parse(address), Ok(Endpoint { host, port }), "{address}");
    }

    #[track_caller]
    fn check_refused(address: &str, problem: AddressProblem) {
        assert_eq!(parse(address), Err(problem), "{address}");
    }

    #[test]
    fn hosts_and_bracketed_ipv6_addresses_have_ports() {
        check("w0:1", "w0", 1);
        check("10.0.0.1:65535", "10.0.0.1", 65535);
        check("Worker-0.svc.local:2222", "worker-0.svc.local", 2222);
        check("höst:2222", "höst", 2222);
        check("[::1]:2222", "::1", 2222);
        check("[2001:DB8:0:0::1]:2222", "2001:db8::1", 2222);
        check("w0:0022", "w0", 22);
    }

    #[test]
    fn each_other_form_is_refused_with_its_own_problem() {
        let port = |port: &str| AddressProblem::Port { port: port.into() };
        let not_ipv6 = |host: &str| AddressProblem::NotIpv6 { host: host.into() };
        let character = |character| AddressProblem::HostCharacter { character };
        check_refused("", AddressProblem::NoPort);
        check_refused("w0", AddressProblem::NoPort);
        check_refused("w0:", AddressProblem::NoPort);
        check_refused("[::1]", AddressProblem::NoPort);
        check_refused("[::1]2222", AddressProblem::NoPort);
        check_refused(":2222", AddressProblem::NoHost);
        check_refused("w0:0", port("0"));
        check_refused("w0:65536", port("65536"));
        check_refused("w0:-1", port("-1"));
        check_refused("w0:+1", port("+1"));
        check_refused("w0:http", port("http"));
        check_refused("w0:1 ", port("1 "));
        check_refused("::1:2222", AddressProblem::Unbracketed);
        check_refused("[w0]:2222", not_ipv6("w0"));
        check_refused("[]:2222", not_ipv6(""));
        check_refused("[::1:2222", AddressProblem::OpenBracket);
        check_refused("grpc://w0:2222", AddressProblem::Scheme);
        check_refused("unix:///tmp/s", AddressProblem::Scheme);
        check_refused(" w0:2222", character(' '));
        check_refused("a/b:2222", character('/'));
    }

    proptest! {
        #[test]
        fn every_ipv6_address_in_brackets_is_accepted(bits: u128, port in 1_u16..) {
            let host = Ipv6Addr::from_bits(bits);
            let expected = Endpoint { host: host.to_string(), port };
            prop_assert_eq!(parse(&format!("[{host}]:{port}")), Ok(expected));
        }

        #[test]
        fn no_text_makes_it_panic(address in "\\PC*") {
            let _ = parse(&address);
        }
    }

    #[cfg(feature = "tpu")]
    mod with_ports {
        use super::super::*;

        #[track_caller]
        fn completes(address: &str, complete: &str) {
            assert_eq!(with_default_port(address, 8470).as_deref(), Ok(complete));
        }

        #[test]
        fn an_address_gets_a_port_if_it_has_none() {
            completes("10.0.0.1", "10.0.0.1:8470");
            completes("10.0.0.1:1", "10.0.0.1:1");
            completes("tpu.local", "tpu.local:8470");
            completes("::1", "[::1]:8470");
            completes("[::1]", "[::1]:8470");
            completes("[2001:db8::5]:22", "[2001:db8::5]:22");
        }

        #[test]
        fn what_is_no_address_is_refused() {
            let refused = |address, problem| {
                assert_eq!(with_default_port(address, 8470), Err(problem), "{address}");
            };
            refused("", AddressProblem::NoHost);
            refused(":8470", AddressProblem::NoHost);
            refused("a:1:2", AddressProblem::Unbracketed);
            refused("a:", AddressProblem::NoPort);
            refused("[x]", AddressProblem::NotIpv6 { host: "x".into() });
            refused("a b", AddressProblem::HostCharacter { character: ' ' });
            refused(
                "a:99999",
                AddressProblem::Port {
                    port: "99999".into(),
                },
            );
        }
    }
}

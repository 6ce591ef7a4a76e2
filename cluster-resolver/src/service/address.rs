use std::net::Ipv6Addr;

use crate::AddressProblem;
use crate::multi_worker::parse_endpoint;

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
pub(crate) fn with_default_port(address: &str, port: u16) -> Result<String, AddressProblem> {
    let bracketed = address.starts_with('[');
    let complete = if address.parse::<Ipv6Addr>().is_ok() {
        join(address, port)
    } else if (bracketed && address.ends_with(']')) || (!bracketed && !address.contains(':')) {
        format!("{address}:{port}")
    } else {
        address.to_owned()
    };
    parse_endpoint(&complete)?;
    Ok(complete)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(address: &str, complete: &str) {
        assert_eq!(with_default_port(address, 8470).as_deref(), Ok(complete));
    }

    #[test]
    fn an_address_gets_a_port_if_it_has_none() {
        check("10.0.0.1", "10.0.0.1:8470");
        check("10.0.0.1:1", "10.0.0.1:1");
        check("tpu.local", "tpu.local:8470");
        check("::1", "[::1]:8470");
        check("[::1]", "[::1]:8470");
        check("[2001:db8::5]:22", "[2001:db8::5]:22");
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

//! An address that is taken from this machine while connections live, as where a lease ends or
//! another network is joined.
//!
//! A socket that listens at one address sends nothing without it. One that listens at all goes on
//! by itself: packets then come from another address, and QUIC moves the connections that this
//! process has begun along with it.

use std::io;
use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use quinn::Endpoint;
use tokio::time::sleep;

use super::endpoint;
use crate::Network;
use crate::notice::say;

/// How often the address is looked for.
const LOOK: Duration = Duration::from_secs(1);

/// Goes on at any address of this machine once the endpoint's own is not one of them any more.
pub(super) async fn follow(endpoint: Endpoint, network: Network) {
    let Ok(own) = endpoint.local_addr() else {
        return;
    };
    if own.ip().is_unspecified() || own.ip().is_loopback() {
        return;
    }
    loop {
        sleep(LOOK).await;
        if is_here(own.ip()) {
            continue;
        }
        match endpoint::rebind(&endpoint, own, network) {
            Ok(()) => {
                say(format_args!(
                    "{} is not an address of this machine any more: connections that this rank \
                     began go on from another",
                    own.ip()
                ));
                return;
            }
            Err(error) => tracing::debug!(%error, "there is no other address yet"),
        }
    }
}

fn is_here(address: IpAddr) -> bool {
    let bound = UdpSocket::bind((address, 0));
    !bound.is_err_and(|error| error.kind() == io::ErrorKind::AddrNotAvailable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_this_machine_is_here_and_one_of_a_book_is_not() {
        assert!(is_here([127, 0, 0, 1].into()));
        assert!(!is_here([192, 0, 2, 1].into()));
    }
}

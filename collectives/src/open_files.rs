//! How many files a rank has open, and whether its process may have so many.

use crate::{ConfigError, DataTransport, Network};

/// The rank's endpoint, its runtime and its memory, with some to spare for name look-ups.
const FILES_OF_A_RANK: u64 = 24;

/// Files that a rank of so many opens: for each connection, of which it keeps as many as its budget
/// has, a handle on the process at its other end, and a socket for each lane over TCP. All
/// connections of QUIC share one socket.
fn of_a_rank(world: u32, network: Network) -> u64 {
    let others = u64::from(world.saturating_sub(1));
    let budget = u64::from(network.budget(world));
    let sockets = match network.data_transport() {
        DataTransport::Quic => 0,
        DataTransport::Tls => u64::from(network.connections()),
    };
    FILES_OF_A_RANK + others.min(budget) * (1 + sockets)
}

/// Raises this process's soft limit to what a rank takes besides what is open already.
///
/// # Errors
/// [`ConfigError::OpenFiles`] where the hard limit is lower.
#[cfg(unix)]
pub(crate) fn reserve(world: u32, network: Network) -> Result<(), ConfigError> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    // What the system does not tell counts as the three files that every program begins with.
    let open = std::fs::read_dir("/dev/fd").map_or(3, |open| open.count() as u64);
    let needed = open + of_a_rank(world, network);
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let Some(limit) = current.filter(|limit| *limit < needed) else {
        return Ok(());
    };
    let raised = Rlimit {
        current: Some(needed),
        maximum,
    };
    setrlimit(Resource::Nofile, raised).map_err(|_| ConfigError::OpenFiles {
        world,
        needed,
        limit: maximum.unwrap_or(limit),
    })
}

/// There is no such limit.
#[cfg(not(unix))]
pub(crate) fn reserve(_: u32, _: Network) -> Result<(), ConfigError> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_files_grow_with_the_logarithm_and_lanes_over_tcp_count() {
        let quic = Network::default();
        let tls = quic.with_data_transport(DataTransport::Tls);
        for (world, connections) in [(1, 0), (2, 1), (8, 7), (64, 24), (512, 36), (100_000, 68)] {
            assert_eq!(of_a_rank(world, quic), FILES_OF_A_RANK + connections);
            assert_eq!(of_a_rank(world, tls), FILES_OF_A_RANK + 2 * connections);
            let three = tls.with_connections(3).unwrap();
            assert_eq!(of_a_rank(world, three), FILES_OF_A_RANK + 4 * connections);
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_small_group_fits_into_any_limit() {
        assert_eq!(reserve(2, Network::default()), Ok(()));
    }
}

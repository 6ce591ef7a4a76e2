//! How many files a rank has open, and whether its process may have so many.

use std::io;
use std::time::{Duration, Instant};

use crate::{ConfigError, DataTransport, FileLimit, Network, OperationError, Rank, notice};

/// The rank's endpoint, its runtime and its memory, with some to spare for name look-ups.
const FILES_OF_A_RANK: u64 = 24;

/// Files that a rank opens which is connected with so many others: for each, a handle on its process,
/// and a socket for each lane over TCP. All connections of QUIC share one socket.
fn of_a_rank(connected: u32, network: Network) -> u64 {
    let sockets = match network.data_transport() {
        DataTransport::Quic => 0,
        DataTransport::Tls => u64::from(network.connections()),
    };
    FILES_OF_A_RANK + u64::from(connected) * (1 + sockets)
}

/// Open files that a process is to be allowed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Wanted {
    /// With as many connections as are kept.
    least: u64,
    /// With connections to all, as an all-to-all takes them.
    most: u64,
}

impl Wanted {
    fn new(open: u64, world: u32, network: Network) -> Self {
        let others = world.saturating_sub(1);
        Self {
            least: open + of_a_rank(others.min(network.budget(world)), network),
            most: open + of_a_rank(others, network),
        }
    }

    /// The soft limit that a process is to have whose soft and hard limits these are.
    fn of(self, soft: u64, hard: Option<u64>) -> u64 {
        let possible = hard.map_or(self.most, |hard| self.most.min(hard));
        soft.max(possible)
    }
}

/// Raises this process's soft limit to what a rank takes besides what is open already: where the
/// hard limit allows it, with connections to all others.
///
/// # Errors
/// [`ConfigError::OpenFiles`] where the hard limit does not even allow those that are kept.
#[cfg(unix)]
pub(crate) fn reserve(world: u32, network: Network) -> Result<(), ConfigError> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    // What the system does not tell counts as the three files that every program begins with.
    let open = std::fs::read_dir("/dev/fd").map_or(3, |open| open.count() as u64);
    let wanted = Wanted::new(open, world, network);
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let Some(soft) = current.filter(|soft| *soft < wanted.most) else {
        return Ok(());
    };
    let raised = wanted.of(soft, maximum);
    let limits = Rlimit {
        current: Some(raised),
        maximum,
    };
    let limit = match setrlimit(Resource::Nofile, limits) {
        Ok(()) => raised,
        Err(_) => soft,
    };
    if limit >= wanted.least {
        return Ok(());
    }
    Err(ConfigError::OpenFiles {
        world,
        needed: wanted.least,
        limit,
    })
}

/// There is no such limit.
#[cfg(not(unix))]
pub(crate) fn reserve(_: u32, _: Network) -> Result<(), ConfigError> {
    Ok(())
}

/// Which limit of open files has been reached, if that is what went wrong.
#[cfg(unix)]
pub(crate) fn limit_reached(error: &io::Error) -> Option<FileLimit> {
    use rustix::io::Errno;
    use rustix::process::{Resource, getrlimit};

    match Errno::from_io_error(error)? {
        Errno::MFILE => Some(FileLimit::OfProcess(getrlimit(Resource::Nofile).current)),
        Errno::NFILE => Some(FileLimit::OfMachine),
        _ => None,
    }
}

/// There is no such limit.
#[cfg(not(unix))]
pub(crate) fn limit_reached(_: &io::Error) -> Option<FileLimit> {
    None
}

/// How a rank goes on that may not open a file: people are told, and it tries again for some time,
/// as its program or another may close some.
pub(crate) struct Shortage {
    rank: Rank,
    /// What takes the file.
    what: &'static str,
    patience: Duration,
    since: Option<Instant>,
}

impl Shortage {
    /// The pause between two tries.
    pub(crate) const PAUSE: Duration = Duration::from_millis(50);

    pub(crate) fn new(rank: Rank, what: &'static str, patience: Duration) -> Self {
        Self {
            rank,
            what,
            patience,
            since: None,
        }
    }

    /// Takes in that a try has failed. The error to give up with once there is no more patience.
    pub(crate) fn refused(&mut self, now: Instant, limit: FileLimit) -> Option<OperationError> {
        let (rank, what, patience) = (self.rank, self.what, self.patience);
        let error = OperationError::OpenFiles { rank, what, limit };
        let Some(since) = self.since else {
            notice::say(format_args!("{error}; it tries again for {patience:.1?}"));
            self.since = Some(now);
            return None;
        };
        let is_over = now.saturating_duration_since(since) >= patience;
        is_over.then_some(error)
    }

    /// A try has succeeded, or there is nothing to open.
    pub(crate) fn is_over(&mut self) {
        self.since = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_files_grow_with_the_logarithm_and_lanes_over_tcp_count() {
        let quic = Network::default();
        let tls = quic.with_data_transport(DataTransport::Tls);
        let three = tls.with_connections(3).unwrap();
        for (world, connections) in [(1, 0), (2, 1), (8, 7), (64, 24), (512, 36), (100_000, 68)] {
            for (network, each) in [(quic, 1), (tls, 2), (three, 4)] {
                let Wanted { least, most } = Wanted::new(5, world, network);
                assert_eq!(least, 5 + FILES_OF_A_RANK + each * connections);
                let others = u64::from(world) - 1;
                assert_eq!(most, 5 + FILES_OF_A_RANK + each * others);
            }
        }
    }

    #[test]
    fn the_soft_limit_is_raised_to_what_connections_to_all_take_as_far_as_may_be() {
        let wanted = Wanted {
            least: 100,
            most: 1000,
        };
        assert_eq!(wanted.of(64, Some(1 << 20)), 1000);
        assert_eq!(wanted.of(64, None), 1000);
        assert_eq!(wanted.of(64, Some(512)), 512);
        assert_eq!(wanted.of(64, Some(64)), 64);
        assert_eq!(wanted.of(256, Some(512)), 512);
        assert_eq!(wanted.of(2000, Some(4000)), 2000);
    }

    #[cfg(unix)]
    #[test]
    fn a_small_group_fits_into_any_limit() {
        assert_eq!(reserve(2, Network::default()), Ok(()));
    }

    #[test]
    fn whoever_may_open_no_file_gives_up_when_the_patience_is_over_and_not_before() {
        let (rank, patience) = (Rank::new(3), Duration::from_secs(2));
        let mut shortage = Shortage::new(rank, "a test", patience);
        let (begun, limit) = (Instant::now(), FileLimit::OfProcess(Some(64)));
        let at = |seconds| begun + Duration::from_secs(seconds);
        assert_eq!(shortage.refused(at(0), limit), None);
        assert_eq!(shortage.refused(at(1), limit), None);
        shortage.is_over();
        assert_eq!(shortage.refused(at(2), limit), None);
        assert_eq!(shortage.refused(at(3), limit), None);
        let error = shortage.refused(at(4), limit).unwrap();
        assert_eq!(
            error.to_string(),
            "rank 3 cannot open a file for a test: its process has 64 open files, as many as it \
             may; raise the limit with 'ulimit -n' where it is started"
        );
        assert!(error.is_retryable() && error.rank_at_fault() == Some(rank));
    }

    #[cfg(unix)]
    #[test]
    fn both_limits_of_open_files_are_told_apart_from_other_errors() {
        use rustix::io::Errno;

        let reached = |error: Errno| limit_reached(&error.into());
        assert!(matches!(
            reached(Errno::MFILE),
            Some(FileLimit::OfProcess(Some(_)))
        ));
        assert_eq!(reached(Errno::NFILE), Some(FileLimit::OfMachine));
        assert_eq!(reached(Errno::CONNREFUSED), None);
        assert_eq!(limit_reached(&io::ErrorKind::TimedOut.into()), None);
    }
}

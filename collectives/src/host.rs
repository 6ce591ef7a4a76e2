//! What a process can know of others on its own host: whether they share it, when they end,
//! and which addresses it has.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use crate::wire::Cores;

#[cfg(all(target_os = "linux", not(meshwork_portable)))]
pub(crate) use linux::{first_core, has_ended, has_process, host, process_ended, process_state};
#[cfg(any(not(target_os = "linux"), meshwork_portable))]
pub(crate) use other::{first_core, has_ended, has_process, host, process_ended, process_state};

/// The cores that this thread, and whichever it starts, may run on; `None` where that cannot be
/// told. A control group that has less time than its cores count has as many as that makes.
pub(crate) fn cores() -> Option<Cores> {
    let count = std::thread::available_parallelism().ok()?;
    Some(Cores {
        first: first_core()?,
        count: u16::try_from(count.get()).unwrap_or(u16::MAX),
    })
}

/// All addresses of a machine, of the same version of IP as this one.
pub(crate) fn everywhere(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// Whether a machine has this address: others may have been given to it, and this one taken.
pub(crate) fn is_here(address: IpAddr) -> bool {
    let bound = UdpSocket::bind((address, 0));
    !bound.is_err_and(|error| error.kind() == io::ErrorKind::AddrNotAvailable)
}

/// The address of this machine from which another is reached.
pub(crate) fn from_here_to(other: SocketAddr) -> io::Result<IpAddr> {
    // Nothing is sent: the kernel only chooses the way.
    let socket = UdpSocket::bind((everywhere(other.ip()), 0))?;
    socket.connect(other)?;
    Ok(socket.local_addr()?.ip())
}

/// What a process does, as far as its kernel tells.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[cfg_attr(
    any(not(target_os = "linux"), meshwork_portable),
    expect(dead_code, reason = "only Linux tells")
)]
pub(crate) enum ProcessState {
    Runs,
    /// A signal has stopped it, or a debugger holds it.
    Stopped,
}

#[cfg(all(target_os = "linux", not(meshwork_portable)))]
mod linux {
    use std::fs;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::io::Errno;
    use rustix::process::{Pid, PidfdFlags, pidfd_open};
    use rustix::thread::{CpuSet, sched_getaffinity};
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    use super::{ProcessState, io};

    /// A name that two processes share if the process id of one means the same process to the
    /// other: the boot of a kernel and the process namespace. Empty when it cannot be told.
    ///
    /// Machines that go on from one copy of a running machine share it too, so a process that is
    /// known to live is to be [looked for](has_process) before anything is taken from its id.
    pub(crate) fn host() -> String {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id");
        let namespace = fs::read_link("/proc/self/ns/pid");
        match (boot, namespace) {
            (Ok(boot), Ok(namespace)) => format!("{} {}", boot.trim(), namespace.display()),
            _ => String::new(),
        }
    }

    /// The core with the lowest number of those that this thread may run on.
    pub(crate) fn first_core() -> Option<u16> {
        let own = sched_getaffinity(None).ok()?;
        let first = (0..CpuSet::MAX_CPU).find(|core| own.is_set(*core))?;
        u16::try_from(first).ok()
    }

    /// Whether this kernel knows a process with this id, even one that has ended and that its
    /// parent has not looked after; also where that cannot be told.
    pub(crate) fn has_process(process: u32) -> bool {
        let process = i32::try_from(process).ok().and_then(Pid::from_raw);
        process.is_some_and(|process| {
            let found = pidfd_open(process, PidfdFlags::NONBLOCK);
            !found.is_err_and(|error| error == Errno::SRCH)
        })
    }

    /// Whether there is no such process any more; not where it cannot be told.
    pub(crate) fn has_ended(process: u32) -> bool {
        let Some(process) = i32::try_from(process).ok().and_then(Pid::from_raw) else {
            return true;
        };
        match pidfd_open(process, PidfdFlags::NONBLOCK) {
            Ok(handle) => {
                let mut ends = [PollFd::new(&handle, PollFlags::IN)];
                poll(&mut ends, Some(&Timespec::default())).is_ok_and(|ended| ended == 1)
            }
            Err(error) => error == Errno::SRCH,
        }
    }

    /// Returns when the process with this id has ended.
    ///
    /// # Errors
    /// When the kernel cannot watch it.
    #[expect(
        unsafe_code,
        reason = "tokio registers a file descriptor by an unsafe function only"
    )]
    pub(crate) async fn process_ended(process: u32) -> io::Result<()> {
        let process = i32::try_from(process).ok().and_then(Pid::from_raw);
        let process = process.ok_or(io::ErrorKind::InvalidInput)?;
        let handle = match pidfd_open(process, PidfdFlags::NONBLOCK) {
            Ok(handle) => handle,
            Err(Errno::SRCH) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        // SAFETY: the handle is an `OwnedFd`, whose descriptor is open for as long as `AsyncFd`
        // owns it.
        let handle = unsafe { AsyncFd::register_with_interest(handle, Interest::READABLE)? };
        handle.readable().await.map(drop)
    }

    /// Whether the process with this id runs.
    ///
    /// # Errors
    /// When it cannot be looked at, or no longer.
    pub(crate) fn process_state(process: u32) -> io::Result<ProcessState> {
        let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
        Ok(match is_stopped(&stat) {
            true => ProcessState::Stopped,
            false => ProcessState::Runs,
        })
    }

    /// The state stands behind the name, which is in brackets and may have some of its own.
    fn is_stopped(stat: &str) -> bool {
        let behind = stat.rsplit_once(')').map(|(_, behind)| behind);
        behind.is_some_and(|behind| behind.trim_start().starts_with(['T', 't']))
    }

    #[cfg(test)]
    mod tests {
        use std::time::Duration;

        use super::*;

        #[test]
        fn a_process_has_ended_before_its_parent_looks_after_it() {
            assert!(!has_ended(std::process::id()));
            let mut child = std::process::Command::new("cat")
                .stdin(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            let process = child.id();
            assert!(!has_ended(process) && has_process(process));
            drop(child.stdin.take());
            let since = std::time::Instant::now();
            while !has_ended(process) {
                assert!(since.elapsed() < Duration::from_secs(30), "cat goes on");
                std::thread::yield_now();
            }
            assert!(has_process(process), "its parent has not looked after it");
            child.wait().unwrap();
            assert!(has_ended(process) && !has_process(process));
        }

        #[test]
        fn numbers_that_no_process_has_are_those_of_none() {
            for none in [0, u32::MAX] {
                assert!(!has_process(none), "{none}");
            }
        }

        #[test]
        fn only_what_a_signal_or_a_debugger_holds_is_stopped() {
            assert!(is_stopped("17 (train) T 1 17 17"));
            assert!(is_stopped("17 (a ) T b) T 1"));
            assert!(is_stopped("17 (train) t 1 17 17"));
            for other in ["17 (train) S 1", "17 (T) R 1", "17 (t) D 1", "", "17"] {
                assert!(!is_stopped(other), "{other}");
            }
            let own = fs::read_to_string("/proc/self/stat").unwrap();
            assert!(!is_stopped(&own), "{own}");
        }
    }
}

#[cfg(any(not(target_os = "linux"), meshwork_portable))]
mod other {
    use super::{ProcessState, io};

    /// Not to be had here.
    pub(crate) fn first_core() -> Option<u16> {
        None
    }

    /// Process ids cannot be watched here, so no two processes claim to share a host.
    pub(crate) fn host() -> String {
        String::new()
    }

    pub(crate) fn has_ended(_: u32) -> bool {
        false
    }

    pub(crate) fn has_process(_: u32) -> bool {
        true
    }

    /// Not to be had here: heartbeats notice the end instead.
    pub(crate) async fn process_ended(_: u32) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Not to be had here.
    pub(crate) fn process_state(_: u32) -> io::Result<ProcessState> {
        Err(io::ErrorKind::Unsupported.into())
    }
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

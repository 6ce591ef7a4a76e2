//! `LaunchError`: why workers could not be started or watched, with the exit statuses of shells
//! (125 to 127), and 78 for limits. How a run that did start has ended is in `outcome`.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use meshwork_collectives::Rank;

use crate::{Launch, TaskLimit};

/// Why a run could not be started, watched or shown. Every worker already started has been ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// The caller asked for a number of workers that cannot be started.
    #[error("{workers} workers cannot be started: ask for 1 to {most}", most = Launch::MOST_WORKERS)]
    WorkerCount {
        /// Workers asked for.
        workers: usize,
    },
    /// The caller asked for an elastic run that needs no worker, or more than it has.
    #[error("a run of {workers} workers cannot need at least {least}: ask for 1 to {workers}")]
    Least {
        /// Workers that the run needs.
        least: usize,
        /// Workers of the run.
        workers: usize,
    },
    /// The caller's list of hosts has one that is none.
    #[error(
        "{host:?} is no host: write a name or an address, as in a,me@b:4 or [2001:db8::1]:2, with commas and without spaces"
    )]
    Host {
        /// What stands for a host.
        host: String,
    },
    /// The caller's list of hosts has numbers of workers on some of them only.
    #[error(
        "{numbered} of {hosts} hosts have a number of workers: give it to each, as in a:2,b:4, or to none"
    )]
    HostNumbers {
        /// Hosts with a number.
        numbered: usize,
        /// Hosts of the list.
        hosts: usize,
    },
    /// The caller's list of hosts does not add up to the number of workers.
    #[error(
        "the hosts are listed with {listed} workers in all, and {workers} are asked for: leave out one of both numbers"
    )]
    HostWorkers {
        /// Workers by the list.
        listed: usize,
        /// Workers asked for.
        workers: usize,
    },
    /// The caller's list has more hosts than there are workers.
    #[error(
        "{workers} workers would leave some of {hosts} hosts idle: ask for {hosts} or more, or list fewer hosts"
    )]
    IdleHost {
        /// Hosts of the list.
        hosts: usize,
        /// Workers asked for.
        workers: usize,
    },
    /// The caller's list of hosts has one by a name that means another machine on each.
    #[error("host {host} is another machine for {other} than here: name it as {other} reaches it")]
    Loopback {
        /// The host.
        host: String,
        /// One that has to reach it.
        other: String,
    },
    /// The caller's variable cannot be set by the shell of another host.
    #[error(
        "variable {} cannot be set on another host: use letters, digits and underscores in its name, and none that shells set themselves",
        name.display()
    )]
    RemoteVariable {
        /// The variable.
        name: OsString,
    },
    /// Workers on other hosts cannot have cores of their own.
    #[error("workers on other hosts cannot be pinned to cores: leave out the cores or the hosts")]
    RemoteCores,
    /// Workers that join a job that runs cannot be started on other hosts.
    #[error(
        "workers that join a running job are started on this machine: leave out the hosts or the addresses to join"
    )]
    RemoteNewcomers,
    /// This process has no current folder, so there is none to start workers in on other hosts.
    #[error("the current folder, which workers on other hosts start in too, cannot be read")]
    Folder {
        /// The error of the operating system.
        source: io::Error,
    },
    /// The caller's port base leaves no valid port for some worker.
    #[error(
        "port base {base} has no room for {workers} workers: choose one from 1 to {highest}",
        highest = 65_536_usize.saturating_sub(*workers)
    )]
    PortRange {
        /// Port of the first worker.
        base: u16,
        /// Workers asked for, each with a port of its own.
        workers: usize,
    },
    /// A port of the range that the caller chose cannot be had; nothing was started.
    #[error(
        "UDP port {port} on 127.0.0.1, meant for {rank}, cannot be used: end the program that holds it, choose another port base or leave it out"
    )]
    PortTaken {
        /// The port.
        port: u16,
        /// Rank of the worker that would get it.
        rank: Rank,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The system has no free port to give; nothing was started.
    #[error("no free UDP port on 127.0.0.1 for {rank} of {workers} workers")]
    NoFreePort {
        /// Rank of the worker that would get it.
        rank: Rank,
        /// Workers asked for.
        workers: usize,
        /// The error of the operating system.
        source: io::Error,
    },
    /// This process may not hold enough files open for the workers' output; nothing was started.
    #[error(
        "{workers} workers take up to {needed} open files and this process may have {limit}, its hard limit: raise it where the session, service or container is started, or start fewer workers"
    )]
    OpenFiles {
        /// Workers asked for.
        workers: usize,
        /// Files that the launcher may have open at a time.
        needed: u64,
        /// The limit (`RLIMIT_NOFILE`, hard: the soft one is raised).
        limit: u64,
    },
    /// The workers and their threads would be more than may be started; nothing was.
    #[error(
        "{workers} workers take {needed} processes and threads and {left} more may be started: raise {limit} or start fewer workers"
    )]
    Tasks {
        /// Workers asked for.
        workers: usize,
        /// Processes and threads that they and the launcher have at the least.
        needed: u64,
        /// How many more may be started.
        left: u64,
        /// Which limit says so.
        limit: TaskLimit,
    },
    /// The machine, or the control group of this process, has no memory for so many workers;
    /// nothing was started.
    #[error(
        "{workers} workers take at least {} MiB of memory and {} MiB are left: start fewer workers, or give the machine or the container more memory",
        needed >> 20,
        available >> 20
    )]
    Memory {
        /// Workers asked for.
        workers: usize,
        /// Bytes that they take without their programs' own data.
        needed: u64,
        /// Bytes that are left.
        available: u64,
    },
    /// The environment holds a job secret that cannot be used, or no new one could be made.
    #[error("no job secret to hand to the workers")]
    Secret {
        /// The error of the secret, which never shows the secret itself.
        source: meshwork_collectives::ConfigError,
    },
    /// There is no memory, or no descriptor, for the file that hands the job secret to the workers.
    #[error("the job secret could not be put where the workers find it")]
    SecretFile {
        /// The error of the operating system.
        source: io::Error,
    },
    /// The program does not exist, or its first line names an interpreter that does not.
    #[error(
        "program {} was not found: give its path, or a name that is in PATH",
        program.display()
    )]
    ProgramMissing {
        /// The program, as the caller named it.
        program: PathBuf,
    },
    /// The program exists and this user may not execute it.
    #[error(
        "program {} may not be executed: check that it is a program and 'chmod +x' it",
        program.display()
    )]
    ProgramNotExecutable {
        /// The program, as the caller named it.
        program: PathBuf,
    },
    /// The system could not start a worker.
    #[error("program {} could not be started as {rank}", program.display())]
    Spawn {
        /// The program, as the caller named it.
        program: PathBuf,
        /// Rank of the worker that could not be started.
        rank: Rank,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The launcher could not set itself up to watch its workers.
    #[error("the launcher could not begin to watch its workers")]
    Watch {
        /// The error of the operating system.
        source: io::Error,
    },
    /// The launcher could not take over the signals that it hands on.
    #[error("the launcher could not set its signal handlers")]
    Signals {
        /// The error of the operating system.
        source: io::Error,
    },
    /// The workers have succeeded, but some of their lines could not be written to the launcher's
    /// stdout and stderr, as on a full disk.
    #[error("the workers succeeded, but {lines} lines of their output could not be written")]
    OutputLost {
        /// Lines that were lost, of both.
        lines: usize,
        /// The error of the operating system for the first of them.
        source: io::Error,
    },
    /// It cannot be learnt how a worker ended, as when the launcher's parent made it ignore SIGCHLD
    /// or other code in this process reaps children that are not its own.
    #[error("the end of {rank} cannot be seen: is SIGCHLD ignored in this process?")]
    Wait {
        /// Rank of the worker.
        rank: Rank,
        /// The error of the operating system.
        source: io::Error,
    },
}

impl LaunchError {
    /// The exit status for a command that fails so, as shells and `env` have it: 127 for a program
    /// that was not found, 126 for one that cannot be executed, 125 for all else; 78, as sysexits
    /// has it, where a limit of the system has to be raised first.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::ProgramMissing { .. } => 127,
            Self::ProgramNotExecutable { .. } => 126,
            Self::OpenFiles { .. } | Self::Tasks { .. } | Self::Memory { .. } => 78,
            _ => 125,
        }
    }

    pub(crate) fn spawn(program: PathBuf, rank: Rank, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::NotFound => Self::ProgramMissing { program },
            io::ErrorKind::PermissionDenied => Self::ProgramNotExecutable { program },
            _ => Self::Spawn {
                program,
                rank,
                source,
            },
        }
    }
}

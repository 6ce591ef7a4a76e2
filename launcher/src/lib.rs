//! Starts one program as many workers, watches them, and ends them together: [`Launch`] says what
//! to start, [`Outcome`] how it ended. Workers are processes of this machine, or of
//! [hosts](HostList) that `ssh` reaches.
//!
//! This crate does not know what the workers compute or which library they use, nor how hosts are
//! found. `meshwork run` is a thin layer over it.
//!
//! ```text
//!                         TF_CONFIG, MESHWORK_JOB_SECRET_FILE
//!                    ┌──> worker 0 ──stdout, stderr──┐
//!   Launch ──spawn───┼──> worker 1 ──────────────────┼──> "[1] line" on your terminal
//!                    └──> worker 2 ── fails first    ┘
//!                              │
//!   Outcome <──"rank 2 failed first: killed by signal 9 (SIGKILL); the other 2 were ended"
//! ```
//!
//! # When not to use it
//!
//! In a cluster that has a scheduler: Slurm, Kubernetes and the like start processes themselves. It
//! needs Unix, for process groups and signals.
//!
//! # Examples
//!
//! ```
//! use meshwork_launcher::{Launch, Outcome};
//!
//! let outcome = Launch::new("sh")
//!     .args(["-c", "echo \"I am told: $TF_CONFIG\""])
//!     .workers(2)?
//!     .run()?;
//! assert_eq!(outcome, Outcome::Succeeded);
//! # Ok::<(), meshwork_launcher::LaunchError>(())
//! ```
//!
//! # What a worker gets
//!
//! - `TF_CONFIG`:
//!   `{"cluster":{"worker":["127.0.0.1:P0",…]},"task":{"type":"worker","index":RANK}}`, with one
//!   UDP port per worker that was free just before the start;
//! - `MESHWORK_JOB_SECRET_FILE`: a file with 64 hexadecimal digits, the same for all workers of the
//!   run: the [secret that the launcher is given](Launch::secret), else that of its own environment
//!   (`MESHWORK_JOB_SECRET`, or the file that `MESHWORK_JOB_SECRET_FILE` names), or a fresh one. It
//!   is never shown. The file is in the launcher's memory, for its user: workers can read it, and
//!   what they start, while the launcher lives; systems other than Linux have no such files, and
//!   there workers get `MESHWORK_JOB_SECRET` itself;
//! - `MESHWORK_LAUNCHER_PID`: the launcher's process id;
//! - in an elastic run `MESHWORK_RESTARTS`: how often the worker of this rank was started before;
//! - among many for few cores `MESHWORK_JOIN_TIMEOUT`, unless it is set: how long to wait for all;
//! - the rest of the launcher's environment, no input (stdin is empty), and a process group of its
//!   own, which also holds whatever it starts.
//!
//! # Workers on other hosts
//!
//! With [`Launch::hosts`] each worker is started by the system's `ssh`, which has to reach its host
//! without asking for a password. There, the program is looked for as here, from a folder of the
//! same name as the current one; `TF_CONFIG` has the names of the hosts as listed, and ports that
//! are not known to be free. A worker gets the variables of [`Launch::env`], `TF_CONFIG` and
//! `MESHWORK_JOB_SECRET`, over `ssh` and its standard input and in no command line, those of this
//! process whose names begin with `MESHWORK_`, and for the rest what the host gives it; no
//! `MESHWORK_LAUNCHER_PID`, nor a `MESHWORK_JOIN_TIMEOUT` that is not set here. Output, signals,
//! the grace time and the first failure are as on this machine; exit statuses from 129 to 192 are
//! shown as signals, as a shell has them, and 255 is `ssh`'s own failure. Where the connection
//! ends, a worker is ended; where it is silent for 10 s, `ssh` gives up, and the worker ends once
//! its host or its group notices.
//!
//! # How a run ends
//!
//! Either all workers exit with status 0, or one is the first to exit with another status or to be
//! killed. The others then have a second to end by themselves, or 30 ms for each worker if that is
//! more, with an error that says whom they lost; those left get SIGTERM, and SIGKILL once the
//! [grace time](Launch::grace) is over too. In an [elastic](Elastic) run a worker that fails is
//! started again, until one has exited with status 0: as many have to as the run needs.
//!
//! Before the first is started, what so many workers take here is compared with the limits of this
//! process, its user and its control groups, of workers on other hosts their open files; the soft
//! limit of these is raised as needed.
//!
//! While a run is under way SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are handed on to
//! every worker's process group and have no other effect on this process. After SIGINT or SIGTERM
//! the workers have the grace time to end; a second one kills them at once. Where they have saved
//! the job after SIGTERM, and say so by exit status 75, that is the run's. Once no run is under way
//! the six signals act as they did before the first run. On Linux a SIGHUP that is ignored when
//! the first begins, as by `nohup`, stays ignored, here and in workers.
//!
//! No process is left behind on any way out of [`Launch::run`], a panic included: what remains of
//! the workers' process groups is killed, and every worker reaped. Two things only escape that: a
//! process that has left its worker's group, and everything if the launcher itself is killed by
//! SIGKILL; a worker that wants to notice the latter can watch `MESHWORK_LAUNCHER_PID`.
//!
//! # Common calls
//!
//! | call | for |
//! |---|---|
//! | [`Launch::new`], [`Launch::args`], [`Launch::env`] | a program |
//! | [`Launch::workers`], [`Launch::hosts`] | how many, and where |
//! | [`Launch::elastic`] | those that fail are started again |
//! | [`Launch::cores`], [`Launch::output`], [`Launch::grace`] | cores, output, and the time to end |
//! | [`Launch::run`], [`Outcome`] | all of it, and how it ended |
//!
//! # Errors
//!
//! [`LaunchError`] says what kept workers from starting or being watched, or their output from
//! being written; those that were started are ended. A worker that fails is no error but an
//! [`Outcome`].
//!
//! # Costs
//!
//! One thread waits for each worker, one reads the output of all, one hears signals. Lines are
//! passed on as they come. A worker on another host is an `ssh`, and a thread that writes to it.
//!
//! # Map of the crate
//!
//! The builder is in this file, what comes out of a run in `outcome`; `ports`, `environment`,
//! `secret` and `cores` (what a worker is handed), `hosts` and `remote` (workers on other hosts),
//! `limits` (what the system allows), `workers` (the processes and their one owner), `run_state`
//! (what to do when, as a pure function of events and time), `supervisor` (does it), `output`
//! (prefixed lines), `signals`, `announce` (tells survivors whom they lost).
#![forbid(unsafe_code)]

#[cfg(not(unix))]
compile_error!(
    "meshwork-launcher supervises workers through process groups and signals, which only Unix systems have: build it for Linux, macOS or a BSD"
);

mod announce;
mod cores;
mod elastic;
mod environment;
mod error;
mod event;
mod hosts;
mod limits;
mod outcome;
mod output;
mod ports;
mod remote;
mod run_state;
mod secret;
mod signals;
mod supervisor;
mod task_limit;
mod workers;

use std::ffi::{OsStr, OsString};
use std::fmt::{self, Debug};
use std::path::PathBuf;
use std::process::{self, Command, Stdio};
use std::time::Duration;

use meshwork_collectives::{GroupConfig, JobSecret, Rank};

pub use cores::Cores;
pub use elastic::Elastic;
pub use error::LaunchError;
pub use hosts::HostList;
pub use outcome::{Failure, Interruption, Loss, Outcome, Shortage, Signal, WorkerEnd};
pub use output::Output;
pub use task_limit::TaskLimit;

use hosts::Host;
use remote::RemoteWorker;
use secret::Handed;
use supervisor::Supervisor;
use workers::Start;

/// A launch to be configured and then [run](Launch::run): the program, the number of workers, and
/// options.
///
/// ```
/// use std::time::Duration;
/// use meshwork_launcher::{Launch, Outcome};
///
/// let launch = Launch::new("sh")
///     .args(["-c", "test $STEPS = 10 || exit 3"])
///     .env("STEPS", "9")
///     .grace(Duration::from_secs(1));
/// let Outcome::Failed(failure) = launch.run()? else { panic!() };
/// assert_eq!((failure.rank().number(), failure.end().exit_code()), (0, 3));
/// # Ok::<(), meshwork_launcher::LaunchError>(())
/// ```
#[derive(Clone)]
pub struct Launch {
    program: OsString,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    workers: usize,
    port_base: Option<u16>,
    grace: Duration,
    output: Output,
    ranks_shown: Option<usize>,
    cores: Cores,
    elastic: Option<Elastic>,
    hosts: Option<HostList>,
    ssh_config: Option<PathBuf>,
    seeds: Option<String>,
    secret: Option<JobSecret>,
}

impl Launch {
    /// The most workers that one run starts.
    pub const MOST_WORKERS: usize = 1024;

    /// One worker of `program`, a path or a name to look up in `PATH`; no arguments, prefixed
    /// output, free ports, 5 s of grace.
    #[must_use]
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self {
            program: program.as_ref().to_owned(),
            args: Vec::new(),
            env: Vec::new(),
            workers: 1,
            port_base: None,
            grace: Duration::from_secs(5),
            output: Output::Prefixed,
            ranks_shown: None,
            cores: Cores::Shared,
            elastic: None,
            hosts: None,
            ssh_config: None,
            seeds: None,
            secret: None,
        }
    }

    /// Adds arguments for the program, the same for all workers.
    #[must_use]
    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args
            .extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets an environment variable of all workers; the three that the launcher itself sets win.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        let variable = (name.as_ref().to_owned(), value.as_ref().to_owned());
        self.env.push(variable);
        self
    }

    /// Sets how many workers to start.
    ///
    /// # Errors
    /// [`LaunchError::WorkerCount`] for none or more than [`Launch::MOST_WORKERS`].
    pub fn workers(mut self, workers: usize) -> Result<Self, LaunchError> {
        if !(1..=Self::MOST_WORKERS).contains(&workers) {
            return Err(LaunchError::WorkerCount { workers });
        }
        self.workers = workers;
        Ok(self)
    }

    /// Gives the workers the ports from `base` on, in order of rank, rather than any free ones.
    #[must_use]
    pub fn port_base(mut self, base: u16) -> Self {
        self.port_base = Some(base);
        self
    }

    /// Sets how long workers may take to end after SIGINT or SIGTERM before they are killed.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Sets where the workers' output goes.
    #[must_use]
    pub fn output(mut self, output: Output) -> Self {
        self.output = output;
        self
    }

    /// Shows the lines of so many workers, from rank 0 on, and drops those of the others.
    ///
    /// Without it all are shown, until a worker fails: what follows is shown of that one and of 8
    /// others, and of the rest counted in the [outcome](Outcome).
    #[must_use]
    pub fn ranks_shown(mut self, ranks: usize) -> Self {
        self.ranks_shown = Some(ranks);
        self
    }

    /// Sets which cores the workers run on.
    #[must_use]
    pub fn cores(mut self, cores: Cores) -> Self {
        self.cores = cores;
        self
    }

    /// Restarts workers that fail, while enough of them are left; the program has to be able to
    /// continue without them and to admit them again.
    ///
    /// # Errors
    /// [`LaunchError::Least`] where the run has fewer workers than it needs, or needs none.
    pub fn elastic(mut self, elastic: Elastic) -> Result<Self, LaunchError> {
        let (least, workers) = (elastic.least(), self.workers);
        if !(1..=workers).contains(&least) {
            return Err(LaunchError::Least { least, workers });
        }
        self.elastic = Some(elastic);
        Ok(self)
    }

    /// Starts the workers on these hosts, by `ssh`, instead of this machine.
    #[must_use]
    pub fn hosts(mut self, hosts: HostList) -> Self {
        self.hosts = Some(hosts);
        self
    }

    /// Makes `ssh` read this file instead of its usual ones.
    #[must_use]
    pub fn ssh_config(mut self, file: impl Into<PathBuf>) -> Self {
        self.ssh_config = Some(file.into());
        self
    }

    /// Lets the workers ask to be let into a job that runs elsewhere, at these addresses of some of
    /// its workers, with commas between them: they get `MESHWORK_SEEDS` instead of `TF_CONFIG`, and
    /// the [secret](Self::secret) given or that of the launcher's environment, which has to be the
    /// job's. They are started on this machine: a run with [`hosts`](Self::hosts) is refused.
    #[must_use]
    pub fn joining(mut self, seeds: impl Into<String>) -> Self {
        self.seeds = Some(seeds.into());
        self
    }

    /// Hands this secret to the workers instead of the one of this process's environment.
    #[must_use]
    pub fn secret(mut self, secret: JobSecret) -> Self {
        self.secret = Some(secret);
        self
    }

    /// Starts the workers, waits until the last has ended, and says how it went.
    ///
    /// Blocks the calling thread; see the [crate](self) for what happens meanwhile.
    ///
    /// # Errors
    /// Every variant of [`LaunchError`] but [`WorkerCount`](LaunchError::WorkerCount); workers that
    /// had already been started have then been killed, but with
    /// [`OutputLost`](LaunchError::OutputLost) they have succeeded. A worker that fails is no error
    /// but an [`Outcome`].
    pub fn run(&self) -> Result<Outcome, LaunchError> {
        let secret = match (&self.secret, &self.seeds) {
            (Some(secret), _) => Handed::of(secret.clone())?,
            // A job that runs has a secret.
            (None, Some(_)) => Handed::on()?,
            (None, None) => Handed::on_or_new()?,
        };
        let placed = self.placed()?;
        // From here to the moment a worker binds it, anybody can take one of the ports.
        let addresses = match &placed {
            None => {
                limits::check(self.workers)?;
                // Newcomers of a job that runs choose their ports.
                let founders = if self.seeds.is_some() {
                    0
                } else {
                    self.workers
                };
                ports::reserve(founders, self.port_base)?.release()
            }
            Some(placed) => self.elsewhere(placed)?,
        };
        let mut supervisor = Supervisor::new(self.workers, self.grace, self.elastic)?;
        let start = |supervisor: &mut Supervisor, rank: Rank, restarts: u32| {
            let how = match &placed {
                None => Start::Local(self.command(rank, restarts, &addresses, &secret)),
                Some(placed) => {
                    let host = placed[rank.index()];
                    let worker = self.remote(rank, restarts, &addresses, &secret)?;
                    let orders = worker.orders()?;
                    let mut ssh = remote::ssh(host, self.ssh_config.as_deref(), orders.len());
                    self.redirect(rank, &mut ssh);
                    Start::Remote { ssh, orders }
                }
            };
            let start = || supervisor.start(rank, how);
            cores::within(self.cores, rank.index(), self.workers, start)
        };
        for rank in Rank::all(u32::MAX).take(self.workers) {
            start(&mut supervisor, rank, 0)?;
        }
        let secret = secret.secret().clone();
        supervisor.supervise(addresses.clone(), secret, self.ranks_shown, start)
    }

    /// The host of each worker in order of rank, where they are on other hosts.
    fn placed(&self) -> Result<Option<Vec<&Host>>, LaunchError> {
        let Some(hosts) = &self.hosts else {
            return Ok(None);
        };
        if self.seeds.is_some() {
            return Err(LaunchError::RemoteNewcomers);
        }
        if self.cores != Cores::Shared {
            return Err(LaunchError::RemoteCores);
        }
        hosts.place(self.workers).map(Some)
    }

    /// The addresses of workers on other hosts, in order of rank, if so many can be started.
    fn elsewhere(&self, placed: &[&Host]) -> Result<Vec<String>, LaunchError> {
        limits::check_remote(self.workers)?;
        let ports = ports::elsewhere(self.workers, self.port_base)?;
        let addresses = placed.iter().zip(ports);
        Ok(addresses
            .map(|(host, port)| format!("{}:{port}", host.in_address()))
            .collect())
    }

    /// A worker on another host: what is said of it here is all that it knows of this process.
    fn remote(
        &self,
        rank: Rank,
        restarts: u32,
        addresses: &[String],
        secret: &Handed,
    ) -> Result<RemoteWorker<'_>, LaunchError> {
        let ours = std::env::vars_os()
            .filter(|(name, _)| environment::is_handed_on(&name.to_string_lossy()));
        let mut variables: Vec<(OsString, OsString)> = ours.collect();
        variables.extend(self.env.iter().cloned());
        let config = environment::tf_config(addresses, rank);
        variables.push(("TF_CONFIG".into(), config.into()));
        if self.elastic.is_some() {
            variables.push((
                GroupConfig::RESTARTS_ENV.into(),
                restarts.to_string().into(),
            ));
        }
        Ok(RemoteWorker {
            program: &self.program,
            args: &self.args,
            variables,
            secret: secret.secret().clone(),
            folder: std::env::current_dir().map_err(|source| LaunchError::Folder { source })?,
            grace: self.grace,
        })
    }

    fn command(&self, rank: Rank, restarts: u32, addresses: &[String], secret: &Handed) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(&self.args)
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .env(GroupConfig::LAUNCHER_ENV, process::id().to_string())
            .stdin(Stdio::null());
        match &self.seeds {
            Some(seeds) => command
                .env(GroupConfig::SEEDS_ENV, seeds)
                .env_remove("TF_CONFIG"),
            None => command
                .env("TF_CONFIG", environment::tf_config(addresses, rank))
                .env_remove(GroupConfig::SEEDS_ENV),
        };
        environment::give_time_to_join(&mut command, self.workers);
        secret.tell(&mut command);
        match self.elastic {
            Some(_) => command.env(GroupConfig::RESTARTS_ENV, restarts.to_string()),
            None => command.env_remove(GroupConfig::RESTARTS_ENV),
        };
        self.redirect(rank, &mut command);
        command
    }

    fn redirect(&self, rank: Rank, command: &mut Command) {
        let (stdout, stderr) = match (self.output, rank) {
            (Output::ChiefInherits, Rank::CHIEF) => (Stdio::inherit(), Stdio::inherit()),
            _ => (Stdio::piped(), Stdio::piped()),
        };
        command.stdout(stdout).stderr(stderr);
    }
}

impl Debug for Launch {
    /// Leaves out the values of environment variables, which may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.env.iter().map(|(name, _)| name).collect();
        f.debug_struct("Launch")
            .field("program", &self.program)
            .field("args", &self.args)
            .field("env", &names)
            .field("workers", &self.workers)
            .field("port_base", &self.port_base)
            .field("grace", &self.grace)
            .field("output", &self.output)
            .field("ranks_shown", &self.ranks_shown)
            .field("cores", &self.cores)
            .field("elastic", &self.elastic)
            .field("hosts", &self.hosts)
            .field("ssh_config", &self.ssh_config)
            .field("seeds", &self.seeds)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_and_1025_workers_are_refused() {
        for workers in [0, 1025, usize::MAX] {
            let refused = Launch::new("true").workers(workers).unwrap_err();
            assert!(matches!(refused, LaunchError::WorkerCount { workers: w } if w == workers));
        }
        assert!(Launch::new("true").workers(1024).is_ok());
    }

    #[test]
    fn debug_shows_names_and_no_values_of_variables() {
        let shown = format!("{:?}", Launch::new("true").env("TOKEN", "abc123"));
        assert!(shown.contains("TOKEN"), "{shown}");
        assert!(!shown.contains("abc123"), "{shown}");
    }

    #[test]
    fn the_launchers_variables_win_over_the_callers() {
        let secret = Handed::on_or_new().unwrap();
        let launch = Launch::new("true").env("TF_CONFIG", "{}").env("A", "1");
        let command = launch.command(Rank::CHIEF, 0, &["127.0.0.1:9".into()], &secret);
        let value = |name: &str| {
            let mut variables = command.get_envs();
            variables
                .find(|(found, _)| *found == name)
                .and_then(|(_, value)| value?.to_str())
                .map(str::to_owned)
        };
        assert_eq!(value("A").unwrap(), "1");
        assert!(value("TF_CONFIG").unwrap().contains("127.0.0.1:9"));
        assert_eq!(
            value("MESHWORK_LAUNCHER_PID").unwrap(),
            process::id().to_string()
        );
    }

    #[test]
    fn workers_that_join_a_job_are_told_of_seeds_and_of_no_cluster() {
        let secret = Handed::on_or_new().unwrap();
        let launch = Launch::new("true").joining("a:1,b:2");
        let command = launch.command(Rank::CHIEF, 0, &[], &secret);
        let value = |name: &str| command.get_envs().find(|(found, _)| *found == name);
        let told = value(GroupConfig::SEEDS_ENV).and_then(|(_, seeds)| seeds);
        assert_eq!(told, Some(OsStr::new("a:1,b:2")));
        assert_eq!(value("TF_CONFIG"), Some((OsStr::new("TF_CONFIG"), None)));
    }

    #[test]
    fn newcomers_and_cores_on_other_hosts_are_refused() {
        let launch = Launch::new("true").hosts("a".parse().unwrap());
        let joining = launch.clone().joining("b:1").placed().unwrap_err();
        assert!(matches!(joining, LaunchError::RemoteNewcomers), "{joining}");
        let pinned = launch.cores(Cores::Split).placed().unwrap_err();
        assert!(matches!(pinned, LaunchError::RemoteCores), "{pinned}");
    }

    #[test]
    fn one_launch_can_be_run_twice() {
        let launch = Launch::new("true").workers(3).unwrap();
        assert_eq!(launch.run().unwrap(), Outcome::Succeeded);
        assert_eq!(launch.run().unwrap(), Outcome::Succeeded);
    }
}

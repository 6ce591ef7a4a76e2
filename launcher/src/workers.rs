//! Worker processes, each in a process group of its own: spawning, signalling, waiting and reaping.
//! That of a worker on another host is an `ssh`, which is told of signals over its standard input.
//! A worker that has ended stays a zombie until the run is over or it is replaced, so that no
//! signal reaches a reused process id.

mod ssh_input;

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::SyncSender;
use std::thread::{self, JoinHandle};

use meshwork_collectives::Rank;
use rustix::io::Errno;
use rustix::process::{Pid, WaitId, WaitIdOptions, kill_process_group, waitid};

use crate::event::Event;
use crate::output::{Pipe, Stream};
use crate::remote::Orders;
use crate::{LaunchError, Signal, WorkerEnd};
use ssh_input::SshInput;

/// Owns the workers' processes, in order of rank. None outlives it: dropping it kills and reaps.
///
/// A process id can be reused as soon as its process is reaped. So none is reaped before
/// [`Workers::end`], or before another takes its place: until then a worker that has ended stays a
/// zombie, its process group keeps its number, and a signal sent here can reach no stranger.
#[derive(Debug, Default)]
pub(crate) struct Workers(Vec<Worker>);

/// How a worker is started.
pub(crate) enum Start {
    /// As a process of this host.
    Local(Command),
    /// By an `ssh`, which is told this first.
    Remote { ssh: Command, orders: Orders },
}

#[derive(Debug)]
struct Worker {
    child: Child,
    /// Takes signals for a worker on another host.
    input: Option<SshInput>,
    /// Its process id, and that of its group.
    pid: Pid,
    /// Waits for its end without reaping it.
    waiter: Option<JoinHandle<()>>,
    /// Its process id may be another's by now.
    reaped: bool,
}

impl Workers {
    /// Starts the worker of this rank in a process group of its own; its end will be an event. It
    /// is the next in order, or takes the place of one that has ended, of which nothing is left
    /// then. Gives the pipes that the command asked for.
    ///
    /// # Errors
    /// [`LaunchError::ProgramMissing`], [`LaunchError::ProgramNotExecutable`],
    /// [`LaunchError::Spawn`], [`LaunchError::Watch`]
    pub(crate) fn start(
        &mut self,
        rank: Rank,
        start: Start,
        events: SyncSender<Event>,
    ) -> Result<Vec<Pipe>, LaunchError> {
        if let Some(worker) = self.0.get_mut(rank.index()) {
            worker.end();
        }
        let (mut command, orders) = match start {
            Start::Local(command) => (command, None),
            Start::Remote { mut ssh, orders } => {
                ssh.stdin(Stdio::piped());
                (ssh, Some(orders))
            }
        };
        let is_remote = orders.is_some();
        let mut child = command
            .process_group(0)
            .spawn()
            .map_err(|source| LaunchError::spawn(command.get_program().into(), rank, source))?;
        let ends = [
            (Stream::Stdout, child.stdout.take().map(OwnedFd::from)),
            (Stream::Stderr, child.stderr.take().map(OwnedFd::from)),
        ];
        let pid = Pid::from_child(&child);
        // From here on whatever happens, the child is killed and reaped.
        let mut worker = Worker {
            child,
            input: None,
            pid,
            waiter: None,
            reaped: false,
        };
        if let (Some(stdin), Some(orders)) = (worker.child.stdin.take(), orders) {
            worker.input = Some(SshInput::start(rank, stdin, orders)?);
        }
        // The last that may fail, so that nothing is told of a worker that has not started.
        let waiter = thread::Builder::new()
            .name(format!("{rank} waiter"))
            .stack_size(THREAD_STACK)
            .spawn(move || {
                let end = end_of(pid).map(|end| match is_remote {
                    true => end.seen_through_ssh(),
                    false => end,
                });
                let _ = events.send(Event::Ended(rank, end));
            })
            .map_err(|source| LaunchError::Watch { source })?;
        worker.waiter = Some(waiter);
        match self.0.get_mut(rank.index()) {
            Some(place) => *place = worker,
            None => self.0.push(worker),
        }
        Ok(ends
            .into_iter()
            .filter_map(|(stream, end)| end.map(|end| Pipe { rank, stream, end }))
            .collect())
    }

    /// Whether the worker of this rank is a process of this host.
    pub(crate) fn is_here(&self, rank: Rank) -> bool {
        let worker = self.0.get(rank.index());
        worker.is_some_and(|worker| worker.input.is_none())
    }

    /// Sends a signal to every worker's process group.
    pub(crate) fn signal(&self, signal: Signal) {
        // A failure means that nobody can be reached, as when all have ended.
        for worker in self.0.iter().filter(|worker| !worker.reaped) {
            match &worker.input {
                Some(input) => input.signal(signal),
                None => {
                    if let Some(signal) = rustix::process::Signal::from_named_raw(signal.number()) {
                        let _ = kill_process_group(worker.pid, signal);
                    }
                }
            }
        }
    }

    /// Sends SIGKILL to every worker's process group. An `ssh` that has not taken its orders has
    /// started nothing and takes no signal: it is ended itself.
    pub(crate) fn kill(&self) {
        self.disconnect_where(|input| !input.has_orders());
        self.signal(Signal::KILL);
    }

    /// Ends each `ssh` whose worker has not ended; with it the other end of its connection.
    pub(crate) fn disconnect(&self) {
        self.disconnect_where(|_| true);
    }

    fn disconnect_where(&self, is_meant: impl Fn(&SshInput) -> bool) {
        for worker in self.0.iter().filter(|worker| !worker.reaped) {
            if worker.input.as_ref().is_some_and(&is_meant) {
                let _ = kill_process_group(worker.pid, rustix::process::Signal::KILL);
            }
        }
    }

    /// Kills what remains of the process groups, and reaps all workers.
    pub(crate) fn end(&mut self) {
        self.kill();
        // What drops kills each group of this host.
        self.0.clear();
    }
}

impl Drop for Workers {
    /// All are killed before the first is waited for.
    fn drop(&mut self) {
        self.end();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.end();
    }
}

impl Worker {
    /// Kills what remains of its process group, and reaps it.
    fn end(&mut self) {
        if self.reaped {
            return;
        }
        let _ = kill_process_group(self.pid, rustix::process::Signal::KILL);
        if let Some(waiter) = self.waiter.take() {
            let _ = waiter.join();
        }
        // It is dead, so this does not take long; it fails only if somebody else has reaped it.
        let _ = self.child.wait();
        self.reaped = true;
    }
}

/// Waits for the end of a child and leaves it to be reaped.
fn end_of(pid: Pid) -> io::Result<WorkerEnd> {
    loop {
        match waitid(
            WaitId::Pid(pid),
            WaitIdOptions::EXITED | WaitIdOptions::NOWAIT,
        ) {
            Ok(status) => {
                let end = status.as_ref().and_then(WorkerEnd::from_wait);
                return end.ok_or_else(|| Errno::CHILD.into());
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// A worker's threads make a few system calls and nothing else; there can be two thousand of them.
const THREAD_STACK: usize = 128 * 1024;

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{BufRead, BufReader};
    use std::sync::mpsc::sync_channel;
    use std::time::Duration;

    use meshwork_collectives::JobSecret;
    use rustix::process::test_kill_process;

    use super::*;

    fn orders(rest: &[u8]) -> Orders {
        Orders::new(JobSecret::generate().unwrap(), rest.to_vec())
    }

    #[test]
    fn dropped_workers_are_killed_and_reaped() {
        let (sender, events) = sync_channel(2);
        let mut workers = Workers::default();
        for rank in Rank::all(2) {
            let mut command = Command::new("sleep");
            command.arg("1000");
            workers
                .start(rank, Start::Local(command), sender.clone())
                .unwrap();
        }
        let pids: Vec<_> = workers.0.iter().map(|worker| worker.pid).collect();
        drop(workers);
        for pid in pids {
            assert_eq!(test_kill_process(pid), Err(Errno::SRCH));
        }
        let signal = Signal::new(9);
        for event in events.try_iter() {
            assert!(
                matches!(event, Event::Ended(_, Ok(end)) if end == WorkerEnd::Killed { signal })
            );
        }
    }

    #[test]
    fn a_worker_that_takes_anothers_place_is_the_only_one_there() {
        let (sender, events) = sync_channel(2);
        let mut workers = Workers::default();
        let mut pids = Vec::new();
        for _ in 0..2 {
            let mut command = Command::new("sh");
            // What it leaves behind is ended with it.
            command.args(["-c", "sleep 1000 & exit 1"]);
            workers
                .start(Rank::CHIEF, Start::Local(command), sender.clone())
                .unwrap();
            let ended = events.recv().unwrap();
            assert!(matches!(ended, Event::Ended(Rank::CHIEF, Ok(end)) if !end.is_success()));
            pids.push(workers.0[0].pid);
        }
        assert_eq!(workers.0.len(), 1);
        assert_eq!(test_kill_process(pids[0]), Err(Errno::SRCH));
    }

    #[test]
    fn a_worker_that_has_ended_keeps_its_process_id_until_all_end() {
        let (sender, events) = sync_channel(1);
        let mut workers = Workers::default();
        workers
            .start(Rank::CHIEF, Start::Local(Command::new("true")), sender)
            .unwrap();
        let pid = workers.0[0].pid;
        assert!(matches!(events.recv(), Ok(Event::Ended(_, Ok(end))) if end.is_success()));
        assert_eq!(test_kill_process(pid), Ok(()));
        workers.end();
        assert_eq!(test_kill_process(pid), Err(Errno::SRCH));
    }

    #[test]
    fn an_ssh_that_reads_nothing_keeps_nobody_waiting_and_is_killed_with_the_others() {
        let (sender, events) = sync_channel(1);
        let mut workers = Workers::default();
        let mut ssh = Command::new("sleep");
        // Whoever waits for it to take its orders finds that it has ended, and was not killed.
        ssh.arg("30");
        let orders = orders("#".repeat(1 << 20).as_bytes());
        let start = Start::Remote { ssh, orders };
        workers.start(Rank::CHIEF, start, sender).unwrap();
        workers.signal(Signal::TERMINATE);
        workers.kill();
        let ended = events.recv_timeout(Duration::from_secs(60)).unwrap();
        let signal = Signal::KILL;
        assert!(
            matches!(ended, Event::Ended(_, Ok(end)) if end == WorkerEnd::Killed { signal }),
            "{ended:?}"
        );
    }

    #[test]
    fn an_ssh_is_told_its_orders_and_then_each_signal() {
        let (sender, _events) = sync_channel(1);
        let mut workers = Workers::default();
        let mut ssh = Command::new("cat");
        ssh.stdout(Stdio::piped());
        let orders = orders(b"\norders\n");
        let start = Start::Remote { ssh, orders };
        let pipe = workers.start(Rank::CHIEF, start, sender).unwrap().remove(0);
        workers.signal(Signal::TERMINATE);
        let mut told = BufReader::new(File::from(pipe.end)).lines();
        let mut line = || told.next().unwrap().unwrap();
        assert_eq!(line(), "{");
        assert!(line().starts_with("export MESHWORK_JOB_SECRET="));
        assert_eq!(line(), "orders");
        assert_eq!(line(), "TERM");
        // It has its orders: it hands this on, and is not killed itself.
        workers.kill();
        assert_eq!(line(), "KILL");
    }
}

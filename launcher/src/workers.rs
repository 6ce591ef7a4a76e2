//! Worker processes, each in a process group of its own: spawning, signalling, waiting and reaping.
//! That of a worker on another host is an `ssh`, which is told of signals over its standard input.
//! A worker that has ended stays a zombie until the run is over or it is replaced, so that no
//! signal reaches a reused process id.

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::SyncSender;
use std::thread::{self, JoinHandle};

use meshwork_collectives::Rank;
use rustix::io::Errno;
use rustix::process::{Pid, WaitId, WaitIdOptions, kill_process_group, waitid};

use crate::event::Event;
use crate::output::{Pipe, Stream};
use crate::remote;
use crate::{LaunchError, Signal, WorkerEnd};

/// Owns the workers' processes, in order of rank. None outlives it: dropping it kills and reaps.
///
/// A process id can be reused as soon as its process is reaped. So none is reaped before
/// [`Workers::end`], or before another takes its place: until then a worker that has ended stays a
/// zombie, its process group keeps its number, and a signal sent here can reach no stranger.
#[derive(Debug, Default)]
pub(crate) struct Workers(Vec<Worker>);

/// How a worker is started.
#[derive(Debug)]
pub(crate) enum Start {
    /// As a process of this host.
    Local(Command),
    /// By an `ssh`, which is told this first.
    Remote { ssh: Command, orders: Vec<u8> },
}

#[derive(Debug)]
struct Worker {
    child: Child,
    /// Takes signals for a worker on another host.
    remote: Option<ChildStdin>,
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
            remote: child.stdin.take(),
            child,
            pid,
            waiter: None,
            reaped: false,
        };
        let waiter = thread::Builder::new()
            .name(format!("{rank} waiter"))
            .stack_size(WAITER_STACK)
            .spawn(move || {
                let end = end_of(pid).map(|end| match is_remote {
                    true => end.seen_through_ssh(),
                    false => end,
                });
                let _ = events.send(Event::Ended(rank, end));
            })
            .map_err(|source| LaunchError::Watch { source })?;
        worker.waiter = Some(waiter);
        if let (Some(remote), Some(orders)) = (&mut worker.remote, orders) {
            // An `ssh` that reaches nobody gives up, which ends this and is an end like any other.
            let _ = remote.write_all(&orders);
        }
        match self.0.get_mut(rank.index()) {
            Some(place) => *place = worker,
            None => self.0.push(worker),
        }
        Ok(ends
            .into_iter()
            .filter_map(|(stream, end)| end.map(|end| Pipe { rank, stream, end }))
            .collect())
    }

    /// Sends a signal to every worker's process group.
    pub(crate) fn signal(&mut self, signal: Signal) {
        self.send(signal);
    }

    /// Sends SIGKILL to every worker's process group.
    pub(crate) fn kill(&mut self) {
        self.send(Signal::KILL);
    }

    /// Ends each `ssh` whose worker has not ended; with it the other end of its connection.
    pub(crate) fn disconnect(&mut self) {
        let ssh = self.0.iter().filter(|worker| worker.remote.is_some());
        for worker in ssh.filter(|worker| !worker.reaped) {
            let _ = kill_process_group(worker.pid, rustix::process::Signal::KILL);
        }
    }

    /// Kills what remains of the process groups, and reaps all workers.
    pub(crate) fn end(&mut self) {
        self.kill();
        // What drops kills each group of this host.
        self.0.clear();
    }

    fn send(&mut self, signal: Signal) {
        // A failure means that nobody can be reached, as when all have ended.
        for worker in self.0.iter_mut().filter(|worker| !worker.reaped) {
            match &mut worker.remote {
                Some(remote) => {
                    if let Some(line) = remote::signal_line(signal) {
                        let _ = remote.write_all(line.as_bytes());
                    }
                }
                None => {
                    if let Some(signal) = rustix::process::Signal::from_named_raw(signal.number()) {
                        let _ = kill_process_group(worker.pid, signal);
                    }
                }
            }
        }
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

/// A waiter makes two system calls and nothing else; there can be a thousand of them.
const WAITER_STACK: usize = 128 * 1024;

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use rustix::process::test_kill_process;

    use super::*;

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
}

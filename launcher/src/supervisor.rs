//! The event loop of a run: it starts workers, waits for exits, signals and the end of output, and
//! carries out what `run_state` decides. The decisions themselves are not here.

use std::collections::VecDeque;
use std::error::Error;
use std::iter::successors;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use meshwork_collectives::{JobSecret, Rank};

use crate::announce::announce;
use crate::event::Event;
use crate::limits::MemoryKillCounters;
use crate::outcome::MemoryKills;
use crate::output::{LostLines, OutputSummary, Pipe, Pump, Shown};
use crate::run_state::{RestartDecision, RestartEvent, RunState, Step};
use crate::signals::SignalWatch;
use crate::workers::{Start, Workers};
use crate::{Elastic, LaunchError, Outcome, WorkerEnd};

/// Starts workers and carries out what [`RunState`] decides, on the thread that called.
#[derive(Debug)]
pub(crate) struct Supervisor {
    /// First, so that it is dropped first: threads that still have something to report then end.
    events: Receiver<Event>,
    sender: SyncSender<Event>,
    workers: Workers,
    pipes: Vec<Pipe>,
    run_state: RunState,
    elastic: Option<Elastic>,
    count: usize,
    output_ended: bool,
    failed_first: Arc<OnceLock<Rank>>,
    /// As they were when the run began.
    memory_kill_counters: MemoryKillCounters,
    /// What they had counted when a worker was killed last.
    memory_kills: MemoryKills,
    _signals: SignalWatch,
}

impl Supervisor {
    /// Takes over signals; no worker is started yet.
    ///
    /// # Errors
    /// [`LaunchError::Signals`], [`LaunchError::Watch`]
    pub(crate) fn new(
        count: usize,
        grace: Duration,
        elastic: Option<Elastic>,
    ) -> Result<Self, LaunchError> {
        // One end per worker, as none is started again before its end was seen, the end of the
        // output, and signals.
        let (sender, events) = sync_channel(count.saturating_add(64));
        Ok(Self {
            events,
            _signals: SignalWatch::install(sender.clone())?,
            sender,
            workers: Workers::default(),
            pipes: Vec::new(),
            run_state: RunState::new(count, grace).with_restart_policy(elastic),
            elastic,
            count,
            output_ended: false,
            failed_first: Arc::default(),
            memory_kill_counters: MemoryKillCounters::now(),
            memory_kills: MemoryKills::default(),
        })
    }

    /// Starts the worker of this rank, the next in order or one that has ended.
    ///
    /// # Errors
    /// As [`Workers::start`].
    pub(crate) fn start(&mut self, rank: Rank, how: Start) -> Result<(), LaunchError> {
        let pipes = self.workers.start(rank, how, self.sender.clone())?;
        self.pipes.extend(pipes);
        Ok(())
    }

    /// Watches the workers until all have ended and their output is written, that of the first
    /// ranks where only so many are shown. Workers are restarted by `restart`, which
    /// gets the rank and the number of restarts; where that fails it is told, and an end of the
    /// worker like any other.
    ///
    /// # Errors
    /// [`LaunchError::Watch`], [`LaunchError::Wait`], [`LaunchError::OutputLost`].
    pub(crate) fn supervise(
        mut self,
        addresses: Vec<String>,
        secret: JobSecret,
        ranks_shown: Option<usize>,
        restart: impl Fn(&mut Self, Rank, u32) -> Result<(), LaunchError>,
    ) -> Result<Outcome, LaunchError> {
        let pipes = std::mem::take(&mut self.pipes);
        let shown = match ranks_shown {
            Some(ranks) => Shown::First(ranks),
            None => Shown::UntilFailure(self.failed_first.clone()),
        };
        let mut pump = Pump::start(pipes, self.count, shown, self.sender.clone())?;
        if self.elastic.is_none() {
            pump.close();
        }
        let mut job = Some((addresses, secret));
        while !self.run_state.is_over() {
            let mut steps = VecDeque::from(self.next_steps()?);
            while let Some(step) = steps.pop_front() {
                match step {
                    Step::Announce(lost) => {
                        if let Some((addresses, secret)) = job.take() {
                            announce(addresses, secret, lost);
                        }
                    }
                    Step::Tell(event) => pump.tell(told(&event, self.memory_kills)),
                    Step::Restart(rank, restarts) => match restart(&mut self, rank, restarts) {
                        Ok(()) => pump.add(std::mem::take(&mut self.pipes)),
                        Err(error) => {
                            pump.tell(complaint(rank, &error));
                            steps.extend(self.not_started(rank, &error));
                        }
                    },
                    Step::Send(signal) => self.workers.signal(signal),
                    Step::Kill => self.workers.kill(),
                    Step::Disconnect => self.workers.disconnect(),
                }
            }
        }
        pump.close();
        self.finish(pump)
    }

    /// What to do about a worker that could not be started again: as if it had ended with the exit
    /// status of the error.
    fn not_started(&mut self, rank: Rank, error: &LaunchError) -> Vec<Step> {
        let end = WorkerEnd::Exited {
            status: error.exit_code(),
        };
        let mut steps = Vec::new();
        self.run_state
            .ended(Instant::now(), &[(rank, end)], &mut steps);
        self.note_first_failure();
        steps
    }

    /// From a failure on the output of few workers is shown.
    fn note_first_failure(&self) {
        if let Some(rank) = self.run_state.failed_first() {
            self.failed_first.get_or_init(|| rank);
        }
    }

    /// Waits for something to happen and decides what to do about it.
    fn next_steps(&mut self) -> Result<Vec<Step>, LaunchError> {
        let first = self.next_event(self.run_state.deadline());
        let now = Instant::now();
        let (mut ended, mut signals) = (Vec::new(), Vec::new());
        for event in first.into_iter().chain(self.events.try_iter()) {
            match event {
                Event::Ended(rank, end) => {
                    let end = end.map_err(|source| LaunchError::Wait { rank, source })?;
                    ended.push((rank, end));
                }
                Event::Signal(signal) => signals.push(signal),
                Event::OutputEnded => self.output_ended = true,
            }
        }
        self.look_for_memory_kills(&ended);
        let mut steps = Vec::new();
        // Ends first: no worker has ended by a signal that has not been handed on yet.
        self.run_state.ended(now, &ended, &mut steps);
        self.note_first_failure();
        for signal in signals {
            self.run_state.signalled(now, signal, &mut steps);
        }
        self.run_state.tick(now, &mut steps);
        Ok(steps)
    }

    /// Looks what the kernel has done, where a worker of this host was killed and not from here.
    fn look_for_memory_kills(&mut self, ended: &[(Rank, WorkerEnd)]) {
        let mut killed = ended.iter().filter(|(_, end)| *end == WorkerEnd::KILLED);
        if !self.run_state.has_killed() && killed.any(|(rank, _)| self.workers.is_here(*rank)) {
            self.memory_kills = self.memory_kill_counters.since();
        }
    }

    /// All workers have ended: lets what they started finish its last lines, ends that too, and
    /// waits until everything is written.
    fn finish(mut self, pump: Pump) -> Result<Outcome, LaunchError> {
        let linger = Instant::now() + LINGER;
        let mut patient = true;
        while patient && !self.output_ended && Instant::now() < linger {
            patient = self.await_output(Some(linger));
        }
        self.workers.end();
        let stopped = pump.stop();
        // Whoever reads our output may take all the time they want, as with any program.
        while patient && !self.output_ended {
            patient = self.await_output(None);
        }
        let mut output = match self.output_ended {
            true => stopped.summary(),
            false => OutputSummary::default(),
        };
        let lost = output.lost.take();
        let outcome = self.run_state.outcome(output);
        match (outcome.with_memory_kills(self.memory_kills), lost) {
            (Outcome::Succeeded, Some(LostLines { lines, source })) => {
                Err(LaunchError::OutputLost { lines, source })
            }
            (outcome, _) => Ok(outcome),
        }
    }

    /// Waits for the next event; false for a signal that says to wait no longer.
    fn await_output(&mut self, deadline: Option<Instant>) -> bool {
        match self.next_event(deadline) {
            Some(Event::OutputEnded) => self.output_ended = true,
            Some(Event::Signal(signal)) => return !signal.asks_to_end(),
            Some(Event::Ended(..)) | None => {}
        }
        true
    }

    /// Nothing if nothing happens before the deadline.
    fn next_event(&self, deadline: Option<Instant>) -> Option<Event> {
        match deadline {
            // This cannot fail: `self` holds a sender.
            None => self.events.recv().ok(),
            Some(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                self.events.recv_timeout(left).ok()
            }
        }
    }
}

/// The line that reports the exit of a worker.
fn told(event: &RestartEvent, memory_kills: MemoryKills) -> String {
    let RestartEvent {
        rank,
        end,
        decision,
    } = event;
    let then = match decision {
        RestartDecision::Again {
            pause,
            in_a_row,
            most,
        } => format!("it is started again in {pause:?} ({in_a_row} of {most} times in a row)"),
        RestartDecision::GivenUp { restarts } => {
            format!("it is given up after {restarts} restarts")
        }
        RestartDecision::JobDone => "it stays away, as another has succeeded".to_owned(),
    };
    let memory_kills = memory_kills.beside(*end);
    format!("meshwork run: {rank} ended: {end}{memory_kills}; {then}\n")
}

/// The line that says why a worker could not be started again, with all causes.
fn complaint(rank: Rank, error: &dyn Error) -> String {
    let why: Vec<String> = successors(Some(error), |&error| error.source())
        .map(ToString::to_string)
        .collect();
    let why = why.join(": ");
    format!("meshwork run: {rank} was not started again: {why}\n")
}

/// How long what workers have started may keep their output open after the last worker's end.
const LINGER: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::process::Command;

    use tempfile::TempDir;

    use super::*;
    use crate::Signal;
    use crate::remote::Orders;

    /// A run of one worker by this command, beside a counter that stands at nothing.
    fn run_of(command: Start) -> (Supervisor, TempDir) {
        let folder = tempfile::tempdir().unwrap();
        count(folder.path(), 0);
        let mut supervisor = Supervisor::new(1, Duration::ZERO, None).unwrap();
        let files = vec![folder.path().join("vmstat")];
        supervisor.memory_kill_counters = MemoryKillCounters::of(files);
        supervisor.start(Rank::CHIEF, command).unwrap();
        (supervisor, folder)
    }

    fn count(folder: &Path, kills: u64) {
        fs::write(folder.join("vmstat"), format!("oom_kill {kills}\n")).unwrap();
    }

    fn sleep() -> Command {
        let mut sleep = Command::new("sleep");
        sleep.arg("1000");
        sleep
    }

    #[test]
    fn a_run_says_what_the_kernel_did_for_want_of_memory_while_it_lasted() {
        let outcome = |script: &str, kills| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            let (supervisor, folder) = run_of(Start::Local(command));
            // Nobody looks before the run is supervised.
            count(folder.path(), kills);
            let secret = JobSecret::generate().unwrap();
            let over = supervisor.supervise(Vec::new(), secret, None, |_, _, _| Ok(()));
            over.unwrap().to_string()
        };
        let killed = "rank 0 failed: killed by signal 9 (SIGKILL)";
        let told = "; since the run began the kernel has ended 2 processes on this machine for want \
                    of memory";
        assert_eq!(outcome("kill -9 $$", 2), format!("{killed}{told}"));
        assert_eq!(outcome("kill -9 $$", 0), killed);
        assert_eq!(outcome("exit 1", 2), "rank 0 failed: exit status 1");
    }

    #[test]
    fn who_is_killed_from_here_or_elsewhere_is_no_reason_to_look() {
        let here = || Start::Local(sleep());
        let there = Start::Remote {
            ssh: sleep(),
            orders: Orders::new(JobSecret::generate().unwrap(), Vec::new()),
        };
        let interrupts = |count| vec![Signal::INTERRUPT; count];
        for (start, signals, kills) in [
            (here(), interrupts(0), 1),
            (here(), interrupts(1), 1),
            (here(), interrupts(2), 0),
            (there, interrupts(0), 0),
        ] {
            let (mut supervisor, folder) = run_of(start);
            count(folder.path(), 1);
            for signal in signals {
                let run_state = &mut supervisor.run_state;
                run_state.signalled(Instant::now(), signal, &mut Vec::new());
            }
            supervisor.look_for_memory_kills(&[(Rank::CHIEF, WorkerEnd::KILLED)]);
            assert_eq!(supervisor.memory_kills, MemoryKills(kills));
        }
    }

    #[test]
    fn the_line_of_a_restart_says_what_the_kernel_did_for_want_of_memory() {
        let line = |end| {
            let event = RestartEvent {
                rank: Rank::new(1),
                end,
                decision: RestartDecision::GivenUp { restarts: 2 },
            };
            told(&event, MemoryKills(1))
        };
        assert_eq!(
            line(WorkerEnd::KILLED),
            "meshwork run: rank 1 ended: killed by signal 9 (SIGKILL); since the run began the \
             kernel has ended 1 process on this machine for want of memory; it is given up after 2 \
             restarts\n"
        );
        assert_eq!(
            line(WorkerEnd::Exited { status: 1 }),
            "meshwork run: rank 1 ended: exit status 1; it is given up after 2 restarts\n"
        );
    }
}

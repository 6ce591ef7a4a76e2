//! Signal handling of the launcher: SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 become
//! events while a run is under way, and keep their default action otherwise. `workers` sends them
//! on. A SIGHUP that was ignored when the first run began stays so, here and in workers.

use std::ffi::c_int;
use std::fs;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::flag::register_conditional_default;
use signal_hook::iterator::{Handle, Signals};

use crate::event::Event;
use crate::{LaunchError, Signal};

/// Turns the signals that are handed on into events, from its creation until it is dropped.
#[derive(Debug)]
pub(crate) struct SignalWatch {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
    run: Option<RunUnderWay>,
}

impl SignalWatch {
    /// Takes over the signals that are handed on. An event that finds `events` full is lost, as a
    /// signal is that is pending already.
    pub(crate) fn install(events: SyncSender<Event>) -> Result<Self, LaunchError> {
        // Until a signal is an event it acts as ever: none is lost between.
        let mut runs = Runs::locked();
        let taken = runs.handed_on().and_then(Signals::new);
        let mut signals = taken.map_err(|source| LaunchError::Signals { source })?;
        let run = RunUnderWay::begin(&mut runs);
        drop(runs);
        let handle = signals.handle();
        let thread = thread::Builder::new()
            .name("launch signals".to_owned())
            .spawn(move || {
                for number in signals.forever() {
                    let _ = events.try_send(Event::Signal(Signal::new(number)));
                }
            })
            .map_err(|source| LaunchError::Watch { source })?;
        Ok(Self {
            handle,
            thread: Some(thread),
            run: Some(run),
        })
    }
}

impl Drop for SignalWatch {
    fn drop(&mut self) {
        drop(self.run.take());
        self.handle.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Keeps the signals that are handed on from acting on this process while at least one run is under
/// way.
///
/// A handler cannot be taken away again in safe code, so one stays from the first run on and does
/// what the system did before, unless a run is under way.
#[derive(Debug)]
struct RunUnderWay;

impl RunUnderWay {
    fn begin(runs: &mut Runs) -> Self {
        runs.under_way += 1;
        NO_RUN.store(false, Ordering::SeqCst);
        Self
    }
}

impl Drop for RunUnderWay {
    fn drop(&mut self) {
        let mut runs = Runs::locked();
        runs.under_way -= 1;
        NO_RUN.store(runs.under_way == 0, Ordering::SeqCst);
    }
}

struct Runs {
    under_way: usize,
    /// Known from the first run on, which keeps their defaults.
    handed_on: Option<Vec<c_int>>,
}

impl Runs {
    fn locked() -> MutexGuard<'static, Self> {
        RUNS.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The signals that a run hands on, which act as before from then on while there is none.
    fn handed_on(&mut self) -> io::Result<&[c_int]> {
        let signals = match self.handed_on.take() {
            Some(signals) => signals,
            None => {
                let signals = handed_on();
                for signal in signals.iter().copied().filter(|&s| acts_by_default(s)) {
                    register_conditional_default(signal, &NO_RUN)?;
                }
                signals
            }
        };
        Ok(self.handed_on.insert(signals))
    }
}

/// The signals that a run hands on. Whoever has SIGHUP ignored, as `nohup` does, wants this process
/// and its workers to outlive the terminal: a handler here would make it act on workers again.
fn handed_on() -> Vec<c_int> {
    let is_wanted = |signal: &c_int| *signal != SIGHUP || !is_ignored(SIGHUP);
    HANDED_ON.into_iter().filter(is_wanted).collect()
}

/// Whether this process ignores `signal`, where that is told.
fn is_ignored(signal: c_int) -> bool {
    fs::read_to_string("/proc/self/status")
        .is_ok_and(|status| is_in_mask(&status, "SigIgn:", signal))
}

/// Whether this process neither ignores nor handles `signal`. Only Linux says so to safe code;
/// elsewhere it is taken to be so.
fn acts_by_default(signal: c_int) -> bool {
    fs::read_to_string("/proc/self/status").map_or(true, |status| is_default(&status, signal))
}

fn is_default(status: &str, signal: c_int) -> bool {
    !["SigIgn:", "SigCgt:"]
        .into_iter()
        .any(|label| is_in_mask(status, label, signal))
}

/// Whether the line of the kernel's text that begins with `label` has this signal.
fn is_in_mask(status: &str, label: &str, signal: c_int) -> bool {
    status
        .lines()
        .find_map(|line| line.strip_prefix(label))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

const HANDED_ON: [c_int; 6] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2];

static RUNS: Mutex<Runs> = Mutex::new(Runs {
    under_way: 0,
    handed_on: None,
});

/// Whether no run is under way, for the signal handlers, which may not take a lock.
static NO_RUN: AtomicBool = AtomicBool::new(true);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_and_handled_signals_have_no_default_action() {
        let status = "Name:\tx\nSigIgn:\t0000000000000001\nSigCgt:\t0000000000004000\n";
        assert!(!is_default(status, SIGHUP));
        assert!(!is_default(status, SIGTERM));
        assert!(is_default(status, SIGINT));
        assert!(is_default("", SIGHUP));
        assert!(is_in_mask(status, "SigIgn:", SIGHUP));
        assert!(!is_in_mask(status, "SigIgn:", SIGTERM));
    }
}

//! Signal handling of the launcher: SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 become
//! events while a run is under way, and keep their default action otherwise. `workers` sends them
//! on.

use std::ffi::c_int;
use std::fs;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Mutex, PoisonError};
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
    _run: RunUnderWay,
}

impl SignalWatch {
    /// Takes over the six signals. An event that finds `events` full is lost, as a signal is that
    /// is pending already.
    pub(crate) fn install(events: SyncSender<Event>) -> Result<Self, LaunchError> {
        let run = RunUnderWay::begin().map_err(|source| LaunchError::Signals { source })?;
        let mut signals =
            Signals::new(HANDED_ON).map_err(|source| LaunchError::Signals { source })?;
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
            _run: run,
        })
    }
}

impl Drop for SignalWatch {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Keeps the six signals from acting on this process while at least one run is under way.
///
/// A handler cannot be taken away again in safe code, so one stays from the first run on and does
/// what the system did before, unless a run is under way.
#[derive(Debug)]
struct RunUnderWay(());

impl RunUnderWay {
    fn begin() -> io::Result<Self> {
        let mut runs = RUNS.lock().unwrap_or_else(PoisonError::into_inner);
        if !runs.defaults_kept {
            for signal in HANDED_ON.into_iter().filter(|&s| acts_by_default(s)) {
                register_conditional_default(signal, &NO_RUN)?;
            }
            runs.defaults_kept = true;
        }
        runs.under_way += 1;
        NO_RUN.store(false, Ordering::SeqCst);
        Ok(Self(()))
    }
}

impl Drop for RunUnderWay {
    fn drop(&mut self) {
        let mut runs = RUNS.lock().unwrap_or_else(PoisonError::into_inner);
        runs.under_way -= 1;
        NO_RUN.store(runs.under_way == 0, Ordering::SeqCst);
    }
}

struct Runs {
    under_way: usize,
    defaults_kept: bool,
}

/// Whether this process neither ignores nor handles `signal`. Only Linux says so to safe code;
/// elsewhere it is taken to be so.
fn acts_by_default(signal: c_int) -> bool {
    fs::read_to_string("/proc/self/status").map_or(true, |status| is_default(&status, signal))
}

fn is_default(status: &str, signal: c_int) -> bool {
    !["SigIgn:", "SigCgt:"].into_iter().any(|label| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(label))
            .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
            .is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
    })
}

const HANDED_ON: [c_int; 6] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2];

static RUNS: Mutex<Runs> = Mutex::new(Runs {
    under_way: 0,
    defaults_kept: false,
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
    }
}

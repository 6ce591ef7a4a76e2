//! A worker that is killed at a given place of a given step: SIGKILL, which no process can catch.

use std::str::FromStr;
use std::thread;

use meshwork_collectives::{GroupConfig, Rank};
use meshwork_integration_tests::say;
use rustix::process::{Signal, getpid, kill_process};

/// Where in a step.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Where {
    /// Before its inner step is made.
    Inner,
    /// While it exchanges, if something is to be exchanged.
    Exchange,
    /// When all of the step is done.
    Behind,
}

/// The end of one worker: its place in the list, the step, where in it, and for an end within an
/// exchange how often others may run before it comes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Death {
    worker: usize,
    step: u64,
    place: Where,
    turns: u32,
}

impl FromStr for Death {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no worker:step:inner|exchange|behind:turns");
        let parts: Vec<&str> = text.split(':').collect();
        let [worker, step, place, turns] = parts[..] else {
            return Err(wrong());
        };
        Ok(Self {
            worker: worker.parse().map_err(|_| wrong())?,
            step: step.parse().map_err(|_| wrong())?,
            place: match place {
                "inner" => Where::Inner,
                "exchange" => Where::Exchange,
                "behind" => Where::Behind,
                _ => return Err(wrong()),
            },
            turns: turns.parse().map_err(|_| wrong())?,
        })
    }
}

impl Death {
    /// The end of this process: of the worker with this rank at the beginning, in its first life.
    pub(crate) fn of(all: Option<Self>, rank: Rank) -> Option<Self> {
        let restarts = std::env::var(GroupConfig::RESTARTS_ENV);
        let is_first = restarts.is_ok_and(|restarts| restarts == "0");
        all.filter(|death| is_first && death.worker == rank.index())
    }

    /// Ends the process if it is to end there, or was to before.
    pub(crate) fn comes(death: Option<Self>, step: u64, place: Where) {
        // A worker that is late goes from step to step by more than one.
        let is_due = |death: &Self| death.step <= step && death.place == place;
        let Some(death) = death.filter(is_due) else {
            return;
        };
        say!("dies in step {step}, {place:?}");
        match place {
            Where::Inner | Where::Behind => die(),
            // By a thread of its own, as this one is in the exchange by then.
            Where::Exchange => drop(thread::spawn(move || {
                (0..death.turns).for_each(|_| thread::yield_now());
                die();
            })),
        }
    }
}

fn die() {
    let killed = kill_process(getpid(), Signal::KILL);
    unreachable!("a process outlived its end: {killed:?}");
}

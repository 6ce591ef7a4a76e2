//! One job of real processes, and what its fault does to it.

use std::collections::BTreeSet;
use std::io;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::args::Args;
use crate::crew::{Between, Crew, HANG, free_addresses};
use crate::fault::{Fault, Moments};
use crate::namespaces::Namespaces;

/// No fault is allowed more by default, whatever its kind.
const LATE: Duration = Duration::from_secs(3);

/// What became of one job.
#[derive(Debug, Default)]
pub(crate) struct Story {
    pub(crate) hangs: usize,
    pub(crate) wrong_values: usize,
    /// Errors of survivors that blame a rank that was not at fault, and others that nobody expects.
    pub(crate) wrong_names: Vec<String>,
    /// From the fault to the error of each survivor.
    pub(crate) detections: Vec<Duration>,
    /// Errors that came later than [`LATE`], each with its time.
    pub(crate) late: Vec<String>,
    /// From the fault to the first value without the lost rank, of each survivor.
    pub(crate) returns: Vec<Duration>,
    /// From the start of another process to the first value with it, of each rank.
    pub(crate) reunions: Vec<Duration>,
}

impl Story {
    /// What should not have happened.
    pub(crate) fn problem(&self) -> Option<String> {
        if self.hangs > 0 {
            return Some(format!("{} ranks hang", self.hangs));
        }
        if self.wrong_values > 0 {
            return Some(format!("{} ranks saw a wrong value", self.wrong_values));
        }
        self.wrong_names.iter().chain(&self.late).next().cloned()
    }

    /// Takes in when a rank failed after a fault, and why it says that it did.
    pub(crate) fn failed(
        &mut self,
        at: SystemTime,
        failure: &str,
        blames: impl FnOnce(&str) -> bool,
    ) {
        let (micros, error) = failure.split_once(' ').unwrap_or((failure, ""));
        let detection = since(at, micros);
        self.detections.push(detection);
        if detection > LATE {
            self.late.push(format!("after {detection:.1?}: {error}"));
        }
        if !blames(error) || !error.contains("was lost") {
            self.wrong_names.push(format!("named wrongly: {error}"));
        }
    }
}

/// From a moment to another, which a rank tells in microseconds since 1970.
pub(crate) fn since(at: SystemTime, micros: &str) -> Duration {
    let micros = Duration::from_micros(micros.parse().unwrap_or(u64::MAX));
    micros.saturating_sub(at.duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// Starts a job, waits until all its ranks are at work, does the fault, and watches.
pub(crate) fn suffer(args: &Args, fault: Fault, moments: &mut Moments) -> io::Result<Story> {
    let mut crew = Crew::start(args, scene(args, fault)?, &[])?;
    let mut story = Story::default();
    match reaches_work(&crew) {
        Begun::AtWork => {}
        Begun::Otherwise(line) => {
            story.wrong_names.push(format!("before the fault: {line}"));
            return Ok(story);
        }
        Begun::Hangs => {
            story.hangs = crew.members().len();
            return Ok(story);
        }
    }
    moments.pass();
    let at = strike(&mut crew, fault)?;
    watch(&crew, fault, at, &mut story);
    Ok(story)
}

/// Where the ranks are, such that the fault can happen to them.
fn scene(args: &Args, fault: Fault) -> io::Result<(Vec<String>, Between)> {
    if let Fault::Partition(_) = fault {
        let namespaces = Namespaces::new(args.ranks())?;
        return Ok((namespaces.addresses(), Between::Namespaces(namespaces)));
    }
    let members = free_addresses(args.ranks())?;
    let between = match fault {
        Fault::Cut(_) => Between::relay(members[0].clone())?,
        _ => Between::Loopback,
    };
    Ok((members, between))
}

/// How a job begins.
enum Begun {
    /// All ranks say that they have been at work for a few steps.
    AtWork,
    /// One says something else.
    Otherwise(String),
    Hangs,
}

fn reaches_work(crew: &Crew) -> Begun {
    let deadline = Instant::now() + HANG;
    let mut at_work = 0;
    while at_work < crew.members().len() {
        match crew.line(deadline) {
            Some((_, line)) if line.starts_with("reached") => at_work += 1,
            Some((_, line)) if line.starts_with("joined") => {}
            Some((_, line)) => return Begun::Otherwise(line),
            None => return Begun::Hangs,
        }
    }
    Begun::AtWork
}

/// Does the fault, and says when: a process is gone when it has been told so, a link is down when
/// the programs that cut it have ended.
fn strike(crew: &mut Crew, fault: Fault) -> io::Result<SystemTime> {
    let at = SystemTime::now();
    match fault {
        Fault::Kill(rank) | Fault::Restart(rank) => crew.kill(rank as usize)?,
        Fault::Stop(rank) => crew.stop(rank as usize)?,
        Fault::Cut(rank) | Fault::Partition(rank) => {
            crew.cut(rank as usize)?;
            return Ok(SystemTime::now());
        }
    }
    Ok(at)
}

/// Hears every survivor out.
fn watch(crew: &Crew, fault: Fault, at: SystemTime, story: &mut Story) {
    let deadline = Instant::now() + HANG;
    let victim = fault.victim().map(|rank| rank as usize);
    let ranks = 0..crew.members().len();
    let mut left: BTreeSet<usize> = ranks.filter(|rank| Some(*rank) != victim).collect();
    while !left.is_empty() {
        let Some((rank, line)) = crew.line(deadline) else {
            story.hangs += left.len();
            return;
        };
        if let Some(failure) = line.strip_prefix("failed ") {
            left.remove(&rank);
            let culprits = (0..).zip(crew.members());
            let culprits = culprits.filter(|(culprit, _)| fault.may_be_named(*culprit, rank));
            let names: Vec<String> = culprits.map(|(rank, _)| format!("rank {rank} (")).collect();
            let blames = |error: &str| names.iter().any(|name| error.starts_with(name));
            story.failed(at, failure, blames);
        } else if line.starts_with("wrong") {
            left.remove(&rank);
            story.wrong_values += 1;
        }
    }
}

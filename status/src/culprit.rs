//! Which rank makes the others wait, and why: from what all of them say, and nothing else.
//!
//! ```text
//!   is gone or stopped, or silent for long, and others wait for it ─────> stopped
//!   before its operations for longer than all others ─┬─ without a core ─> starved
//!                                                      └─ with one ──────> late
//!   all are in operations, and one rank's packets are lost or slow ─────> link
//! ```
//!
//! Where the numbers allow two answers there is none: whoever acts on a wrong name at night loses
//! more than whoever looks himself.

mod link;
mod window;

#[cfg(test)]
mod tests;

use std::fmt::{self, Display};

use crate::look::{Look, Silence};
use window::{Progress, Window, median};

/// The rank that makes others wait.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Culprit {
    /// Which.
    pub rank: u32,
    /// The kind of cause.
    pub cause: CulpritCause,
    /// The rank at the other end, where it is one link only.
    pub peer: Option<u32>,
    /// What tells it, as a sentence.
    pub evidence: String,
}

/// Why a rank makes others wait.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum CulpritCause {
    /// Its process is stopped, gone, or cut off.
    Stopped,
    /// It is ready to run and gets no core: others on its host, a limit, or the machine below.
    Starved,
    /// It comes late to its operations: what it does before them is slow.
    Late,
    /// Its packets are lost or slow.
    Link,
}

/// How long a rank does not answer that is stopped, where nobody sees its process, in seconds.
const SILENT: f64 = 3.0;
/// How much larger than everybody else's a rank's share of time before operations must be.
const AHEAD: f64 = 0.15;
/// The same against the middle of the others.
const ABOVE: f64 = 0.2;
/// How long others must have waited for a rank where operations are too few to compare.
const AWAITED: f64 = 0.25;
/// Operations of a window that are few.
const FEW: u64 = 5;
/// From this part of the lost time on, a lack of cores explains it.
const EXPLAINS: f64 = 0.7;
/// Below this part most of it is something else.
const IS_NO_CAUSE: f64 = 0.5;
/// How much larger than that of others a rank's share of time without a core must be, or which
/// part of the cores that others get it must not exceed: where all lack cores, shares lie close.
const STARVED: f64 = 0.2;
const SCANT: f64 = 0.5;

/// Names the rank that makes the others wait, from looks in the order of their times of which the
/// last two that lie a second apart count. `None` where nobody does, or it cannot be told for sure.
#[must_use]
pub fn culprit(looks: &[Look]) -> Option<Culprit> {
    let last = looks.last()?;
    if last.ranks().iter().any(|rank| rank.failure.is_some()) {
        // The failure says more.
        return None;
    }
    if !last.is_complete() {
        return stopped(looks, last);
    }
    let window = Window::of(looks)?;
    match window.ahead() {
        Some(ahead) => late(&window, &ahead),
        None => link::culprit(&window),
    }
}

fn stopped(looks: &[Look], last: &Look) -> Option<Culprit> {
    let (rank, seconds) = last.awaited()?;
    let waited = format!("others have waited for it for {seconds:.1} s");
    let evidence = match last.silence(rank)? {
        Silence::Gone => format!("its process is gone, and {waited}"),
        Silence::Stopped => format!("its process is stopped, and {waited}"),
        Silence::Unasked => return None,
        Silence::Unknown => {
            // Who has hardly a core answers in the end.
            let since = looks.iter().rev().take_while(|look| look.is_silent(rank));
            let silent = last.at() - since.last()?.at();
            (silent >= SILENT).then_some(())?;
            format!("it has not answered for {silent:.1} s, and {waited}")
        }
    };
    Some(Culprit {
        rank,
        cause: CulpritCause::Stopped,
        peer: None,
        evidence,
    })
}

/// The rank with the largest share of its time before operations, and what that of others is.
struct Ahead<'a> {
    rank: &'a Progress,
    /// The middle of the others.
    middle: f64,
    /// Whether it is far from all others.
    clear: bool,
}

impl Window {
    /// `None` where no rank is far from the middle.
    fn ahead(&self) -> Option<Ahead<'_>> {
        let mut by_share: Vec<_> = self.ranks.iter().collect();
        by_share.sort_by(|one, other| other.before.total_cmp(&one.before));
        let (rank, others) = by_share.split_first()?;
        let second = others.first()?;
        let middle = median(others.iter().map(|other| other.before))?;
        (rank.before - middle >= ABOVE).then_some(Ahead {
            rank,
            middle,
            clear: rank.before - second.before >= AHEAD,
        })
    }

    /// Whether the others need the rank: it makes as many operations as they do, or where these are
    /// few they wait for it.
    fn is_needed(&self, rank: &Progress) -> bool {
        let others = self.ranks.iter().filter(|other| other.rank != rank.rank);
        let mut operations: Vec<_> = others.map(|other| other.operations).collect();
        operations.sort_unstable();
        let usual = operations[operations.len() / 2];
        let apart = rank.operations.abs_diff(usual);
        let awaited = self.awaited == Some(rank.rank) && self.waited >= AWAITED;
        match usual {
            0..FEW => awaited || (rank.operations > 0 && apart <= 1),
            FEW.. => apart <= 2 + usual / 10,
        }
    }
}

fn late(window: &Window, ahead: &Ahead<'_>) -> Option<Culprit> {
    let rank = ahead.rank;
    if !ahead.clear || !window.is_needed(rank) {
        return None;
    }
    let lost = (rank.before - ahead.middle) * rank.seconds;
    let (kept, share) = (rank.kept?, rank.kept_share()?);
    let usual = window.usual_kept_share(&[rank.rank])?;
    let explained = kept.seconds / lost;
    let cause = match explained {
        EXPLAINS.. if is_starved(share, usual) => CulpritCause::Starved,
        ..IS_NO_CAUSE => CulpritCause::Late,
        _ => return None,
    };
    let (own, others) = (100.0 * rank.before, 100.0 * ahead.middle);
    let shares =
        format!("it spends {own:.0} % of its time before its operations, others {others:.0} %");
    let evidence = match cause {
        CulpritCause::Starved => format!(
            "{shares}; for {:.0} % it was ready to run and had no core",
            100.0 * kept.seconds / rank.seconds
        ),
        _ if kept.used < 0.5 * lost => {
            format!("{shares}; it mostly waits there, as for data or a disk")
        }
        _ => format!("{shares}; it mostly computes there"),
    };
    Some(Culprit {
        rank: rank.rank,
        cause,
        peer: None,
        evidence,
    })
}

/// Whether a rank with this share of time without a core lacks cores more than is usual.
fn is_starved(share: f64, usual: f64) -> bool {
    share >= usual + STARVED || 1.0 - share <= SCANT * (1.0 - usual)
}

impl CulpritCause {
    /// Its name, as in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Starved => "starved",
            Self::Late => "late",
            Self::Link => "link",
        }
    }
}

impl Display for Culprit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rank, evidence) = (self.rank, &self.evidence);
        match (self.cause, self.peer) {
            (CulpritCause::Stopped, _) => write!(f, "rank {rank} is stopped: {evidence}"),
            (CulpritCause::Starved, _) => write!(f, "rank {rank} lacks a core: {evidence}"),
            (CulpritCause::Late, _) => write!(f, "rank {rank} comes late: {evidence}"),
            (CulpritCause::Link, Some(peer)) => {
                write!(f, "the link of ranks {rank} and {peer} is bad: {evidence}")
            }
            (CulpritCause::Link, None) => write!(f, "the links of rank {rank} are bad: {evidence}"),
        }
    }
}

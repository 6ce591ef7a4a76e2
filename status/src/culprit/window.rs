//! What each rank has done between two looks.

use crate::look::Look;
use crate::process::CpuTimes;
use crate::snapshot::{PeerLink, RankStatus};

/// The least time between the two looks, in seconds.
const SPAN: f64 = 0.9;
/// The least that a rank must have lived of it.
const LIVED: f64 = 0.5;

/// What all ranks of a view have done.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Window {
    /// In their order.
    pub(super) ranks: Vec<Progress>,
    /// Whom the others wait for at its end, and since when, in seconds.
    pub(super) awaited: Option<u32>,
    pub(super) waited: f64,
}

/// What one rank has done. Times are in seconds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Progress {
    pub(super) rank: u32,
    pub(super) seconds: f64,
    /// The share of its time that it was in no operation.
    pub(super) before: f64,
    pub(super) operations: u64,
    pub(super) kept: Option<Kept>,
    /// What its links have carried; round trips are those of the end.
    pub(super) links: Vec<PeerLink>,
}

/// How a process was kept from cores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Kept {
    pub(super) seconds: f64,
    pub(super) used: f64,
    queued: f64,
}

impl Window {
    /// Between the last look and the latest that lies long enough before; `None` where the members
    /// have changed, and where a rank has not answered.
    pub(super) fn of(looks: &[Look]) -> Option<Self> {
        let last = looks.last()?;
        let mut earlier = looks.iter().rev();
        let first = earlier.find(|look| last.at() - look.at() >= SPAN)?;
        let same = first.view() == last.view() && first.is_complete() && last.is_complete();
        if !same {
            return None;
        }
        let pairs = first.ranks().iter().zip(last.ranks());
        let ranks: Option<Vec<_>> = pairs
            .map(|pair| Progress::between(pair.0, pair.1))
            .collect();
        let awaited = last.awaited();
        Some(Self {
            ranks: ranks?,
            awaited: awaited.map(|(rank, _)| rank),
            waited: awaited.map_or(0.0, |(_, seconds)| seconds),
        })
    }

    pub(super) fn rank(&self, number: u32) -> Option<&Progress> {
        self.ranks.iter().find(|rank| rank.rank == number)
    }

    /// The middle share of time without a core, of all but these; `None` where there are no others.
    pub(super) fn usual_kept_share(&self, but: &[u32]) -> Option<f64> {
        let others = self.ranks.iter().filter(|rank| !but.contains(&rank.rank));
        let shares: Option<Vec<_>> = others.map(Progress::kept_share).collect();
        median(shares?)
    }
}

impl Progress {
    fn between(from: &RankStatus, to: &RankStatus) -> Option<Self> {
        let seconds = to.age - from.age;
        if from.address != to.address || seconds < LIVED {
            return None;
        }
        let inside = (to.in_operations - from.in_operations).clamp(0.0, seconds);
        Some(Self {
            rank: to.rank,
            seconds,
            before: 1.0 - inside / seconds,
            operations: to.operations.saturating_sub(from.operations),
            kept: Kept::between(from.cpu, to.cpu),
            links: to.links.iter().map(|link| carried(from, link)).collect(),
        })
    }

    /// Of the time that the process wanted a core, the share that it had none.
    pub(super) fn kept_share(&self) -> Option<f64> {
        let kept = self.kept?;
        let wanted = kept.used + kept.queued;
        let queued = match wanted < 0.02 * self.seconds {
            true => 0.0,
            false => kept.queued / wanted,
        };
        Some(queued.max((kept.seconds - kept.queued) / self.seconds))
    }
}

impl Kept {
    fn between(from: Option<CpuTimes>, to: Option<CpuTimes>) -> Option<Self> {
        let (from, to) = (from?, to?);
        let more = |time: fn(&CpuTimes) -> Option<f64>| match (time(&from), time(&to)) {
            (Some(from), Some(to)) => (to - from).max(0.0),
            (None, _) | (_, None) => 0.0,
        };
        let queued = more(|times| Some(times.queued));
        let limited = more(|times| times.throttled).max(more(|times| times.stolen));
        Some(Self {
            seconds: queued.max(limited),
            used: more(|times| Some(times.used)),
            queued,
        })
    }
}

/// What a link has carried since a snapshot of its rank.
fn carried(from: &RankStatus, link: &PeerLink) -> PeerLink {
    let before = from.links.iter().find(|before| before.to == link.to);
    let Some(before) = before else { return *link };
    PeerLink {
        bytes_sent: link.bytes_sent.saturating_sub(before.bytes_sent),
        bytes_received: link.bytes_received.saturating_sub(before.bytes_received),
        packets_sent: link.packets_sent.saturating_sub(before.packets_sent),
        packets_lost: link.packets_lost.saturating_sub(before.packets_lost),
        ..*link
    }
}

/// The middle of some numbers, the higher of two.
pub(super) fn median(numbers: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut numbers: Vec<_> = numbers.into_iter().collect();
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied()
}

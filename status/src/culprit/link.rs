//! A rank or a pair of ranks whose packets are lost or slow.

use std::collections::BTreeSet;

use super::window::{Progress, Window, median};
use super::{Culprit, CulpritCause};
use crate::snapshot::PeerLink;

/// The least share of its time that the middle rank is in operations where links can be at fault.
const IN_OPERATIONS: f64 = 0.4;
/// Packets in a window from which on a link is judged.
const PACKETS: u64 = 20;
/// Lost packets, and their share, from which on a link is bad; others may lose as well.
const LOST: u64 = 5;
const LOSS: f64 = 0.01;
/// How many times as long as is usual a round trip is that is slow, and by how much, in seconds.
const TIMES: f64 = 5.0;
const LONGER: f64 = 0.002;
/// Links, one for each direction, that tell what is usual.
const ENOUGH: usize = 6;
/// The share of a rank's links that must be bad if it is the rank.
const MOST: f64 = 0.6;

/// A link, seen from the rank that sends.
#[derive(Clone, Copy, Debug)]
struct Sending {
    from: u32,
    link: PeerLink,
}

/// What is usual in a window.
#[derive(Clone, Copy, Debug)]
struct Usual {
    loss: f64,
    /// Where there are links enough.
    round_trip: Option<f64>,
}

pub(super) fn culprit(window: &Window) -> Option<Culprit> {
    let before = median(window.ranks.iter().map(|rank| rank.before))?;
    if 1.0 - before < IN_OPERATIONS {
        return None;
    }
    let used: Vec<Sending> = window.ranks.iter().flat_map(sendings).collect();
    let usual = Usual::of(&used);
    let bad: Vec<_> = used.iter().filter(|one| one.is_bad(usual)).collect();
    let worst = bad
        .iter()
        .max_by(|one, other| one.loss().total_cmp(&other.loss()))?;
    let pairs: BTreeSet<_> = bad.iter().map(|one| one.pair()).collect();
    let all: BTreeSet<_> = used.iter().map(Sending::pair).collect();
    let (rank, peer) = match pairs.len() {
        1 => (worst.from, Some(worst.link.to)),
        _ => (common(&pairs, &all)?, None),
    };
    let ends: Vec<_> = std::iter::once(rank).chain(peer).collect();
    if has_starved(window, &ends)? {
        // Whoever has no core confirms late what has arrived in time.
        return None;
    }
    Some(Culprit {
        rank,
        cause: CulpritCause::Link,
        peer,
        evidence: evidence(&bad, usual),
    })
}

impl Usual {
    /// As on the better links, of which a fourth is no worse: in a small group most links have an
    /// end at one rank.
    fn of(used: &[Sending]) -> Self {
        let quarter = |number: fn(&Sending) -> f64| {
            let mut numbers: Vec<_> = used.iter().map(number).collect();
            numbers.sort_by(f64::total_cmp);
            let enough = numbers.len() >= ENOUGH;
            enough.then(|| numbers[numbers.len() / 4])
        };
        Self {
            loss: quarter(Sending::loss).unwrap_or(0.0),
            round_trip: quarter(|one| one.link.round_trip),
        }
    }
}

/// The one rank that all bad links have, if most of its links are bad.
fn common(bad: &BTreeSet<[u32; 2]>, all: &BTreeSet<[u32; 2]>) -> Option<u32> {
    let first = bad.first()?;
    let in_all = |rank: &u32| bad.iter().all(|pair| pair.contains(rank));
    let rank = *first.iter().find(|rank| in_all(rank))?;
    let own = all.iter().filter(|pair| pair.contains(&rank)).count();
    (bad.len() as f64 >= MOST * own as f64).then_some(rank)
}

/// Whether an end lacks cores more than other ranks do, or than the other end where there are none.
fn has_starved(window: &Window, ends: &[u32]) -> Option<bool> {
    let shares: Option<Vec<_>> = ends
        .iter()
        .map(|end| window.rank(*end)?.kept_share())
        .collect();
    let shares = shares?;
    let most = shares.iter().copied().fold(0.0, f64::max);
    let least = shares.iter().copied().fold(f64::INFINITY, f64::min);
    let usual = match window.ranks.len() > ends.len() {
        true => window.usual_kept_share(ends)?,
        false => least,
    };
    Some(super::is_starved(most, usual))
}

/// Its links that have carried enough to judge them.
fn sendings(rank: &Progress) -> impl Iterator<Item = Sending> {
    let used = rank
        .links
        .iter()
        .filter(|link| link.packets_sent >= PACKETS);
    used.map(|link| Sending {
        from: rank.rank,
        link: *link,
    })
}

impl Sending {
    fn loss(&self) -> f64 {
        self.link.packets_lost as f64 / self.link.packets_sent.max(1) as f64
    }

    fn pair(&self) -> [u32; 2] {
        let ends = [self.from, self.link.to];
        [ends[0].min(ends[1]), ends[0].max(ends[1])]
    }

    fn is_lossy(&self, usual: Usual) -> bool {
        self.link.packets_lost >= LOST && self.loss() >= LOSS + 4.0 * usual.loss
    }

    fn is_bad(&self, usual: Usual) -> bool {
        let slow = usual.round_trip.is_some_and(|round_trip| {
            self.link.round_trip >= (TIMES * round_trip).max(round_trip + LONGER)
        });
        slow || self.is_lossy(usual)
    }
}

fn evidence(bad: &[&Sending], usual: Usual) -> String {
    let lossy: Vec<_> = bad.iter().filter(|one| one.is_lossy(usual)).collect();
    let most = lossy.iter().map(|one| one.loss());
    match most.max_by(f64::total_cmp) {
        Some(loss) => format!(
            "{:.1} % of its packets are lost, {:.1} % of others",
            100.0 * loss,
            100.0 * usual.loss
        ),
        None => {
            let trips = bad.iter().map(|one| one.link.round_trip);
            let longest = trips.fold(0.0, f64::max);
            let others = usual.round_trip.map_or(0.0, |usual| 1e3 * usual);
            format!(
                "a round trip takes {:.1} ms, others {others:.1} ms",
                1e3 * longest
            )
        }
    }
}

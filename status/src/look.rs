//! What all ranks of a job said when they were asked at one time.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::snapshot::{RankCall, RankStatus, number_of, text_of};

/// One look at a job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Look {
    at: f64,
    ranks: Vec<RankStatus>,
    unanswered: Vec<Unanswered>,
}

/// A rank that was asked and said nothing of use.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Unanswered {
    /// Which, where that is known.
    pub rank: Option<u32>,
    /// What it did instead.
    pub why: String,
    /// What that means.
    pub silence: Silence,
}

/// What it means that a rank says nothing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Silence {
    /// Its process is no more.
    Gone,
    /// Its process is stopped.
    Stopped,
    /// It may be stopped, cut off, or too busy.
    Unknown,
}

impl Silence {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Gone => "gone",
            Self::Stopped => "stopped",
            Self::Unknown => "unknown",
        }
    }
}

/// Ranks that are shown, the first of a group, which may have more.
const MOST: u32 = 1024;
/// From when on a wait is one, in seconds.
const WAIT: f64 = 0.05;

impl Look {
    /// What was said at a moment, in seconds on the clock of whoever looks. Ranks that speak of an
    /// earlier view than others are passed over.
    #[must_use]
    pub fn new(at: f64, said: Vec<RankStatus>, unanswered: Vec<Unanswered>) -> Self {
        let view = said.iter().map(|rank| rank.view).max();
        let mut present = BTreeMap::new();
        for rank in said {
            if Some(rank.view) == view && rank.rank < MOST {
                present.entry(rank.rank).or_insert(rank);
            }
        }
        Self {
            at,
            ranks: present.into_values().collect(),
            unanswered,
        }
    }

    /// The same, of lines of `/ranks.jsonl`, and of reasons why there is none.
    pub fn from_lines<'a>(
        at: f64,
        lines: impl IntoIterator<Item = Result<&'a str, Unanswered>>,
    ) -> Self {
        let (mut said, mut unanswered) = (Vec::new(), Vec::new());
        for line in lines {
            match line.and_then(read) {
                Ok(snapshot) => said.push(snapshot),
                Err(one) => unanswered.push(one),
            }
        }
        Self::new(at, said, unanswered)
    }

    /// When it was, in seconds.
    pub(crate) fn at(&self) -> f64 {
        self.at
    }

    /// The ranks of the latest view that have answered, in order.
    #[must_use]
    pub fn ranks(&self) -> &[RankStatus] {
        &self.ranks
    }

    /// Why others gave no answer.
    #[must_use]
    pub fn unanswered(&self) -> &[Unanswered] {
        &self.unanswered
    }

    /// How many ranks the job has.
    #[must_use]
    pub fn world(&self) -> u32 {
        let worlds = self.ranks.iter().map(|rank| rank.world);
        worlds.fold(0, u32::max).min(MOST)
    }

    /// The number of the latest view.
    #[must_use]
    pub fn view(&self) -> Option<u64> {
        Some(self.ranks.first()?.view)
    }

    /// What one rank has said.
    #[must_use]
    pub fn rank(&self, number: u32) -> Option<&RankStatus> {
        let place = self.ranks.binary_search_by_key(&number, |rank| rank.rank);
        Some(&self.ranks[place.ok()?])
    }

    /// Whether all ranks of the view have answered.
    pub(crate) fn is_complete(&self) -> bool {
        self.ranks.len() == self.world() as usize
    }

    /// Whether a rank of the view was asked and has not answered: which ranks were asked is not
    /// always known, and then it takes as many that have not answered as there are missing.
    pub(crate) fn is_silent(&self, rank: u32) -> bool {
        if rank >= self.world() || self.rank(rank).is_some() {
            return false;
        }
        let missing = self.world() as usize - self.ranks.len();
        let named = self.unanswered.iter().any(|one| one.rank == Some(rank));
        named || self.unanswered.len() >= missing
    }

    /// What the silence of a rank means; `None` where it has answered.
    pub(crate) fn silence(&self, rank: u32) -> Option<Silence> {
        if !self.is_silent(rank) {
            return None;
        }
        let named = self.unanswered.iter().find(|one| one.rank == Some(rank));
        let mut all = self.unanswered.iter().map(|one| one.silence);
        // Where it is not known who did what, only what all did.
        let first = named.map(|one| one.silence).or_else(|| all.next());
        match first {
            Some(first) if named.is_some() || all.all(|other| other == first) => Some(first),
            Some(_) | None => Some(Silence::Unknown),
        }
    }

    /// Whom the rank that has waited longest waits for in the end, and how long it has.
    pub(crate) fn awaited(&self) -> Option<(u32, f64)> {
        let waits = self.ranks.iter().filter_map(RankStatus::wait);
        let longest = waits.max_by(|one, other| one.seconds.total_cmp(&other.seconds))?;
        let mut rank = longest.awaited?;
        // As many hops as ranks are enough; in a circle all wait.
        for _ in 0..self.ranks.len() {
            match self.rank(rank).and_then(RankStatus::wait) {
                Some(next) => rank = next.awaited?,
                None => break,
            }
        }
        Some((rank, longest.seconds))
    }
}

/// What one rank says, or why it says nothing.
fn read(line: &str) -> Result<RankStatus, Unanswered> {
    let unknown = |rank| Unanswered {
        rank,
        why: "a rank of another release, or no rank".to_owned(),
        silence: Silence::Unknown,
    };
    let value: Value = serde_json::from_str(line).map_err(|_| unknown(None))?;
    let rank = number_of(&value["rank"]);
    match (rank, text_of(&value["unanswered"])) {
        (Some(number), Some(why)) => Err(Unanswered {
            rank,
            why: format!("rank {number}: {why}"),
            silence: match value["silence"].as_str() {
                Some("gone") => Silence::Gone,
                Some("stopped") => Silence::Stopped,
                Some(_) | None => Silence::Unknown,
            },
        }),
        (_, None) | (None, _) => RankStatus::from_value(&value).ok_or_else(|| unknown(rank)),
    }
}

impl RankStatus {
    /// The operation that it is in, if it waits there for another.
    pub(crate) fn wait(&self) -> Option<&RankCall> {
        let call = self.current.as_ref();
        call.filter(|call| call.seconds >= WAIT && call.awaited.is_some())
    }
}

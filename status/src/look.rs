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

/// A rank that said nothing of use, or could not be asked.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Unanswered {
    /// Which, where that is known.
    pub rank: Option<u32>,
    /// What it did instead, or why it was not asked.
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
    /// It was not asked, since nothing tells where.
    Unasked,
}

/// Why a rank is not asked.
const UNASKED: &str = "nothing tells where it is asked: give all ranks a MESHWORK_STATUS_FOLDER, or, \
                       where members do not change, a MESHWORK_STATUS with a port that other hosts \
                       reach";

impl Unanswered {
    /// A rank of which nothing tells where it is asked.
    pub(crate) fn unasked() -> Self {
        Self {
            rank: None,
            why: UNASKED.to_owned(),
            silence: Silence::Unasked,
        }
    }
}

impl Silence {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Gone => "gone",
            Self::Stopped => "stopped",
            Self::Unknown => "unknown",
            Self::Unasked => "unasked",
        }
    }
}

/// Ranks that are shown, the first of a group, which may have more.
const MOST: u32 = 1024;
/// From when on a wait is one, in seconds.
const WAIT: f64 = 0.05;

impl Look {
    /// What was said at a moment, in seconds on the clock of whoever looks. Ranks that speak of an
    /// earlier view than others are passed over, and such as are none of their group.
    #[must_use]
    pub fn new(at: f64, said: Vec<RankStatus>, unanswered: Vec<Unanswered>) -> Self {
        let view = said.iter().map(|rank| rank.view).max();
        let mut present = BTreeMap::new();
        for rank in said {
            if Some(rank.view) == view && rank.rank < rank.world.min(MOST) {
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

    /// How many ranks of the job are shown: 1,024 at most.
    #[must_use]
    pub fn world(&self) -> u32 {
        self.members().min(MOST)
    }

    /// How many ranks the job has.
    pub(crate) fn members(&self) -> u32 {
        let worlds = self.ranks.iter().map(|rank| rank.world);
        worlds.fold(0, u32::max)
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

    /// Whether a rank of the view was asked and has not answered.
    pub(crate) fn is_silent(&self, rank: u32) -> bool {
        let silence = self.silence(rank);
        silence.is_some_and(|silence| silence != Silence::Unasked)
    }

    /// What the silence of a rank of the view means; `None` where it has answered. Which ranks have
    /// not is not always known, and then it takes as many that have not as there are missing.
    pub(crate) fn silence(&self, rank: u32) -> Option<Silence> {
        if rank >= self.world() || self.rank(rank).is_some() {
            return None;
        }
        let named = self.unanswered.iter().find(|one| one.rank == Some(rank));
        if let Some(named) = named {
            return Some(named.silence);
        }
        let missing = self.world() as usize - self.ranks.len();
        if self.unanswered.len() < missing {
            return None;
        }
        // Where it is not known who did what, only what all did.
        let all = self.unanswered.iter().map(|one| one.silence);
        all.reduce(|one, other| if one == other { one } else { Silence::Unknown })
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
                Some("unasked") => Silence::Unasked,
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

//! Who has which parts of a model after workers have changed, and who gives them: the same decision
//! on all, from what each says it holds.
//!
//! ```text
//!   worker 0   part 0, copy of 2      if worker 1 is lost, worker 2 gives its part too;
//!   worker 1   part 1, copy of 0      if 1 and 2 are lost, nobody has part 1
//!   worker 2   part 2, copy of 1
//! ```

use super::held::Whose;

/// How the numbers of a unit are divided, and which of them a worker has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Layout {
    /// Later ones have higher numbers; 0 where there are no numbers that count.
    pub(super) id: u64,
    pub(super) parts: usize,
    pub(super) place: usize,
    /// The neighbour whose part it has a copy of.
    pub(super) copied: Option<usize>,
}

/// What a worker says.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Standing {
    /// Steps that it has made.
    pub(super) steps: u64,
    pub(super) next: NextStep,
    /// Whether it knows of values that there were.
    pub(super) had_values: bool,
    /// Of each unit: as it is, and as it was before if somebody may still need that.
    pub(super) units: Vec<[Layout; 2]>,
}

/// What a worker has of the step behind those that it has made.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum NextStep {
    /// Not all of it.
    Open,
    /// All that its update takes. Others may have made it.
    Ready,
}

/// What becomes of a model.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Decision {
    /// Nobody has any of it, or knows of any.
    New,
    /// All of it is there after so many steps.
    Kept { steps: u64, units: Vec<Sources> },
    /// These parts are not; none where nobody has any of it any more.
    Lost { parts: Vec<usize> },
}

/// Who gives a unit.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Sources {
    pub(super) id: u64,
    /// For each part, all who have it: those whose own it is, and then those with copies.
    pub(super) of_parts: Vec<Vec<Source>>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Source {
    pub(super) worker: usize,
    pub(super) whose: Whose,
}

/// The words that a standing takes.
pub(super) fn words_of(units: usize) -> usize {
    HEAD + units * 2 * LAYOUT
}

/// Words before those of units.
const HEAD: usize = 3;
const LAYOUT: usize = 4;
/// As many workers as a group has at most.
const MOST_PARTS: usize = 4096;

impl Layout {
    pub(super) const NONE: Self = Self {
        id: 0,
        parts: 1,
        place: 0,
        copied: None,
    };

    /// Whose part this worker has under that place.
    fn whose(&self, part: usize) -> Option<Whose> {
        if part == self.place {
            Some(Whose::Own)
        } else if Some(part) == self.copied {
            Some(Whose::Neighbours)
        } else {
            None
        }
    }

    fn words(&self) -> [u64; LAYOUT] {
        let copied = self.copied.map_or(0, |copied| copied as u64 + 1);
        [self.id, self.parts as u64, self.place as u64, copied]
    }

    fn read(words: &[u64; LAYOUT]) -> Self {
        let [id, parts, place, copied] = *words;
        let number = |word: u64| usize::try_from(word).ok();
        let read = number(parts).zip(number(place)).zip(number(copied));
        match read {
            Some(((parts, place), copied)) if place < parts && parts <= MOST_PARTS => Self {
                id,
                parts,
                place,
                copied: copied.checked_sub(1),
            },
            // No worker says so.
            Some(_) | None => Self::NONE,
        }
    }
}

impl Standing {
    pub(super) fn words(&self) -> Vec<u64> {
        let next = u64::from(self.next == NextStep::Ready);
        let units = self.units.as_flattened().iter().flat_map(Layout::words);
        let head: [u64; HEAD] = [self.steps, next, self.had_values.into()];
        head.into_iter().chain(units).collect()
    }

    /// Those of all workers, of models of so many units.
    pub(super) fn read_all(words: &[u64], units: usize) -> Vec<Self> {
        let read = |words: &[u64]| {
            let (layouts, _) = words[HEAD..].as_chunks::<LAYOUT>();
            let (pairs, _) = layouts.as_chunks::<2>();
            let pair = |[now, before]: &[[u64; LAYOUT]; 2]| [now, before].map(Layout::read);
            Self {
                steps: words[0],
                next: match words[1] == 1 {
                    true => NextStep::Ready,
                    false => NextStep::Open,
                },
                had_values: words[2] == 1,
                units: pairs.iter().map(pair).collect(),
            }
        };
        words.chunks_exact(words_of(units)).map(read).collect()
    }

    fn has_any(&self) -> bool {
        self.units.is_empty() || self.units.as_flattened().iter().any(|layout| layout.id > 0)
    }

    /// Whether its numbers are those after so many steps, or will be.
    pub(super) fn reaches(&self, steps: u64) -> bool {
        let next = self.next == NextStep::Ready && self.steps.checked_add(1) == Some(steps);
        self.has_any() && (self.steps == steps || next)
    }
}

/// A number for the layout to come.
pub(super) fn next_id(all: &[Standing]) -> u64 {
    let ids = all.iter().flat_map(|one| one.units.as_flattened());
    ids.map(|layout| layout.id)
        .max()
        .map_or(1, |id| id.saturating_add(1))
}

/// Who gives which part, as after the last step that anybody has made: those who have made it, or
/// have all that its update takes.
pub(super) fn decide(all: &[Standing]) -> Decision {
    let steps = all.iter().filter(|one| one.has_any());
    let Some(steps) = steps.map(|one| one.steps).max() else {
        let parts = Vec::new();
        return match all.iter().any(|one| one.had_values) {
            true => Decision::Lost { parts },
            false => Decision::New,
        };
    };
    let units = 0..all[0].units.len();
    let sources: Result<Vec<_>, _> = units.map(|unit| sources_of(all, steps, unit)).collect();
    match sources {
        Ok(units) => Decision::Kept { steps, units },
        Err(parts) => Decision::Lost { parts },
    }
}

/// The latest division of a unit of which all parts are there, and who has them; else the parts
/// that are missing of the latest.
fn sources_of(all: &[Standing], steps: u64, unit: usize) -> Result<Sources, Vec<usize>> {
    let holders = all.iter().enumerate();
    let holders: Vec<(usize, Layout)> = holders
        .filter(|(_, standing)| standing.reaches(steps))
        .flat_map(|(worker, standing)| standing.units[unit].map(|layout| (worker, layout)))
        .filter(|(_, layout)| layout.id > 0)
        .collect();
    let mut ids: Vec<u64> = holders.iter().map(|(_, layout)| layout.id).collect();
    ids.sort_unstable();
    ids.dedup();
    let mut missing = Vec::new();
    for id in ids.into_iter().rev() {
        let those = || holders.iter().filter(|(_, layout)| layout.id == id);
        let parts = those().map(|(_, layout)| layout.parts).max();
        let holders_of = |part| -> Vec<Source> {
            let has = |whose| those().filter(move |(_, layout)| layout.whose(part) == Some(whose));
            let of = |whose| {
                has(whose).map(move |(worker, _)| Source {
                    worker: *worker,
                    whose,
                })
            };
            Whose::ALL.into_iter().flat_map(of).collect()
        };
        let parts = 0..parts.expect("some worker has this layout");
        let of_parts: Vec<Vec<Source>> = parts.map(holders_of).collect();
        let is_lost = |(part, holders): (usize, &Vec<Source>)| holders.is_empty().then_some(part);
        let lost: Vec<usize> = of_parts.iter().enumerate().filter_map(is_lost).collect();
        if lost.is_empty() {
            return Ok(Sources { id, of_parts });
        }
        if missing.is_empty() {
            missing = lost;
        }
    }
    Err(missing)
}

#[cfg(test)]
mod tests;

//! Who gives the state of a training to whom when the workers have changed. Pure; `members`
//! exchanges the words and sends the state.

use meshwork_collectives::Rank;
use twox_hash::XxHash3_64;

use super::rounds::{Rounds, Seal};
use crate::state_transfer::Gift;
use crate::{LowCommunicationError, Part};

/// How far a worker has come, as it tells all others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Standing {
    pub(super) progress: Progress,
    /// Hashes of what has to be equal everywhere.
    pub(super) settings: u64,
    pub(super) tensors: u64,
    /// Steps of the schedule.
    pub(super) step: u64,
    /// A hash of all that workers have in common; 0 in a training that runs, where they are not at
    /// the same step.
    pub(super) state: u64,
    /// Exchanges that it has sealed, and what the last of them consists of.
    pub(super) sealed: u64,
    pub(super) seal: Seal,
    /// Exchanges that it has begun and not applied.
    pub(super) under_way: u64,
}

/// Where a worker's state comes from; those further down go first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Progress {
    /// The program's first parameters.
    Beginning,
    /// A snapshot.
    Restored,
    /// The training in which it takes part.
    Running,
}

/// The words that a standing takes.
pub(super) const WORDS: usize = 10;

impl Standing {
    /// That of a worker with tensors of these lengths. Settings that differ have another text.
    pub(super) fn of(
        rounds: &Rounds,
        lengths: &[usize],
        settings: &str,
        progress: Progress,
    ) -> Self {
        let bytes = lengths.iter().flat_map(|length| length.to_le_bytes());
        Self {
            progress,
            settings: XxHash3_64::oneshot(settings.as_bytes()),
            tensors: XxHash3_64::oneshot(&bytes.collect::<Vec<u8>>()),
            step: rounds.step,
            state: match progress {
                Progress::Running => 0,
                Progress::Beginning | Progress::Restored => XxHash3_64::oneshot(&rounds.package()),
            },
            sealed: rounds.sealed,
            seal: rounds.last_seal,
            under_way: rounds.exchanges.len() as u64,
        }
    }

    pub(super) fn words(&self) -> [u64; WORDS] {
        let not_finite = self.seal.not_finite;
        [
            match self.progress {
                Progress::Beginning => 0,
                Progress::Restored => 1,
                Progress::Running => 2,
            },
            self.settings,
            self.tensors,
            self.step,
            self.state,
            self.sealed,
            self.seal.weight.to_bits().into(),
            not_finite.map_or(0, |rank| u64::from(rank.number()) + 1),
            self.seal.has_newcomers.into(),
            self.under_way,
        ]
    }

    /// Those of all workers, in the order of their ranks.
    pub(super) fn read_all(words: &[u64]) -> Option<Vec<Self>> {
        let (each, rest) = words.as_chunks();
        rest.is_empty().then_some(())?;
        each.iter().map(Self::read).collect()
    }

    fn read(words: &[u64; WORDS]) -> Option<Self> {
        let [
            progress,
            settings,
            tensors,
            step,
            state,
            sealed,
            weight,
            not_finite,
            has_newcomers,
            under_way,
        ] = *words;
        Some(Self {
            progress: match progress {
                0 => Progress::Beginning,
                1 => Progress::Restored,
                2 => Progress::Running,
                _ => return None,
            },
            settings,
            tensors,
            step,
            state,
            sealed,
            seal: Seal {
                weight: f32::from_bits(u32::try_from(weight).ok()?),
                not_finite: match not_finite.checked_sub(1) {
                    Some(rank) => Some(Rank::new(u32::try_from(rank).ok()?)),
                    None => None,
                },
                has_newcomers: has_newcomers != 0,
                // Whoever reads it measures anyway.
                is_slow: false,
            },
            under_way,
        })
    }

    /// What has to be equal before anything is exchanged.
    fn differs(&self, other: &Self) -> Option<Part> {
        match () {
            () if self.settings != other.settings => Some(Part::Settings),
            () if self.tensors != other.tensors => Some(Part::Tensors),
            () => None,
        }
    }
}

/// The last seal of those who have sealed most, where worker `own` has sealed one less.
pub(super) fn missed(all: &[Standing], own: Rank) -> Result<Option<Seal>, LowCommunicationError> {
    let running = |one: &&Standing| one.progress == Progress::Running;
    let Some(furthest) = all.iter().filter(running).max_by_key(|one| one.sealed) else {
        return Ok(None);
    };
    let mine = &all[own.index()];
    match furthest.sealed.checked_sub(mine.sealed) {
        _ if mine.progress != Progress::Running => Ok(None),
        Some(0) | None => Ok(None),
        Some(1) => Ok(Some(furthest.seal)),
        Some(_) => Err(LowCommunicationError::Behind {
            rank: own,
            sealed: mine.sealed,
            furthest: furthest.sealed,
        }),
    }
}

/// Who gives its state to whom in a job whose workers may change; nobody to nobody where all are
/// equal. An error only on the worker that cannot take part; the others go on without it.
///
/// In a training that runs, some may have gone on before they noticed a loss. Those give who have
/// come the least far, so that a newcomer takes part in all that is still to be exchanged; the
/// others who run neither give nor take.
pub(super) fn elastic_gift(all: &[Standing], own: Rank) -> Result<Gift, LowCommunicationError> {
    let key = |one: &Standing| match one.progress {
        Progress::Running => (one.progress, u64::MAX - one.step, one.under_way),
        Progress::Beginning | Progress::Restored => (one.progress, one.step, 0),
    };
    let ranks = || (0_u32..).map(Rank::new).zip(all);
    let mut source = (Rank::CHIEF, &all[0]);
    for (rank, standing) in ranks() {
        if key(standing) > key(source.1) {
            source = (rank, standing);
        }
    }
    let (source, given) = source;
    if let Some(part) = all[own.index()].differs(given) {
        let (rank, other) = (own, source);
        return Err(LowCommunicationError::Differs { part, rank, other });
    }
    let gives = |one: &Standing| match given.progress {
        Progress::Running => key(one) == key(given),
        Progress::Beginning | Progress::Restored => {
            (one.step, one.state) == (given.step, given.state)
        }
    };
    let takes = |one: &Standing| one.progress != Progress::Running && !gives(one);
    let takers: Vec<Rank> = ranks()
        .filter_map(|(rank, one)| takes(one).then_some(rank))
        .collect();
    let givers = ranks().filter_map(|(rank, one)| gives(one).then_some(rank));
    Ok(match takers.is_empty() {
        true => Gift::default(),
        false => Gift {
            givers: givers.collect(),
            takers,
        },
    })
}

/// Checks that all workers of a job that does not change begin with the same: the same error on
/// all.
pub(super) fn check_equal(all: &[Standing]) -> Result<(), LowCommunicationError> {
    let first = &all[0];
    for (rank, one) in (0_u32..).map(Rank::new).zip(all) {
        let state = || match () {
            () if one.step != first.step => Some(Part::Step),
            () if one.state != first.state => Some(Part::Parameters),
            () => None,
        };
        if let Some(part) = one.differs(first).or_else(state) {
            let other = Rank::CHIEF;
            return Err(LowCommunicationError::Differs { part, rank, other });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(progress: Progress, step: u64, state: u64) -> Standing {
        Standing {
            progress,
            settings: 7,
            tensors: 8,
            step,
            state,
            sealed: 3,
            seal: Seal {
                weight: 2.5,
                not_finite: Some(Rank::new(1)),
                has_newcomers: true,
                is_slow: false,
            },
            under_way: 2,
        }
    }

    fn numbers(ranks: &[Rank]) -> Vec<u32> {
        ranks.iter().map(|rank| rank.number()).collect()
    }

    #[test]
    fn words_and_standings_are_inverse_and_other_words_are_none() {
        let all = [
            standing(Progress::Beginning, 0, 5),
            standing(Progress::Running, u64::MAX, 0),
        ];
        let words: Vec<u64> = all.iter().flat_map(Standing::words).collect();
        assert_eq!(Standing::read_all(&words).unwrap(), all);
        assert_eq!(Standing::read_all(&words[1..]), None);
        for (at, wrong) in [(0, 3), (6, u64::MAX), (7, u64::MAX)] {
            let mut words = words.clone();
            words[at] = wrong;
            assert_eq!(Standing::read_all(&words), None);
        }
    }

    #[test]
    fn those_who_run_give_to_all_others_and_else_the_first_that_is_furthest() {
        use Progress::{Beginning, Restored, Running};
        type Case<'a> = (&'a [(Progress, u64, u64)], &'a [u32], &'a [u32]);
        let cases: [Case<'_>; 6] = [
            (&[(Beginning, 0, 5), (Beginning, 0, 5)], &[], &[]),
            (&[(Beginning, 0, 5), (Beginning, 0, 6)], &[0], &[1]),
            (
                &[(Beginning, 0, 5), (Restored, 4, 6), (Restored, 4, 6)],
                &[1, 2],
                &[0],
            ),
            (
                &[(Restored, 3, 5), (Restored, 4, 6), (Restored, 4, 7)],
                &[1],
                &[0, 2],
            ),
            (&[(Running, 3, 0), (Running, 9, 0)], &[], &[]),
            (
                &[(Running, 3, 0), (Restored, 9, 1), (Running, 3, 0)],
                &[0, 2],
                &[1],
            ),
        ];
        for (all, givers, takers) in cases {
            let each = all
                .iter()
                .map(|&(progress, step, state)| standing(progress, step, state));
            let gift = elastic_gift(&each.collect::<Vec<_>>(), Rank::CHIEF).unwrap();
            assert_eq!(numbers(&gift.givers), givers, "{all:?}");
            assert_eq!(numbers(&gift.takers), takers, "{all:?}");
        }
    }

    #[test]
    fn of_those_who_run_the_least_far_give_and_the_others_neither_give_nor_take() {
        let at = |step, under_way| Standing {
            under_way,
            ..standing(Progress::Running, step, 0)
        };
        let cases: [([Standing; 3], &[u32]); 3] = [
            ([at(3, 0), at(9, 0), at(3, 0)], &[0, 2]),
            ([at(9, 1), at(3, 0), at(4, 0)], &[1]),
            // At one step, the first has applied an exchange more.
            ([at(3, 1), at(3, 2), at(3, 2)], &[1, 2]),
        ];
        for (running, givers) in cases {
            let newcomer = standing(Progress::Beginning, 0, 5);
            let all = [&running[..], &[newcomer]].concat();
            let gift = elastic_gift(&all, Rank::CHIEF).unwrap();
            assert_eq!(numbers(&gift.givers), givers, "{running:?}");
            assert_eq!(numbers(&gift.takers), [3], "{running:?}");
        }
    }

    #[test]
    fn only_the_worker_that_differs_from_the_training_is_refused() {
        let mut all = [standing(Progress::Running, 3, 0); 3];
        all[0].progress = Progress::Beginning;
        all[0].tensors = 9;
        let expected = LowCommunicationError::Differs {
            part: Part::Tensors,
            rank: Rank::new(0),
            other: Rank::new(1),
        };
        assert_eq!(elastic_gift(&all, Rank::new(0)), Err(expected));
        for own in [1, 2] {
            assert!(elastic_gift(&all, Rank::new(own)).is_ok());
        }
        assert!(matches!(
            check_equal(&all),
            Err(LowCommunicationError::Differs { rank, part: Part::Tensors, .. }) if rank.number() == 1
        ));
    }

    #[test]
    fn a_worker_takes_over_the_one_seal_that_it_missed_and_is_refused_with_more() {
        let all: Vec<Standing> = [3, 4, 2]
            .map(|sealed| Standing {
                sealed,
                ..standing(Progress::Running, 0, 0)
            })
            .into();
        assert_eq!(missed(&all, Rank::new(0)), Ok(Some(all[1].seal)));
        assert_eq!(missed(&all, Rank::new(1)), Ok(None));
        let expected = LowCommunicationError::Behind {
            rank: Rank::new(2),
            sealed: 2,
            furthest: 4,
        };
        assert_eq!(missed(&all, Rank::new(2)), Err(expected));
        let new = [standing(Progress::Beginning, 0, 1), all[1]];
        assert_eq!(missed(&new, Rank::CHIEF), Ok(None));
    }
}

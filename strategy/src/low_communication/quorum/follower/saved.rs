//! A follower in a snapshot.

use super::super::super::codec::{Reader, Writer};
use super::super::super::rounds::Rounds;
use super::super::Late;
use super::{Early, Follower, Offered};

impl Follower {
    pub(in super::super) fn write(&self, out: &mut Writer) {
        let is_late = u64::from(self.is_late);
        out.words([self.step, self.next, is_late, self.missed, self.resets]);
        out.words(self.made.iter().copied());
        out.words([self.offered.len() as u64, u64::from(self.early.is_some())]);
        for one in &self.offered {
            let is_finite = u64::from(one.is_finite);
            out.words([
                one.number,
                one.fragment as u64,
                one.taken_over_after,
                is_finite,
            ]);
        }
        out.numbers(&self.base);
        out.numbers(&self.agreed);
        if let Some(early) = &self.early {
            let flags = [early.is_finite, early.has_begun].map(u64::from);
            out.words([early.fragment as u64, early.made, flags[0], flags[1]]);
            out.numbers(&early.own);
        }
    }

    /// `None` where this is no follower of such rounds.
    pub(in super::super) fn read(
        from: &mut Reader<'_>,
        rounds: &Rounds,
        late: Late,
    ) -> Option<Self> {
        let (parts, elements) = (rounds.ranges.len(), rounds.agreed.len());
        let (step, next, is_late) = (from.word()?, from.word()?, from.flag()?);
        let (missed, resets) = (from.word()?, from.word()?);
        let made: Option<Vec<u64>> = (0..parts).map(|_| from.word()).collect();
        let made = made?;
        // No fragment is offered again before it was taken over.
        let (offered, has_early) = (from.index(parts + 1)?, from.flag()?);
        let offered = (0..offered).map(|_| read_offered(from, parts));
        Some(Self {
            settings: rounds.settings,
            late,
            ranges: rounds.ranges.clone(),
            step,
            next,
            is_late,
            missed,
            resets,
            offered: offered.collect::<Option<_>>()?,
            base: from.numbers(elements)?,
            agreed: from.numbers(elements)?,
            early: match has_early {
                true => Some(read_early(from, rounds, &made)?),
                false => None,
            },
            made,
        })
    }
}

fn read_offered(from: &mut Reader<'_>, parts: usize) -> Option<Offered> {
    Some(Offered {
        number: from.word()?,
        fragment: from.index(parts)?,
        taken_over_after: from.word()?,
        is_finite: from.flag()?,
    })
}

fn read_early(from: &mut Reader<'_>, rounds: &Rounds, made: &[u64]) -> Option<Early> {
    let fragment = from.index(rounds.ranges.len())?;
    let early = Early {
        fragment,
        made: from.word()?,
        is_finite: from.flag()?,
        has_begun: from.flag()?,
        own: from.numbers(rounds.ranges[fragment].len())?,
    };
    // Those that an exchange has are subtracted when it has begun.
    (early.has_begun || early.made <= made[fragment]).then_some(early)
}

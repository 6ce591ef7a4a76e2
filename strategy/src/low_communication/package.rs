//! What all workers have in common, as bytes: what a newcomer gets, and what is compared.

use super::codec::{Reader, Writer};
use super::rounds::{Exchange, Rounds, Seal, Sum};
use crate::LowCommunicationError;
use meshwork_collectives::Rank;

/// Words of each exchange under way, behind step, exchanges sealed and exchanges under way.
const EACH: usize = 5;

impl Rounds {
    /// The same bytes on all workers that have come equally far and have sealed all exchanges.
    pub(super) fn package(&self) -> Vec<u8> {
        let sealed = |one: &Exchange| {
            Some((
                one.fragment as u64,
                [one.began_after, one.applied_after],
                one.seal?,
            ))
        };
        let heads: Vec<_> = self.exchanges.iter().filter_map(sealed).collect();
        let mut out = Writer::default();
        out.words([self.step, self.sealed, heads.len() as u64]);
        for (fragment, [began_after, applied_after], seal) in heads {
            let not_finite = seal.not_finite;
            out.words([
                fragment,
                began_after,
                applied_after,
                seal.weight.to_bits().into(),
                not_finite.map_or(0, |rank| u64::from(rank.number()) + 1),
            ]);
        }
        let sums = self.exchanges.iter().filter(|one| one.seal.is_some());
        let sums = sums.filter_map(|one| Some(one.sum.as_ref()?.values.as_slice()));
        out.numbers(&self.agreed);
        out.numbers(&self.velocity);
        sums.for_each(|sum| out.numbers(sum));
        out.into_bytes()
    }

    /// Takes over what others have in common. Of this worker's own nothing is left: it begins from
    /// what all agree on.
    pub(super) fn take_over(&mut self, package: &[u8]) -> Result<(), LowCommunicationError> {
        self.read_package(package)
            .ok_or(LowCommunicationError::Package {
                bytes: package.len(),
            })
    }

    fn read_package(&mut self, package: &[u8]) -> Option<()> {
        let mut from = Reader::new(package);
        let [step, sealed] = from.words()?;
        // No more exchanges than fragments are under way.
        let count = from.index(self.ranges.len() + 1)?;
        let heads: Option<Vec<_>> = (0..count).map(|_| from.words()).collect();
        let agreed = from.numbers(self.agreed.len())?;
        let velocity = from.numbers(self.velocity.len())?;
        let exchanges = heads?.into_iter().map(|head| {
            let fragment = usize::try_from(head[0]).ok()?;
            let values = from.numbers(self.ranges.get(fragment)?.len())?;
            exchange(fragment, head, values)
        });
        let exchanges: Option<_> = exchanges.collect();
        from.is_empty().then_some(())?;
        (self.agreed, self.velocity, self.exchanges) = (agreed, velocity, exchanges?);
        (self.step, self.sealed, self.last_seal) = (step, sealed, Seal::default());
        self.made.fill(0);
        for residual in &mut self.residuals {
            residual.fill(0.0);
        }
        Some(())
    }
}

fn exchange(fragment: usize, head: [u64; EACH], values: Vec<f32>) -> Option<Exchange> {
    let [_, began_after, applied_after, weight, not_finite] = head;
    let not_finite = match not_finite.checked_sub(1) {
        Some(rank) => Some(Rank::new(u32::try_from(rank).ok()?)),
        None => None,
    };
    Some(Exchange {
        fragment,
        began_after,
        applied_after,
        contribution: None,
        sum: Some(Sum {
            values,
            left_out: Vec::new(),
        }),
        seal: Some(Seal {
            weight: f32::from_bits(u32::try_from(weight).ok()?),
            not_finite,
            has_newcomers: false,
            is_slow: false,
        }),
        is_excluded: false,
    })
}

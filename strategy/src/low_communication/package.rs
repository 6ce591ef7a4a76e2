//! What all workers have in common, as bytes: what a newcomer gets, and what is compared.

use super::rounds::{Exchange, Rounds, Seal, Sum};
use crate::LowCommunicationError;
use meshwork_collectives::Rank;

/// Step, exchanges sealed, exchanges under way; then for each of these as many.
const HEAD: usize = 3;
const EACH: usize = 5;
const WORD: usize = size_of::<u64>();

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
        let mut words = vec![self.step, self.sealed, heads.len() as u64];
        for (fragment, [began_after, applied_after], seal) in heads {
            let not_finite = seal.not_finite;
            words.extend([
                fragment,
                began_after,
                applied_after,
                seal.weight.to_bits().into(),
                not_finite.map_or(0, |rank| u64::from(rank.number()) + 1),
            ]);
        }
        let sums = self.exchanges.iter().filter(|one| one.seal.is_some());
        let sums = sums.filter_map(|one| Some(one.sum.as_ref()?.values.as_slice()));
        let values = [self.agreed.as_slice(), &self.velocity].into_iter();
        let values = values.chain(sums);
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        for values in values {
            bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        }
        bytes
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
        let mut rest = package;
        let [step, sealed, count] = words::<HEAD>(&mut rest)?;
        // No more exchanges than fragments are under way.
        let count = usize::try_from(count).ok()?;
        (count <= self.ranges.len()).then_some(())?;
        let heads: Option<Vec<_>> = (0..count).map(|_| words::<EACH>(&mut rest)).collect();
        let agreed = floats(&mut rest, self.agreed.len())?;
        let velocity = floats(&mut rest, self.velocity.len())?;
        let exchanges = heads?.into_iter().map(|head| {
            let fragment = usize::try_from(head[0]).ok()?;
            let values = floats(&mut rest, self.ranges.get(fragment)?.len())?;
            exchange(fragment, head, values)
        });
        let exchanges: Option<_> = exchanges.collect();
        rest.is_empty().then_some(())?;
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

fn words<const N: usize>(rest: &mut &[u8]) -> Option<[u64; N]> {
    let (own, behind) = rest.split_at_checked(N * WORD)?;
    *rest = behind;
    let (words, _) = own.as_chunks::<WORD>();
    let mut read = [0; N];
    for (read, word) in read.iter_mut().zip(words) {
        *read = u64::from_le_bytes(*word);
    }
    Some(read)
}

fn floats(rest: &mut &[u8], count: usize) -> Option<Vec<f32>> {
    let (own, behind) = rest.split_at_checked(count.checked_mul(size_of::<f32>())?)?;
    *rest = behind;
    let (values, _) = own.as_chunks();
    Some(
        values
            .iter()
            .map(|value| f32::from_le_bytes(*value))
            .collect(),
    )
}

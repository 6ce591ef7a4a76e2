//! Whether all workers are given the same model, and the same way of sharding it.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use meshwork_collectives::Rank;
use twox_hash::XxHash3_64;

use super::optimizer::ElementWise;
use super::{Copies, ShardGroup, Sharding, UnitSpec, tensor_parallel};
use crate::{DifferenceError, Error, MultiWorkerMirroredStrategy, ShardGroupError, VariableSpec};

/// Compares what the workers are given with what the chief is. In a job that is elastic the chief
/// is no newcomer, and who differs from it learns that alone: the others go on without it.
#[track_caller]
pub(super) fn agree_on<O: ElementWise>(
    strategy: &mut MultiWorkerMirroredStrategy,
    sharding: Sharding,
    units: &[UnitSpec],
) -> Result<(), Error> {
    // NaN is not above 0.
    let is_norm = |norm: f32| norm > 0.0;
    if let Some(norm) = sharding.max_norm.filter(|norm| !is_norm(*norm)) {
        return Err(ShardGroupError::MaxNorm { norm }.into());
    }
    let specs: Vec<VariableSpec> = units
        .iter()
        .flat_map(|unit| unit.parameters().iter().cloned())
        .collect();
    let mut names = BTreeSet::new();
    if let Some(twice) = specs.iter().find(|spec| !names.insert(spec.name())) {
        let name = twice.name().to_owned();
        return Err(Error::DuplicateVariable { name });
    }
    strategy.scope(|scope| scope.compare(&specs))?;
    let mine = words_of::<O>(sharding, units);
    if let Some(dimension) = strategy.tensor_dimension() {
        tensor_parallel::agree_on_cuts(&dimension, units)?;
        let all = dimension.all_gather(&mine)?;
        let (all, _) = all.as_chunks::<WORDS>();
        let ranks = (0..all.len()).map(|place| dimension.rank_of(place));
        refuse_other(ranks.zip(all), &all[0])?;
    }
    let (own, is_elastic) = (strategy.rank(), strategy.is_elastic());
    let group = strategy.group_mut();
    let mut all = vec![[0; WORDS]; group.world() as usize];
    group.all_gather(&mine, all.as_flattened_mut())?;
    let ranks = Rank::all(group.world()).zip(&all);
    let compared = ranks.filter(|(rank, _)| !is_elastic || *rank == own);
    refuse_other(compared, &all[0])
}

fn words_of<O: ElementWise>(sharding: Sharding, units: &[UnitSpec]) -> [u64; WORDS] {
    let sizes: Vec<[usize; 2]> = units
        .iter()
        .map(|unit| [unit.trainable().len(), unit.parameters().len()])
        .collect();
    [
        sharding.shard as u64,
        XxHash3_64::oneshot(bytemuck::cast_slice(&sizes)),
        sharding.passes.map_or(0, NonZeroU32::get).into(),
        sharding
            .max_norm
            .map_or(u64::MAX, |norm| norm.to_bits().into()),
        sharding.prefetch as u64,
        O::STATE.len() as u64,
        match sharding.among {
            ShardGroup::All => 0,
            ShardGroup::Host => u64::MAX,
            ShardGroup::Workers(size) => size.get().into(),
        },
        match sharding.copies {
            Copies::None => 0,
            Copies::OfNeighbours => 1,
        },
    ]
}

/// Refuses the first worker that does not say what the first of all does.
fn refuse_other<'a>(
    all: impl Iterator<Item = (Rank, &'a [u64; WORDS])>,
    first: &[u64; WORDS],
) -> Result<(), Error> {
    for (rank, theirs) in all {
        let differs = theirs
            .iter()
            .zip(first)
            .position(|(own, firsts)| own != firsts);
        if let Some(place) = differs {
            let what = COMPARED[place];
            return Err(DifferenceError::Sharding { rank, what }.into());
        }
    }
    Ok(())
}

const WORDS: usize = COMPARED.len();
/// What workers compare before they train together.
const COMPARED: [&str; 8] = [
    "kind of shards",
    "division into units and frozen parameters",
    "number of backward passes in a step",
    "largest norm of gradients",
    "number of units gathered ahead",
    "optimizer",
    "group of workers that share a model",
    "copies of neighbours' parts",
];

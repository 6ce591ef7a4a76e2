//! What workers agree on that compute one replica of a sharded model together, each with a part of
//! its tensors, beside what the others agree on.

use meshwork_collectives::{Group, Rank, ReduceOp};
use twox_hash::XxHash3_64;

use super::UnitSpec;
use super::model::ShardedModel;
use crate::replica::gather_bytes;
use crate::strategy::TensorDimension;
use crate::{DifferenceError, Error};

impl<O> ShardedModel<O> {
    /// The sum over all that compute a replica: of what each has a part of, and once of what all
    /// have.
    pub(super) fn sum_over_replica(&self, whole: f64, cut: f64) -> Result<f64, Error> {
        let Some(dimension) = &self.dimension else {
            return Ok(whole + cut);
        };
        let all = dimension.all_gather(&[whole, cut])?;
        let (pairs, _) = all.as_chunks::<2>();
        let cut: f64 = pairs.iter().map(|[_, cut]| cut).sum();
        Ok(pairs[0][0] + cut)
    }

    /// The least number that any of all workers says.
    pub(super) fn least(&self, group: &mut Group, own: u8) -> Result<u8, Error> {
        let mut least = [own];
        group.all_reduce(&mut least, ReduceOp::Min)?;
        if let Some(dimension) = &self.dimension {
            dimension.group().all_reduce(&mut least, ReduceOp::Min)?;
        }
        Ok(least[0])
    }

    /// What the chief says, on all workers. Its error ends the step, and so the others' too.
    #[track_caller]
    pub(super) fn chief_tells(
        &self,
        group: &mut Group,
        say: impl FnOnce() -> Result<String, Error>,
    ) -> Result<String, Error> {
        let is_first = self.tensor_place() == 0;
        let said = match is_first && group.rank() == Rank::CHIEF {
            true => say()?,
            false => String::new(),
        };
        let said = match is_first {
            true => tell(group, &said)?.swap_remove(0),
            false => said,
        };
        Ok(match &self.dimension {
            Some(dimension) => tell(&mut dimension.group(), &said)?.swap_remove(0),
            None => said,
        })
    }

    /// The lines that workers say, one of each or none.
    #[track_caller]
    pub(super) fn tell_all(&self, group: &mut Group, own: &str) -> Result<Vec<String>, Error> {
        let mut said = tell(group, own)?;
        if let Some(dimension) = &self.dimension {
            said = tell(&mut dimension.group(), &said.join("\n"))?;
        }
        let lines = said.iter().flat_map(|said| said.lines());
        let lines = lines.filter(|line| !line.is_empty());
        Ok(lines.map(str::to_owned).collect())
    }

    /// This worker's place among those that compute a replica.
    pub(super) fn tensor_place(&self) -> usize {
        self.dimension
            .as_ref()
            .map_or(0, |dimension| dimension.place)
    }

    /// How many these are.
    pub(super) fn tensor_workers(&self) -> usize {
        self.dimension
            .as_ref()
            .map_or(1, |dimension| dimension.workers)
    }
}

/// What each worker says, in the order of their ranks.
#[track_caller]
fn tell(group: &mut Group, own: &str) -> Result<Vec<String>, Error> {
    let all = gather_bytes(group, own.as_bytes())?;
    // What is no text is no entry either, and is refused as such.
    let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
    Ok(all.iter().map(text).collect())
}

/// The parts of units that this worker computes with.
pub(super) fn parts_of(dimension: Option<&TensorDimension>, units: &[UnitSpec]) -> Vec<UnitSpec> {
    let part = |unit: &UnitSpec| match dimension {
        Some(dimension) => unit.part(dimension.place, dimension.workers),
        None => unit.clone(),
    };
    units.iter().map(part).collect()
}

/// Compares what is cut with what the first of those does that compute a replica.
#[track_caller]
pub(super) fn agree_on_cuts(dimension: &TensorDimension, units: &[UnitSpec]) -> Result<(), Error> {
    let described: String = units.iter().map(UnitSpec::described).collect();
    let all = dimension.all_gather(&[XxHash3_64::oneshot(described.as_bytes())])?;
    match all.iter().position(|hash| *hash != all[0]) {
        Some(place) => Err(DifferenceError::Sharding {
            rank: dimension.rank_of(place),
            what: "cut of parameters along the mesh",
        }
        .into()),
        None => Ok(()),
    }
}

//! The numbers of one unit on their way from one division among workers to another.

use std::ops::Range;
use std::sync::Arc;

use meshwork_collectives::Group;

use super::held::{Held, Kind, Whose};
use super::partition::{Part, Partition, Which};
use super::survivors::Sources;
use super::tensors::Tensors;
use super::unit::ShardedUnit;
use crate::Error;

/// How the numbers of a unit are divided before and after.
pub(super) struct Relayout<'a> {
    pub(super) from: Partition,
    pub(super) onto: Arc<Partition>,
    /// Whose part this worker has after it; `None` if it has all.
    pub(super) worker: Option<usize>,
    pub(super) sources: &'a Sources,
}

impl Relayout<'_> {
    /// Brings all parts together: the parts of each worker in their order, those of the first
    /// worker first.
    pub(super) fn gather(
        &self,
        group: &mut Group,
        unit: &mut ShardedUnit,
        kind: Kind,
    ) -> Result<Vec<f32>, Error> {
        let (own, which) = (group.rank().index(), kind.which());
        let mut lengths = vec![0; group.world() as usize];
        let mut given = Vec::new();
        for (part, source) in self.sources.of_parts.iter().enumerate() {
            lengths[source.worker] += self.from.shard_len(which, part);
            if source.worker == own {
                unit.with_layout(self.sources.id, |held| {
                    let mut give = |rows: &mut [f32]| given.extend_from_slice(rows);
                    let held = held.part(source.whose, Some(part));
                    let mut held = held.expect("what a worker says it has, it has");
                    for tensor in 0..self.from.count(which) {
                        held.rows(&self.from, kind, tensor, &mut give);
                    }
                })?;
            }
        }
        let mut all = vec![0.0; self.from.len(which)];
        group.all_gather_uneven(&given, &mut all, &lengths)?;
        Ok(all)
    }

    /// Puts what was gathered where this worker keeps it.
    pub(super) fn fill(&self, held: &mut Held, kind: Kind, all: &[f32]) {
        let which = kind.which();
        let starts = self.starts(which);
        let worker = match (kind, &held.parameters) {
            (Kind::Parameters, Tensors::Whole(_) | Tensors::Lent(_)) => None,
            (Kind::Parameters, Tensors::Shard { .. }) | (Kind::State(_), _) => self.worker,
        };
        for whose in Whose::ALL {
            let Some(mut part) = held.part(whose, worker) else {
                continue;
            };
            for tensor in 0..self.onto.count(which) {
                let wanted = self.onto.part(tensor, part.worker).elements;
                part.rows(&self.onto, kind, tensor, |rows| {
                    for (giver, start) in starts.iter().enumerate() {
                        let given = self.from.elements(tensor, giver);
                        let elements = common(&wanted, &given);
                        if elements.is_empty() {
                            continue;
                        }
                        let into = elements.start - wanted.start..elements.end - wanted.start;
                        let given = Part { tensor, elements };
                        let place = self.from.in_shard(&given, giver);
                        let given = &all[start + place.start..start + place.end];
                        rows[into].copy_from_slice(given);
                    }
                });
            }
        }
    }

    /// Where each part is in what was gathered.
    fn starts(&self, which: Which) -> Vec<usize> {
        let of_parts = &self.sources.of_parts;
        let mut order: Vec<usize> = (0..of_parts.len()).collect();
        order.sort_by_key(|part| of_parts[*part].worker);
        let (mut starts, mut end) = (vec![0; order.len()], 0);
        for part in order {
            starts[part] = end;
            end += self.from.shard_len(which, part);
        }
        starts
    }
}

fn common(one: &Range<usize>, other: &Range<usize>) -> Range<usize> {
    one.start.max(other.start)..one.end.min(other.end)
}

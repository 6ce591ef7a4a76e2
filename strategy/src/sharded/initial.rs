//! The values that a model begins with.

use std::ops::Range;

use meshwork_collectives::Group;

use super::held::{Kind, Whose};
use super::model::ShardedModel;
use super::optimizer::ElementWise;
use super::partition::Which;
use crate::{Error, ReplicaContext, VariableSpec};

impl<O: ElementWise> ShardedModel<O> {
    /// Gives a model its first values: see [`new`](Self::new). One that has others begins anew:
    /// it has made no [`steps`](Self::steps) then, and its optimizer remembers nothing.
    ///
    /// # Errors
    /// [`Error::Group`]
    #[track_caller]
    pub fn initialize(
        &mut self,
        replica: &mut ReplicaContext<'_>,
        initial: impl FnMut(&VariableSpec, Range<usize>, &mut [f32]),
    ) -> Result<(), Error> {
        let group = self.group(replica)?;
        self.fill(group, initial)
    }

    /// The same by a function that may fail, behind which the model has no values.
    ///
    /// # Errors
    /// That of `initial`; [`Error::Group`].
    #[track_caller]
    pub fn try_initialize<E: From<Error>>(
        &mut self,
        replica: &mut ReplicaContext<'_>,
        initial: impl FnMut(&VariableSpec, Range<usize>, &mut [f32]) -> Result<(), E>,
    ) -> Result<(), E> {
        let group = self.group(replica)?;
        self.try_fill(group, initial)
    }

    /// Writes this worker's rows, and shares them where they are kept whole.
    pub(super) fn fill(
        &mut self,
        group: &mut Group,
        mut initial: impl FnMut(&VariableSpec, Range<usize>, &mut [f32]),
    ) -> Result<(), Error> {
        self.try_fill(group, |spec, elements, rows| {
            initial(spec, elements, rows);
            Ok(())
        })
    }

    fn try_fill<E: From<Error>>(
        &mut self,
        group: &mut Group,
        mut initial: impl FnMut(&VariableSpec, Range<usize>, &mut [f32]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.begin_anew()?;
        for index in 0..self.units.len() {
            self.fill_unit(index, &mut initial)?;
            self.share_rows(group, index, Which::All)?;
        }
        Ok(self.count_values()?)
    }

    fn fill_unit<E: From<Error>>(
        &mut self,
        index: usize,
        initial: &mut impl FnMut(&VariableSpec, Range<usize>, &mut [f32]) -> Result<(), E>,
    ) -> Result<(), E> {
        let (place, unit) = (self.mesh.place, &mut self.units[index]);
        let (partition, spec) = (unit.partition.clone(), unit.spec.clone());
        let held = unit.here()?;
        for whose in Whose::ALL {
            let Some(mut part) = held.part(whose, Some(place)) else {
                continue;
            };
            for tensor in 0..spec.parameters().len() {
                let elements = partition.part(tensor, part.worker).elements;
                part.rows(&partition, Kind::Parameters, tensor, |rows| {
                    let mut rest = rows;
                    for run in spec.runs(tensor, elements) {
                        let (some, behind) = rest.split_at_mut(run.len());
                        initial(spec.whole(tensor), run, some)?;
                        rest = behind;
                    }
                    Ok::<_, E>(())
                })?;
            }
        }
        Ok(())
    }

    /// Gives the only unit, which a model library has, the chief's values.
    pub(super) fn take_chiefs(&mut self, group: &mut Group) -> Result<(), Error> {
        self.begin_anew()?;
        let exchange = self.exchange(0);
        self.units[0].start(group, move |group, held| {
            let all = held.parameters.all_rows();
            let mut all = all.expect("what is lent is whole");
            exchange.broadcast(group, &mut all)
        })?;
        self.count_values()
    }

    /// Forgets steps, and all that came of them but the parameters, which are to be overwritten.
    fn begin_anew(&mut self) -> Result<(), Error> {
        self.steps = 0;
        self.discount_values();
        for index in 0..self.units.len() {
            self.free(index)?;
            let unit = &mut self.units[index];
            unit.passes = 0;
            unit.here()?.forget_state();
        }
        Ok(())
    }
}

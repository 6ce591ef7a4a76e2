//! The parameters of a module in one row, as an outer optimizer takes them.

use std::collections::BTreeMap;

use burn_core::module::{Module, Param, ParamId};
use burn_core::tensor::Tensor;
use meshwork_strategy::{FlatGradients, MultiWorkerMirroredStrategy, VariableSpec};

use crate::Error;
use crate::tensor::{slice, slice_mut};
use crate::values::Values;
use crate::visits::{Found, places_of, survey};
use crate::walk::{Each, Path, Place, walk};

/// Parameters of a module, and a copy of their values.
#[derive(Debug)]
pub(super) struct Exchanged {
    values: Values,
    flat: FlatGradients,
    places: BTreeMap<ParamId, Place>,
    path: Path,
}

impl Exchanged {
    /// Those of a module that are trained.
    pub(super) fn of<M: Module>(module: &M) -> Result<Self, Error> {
        let mut found = survey(module, &mut Path::default())?;
        found.retain(|found| found.is_trained);
        Self::new(&found)
    }

    /// The same, after all floats have got rank 0's values: but where workers come and go, as there
    /// the outer optimizer brings those that are trained.
    #[track_caller]
    pub(super) fn mirrored<M: Module>(
        strategy: &mut MultiWorkerMirroredStrategy,
        module: M,
    ) -> Result<(Self, M), Error> {
        let trained = Self::of(&module)?;
        if strategy.is_elastic() {
            return Ok((trained, module));
        }
        let mut found = survey(&module, &mut Path::default())?;
        found.sort_by_key(|found| !found.is_trained);
        let mut all = Self::new(&found)?;
        let specs = all.flat.specs().to_vec();
        let mirror = |values: &mut [f32]| strategy.scope(|scope| scope.mirror(&specs, values));
        let ((), module) = all.with(module, mirror)?;
        Ok((trained, module))
    }

    /// Of parameters in this order, those that are trained first.
    fn new(found: &[Found]) -> Result<Self, Error> {
        let specs: Vec<VariableSpec> = found.iter().map(|found| found.spec.clone()).collect();
        Ok(Self {
            values: Values::default(),
            flat: FlatGradients::new(&specs, 0)?,
            places: places_of(found),
            path: Path::default(),
        })
    }

    pub(super) fn lengths(&self) -> Vec<usize> {
        self.flat.specs().iter().map(VariableSpec::len).collect()
    }

    /// The module with what `act` makes of its values.
    pub(super) fn with<M: Module, R>(
        &mut self,
        module: M,
        act: impl FnOnce(&mut [f32]) -> Result<R, meshwork_strategy::Error>,
    ) -> Result<(R, M), Error> {
        let mut known = Known {
            places: &self.places,
        };
        walk(&module, &mut self.path, &mut known)?;
        let emptied = self.values.take_from(module, &self.places)?;
        let name = |flat: &FlatGradients, index: usize| flat.specs()[index].name().to_owned();
        for (index, data) in self.values.data().iter().enumerate() {
            let values = slice(data, || name(&self.flat, index))?;
            self.flat.gradient_mut(index).copy_from_slice(values);
        }
        let result = act(self.flat.as_mut_slice())?;
        for (index, data) in self.values.data().iter_mut().enumerate() {
            let values = slice_mut(data, || name(&self.flat, index))?;
            values.copy_from_slice(self.flat.gradient(index));
        }
        Ok((result, self.values.give_to(emptied, &self.places)))
    }

    /// The module with other values.
    pub(super) fn adopt<M: Module>(&mut self, module: M, values: &[f32]) -> Result<M, Error> {
        let adopt = |own: &mut [f32]| {
            own.copy_from_slice(values);
            Ok(())
        };
        Ok(self.with(module, adopt)?.1)
    }
}

/// Refuses a parameter that is trained and not exchanged.
struct Known<'a> {
    places: &'a BTreeMap<ParamId, Place>,
}

impl Each for Known<'_> {
    fn each<const D: usize>(&mut self, param: &Param<Tensor<D>>, path: &Path) -> Result<(), Error> {
        if param.is_require_grad() && !self.places.contains_key(&param.id) {
            return Err(Error::NotMirrored {
                name: path.text(),
                mirrored: self.places.len(),
            });
        }
        Ok(())
    }
}

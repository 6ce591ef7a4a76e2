//! What is done with each parameter of a module: found, hashed, its gradient taken and given.

use std::collections::{BTreeMap, BTreeSet};

use burn_core::module::{Module, Param, ParamId};
use burn_core::tensor::{DType, Tensor, TensorData};
use burn_optim::GradientsParams;
use meshwork_strategy::{Fingerprint, GradientBuckets, VariableSpec};

use crate::Error;
use crate::tensor::{into_data, slice_mut, with_values};
use crate::walk::{Each, Path, Place, settle, walk};

/// One parameter as a module has it. One in several places is known by the first.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) id: ParamId,
    pub(crate) spec: VariableSpec,
    pub(crate) is_trained: bool,
    pub(crate) values: Vec<f32>,
}

#[derive(Debug, Default)]
struct Survey {
    found: Vec<Found>,
    known: BTreeSet<ParamId>,
}

impl Each for Survey {
    fn each<const D: usize>(&mut self, param: &Param<Tensor<D>>, path: &Path) -> Result<(), Error> {
        if !self.known.insert(param.id) {
            return Ok(());
        }
        let mut values = Vec::new();
        with_values(param.base(), || path.text(), |all| values.extend(all))?;
        self.found.push(Found {
            id: param.id,
            spec: VariableSpec::new(path.text(), &param.dims())?,
            is_trained: param.is_require_grad(),
            values,
        });
        Ok(())
    }
}

/// All parameters as a module has them.
pub(crate) fn survey<M: Module>(module: &M, path: &mut Path) -> Result<Vec<Found>, Error> {
    settle(module);
    let mut survey = Survey::default();
    walk(module, path, &mut survey)?;
    Ok(survey.found)
}

/// Where each of them is.
pub(crate) fn places_of(found: &[Found]) -> BTreeMap<ParamId, Place> {
    let mut trained = 0..;
    let place = |(index, found): (usize, &Found)| {
        let trained = if found.is_trained {
            trained.next()
        } else {
            None
        };
        (found.id, Place { index, trained })
    };
    found.iter().enumerate().map(place).collect()
}

/// Takes in the values of the parameters that are trained.
pub(crate) struct Hash<'a> {
    pub(crate) places: &'a BTreeMap<ParamId, Place>,
    pub(crate) copy: Fingerprint,
}

impl Each for Hash<'_> {
    fn each<const D: usize>(&mut self, param: &Param<Tensor<D>>, path: &Path) -> Result<(), Error> {
        match self.places.get(&param.id) {
            Some(Place {
                trained: Some(_), ..
            }) => with_values(param.base(), || path.text(), |all| self.copy.add(all)),
            _ => Ok(()),
        }
    }
}

/// Where one gradient is between the backward pass that gives it and the optimizer.
#[derive(Debug, Default)]
pub(crate) enum Slot {
    /// Its backward pass has not ended.
    #[default]
    Waiting,
    /// Taken from burn in this call; `None` where the pass gave none.
    Taken(Option<TensorData>),
    /// Among the buckets, or as it is where a worker trains alone. What is left is its memory.
    Handed(Option<TensorData>),
}

/// Takes the gradients of a part of the module out of burn.
pub(crate) struct Take<'a> {
    pub(crate) places: &'a BTreeMap<ParamId, Place>,
    pub(crate) gradients: &'a mut GradientsParams,
    pub(crate) slots: &'a mut [Slot],
}

impl Each for Take<'_> {
    fn each<const D: usize>(&mut self, param: &Param<Tensor<D>>, path: &Path) -> Result<(), Error> {
        let gradient = self.gradients.remove::<D>(param.id);
        let trained = self.places.get(&param.id).and_then(|place| place.trained);
        let Some(index) = trained else {
            if gradient.is_none() && !param.is_require_grad() {
                return Ok(());
            }
            return Err(Error::NotMirrored {
                name: path.text(),
                mirrored: self.slots.len(),
            });
        };
        match self.slots[index] {
            Slot::Waiting => {}
            // The parameter stands in two places of the part, and has one gradient.
            Slot::Taken(_) => return Ok(()),
            Slot::Handed(_) => {
                let name = path.text();
                return Err(meshwork_strategy::Error::GradientTwice { name }.into());
            }
        }
        let data = gradient.map(|gradient| into_data(gradient, || path.text()));
        self.slots[index] = Slot::Taken(data.transpose()?);
        Ok(())
    }
}

/// Gives burn the sums, in the memory that its own gradients had.
pub(crate) struct Give<'a> {
    pub(crate) places: &'a BTreeMap<ParamId, Place>,
    pub(crate) slots: &'a mut [Slot],
    /// For each that is trained, 0 where no worker has a gradient of it.
    pub(crate) marks: &'a [f32],
    /// `None` where the gradients are what they were.
    pub(crate) sums: Option<&'a GradientBuckets>,
    pub(crate) gradients: GradientsParams,
}

impl Each for Give<'_> {
    fn each<const D: usize>(&mut self, param: &Param<Tensor<D>>, path: &Path) -> Result<(), Error> {
        let trained = self.places.get(&param.id).and_then(|place| place.trained);
        // One that was frozen since has no use for a gradient.
        let is_given = |index: &usize| param.is_require_grad() && self.marks[*index] != 0.0;
        let Some(index) = trained.filter(is_given) else {
            return Ok(());
        };
        let Slot::Handed(data) = std::mem::take(&mut self.slots[index]) else {
            return Ok(());
        };
        let mut data = data.unwrap_or_else(|| TensorData::zeros::<f32, _>(param.shape()));
        if let Some(sums) = self.sums {
            slice_mut(&mut data, || path.text())?.copy_from_slice(sums.gradient(index));
        }
        let device = param.device().without_autodiff();
        let sum = Tensor::<D>::from_data(data, (&device, DType::F32));
        self.gradients.register(param.id, sum);
        Ok(())
    }
}

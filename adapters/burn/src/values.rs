//! Values of parameters on their way out of a module and back.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn_core::module::{Module, ModuleMapper, Param, ParamId};
use burn_core::tensor::{DType, Tensor, TensorData};
use meshwork_strategy::sharded::Lent;

use crate::Error;
use crate::tensor::into_data;
use crate::walk::{Place, settle};

/// Numbers of parameters, those that are trained first, in the memory that burn had them in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Values(Arc<Mutex<Vec<TensorData>>>);

/// A module that has given its values up, and in how many places each belongs.
#[derive(Clone)]
pub(crate) struct Emptied<M> {
    module: M,
    places: Vec<usize>,
}

impl Values {
    pub(crate) fn new(data: Vec<TensorData>) -> Self {
        Self(Arc::new(Mutex::new(data)))
    }

    pub(crate) fn data(&self) -> MutexGuard<'_, Vec<TensorData>> {
        // What panicked with them has ended the training.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the values out of a module, and leaves one without.
    pub(crate) fn take_from<M: Module>(
        &self,
        module: M,
        places: &BTreeMap<ParamId, Place>,
    ) -> Result<Emptied<M>, Error> {
        let mut out = TakeOut {
            order: order_of(places),
            taken: places.values().map(|_| None).collect(),
            places: vec![0; places.len()],
            ended: Ok(()),
        };
        settle(&module);
        let module = module.map(&mut out);
        out.ended?;
        let missing = out.places.iter().position(|count| *count == 0);
        if let Some(number) = missing {
            let parameters = places.len();
            return Err(Error::ParameterGone { number, parameters });
        }
        *self.data() = out.taken.into_iter().flatten().collect();
        Ok(Emptied {
            module,
            places: out.places,
        })
    }

    /// Gives the values back to the module that was left.
    pub(crate) fn give_to<M: Module>(
        &self,
        emptied: Emptied<M>,
        places: &BTreeMap<ParamId, Place>,
    ) -> M {
        let given = std::mem::take(&mut *self.data());
        settle(&emptied.module);
        emptied.module.map(&mut GiveBack {
            order: order_of(places),
            given: given.into_iter().map(Some).collect(),
            tied: BTreeMap::new(),
            places: emptied.places,
        })
    }
}

impl Lent for Values {
    fn with(&mut self, tensor: usize, act: &mut dyn FnMut(&mut [f32])) {
        let mut data = self.data();
        let values = data[tensor].as_mut_slice();
        act(values.expect("values of f32 were taken from burn"));
    }
}

/// The number of each parameter, those that are trained first.
fn order_of(places: &BTreeMap<ParamId, Place>) -> BTreeMap<ParamId, usize> {
    let trained = places.values().filter(|place| place.trained.is_some());
    let trained = trained.count();
    let mut frozen: Vec<_> = places
        .iter()
        .filter(|(_, place)| place.trained.is_none())
        .collect();
    frozen.sort_by_key(|(_, place)| place.index);
    let frozen = frozen.into_iter().map(|(id, _)| *id).zip(trained..);
    let trained = places
        .iter()
        .filter_map(|(id, place)| Some((*id, place.trained?)));
    trained.chain(frozen).collect()
}

/// Takes the values of each parameter.
struct TakeOut {
    order: BTreeMap<ParamId, usize>,
    taken: Vec<Option<TensorData>>,
    /// In how many places each was found.
    places: Vec<usize>,
    ended: Result<(), Error>,
}

impl ModuleMapper for TakeOut {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some(number) = self.order.get(&param.id).copied() else {
            return param;
        };
        self.places[number] += 1;
        param.map(|tensor| {
            let (device, is_trained) = (tensor.device(), tensor.is_require_grad());
            // A parameter in two places has given its values in the first.
            if self.taken[number].is_none() && self.ended.is_ok() {
                let name = || format!("number {number}");
                match into_data(tensor.without_autodiff(), name) {
                    Ok(data) => self.taken[number] = Some(data),
                    Err(error) => self.ended = Err(error),
                }
            }
            let nothing = TensorData::zeros::<f32, _>([0; D]);
            let nothing = Tensor::from_data(nothing, (&device, DType::F32));
            match is_trained {
                true => nothing.require_grad(),
                false => nothing,
            }
        })
    }
}

/// Gives each parameter its values.
struct GiveBack {
    order: BTreeMap<ParamId, usize>,
    given: Vec<Option<TensorData>>,
    /// The tensors of those that are in several places: one for all, so that its gradient is that
    /// of all its uses.
    tied: BTreeMap<usize, Box<dyn Any>>,
    places: Vec<usize>,
}

impl ModuleMapper for GiveBack {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some(number) = self.order.get(&param.id).copied() else {
            return param;
        };
        let tied = self.tied.get(&number);
        if let Some(tensor) = tied.and_then(|tensor| tensor.downcast_ref::<Tensor<D>>()) {
            return param.map(|_| tensor.clone());
        }
        let data = self.given[number].take();
        let data = data.expect("a parameter in several places has one tensor for them");
        param.map(|emptied| {
            let values = Tensor::<D>::from_data(data, (&emptied.device(), DType::F32));
            let values = match emptied.is_require_grad() {
                true => values.require_grad(),
                false => values,
            };
            if self.places[number] > 1 {
                self.tied.insert(number, Box::new(values.clone()));
            }
            values
        })
    }
}

#[cfg(test)]
mod tests {
    use burn_core as burn;
    use burn_core::module::RunningState;
    use burn_core::tensor::Device;

    use super::*;
    use crate::visits::{places_of, survey};
    use crate::walk::Path;

    #[derive(Module, Debug)]
    struct Norm {
        mean: RunningState<Tensor<1>>,
    }

    #[test]
    fn running_means_are_taken_as_last_updated_and_stay_what_they_are_given() {
        let tensor = |value: f32| Tensor::<1>::from_data([value], &Device::flex());
        let mean = RunningState::new(tensor(1.0));
        let norm = Norm { mean };
        let places = places_of(&survey(&norm, &mut Path::default()).unwrap());
        norm.mean.update(tensor(2.0));
        let values = Values::default();
        let emptied = values.take_from(norm, &places).unwrap();
        assert_eq!(values.data()[0].as_slice::<f32>().unwrap(), [2.0]);
        *values.data() = vec![TensorData::from([3.0_f32])];
        // Of a pass of a clone, as units make them.
        emptied.module.mean.update(tensor(4.0));
        let norm = values.give_to(emptied, &places);
        // As a next batch reads it.
        assert_eq!(norm.mean.value_sync().into_scalar::<f32>(), 3.0);
    }
}

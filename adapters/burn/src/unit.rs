//! Units of burn models: burn's tape inside of each, in its backward pass alone, so that nothing
//! keeps the memory of its parameters between the passes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;

use burn_core::module::{Module, ParamId};
use burn_core::tensor::TensorData;
use burn_optim::GradientsParams;
use meshwork_strategy::VariableSpec;
use meshwork_strategy::sharded::{Gradients, Parameters, Unit, UnitSpec};

use crate::Error;
use crate::activation::{Activation, Before, Numbers};
use crate::tensor::slice;
use crate::values::{Emptied, Values};
use crate::visits::{Found, Slot, Take, places_of, survey};
use crate::walk::{Path, Place, walk};

/// A part of a burn model that is gathered, computed and freed as one, such as a block of a
/// transformer: a module, and what it makes of its input.
///
/// Names of parameters are that of the unit and the place in its module. A parameter in two places
/// of a module is one; modules of two units have none in common.
///
/// ```
/// use burn_core::{self as burn, module::{Module, Param}, tensor::{Device, Tensor}};
/// use meshwork_burn::{Activation, Error, BurnUnit};
/// use meshwork_strategy::sharded::Unit;
/// # #[derive(Module, Debug)]
/// # struct Scale { weight: Param<Tensor<1>> }
///
/// let build = || Scale { weight: Param::from_data([2.0, 3.0], &Device::flex().autodiff()) };
/// let unit = BurnUnit::new("scale", build, |scale: &Scale, input: Activation| {
///     (input.tensor::<1>() * scale.weight.val()).into()
/// })?;
/// assert_eq!(unit.spec()?.parameters()[0].name(), "scale.weight");
/// # Ok::<(), Error>(())
/// ```
pub struct BurnUnit {
    spec: UnitSpec,
    module: Box<dyn Runs>,
}

impl BurnUnit {
    /// A unit of the module that `build` makes, on a device with autodiff, and of what `forward`
    /// makes of that and an input, which is on such a device, too; to evaluate, both are on one
    /// without. The same input has the same output: a backward pass computes it a second time.
    ///
    /// `build` is called here, to learn of the parameters, and once more for the values that they
    /// begin with, of which each worker keeps its rows. Where these are random, give the
    /// devices of all workers the same seed.
    ///
    /// # Errors
    /// [`Error::ElementType`], [`Error::Read`].
    pub fn new<M: Module + 'static>(
        name: impl Into<String>,
        build: impl Fn() -> M + Send + 'static,
        forward: impl Fn(&M, Activation) -> Activation + Send + 'static,
    ) -> Result<Self, Error> {
        let (name, module) = (name.into(), build());
        let mut path = Path::default();
        let found = survey(&module, &mut path)?;
        let places = places_of(&found);
        let of = |is_trained: bool| -> Result<Vec<VariableSpec>, Error> {
            let those = found.iter().filter(|found| found.is_trained == is_trained);
            let named = those.map(|found| {
                let path = format!("{name}.{}", found.spec.name());
                Ok(VariableSpec::new(path, found.spec.shape())?)
            });
            named.collect()
        };
        let spec = UnitSpec::new(name.clone(), of(true)?).with_frozen(of(false)?);
        let emptied = Values::default().take_from(module, &places)?;
        let module = ModuleOf {
            specs: spec.parameters().to_vec(),
            trained: spec.trainable().len(),
            build,
            forward,
            emptied,
            places,
            path: RefCell::new(path),
        };
        let module = Box::new(module);
        Ok(Self { spec, module })
    }

    pub(crate) fn parameters(&self) -> &[VariableSpec] {
        self.spec.parameters()
    }

    /// What it makes of an input that is not on a tape, where nobody trains.
    pub(crate) fn evaluate(&self, parameters: &Parameters<'_>, input: Activation) -> Activation {
        let output = self.module.evaluate(parameters, input);
        output.off_tape(Before::Nothing)
    }

    /// The values that its parameters begin with.
    pub(crate) fn initial(&self) -> Result<Vec<Vec<f32>>, Error> {
        self.module.initial()
    }
}

impl Unit for BurnUnit {
    type Value = Activation;
    type Tape = Activation;
    type Error = Error;

    fn spec(&self) -> Result<UnitSpec, meshwork_strategy::Error> {
        Ok(self.spec.clone())
    }

    fn forward(
        &self,
        parameters: Parameters<'_>,
        input: Activation,
    ) -> Result<(Activation, Activation), Error> {
        let before = match self.spec.trainable() {
            [] => input.before,
            [_, ..] => Before::Trained,
        };
        let output = self.module.forward(&parameters, input.clone());
        Ok((output.off_tape(before), input))
    }

    fn backward(
        &self,
        parameters: Parameters<'_>,
        input: Activation,
        output: Activation,
        gradients: &mut Gradients<'_>,
    ) -> Result<Option<Activation>, Error> {
        let gradient = output;
        self.module
            .backward(&parameters, input, gradient, gradients)
    }
}

/// Without its module, which may have no values.
impl fmt::Debug for BurnUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BurnUnit").field(&self.spec).finish()
    }
}

/// What units do, whatever their modules are.
trait Runs: Send {
    fn initial(&self) -> Result<Vec<Vec<f32>>, Error>;

    fn forward(&self, parameters: &Parameters<'_>, input: Activation) -> Activation;

    /// Without autodiff, by which layers such as dropout know that nobody trains.
    fn evaluate(&self, parameters: &Parameters<'_>, input: Activation) -> Activation;

    fn backward(
        &self,
        parameters: &Parameters<'_>,
        input: Activation,
        output: Activation,
        gradients: &mut Gradients<'_>,
    ) -> Result<Option<Activation>, Error>;
}

struct ModuleOf<M, B, F> {
    /// Those that are trained first.
    specs: Vec<VariableSpec>,
    trained: usize,
    build: B,
    forward: F,
    emptied: Emptied<M>,
    places: BTreeMap<ParamId, Place>,
    path: RefCell<Path>,
}

impl<M, B, F> ModuleOf<M, B, F>
where
    M: Module,
    B: Fn() -> M,
    F: Fn(&M, Activation) -> Activation,
{
    /// The module with these values.
    fn module(&self, parameters: &Parameters<'_>) -> M {
        let data = self.specs.iter().enumerate().map(|(number, spec)| {
            TensorData::new(parameters[number].to_vec(), spec.shape().to_vec())
        });
        let values = Values::new(data.collect());
        values.give_to(self.emptied.clone(), &self.places)
    }

    /// Writes what burn has of gradients; what the output does not depend on has zeros.
    fn read(
        &self,
        module: &M,
        mut made: GradientsParams,
        gradients: &mut Gradients<'_>,
    ) -> Result<(), Error> {
        let mut slots: Vec<Slot> = (0..self.trained).map(|_| Slot::Waiting).collect();
        let mut take = Take {
            places: &self.places,
            gradients: &mut made,
            slots: &mut slots,
        };
        walk(module, &mut self.path.borrow_mut(), &mut take)?;
        for (number, slot) in slots.into_iter().enumerate() {
            match slot {
                Slot::Taken(Some(data)) | Slot::Handed(Some(data)) => {
                    let name = || self.specs[number].name().to_owned();
                    gradients[number].copy_from_slice(slice(&data, name)?);
                }
                Slot::Taken(None) | Slot::Handed(None) | Slot::Waiting => {
                    gradients[number].fill(0.0);
                }
            }
        }
        Ok(())
    }
}

impl<M, B, F> Runs for ModuleOf<M, B, F>
where
    M: Module,
    B: Fn() -> M + Send,
    F: Fn(&M, Activation) -> Activation + Send,
{
    fn initial(&self) -> Result<Vec<Vec<f32>>, Error> {
        let found = survey(&(self.build)(), &mut self.path.borrow_mut())?;
        let (trained, frozen): (Vec<Found>, Vec<Found>) =
            found.into_iter().partition(|found| found.is_trained);
        let all = trained.into_iter().chain(frozen);
        Ok(all.map(|found| found.values).collect())
    }

    fn forward(&self, parameters: &Parameters<'_>, input: Activation) -> Activation {
        (self.forward)(&self.module(parameters), input.in_training())
    }

    fn evaluate(&self, parameters: &Parameters<'_>, input: Activation) -> Activation {
        (self.forward)(&self.module(parameters).valid(), input)
    }

    fn backward(
        &self,
        parameters: &Parameters<'_>,
        input: Activation,
        output: Activation,
        gradients: &mut Gradients<'_>,
    ) -> Result<Option<Activation>, Error> {
        let (module, input) = (self.module(parameters), input.on_tape());
        let made = (self.forward)(&module, input.clone());
        let product = match (made.numbers, output.numbers) {
            (Numbers::Floats(made), Numbers::Floats(gradient)) if made.is_tracked() => {
                Some((made * gradient).sum())
            }
            // Nothing that is trained has a part in it.
            (Numbers::Floats(_) | Numbers::Ints(_), _) => None,
        };
        let Some(product) = product else {
            (0..self.trained).for_each(|number| gradients[number].fill(0.0));
            return Ok(input.zeros());
        };
        let mut made = product.backward();
        let before = input.gradient(&mut made);
        let made = GradientsParams::from_grads(made, &module);
        self.read(&module, made, gradients)?;
        Ok(before)
    }
}

#[cfg(test)]
mod tests {
    use burn_core as burn;
    use burn_core::module::Param;
    use burn_core::tensor::{Device, Tensor};
    use burn_optim::SgdConfig;
    use meshwork_strategy::MultiWorkerMirroredStrategy;
    use meshwork_strategy::sharded::{Sgd, Shard};

    use super::*;
    use crate::ShardedUnits;

    /// It knows a training by the device of its input, as burn's batch normalisation does.
    #[derive(Module, Debug)]
    struct Centred {
        weight: Param<Tensor<1>>,
    }

    #[derive(Module, Debug)]
    struct Pair {
        first: Centred,
        second: Centred,
    }

    impl Centred {
        fn new() -> Self {
            let weight = Param::from_data([1.5, -0.5], &Device::flex().autodiff());
            Self { weight }
        }

        fn forward(&self, input: Tensor<2>) -> Tensor<2> {
            let centred = match input.device().is_autodiff() {
                true => input.clone() - input.mean_dim(0),
                false => input,
            };
            (centred * self.weight.val().unsqueeze()).tanh()
        }
    }

    #[test]
    fn layers_that_look_at_the_device_compute_in_both_passes_as_in_a_training_of_burns() {
        let rows = [[0.5, 1.0], [2.0, -1.0], [0.25, 3.0]];
        let input = Tensor::<2>::from_data(rows, &Device::flex());
        let loss = |output: Tensor<2>| (output - 0.25).square().mean();
        let unit = |name: &str| {
            let forward = |centred: &Centred, input: Activation| {
                let output = centred.forward(input.tensor());
                output.into()
            };
            BurnUnit::new(name, Centred::new, forward).unwrap()
        };
        let units = vec![unit("first"), unit("second")];
        let mut strategy = MultiWorkerMirroredStrategy::alone().unwrap();
        let model = ShardedUnits::new(&mut strategy, units, Sgd::new(0.5), Shard::Nothing);
        let (mut model, mut optimizer) = (model.unwrap(), SgdConfig::new().init());
        let [first, second] = [(); 2].map(|()| Centred::new());
        let mut whole = Pair { first, second };
        for _ in 0..3 {
            let made = strategy.run(|replica| {
                let made = model.accumulate(replica, input.clone(), loss)?;
                model.step(replica)?;
                Ok::<_, Error>(made)
            });
            let hidden = whole.first.forward(input.clone().autodiff());
            let whole_loss = loss(whole.second.forward(hidden));
            let expected = whole_loss.clone().into_scalar::<f32>();
            let gradients = GradientsParams::from_grads(whole_loss.backward(), &whole);
            whole = optimizer.step(0.5, whole, gradients);
            let made = made.unwrap().into_first();
            assert!((made - expected).abs() < 1e-6, "{made} {expected}");
        }
        let evaluated = strategy.run(|replica| model.forward::<2>(replica, input.clone()));
        let (evaluated, whole) = (evaluated.unwrap().into_first(), whole.valid());
        let expected = whole.second.forward(whole.first.forward(input));
        let apart = (evaluated - expected).abs().max().into_scalar::<f32>();
        assert!(apart < 1e-6, "{apart}");
    }
}

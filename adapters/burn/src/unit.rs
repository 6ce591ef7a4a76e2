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
    /// makes of that and an input. The same input has the same output: a backward pass computes
    /// it a second time.
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
        (self.forward)(&self.module(parameters), input)
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

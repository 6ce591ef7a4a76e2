//! Units of candle models: candle's tape inside of each, whose parameters are freed between its
//! forward and its backward pass.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use candle_core::{CpuStorage, CustomOp1, DType, Device, Layout, Shape, Tensor, Var};
use candle_nn::var_builder::SimpleBackend;
use candle_nn::{Init, Module, VarBuilder};
use meshwork_strategy::VariableSpec;
use meshwork_strategy::sharded::{Gradients, Parameters, Unit, UnitSpec};

use crate::Error;
use crate::lent::Refill;
use crate::tensor::read;

/// A part of a candle model that is gathered, computed and freed as one, such as a block of a
/// transformer: what builds its module, as models do it over a [`VarBuilder`].
///
/// It is built anew for each pass over tensors that are gathered for it, and once without values,
/// to learn what it asks for.
///
/// Where it is [computed twice](crate::ShardedStack::with_recompute), it has to give the same
/// output both times. candle's dropout draws other numbers the second time, which makes gradients
/// wrong without an error; [`BatchNorm`](crate::BatchNorm) counts the batch twice in its running
/// statistics. Keep the tapes of a model with such units.
///
/// ```
/// use candle_nn::{Module, linear};
/// use meshwork_candle::{Error, ModuleUnit};
/// use meshwork_strategy::sharded::Unit;
///
/// let unit = ModuleUnit::new("hidden", |vars| {
///     let layer = linear(4, 3, vars.pp("hidden"))?;
///     Ok(move |input: &candle_core::Tensor| layer.forward(input)?.relu())
/// })?;
/// let spec = unit.spec()?;
/// assert_eq!(spec.parameters()[0].name(), "hidden.weight");
/// assert_eq!(spec.parameters()[0].shape(), [3, 4]);
/// # Ok::<(), Error>(())
/// ```
pub struct ModuleUnit {
    build: Build,
    spec: UnitSpec,
    /// How each parameter begins.
    inits: Vec<Init>,
}

type Build = Box<dyn Fn(VarBuilder<'static>) -> candle_core::Result<Box<dyn Module>>>;

/// What the forward pass of a unit leaves for its backward pass.
#[derive(Debug)]
pub struct ModuleTape {
    input: Tensor,
    output: Tensor,
    /// Their memory is freed between the passes.
    parameters: Vec<Tensor>,
}

impl ModuleTape {
    /// The tensors of the unit's parameters, whose memory is freed.
    #[cfg(test)]
    pub(crate) fn parameters(&self) -> &[Tensor] {
        &self.parameters
    }
}

/// What a unit asks for.
#[derive(Clone, Debug)]
struct Asked {
    spec: VariableSpec,
    init: Init,
}

impl ModuleUnit {
    /// A unit whose module is made by `build`, all of whose parameters are trained.
    ///
    /// # Errors
    /// [`Error::Candle`] for what `build` says, [`Error::ElementType`], [`Error::UnitShapes`].
    pub fn new<M: Module + 'static>(
        name: impl Into<String>,
        build: impl Fn(VarBuilder<'static>) -> candle_core::Result<M> + 'static,
    ) -> Result<Self, Error> {
        Self::with_frozen(name, |_| false, build)
    }

    /// The same with parameters that are not trained, those whose names are said to be frozen.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_frozen<M: Module + 'static>(
        name: impl Into<String>,
        is_frozen: impl Fn(&str) -> bool,
        build: impl Fn(VarBuilder<'static>) -> candle_core::Result<M> + 'static,
    ) -> Result<Self, Error> {
        let name = name.into();
        let build: Build = Box::new(move |vars| Ok(Box::new(build(vars)?)));
        let (frozen, trained): (Vec<_>, Vec<_>) = asked_by(&name, &build)?
            .into_iter()
            .partition(|asked| is_frozen(asked.spec.name()));
        let inits = trained.iter().chain(&frozen).map(|asked| asked.init);
        let specs = |asked: &[Asked]| asked.iter().map(|one| one.spec.clone()).collect::<Vec<_>>();
        Ok(Self {
            build,
            inits: inits.collect(),
            spec: UnitSpec::new(name, specs(&trained)).with_frozen(specs(&frozen)),
        })
    }

    /// Its parameters, and how they begin.
    pub(crate) fn parameters(&self) -> impl Iterator<Item = (&VariableSpec, Init)> {
        self.spec
            .parameters()
            .iter()
            .zip(self.inits.iter().copied())
    }

    /// How many of its numbers are trained.
    pub(crate) fn trained(&self) -> usize {
        self.spec.trainable().iter().map(VariableSpec::len).sum()
    }

    /// The gathered parameters as candle's tensors, those that are trained as variables.
    fn tensors(&self, parameters: &Parameters<'_>) -> candle_core::Result<Vec<Tensor>> {
        let trained = self.spec.trainable().len();
        let specs = self.spec.parameters().iter().enumerate();
        let tensor = |(number, spec): (usize, &VariableSpec)| match number < trained {
            true => Var::from_slice(&parameters[number], spec.shape(), &Device::Cpu)
                .map(Var::into_inner),
            false => Tensor::from_slice(&parameters[number], spec.shape(), &Device::Cpu),
        };
        specs.map(tensor).collect()
    }
}

impl Unit for ModuleUnit {
    type Value = Tensor;
    type Tape = ModuleTape;
    type Error = Error;

    fn spec(&self) -> Result<UnitSpec, meshwork_strategy::Error> {
        Ok(self.spec.clone())
    }

    fn forward(
        &self,
        parameters: Parameters<'_>,
        input: Tensor,
    ) -> Result<(Tensor, ModuleTape), Error> {
        let parameters = self.tensors(&parameters)?;
        let names = self.spec.parameters().iter().map(VariableSpec::name);
        let named = names.map(str::to_owned).zip(parameters.iter().cloned());
        let named: HashMap<_, _> = named.collect();
        let vars = VarBuilder::from_tensors(named, DType::F32, &Device::Cpu);
        let output = (self.build)(vars)?.forward(&input)?;
        let is_trained = !self.spec.trainable().is_empty() || input.is_variable();
        // A copy in each case: it may be a view of a parameter.
        let value = match is_trained {
            true => Var::from_tensor(&output.detach())?.into_inner(),
            false => output.detach().force_contiguous()?,
        };
        for parameter in &parameters {
            parameter.inplace_op1(&Refill::FREE)?;
        }
        let tape = ModuleTape {
            input,
            output,
            parameters,
        };
        Ok((value, tape))
    }

    fn backward(
        &self,
        parameters: Parameters<'_>,
        tape: ModuleTape,
        gradient: Tensor,
        gradients: &mut Gradients<'_>,
    ) -> Result<Option<Tensor>, Error> {
        for (number, parameter) in tape.parameters.iter().enumerate() {
            parameter.inplace_op1(&Refill(&parameters[number]))?;
        }
        let mut made = tape.output.apply_op1(Seed(gradient))?.backward()?;
        for (number, parameter) in tape.parameters.iter().enumerate() {
            if number >= self.spec.trainable().len() {
                break;
            }
            match made.remove(parameter) {
                Some(gradient) => read(&gradient, &mut gradients[number])?,
                None => gradients[number].fill(0.0),
            }
        }
        if !tape.input.is_variable() {
            return Ok(None);
        }
        Ok(Some(match made.remove(&tape.input) {
            Some(gradient) => gradient,
            None => tape.input.zeros_like()?,
        }))
    }
}

/// Without what builds it, which cannot be shown.
impl fmt::Debug for ModuleUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ModuleUnit").field(&self.spec).finish()
    }
}

/// Builds a module over zeros, and notes what it asks for.
fn asked_by(unit: &str, build: &Build) -> Result<Vec<Asked>, Error> {
    let recorder = Recorder::default();
    let backend = Box::new(recorder.clone());
    build(VarBuilder::from_backend(backend, DType::F32, Device::Cpu))?;
    let asked = std::mem::take(&mut *recorder.asked());
    let mut specs: Vec<Asked> = Vec::with_capacity(asked.len());
    for (name, shape, init) in asked {
        let Some(first) = specs.iter().find(|first| first.spec.name() == name) else {
            let spec = VariableSpec::new(name, shape.dims())?;
            specs.push(Asked { spec, init });
            continue;
        };
        if first.spec.shape() != shape.dims() {
            return Err(Error::UnitShapes {
                unit: unit.to_owned(),
                name,
                first: first.spec.shape().to_vec(),
                second: shape.into_dims(),
            });
        }
    }
    Ok(specs)
}

/// Stands for variables that are not there yet.
#[derive(Clone, Debug, Default)]
struct Recorder(Arc<Mutex<Vec<(String, Shape, Init)>>>);

impl Recorder {
    fn asked(&self) -> MutexGuard<'_, Vec<(String, Shape, Init)>> {
        // A list that is only added to has no half-changed state.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SimpleBackend for Recorder {
    fn get(
        &self,
        shape: Shape,
        name: &str,
        init: Init,
        dtype: DType,
        device: &Device,
    ) -> candle_core::Result<Tensor> {
        if dtype != DType::F32 {
            candle_core::bail!("{name} is to be of {dtype:?}, and shards are of f32");
        }
        self.asked().push((name.to_owned(), shape.clone(), init));
        Tensor::zeros(shape, dtype, device)
    }

    fn get_unchecked(&self, name: &str, _: DType, _: &Device) -> candle_core::Result<Tensor> {
        candle_core::bail!("{name} is asked for without its shape, and is not there yet")
    }

    fn contains_tensor(&self, name: &str) -> bool {
        self.asked().iter().any(|asked| asked.0 == name)
    }
}

/// The end of a tape, whose gradient comes from the unit behind.
struct Seed(Tensor);

impl CustomOp1 for Seed {
    fn name(&self) -> &'static str {
        "meshwork-seed"
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout) -> candle_core::Result<(CpuStorage, Shape)> {
        Ok((CpuStorage::F32(vec![0.0]), Shape::from(())))
    }

    fn bwd(&self, _: &Tensor, _: &Tensor, _: &Tensor) -> candle_core::Result<Option<Tensor>> {
        Ok(Some(self.0.clone()))
    }
}

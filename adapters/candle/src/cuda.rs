//! `CudaVars`: the variables of a candle model on NVIDIA's GPUs, made equal, summed and compared
//! there. How the memory of a tensor is lent is in `lend`, gradients are caught in `hooks`.
//!
//! Which variables a worker has a gradient of is summed behind the gradients: a number for each, in
//! host memory, which they are read in.

mod hooks;
mod lend;

use std::collections::HashMap;
use std::sync::Arc;

use candle_core::backprop::GradStore;
use candle_core::{DType, Device, Tensor, Var};
use candle_nn::{VarBuilder, VarMap};
use meshwork_accel_cuda::{CudaAccelerator, CudaBuffer, CudaDevice};
use meshwork_strategy::{
    CommunicatorScope, DeviceGradients, DeviceTensors, ElementType, MultiWorkerMirroredStrategy,
    Packed, ReplicaContext, ReplicaReduceOp, Route, VariableSpec,
};

use crate::Error;
use crate::gradient_hooks::refuse_unhooked;
use crate::values::{Alias, Named, named, share};
use hooks::Hooks;

/// The variables of a candle model on a GPU, equal on all workers, and the sums of their gradients,
/// which no part of a step brings to the host where NCCL is there.
///
/// It does on a GPU what [`MirroredVars`](crate::MirroredVars) does in host memory. Copies are not
/// compared in each step: see [`verify`](Self::verify).
///
/// ```no_run
/// use std::sync::Arc;
/// use candle_core::{DType, Device, Tensor};
/// use candle_nn::{Module, Optimizer, SGD, VarBuilder, VarMap, linear};
/// use meshwork_accel_cuda::{CudaAccelerator, CudaDevice};
/// use meshwork_candle::{CudaVars, Error};
/// use meshwork_strategy::{CommunicatorScope, MultiWorkerMirroredStrategy};
///
/// let mut strategy = MultiWorkerMirroredStrategy::from_env().map_err(Error::from)?;
/// let number = strategy.local_rank(); // a GPU for each worker of a host
/// let (model, device) = (VarMap::new(), Device::new_cuda(number)?);
/// linear(3, 1, VarBuilder::from_varmap(&model, DType::F32, &device))?;
/// let gpu = CudaDevice::new(Arc::new(CudaAccelerator::new()?), number)?;
/// let mut vars = CudaVars::new(&mut strategy, &model, gpu, CommunicatorScope::OneHost)?;
/// println!("gradients go {}", vars.route());
/// let mut optimizer = SGD::new(model.all_vars(), 0.1)?;
/// let inputs = Tensor::ones((5, 3), DType::F32, &device)?;
/// strategy.run(|replica| {
///     let layer = linear(3, 1, vars.hooked()?)?;
///     let loss = layer.forward(&inputs)?.sqr()?.mean_all()?;
///     let gradients = vars.backward(replica, &loss, 1.0)?;
///     Ok::<_, Error>(optimizer.step(&gradients)?)
/// })?;
/// vars.close(&mut strategy)?;
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct CudaVars {
    vars: Vec<Var>,
    specs: Vec<VariableSpec>,
    aliases: Vec<Alias>,
    device: Device,
    /// Shared with the hooks, which use it within a backward pass.
    hooks: Hooks,
}

/// The gradients of one model.
type Gradients = DeviceGradients<Tensors>;

/// candle's tensors on one GPU.
#[derive(Debug)]
struct Tensors {
    cuda: CudaDevice,
    device: Device,
}

impl CudaVars {
    /// Gives all variables of `model`, on every worker, the values they have on rank 0, on the GPU
    /// on which they lie, which `cuda` has to be.
    ///
    /// # Errors
    /// [`Error::NotOnGpu`], [`Error::ElementType`]; [`Error::Strategy`], above all when the
    /// workers' models differ; [`Error::Cuda`], [`Error::Candle`].
    #[track_caller]
    pub fn new(
        strategy: &mut MultiWorkerMirroredStrategy,
        model: &VarMap,
        cuda: CudaDevice,
        reach: CommunicatorScope,
    ) -> Result<Self, Error> {
        let Named { vars, aliases } = named(model);
        let specs = specs_of(&vars)?;
        // An error is to have the shapes that they have.
        strategy.scope(|scope| scope.compare(&specs))?;
        let vars: Vec<_> = vars.into_iter().map(|(_, var)| var).collect();
        let device = vars.first().map_or(Device::Cpu, |var| var.device().clone());
        let id = cuda.id();
        let tensors = Tensors {
            cuda,
            device: device.clone(),
        };
        let gradients = Gradients::new(strategy, tensors, &specs, id, reach)?;
        let equal = gradients.broadcast(&flat(&vars)?)?;
        for (index, values) in parts(&equal, &vars)? {
            vars[index].set(&values)?;
        }
        let hooks = Hooks::of(gradients);
        Ok(Self {
            vars,
            specs,
            aliases,
            device,
            hooks,
        })
    }

    /// By which way gradients go between workers, and why; the same on every worker.
    #[must_use]
    pub fn route(&self) -> Route {
        self.hooks.gradients().route()
    }

    /// Names and shapes, in the order in which they are summed from the last to the first.
    #[must_use]
    pub fn specs(&self) -> Vec<VariableSpec> {
        self.specs.clone()
    }

    /// As [`MirroredVars::all_reduce`](crate::MirroredVars::all_reduce), on the GPU, without a
    /// check of copies. The host hears whether any worker has a gradient of a variable: a number
    /// for each.
    ///
    /// # Errors
    /// [`Error::Strategy`], [`Error::Cuda`], [`Error::Candle`].
    #[track_caller]
    pub fn all_reduce(
        &mut self,
        replica: &mut ReplicaContext<'_>,
        gradients: &mut GradStore,
        weight: f32,
    ) -> Result<(), Error> {
        let mut own = self.hooks.gradients();
        own.begin(weight);
        for (index, var) in self.vars.iter().enumerate().rev() {
            if let Some(gradient) = gradients.get(var) {
                own.ready(index, gradient.flatten_all()?)?;
            }
        }
        drop(own);
        let are_given = self.vars.iter().map(|var| gradients.get(var).is_some());
        let are_given: Vec<_> = are_given.collect();
        self.finish(replica, &are_given, gradients)
    }

    /// Tensors with the values of the variables, for the next backward pass, as
    /// [`MirroredVars::hooked`](crate::MirroredVars::hooked) has them.
    ///
    /// # Errors
    /// [`Error::Candle`]
    pub fn hooked(&self) -> Result<VarBuilder<'static>, Error> {
        let mut hooked = HashMap::with_capacity(self.vars.len());
        for (index, (spec, var)) in self.specs.iter().zip(&self.vars).enumerate() {
            let tensor = self.hooks.hook(index, var.as_tensor())?;
            hooked.insert(spec.name().to_owned(), tensor);
        }
        share(&mut hooked, &self.aliases);
        Ok(VarBuilder::from_tensors(hooked, DType::F32, &self.device))
    }

    /// The backward pass of a `loss` whose model was built from [`hooked`](Self::hooked), with all
    /// gradients summed over the workers, each times its worker's `weight`: a bucket of them is
    /// summed as soon as it is complete, while the GPU computes others.
    ///
    /// # Errors
    /// [`Error::Strategy`], [`Error::Cuda`], [`Error::Candle`]; [`Error::NotHooked`] and
    /// [`Error::HookIsOld`] for a model that was not built from what `hooked` has given since the
    /// last pass.
    #[track_caller]
    pub fn backward(
        &mut self,
        replica: &mut ReplicaContext<'_>,
        loss: &Tensor,
        weight: f32,
    ) -> Result<GradStore, Error> {
        self.hooks.open(weight);
        let passed = loss.backward();
        let are_given = self.hooks.close()?;
        let mut gradients = passed?;
        refuse_unhooked(&self.specs, &self.vars, &gradients)?;
        self.finish(replica, &are_given, &mut gradients)?;
        Ok(gradients)
    }

    /// Checks, on the GPU, that all workers hold the same bits in all variables.
    ///
    /// # Errors
    /// [`Error::Strategy`] with the ranks that differ, [`Error::Cuda`], [`Error::Candle`].
    #[track_caller]
    pub fn verify(&self, strategy: &mut MultiWorkerMirroredStrategy) -> Result<(), Error> {
        let gradients = self.hooks.gradients();
        gradients.verify(strategy, &flat(&self.vars)?)
    }

    /// Ends the communicator, if there is one, when all workers have called this.
    ///
    /// # Errors
    /// [`Error::Strategy`]
    #[track_caller]
    pub fn close(self, strategy: &mut MultiWorkerMirroredStrategy) -> Result<(), Error> {
        Ok(self.hooks.gradients().settle(strategy)?)
    }

    /// Sums what is left, and gives the sums to those variables of which any worker has a gradient.
    #[track_caller]
    fn finish(
        &self,
        replica: &mut ReplicaContext<'_>,
        are_given: &[bool],
        gradients: &mut GradStore,
    ) -> Result<(), Error> {
        let sums = self.hooks.gradients().finish(replica)?;
        let mut marks: Vec<f32> = are_given.iter().map(|one| f32::from(*one)).collect();
        replica.all_reduce(ReplicaReduceOp::Sum, &mut marks)?;
        for (index, sum) in parts(&sums, &self.vars)? {
            if marks[index] != 0.0 {
                gradients.insert(&self.vars[index], sum);
            }
        }
        Ok(())
    }
}

/// What belongs to each variable, in its shape: views of packed tensors.
fn parts(packed: &[Packed<Tensor>], vars: &[Var]) -> Result<Vec<(usize, Tensor)>, Error> {
    let mut all = Vec::with_capacity(vars.len());
    for packed in packed {
        for (index, range) in packed.parts() {
            let part = packed.tensor().narrow(0, range.start, range.len())?;
            all.push((index, part.reshape(vars[index].shape())?));
        }
    }
    Ok(all)
}

fn flat(vars: &[Var]) -> Result<Vec<Tensor>, Error> {
    let flat = vars.iter().map(|var| var.as_tensor().flatten_all());
    Ok(flat.collect::<Result<_, _>>()?)
}

/// Names and shapes of variables that are on one GPU.
fn specs_of(named: &[(String, Var)]) -> Result<Vec<VariableSpec>, Error> {
    let home = named.first().map(|(_, var)| var.device().location());
    let mut specs = Vec::with_capacity(named.len());
    for (name, var) in named {
        if !var.device().is_cuda() || Some(var.device().location()) != home {
            return Err(Error::NotOnGpu {
                name: name.clone(),
                found: var.device().location(),
            });
        }
        if var.dtype() != DType::F32 {
            return Err(Error::ElementType {
                name: name.clone(),
                found: var.dtype(),
            });
        }
        specs.push(VariableSpec::new(name, var.dims())?);
    }
    Ok(specs)
}

impl DeviceTensors for Tensors {
    type Tensor = Tensor;
    type Accelerator = CudaAccelerator;
    type Error = Error;

    fn accelerator(&self) -> &Arc<CudaAccelerator> {
        self.cuda.accelerator()
    }

    fn len(&self, tensor: &Tensor) -> usize {
        tensor.elem_count()
    }

    fn zeros(&self, len: usize) -> Result<Tensor, Error> {
        Ok(Tensor::zeros(len, DType::F32, &self.device)?)
    }

    fn concatenate(&self, mut parts: Vec<Tensor>) -> Result<Tensor, Error> {
        parts.retain(|part| part.elem_count() > 0);
        match parts.as_slice() {
            [] => self.zeros(0),
            // A concatenation of one tensor is that tensor.
            [only] => Ok(only.contiguous()?.copy()?),
            several => Ok(Tensor::cat(several, 0)?),
        }
    }

    fn lend(&self, packed: &Tensor, element: ElementType) -> Result<CudaBuffer, Error> {
        Ok(self.cuda.borrow(lend::memory(packed, element)?)?)
    }
}

//! Gradients that burn computes on NVIDIA's GPUs, summed there. How the memory of a tensor is lent
//! is in `lend`.

mod lend;

use std::collections::BTreeMap;
use std::sync::Arc;

use burn_core::module::{Module, Param, ParamId};
use burn_core::tensor::{DType, Device, Tensor};
use burn_optim::GradientsParams;
use meshwork_accel_cuda::{CudaAccelerator, CudaBuffer, CudaDevice};
use meshwork_strategy::{
    CommunicatorScope, DeviceGradients, DeviceTensors, ElementType, FallbackReason,
    MultiWorkerMirroredStrategy, Packed, Rank, ReplicaContext, Route, VariableSpec,
};

use crate::Error;
use crate::walk::{Each, Known, Path, Place, walk};

/// The gradients of the parameters that are trained, between the backward pass and the optimizer.
#[derive(Debug)]
pub(crate) struct CudaGradients {
    gradients: DeviceGradients<Tensors>,
    /// Whether the step has begun.
    begun: bool,
    /// Of which of them it has a gradient.
    are_given: Vec<bool>,
}

/// burn's tensors on one GPU.
#[derive(Debug)]
struct Tensors {
    cuda: CudaDevice,
    device: Device,
}

impl CudaGradients {
    /// Room for the gradients of `module`, or why they cannot be summed where they lie, which is
    /// the same on all workers.
    pub(crate) fn of<M: Module>(
        strategy: &mut MultiWorkerMirroredStrategy,
        module: &M,
        specs: &[VariableSpec],
        cuda: CudaDevice,
        reach: CommunicatorScope,
    ) -> Result<Result<Self, FallbackReason>, Error> {
        let mut home = Home::default();
        walk(module, &mut Path::default(), &mut home)?;
        if let Some(rank) = first_without(strategy, &home)? {
            return Ok(Err(FallbackReason::NotLent { rank }));
        }
        let device = home
            .device
            .expect("a module that can be lent has a parameter");
        let id = cuda.id();
        let tensors = Tensors { cuda, device };
        let gradients = DeviceGradients::new(strategy, tensors, specs, id, reach)?;
        Ok(Ok(Self {
            gradients,
            begun: false,
            are_given: vec![false; specs.len()],
        }))
    }

    pub(crate) fn route(&self) -> Route {
        self.gradients.route()
    }

    /// Takes the gradients of a part of the module out of burn, and starts to sum those that are
    /// complete.
    pub(crate) fn start<M: Module>(
        &mut self,
        part: &M,
        mut taken: GradientsParams,
        weight: f32,
        known: Known<'_>,
    ) -> Result<(), Error> {
        if !self.begun {
            self.begin();
        }
        let Known { places, path } = known;
        let take = &mut Take {
            places,
            taken: &mut taken,
            gradients: &mut self.gradients,
            are_given: &mut self.are_given,
            weight,
        };
        let done = walk(part, path, take);
        self.begun = done.is_ok();
        done
    }

    /// The sums of all gradients, and of which this worker has one.
    #[track_caller]
    pub(crate) fn finish(
        &mut self,
        replica: &mut ReplicaContext<'_>,
    ) -> Result<(Vec<Packed<Tensor<1>>>, &[bool]), Error> {
        if !self.begun {
            self.begin();
        }
        self.begun = false;
        Ok((self.gradients.finish(replica)?, self.are_given.as_slice()))
    }

    fn begin(&mut self) {
        // Gradients are multiplied before they are handed over: each part has its weight.
        self.gradients.begin(1.0);
        self.are_given.fill(false);
        self.begun = true;
    }
}

/// The sums for the optimizer, but for those with a mark of 0, of which no worker has a gradient.
pub(crate) fn give<M: Module>(
    module: &M,
    known: Known<'_>,
    sums: &[Packed<Tensor<1>>],
    marks: &[f32],
) -> Result<GradientsParams, Error> {
    let Known { places, path } = known;
    let mut give = Give {
        places,
        sums: by_variable(sums),
        gradients: GradientsParams::new(),
    };
    give.sums.retain(|index, _| marks[*index] != 0.0);
    walk(module, path, &mut give)?;
    Ok(give.gradients)
}

/// The first worker whose parameters cannot be lent.
fn first_without(
    strategy: &mut MultiWorkerMirroredStrategy,
    own: &Home,
) -> Result<Option<Rank>, Error> {
    let own = [u8::from(own.is_lent())];
    let all = strategy.run(|replica| replica.all_gather_bytes(&own))?;
    let mut lent = (0..).map(Rank::new).zip(all.into_first());
    Ok(lent.find_map(|(rank, lent)| (lent != [1]).then_some(rank)))
}

/// The sum of each variable, by its number.
fn by_variable(sums: &[Packed<Tensor<1>>]) -> BTreeMap<usize, Tensor<1>> {
    let parts = sums.iter().flat_map(|packed| {
        let part = |(index, range)| (index, packed.tensor().clone().slice(range));
        packed.parts().map(part)
    });
    parts.collect()
}

/// Where the parameters of a module are.
#[derive(Debug, Default)]
struct Home {
    device: Option<Device>,
    elsewhere: usize,
}

impl Home {
    /// Whether all of them are on one GPU.
    fn is_lent(&self) -> bool {
        self.device.is_some() && self.elsewhere == 0
    }
}

impl Each for Home {
    fn each<const D: usize>(&mut self, param: &Param<Tensor<D>>, _: &Path) -> Result<(), Error> {
        let device = param.device().without_autodiff();
        let is_here = self.device.as_ref().is_none_or(|first| *first == device);
        match is_here && lend::is_on_cuda(param.base().without_autodiff()) {
            true => self.device = Some(device),
            false => self.elsewhere += 1,
        }
        Ok(())
    }
}

/// Hands the gradients of a part of the module over.
struct Take<'a> {
    places: &'a BTreeMap<ParamId, Place>,
    taken: &'a mut GradientsParams,
    gradients: &'a mut DeviceGradients<Tensors>,
    are_given: &'a mut [bool],
    weight: f32,
}

impl Each for Take<'_> {
    fn each<const D: usize>(&mut self, param: &Param<Tensor<D>>, path: &Path) -> Result<(), Error> {
        match self.taken.remove::<D>(param.id) {
            Some(gradient) => self.hand_over(param.id, gradient, path),
            // One that stands in two places of the part has one gradient, and others have none.
            None => Ok(()),
        }
    }
}

impl Take<'_> {
    fn hand_over<const D: usize>(
        &mut self,
        id: ParamId,
        gradient: Tensor<D>,
        path: &Path,
    ) -> Result<(), Error> {
        let trained = self.places.get(&id).and_then(|place| place.trained);
        let Some(index) = trained else {
            return Err(Error::NotMirrored {
                name: path.text(),
                mirrored: self.gradients.specs().len(),
            });
        };
        if gradient.dtype() != DType::F32 {
            return Err(Error::ElementType {
                name: path.text(),
                found: gradient.dtype(),
            });
        }
        self.are_given[index] = true;
        let flat = gradient.flatten::<1>(0, D - 1);
        self.gradients.ready(index, flat.mul_scalar(self.weight))
    }
}

/// Gives burn the sums, in the shapes of their parameters.
struct Give<'a> {
    places: &'a BTreeMap<ParamId, Place>,
    sums: BTreeMap<usize, Tensor<1>>,
    gradients: GradientsParams,
}

impl Each for Give<'_> {
    fn each<const D: usize>(&mut self, param: &Param<Tensor<D>>, _: &Path) -> Result<(), Error> {
        let trained = self.places.get(&param.id).and_then(|place| place.trained);
        // One that was frozen since has no use for a gradient.
        let index = trained.filter(|_| param.is_require_grad());
        if let Some(sum) = index.and_then(|index| self.sums.remove(&index)) {
            self.gradients
                .register::<D>(param.id, sum.reshape(param.shape()));
        }
        Ok(())
    }
}

impl DeviceTensors for Tensors {
    type Tensor = Tensor<1>;
    type Accelerator = CudaAccelerator;
    type Error = Error;

    fn accelerator(&self) -> &Arc<CudaAccelerator> {
        self.cuda.accelerator()
    }

    fn len(&self, tensor: &Tensor<1>) -> usize {
        let [len] = tensor.dims();
        len
    }

    fn zeros(&self, len: usize) -> Result<Tensor<1>, Error> {
        Ok(Tensor::zeros([len], (&self.device, DType::F32)))
    }

    /// By assignment, as a concatenation of one tensor is that tensor.
    fn concatenate(&self, parts: Vec<Tensor<1>>) -> Result<Tensor<1>, Error> {
        let len = parts.iter().map(|part| self.len(part)).sum();
        let mut end = 0;
        let mut packed = self.zeros(len)?;
        for part in parts {
            let start = end;
            end += self.len(&part);
            packed = packed.slice_assign(start..end, part);
        }
        Ok(packed)
    }

    fn lend(&self, packed: &Tensor<1>, element: ElementType) -> Result<CudaBuffer, Error> {
        Ok(self.cuda.borrow(lend::memory(packed.clone(), element)?)?)
    }
}

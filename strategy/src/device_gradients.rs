//! Gradients that are summed on the device where a model library has computed them.
//!
//! ```text
//!   gradients of one bucket ── concatenate ──> one new tensor ── lend ──> buffer ── all-reduce ──> sums,
//!   still being computed: the next bucket                                     where they lie
//! ```
//!
//! Nothing here knows a library or a device: a library is what [`DeviceTensors`] says of it.

mod buckets;
mod library;

use std::fmt::{self, Debug};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use meshwork_accel::{Accelerator, DeviceBuffer, DeviceId, ElementType, Elementwise, Fold};
use meshwork_collectives::{
    self as collectives, CommunicatorScope, DeviceGroup, DeviceRoute, OperationError, Operations,
    Pending, Pinning, Rank, Route,
};

use crate::{Error, MultiWorkerMirroredStrategy, ReplicaContext, VariableSpec, bucket_ranges};
use buckets::{Bucket, with_tensors};

pub use buckets::Packed;
pub use library::{BufferOf, DeviceTensors};

/// The gradients of all variables of a model whose library computes on a device: packed into
/// buckets there, from the last variable to the first, each of which is summed over all workers as
/// soon as it is complete, while others are computed.
///
/// As [`route`](Self::route) says, sums go from device to device, or through host memory where they
/// cannot. The sum has the bits of [`GradientBuckets`](crate::GradientBuckets) where the order of
/// adding is the same. Buckets are as large as
/// [`bytes_per_bucket`](crate::CommunicationOptions::bytes_per_bucket) says.
///
/// A step is [`begin`](Self::begin), [`ready`](Self::ready) for each gradient, and
/// [`finish`](Self::finish). All workers do the same.
///
/// ```
/// # use meshwork_strategy::{DeviceGradients, DeviceTensors, MultiWorkerMirroredStrategy};
/// # fn step<L: DeviceTensors>(
/// #     strategy: &mut MultiWorkerMirroredStrategy,
/// #     gradients: &mut DeviceGradients<L>,
/// #     gradient_of: impl Fn(usize) -> L::Tensor,
/// #     update: impl Fn(usize, &L::Tensor, std::ops::Range<usize>),
/// # ) -> Result<(), L::Error> {
/// let sums = strategy.run(|replica| {
///     gradients.begin(1.0);
///     for index in (0..gradients.specs().len()).rev() {
///         gradients.ready(index, gradient_of(index))?; // the last layer first
///     }
///     gradients.finish(replica)
/// })?;
/// for packed in sums.into_first() {
///     for (index, elements) in packed.parts() {
///         update(index, packed.tensor(), elements);
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[doc(alias("Reducer", "gradient_as_bucket_view"))]
pub struct DeviceGradients<L: DeviceTensors> {
    library: L,
    route: Route,
    /// Taken by the thread of the group's operations alone, for as long as one lasts.
    way: Arc<Mutex<DeviceRoute<BufferOf<L>>>>,
    operations: Operations,
    specs: Vec<VariableSpec>,
    /// The bucket of each variable.
    places: Vec<usize>,
    buckets: Vec<Bucket<L::Tensor>>,
    under_way: Vec<(L::Tensor, Pending<BufferOf<L>>)>,
    weight: f32,
}

impl<L: DeviceTensors> DeviceGradients<L> {
    /// Room for the gradients of these variables, none of which has elements before it is given.
    /// All workers call it, with the same variables; `device` is where this worker's tensors lie.
    ///
    /// # Errors
    /// [`Error::SeveralReplicas`] where a worker has more than one; [`Error::VariablesDiffer`];
    /// [`Error::Group`].
    #[track_caller]
    pub fn new(
        strategy: &mut MultiWorkerMirroredStrategy,
        library: L,
        specs: &[VariableSpec],
        device: DeviceId,
        reach: CommunicatorScope,
    ) -> Result<Self, Error> {
        let replicas = strategy.local_replicas();
        if replicas > 1 {
            return Err(Error::SeveralReplicas { replicas });
        }
        strategy.scope(|scope| scope.compare(specs))?;
        let bytes: Vec<usize> = specs
            .iter()
            .rev()
            .map(|spec| spec.len() * size_of::<f32>())
            .collect();
        let ranges = bucket_ranges(&bytes, strategy.options().bytes_per_bucket());
        let buckets: Vec<_> = ranges
            .into_iter()
            .map(|range| Bucket::new(specs.len(), range))
            .collect();
        let mut places = vec![0; specs.len()];
        for (number, bucket) in buckets.iter().enumerate() {
            for variable in &bucket.variables {
                places[*variable] = number;
            }
        }
        let way = strategy.device_route(&**library.accelerator(), device, reach)?;
        Ok(Self {
            operations: strategy.group_mut().operations()?,
            route: way.route().clone(),
            way: Arc::new(Mutex::new(way)),
            library,
            specs: specs.to_vec(),
            places,
            buckets,
            under_way: Vec::new(),
            weight: 1.0,
        })
    }

    /// By which way gradients go between workers, and why; the same on every worker.
    pub fn route(&self) -> Route {
        self.route.clone()
    }

    /// Whether the host memory that gradients go through is pinned for this worker's device; waits
    /// while gradients are under way.
    pub fn pinning(&self) -> Pinning {
        held(&self.way).pinning().clone()
    }

    /// The variables, in the order in which they were given.
    #[must_use]
    pub fn specs(&self) -> &[VariableSpec] {
        &self.specs
    }

    /// The library whose tensors these are.
    #[must_use]
    pub fn library(&self) -> &L {
        &self.library
    }

    /// How many buckets there are.
    #[must_use]
    pub fn buckets(&self) -> usize {
        self.buckets.len()
    }

    /// Begins a step, whose gradients of this worker are multiplied by `weight`. What a step that
    /// has failed has left is dropped.
    pub fn begin(&mut self, weight: f32) {
        self.weight = weight;
        self.under_way.clear();
        for bucket in &mut self.buckets {
            bucket.gradients.fill(None);
        }
    }

    /// Gives the gradient of variable number `index`, and starts to sum buckets that are complete,
    /// in their order.
    ///
    /// # Errors
    /// [`Error::GradientTwice`], [`Error::GradientLength`], [`Error::Device`], and those of the
    /// library.
    ///
    /// # Panics
    /// When there is no such variable.
    pub fn ready(&mut self, index: usize, gradient: L::Tensor) -> Result<(), L::Error> {
        let (spec, found) = (&self.specs[index], self.library.len(&gradient));
        if found != spec.len() {
            let spec = spec.clone();
            return Err(Error::GradientLength { spec, found }.into());
        }
        let number = self.places[index];
        let place = self.buckets[number].place_of(index);
        let is_given = self.buckets[number].gradients[place].is_some();
        if is_given || number < self.under_way.len() {
            let name = spec.name().to_owned();
            return Err(Error::GradientTwice { name }.into());
        }
        self.buckets[number].gradients[place] = Some(gradient);
        while self.next().is_some_and(Bucket::is_complete) {
            self.start()?;
        }
        Ok(())
    }

    /// Sums what is left, and waits for everything: the sums over all workers, bucket by bucket. A
    /// variable without a gradient counts as zero.
    ///
    /// # Errors
    /// [`Error::SeveralReplicas`], [`Error::Group`], [`Error::Device`], and those of the library.
    #[track_caller]
    pub fn finish(
        &mut self,
        replica: &mut ReplicaContext<'_>,
    ) -> Result<Vec<Packed<L::Tensor>>, L::Error> {
        while self.next().is_some() {
            self.start()?;
        }
        let (_, communication_stats) = replica.only_worker()?;
        let mut sums = Vec::with_capacity(self.buckets.len());
        for (number, (tensor, pending)) in self.under_way.drain(..).enumerate() {
            let began = Instant::now();
            let sum = pending.wait().map_err(Error::from)?;
            let bytes = sum.element_type().size() * sum.len();
            communication_stats.count(bytes, began.elapsed());
            // Given back before anybody works on it.
            drop(sum);
            let parts = self.buckets[number].parts(&self.specs);
            sums.push(Packed { tensor, parts });
        }
        Ok(sums)
    }

    /// The tensors of all variables with the values that they have on rank 0, from device to device
    /// where the route goes so. All workers call it, outside of steps.
    ///
    /// # Panics
    /// When there are not as many tensors as variables.
    ///
    /// # Errors
    /// [`Error::Group`], and those of the library.
    #[track_caller]
    pub fn broadcast(&self, variables: &[L::Tensor]) -> Result<Vec<Packed<L::Tensor>>, L::Error> {
        let mut all = Vec::with_capacity(self.buckets.len());
        for (bucket, own) in with_tensors(&self.buckets, variables) {
            let tensor = self.library.concatenate(own)?;
            let values = self.library.lend(&tensor, ElementType::F32)?;
            // Given back before anybody works on it.
            drop(self.of_rank_0(values)?);
            let parts = bucket.parts(&self.specs);
            all.push(Packed { tensor, parts });
        }
        Ok(all)
    }

    /// Checks, on the device, that all workers hold the same bits in all variables: a word of each
    /// bucket is brought to the host.
    ///
    /// # Panics
    /// When there are not as many tensors as variables.
    ///
    /// # Errors
    /// [`Error::ReplicasDiverged`], on every worker, with the ranks that differ from rank 0;
    /// [`Error::Group`], [`Error::Device`], and those of the library.
    #[track_caller]
    pub fn verify(
        &self,
        strategy: &mut MultiWorkerMirroredStrategy,
        variables: &[L::Tensor],
    ) -> Result<(), L::Error> {
        let mut different = 0_u32;
        for (_, own) in with_tensors(&self.buckets, variables) {
            let tensor = self.library.concatenate(own)?;
            let own = self.library.lend(&tensor, ElementType::U32)?;
            let accelerator = self.library.accelerator();
            let chiefs = accelerator.duplicate(&own).map_err(Error::from)?;
            let mut chiefs = self.of_rank_0(chiefs)?;
            different |= differing_bits(&**accelerator, &own, &mut chiefs)?;
        }
        let group = strategy.group_mut();
        let mut all = vec![0; group.world() as usize];
        group
            .all_gather(&[different], &mut all)
            .map_err(Error::from)?;
        let ranks = (0..).map(Rank::new).zip(all);
        let ranks: Vec<_> = ranks
            .filter(|(_, bits)| *bits != 0)
            .map(|(rank, _)| rank)
            .collect();
        match ranks.is_empty() {
            true => Ok(()),
            false => Err(Error::ReplicasDiverged { ranks }.into()),
        }
    }

    /// Waits until all workers have called this, where there is a communicator: then it may be
    /// dropped. One that is dropped before is aborted, under the hands of those that have not
    /// finished.
    ///
    /// # Errors
    /// [`Error::Group`]
    #[track_caller]
    pub fn settle(&self, strategy: &mut MultiWorkerMirroredStrategy) -> Result<(), Error> {
        match self.route {
            Route::Direct { .. } => Ok(strategy.group_mut().barrier()?),
            Route::Staged(_) => Ok(()),
        }
    }

    /// The bucket that is started next.
    fn next(&self) -> Option<&Bucket<L::Tensor>> {
        self.buckets.get(self.under_way.len())
    }

    /// Starts to sum the next bucket, with zeros for gradients that are not there.
    fn start(&mut self) -> Result<(), L::Error> {
        let number = self.under_way.len();
        let Bucket {
            variables,
            gradients,
        } = &mut self.buckets[number];
        let mut parts = Vec::with_capacity(variables.len());
        for (variable, gradient) in variables.iter().zip(gradients) {
            parts.push(match gradient.take() {
                Some(gradient) => gradient,
                None => self.library.zeros(self.specs[*variable].len())?,
            });
        }
        let tensor = self.library.concatenate(parts)?;
        let mut values = self.library.lend(&tensor, ElementType::F32)?;
        let accelerator = self.library.accelerator().clone();
        if self.weight.to_bits() != 1.0_f32.to_bits() {
            accelerator
                .scale(&mut values, self.weight)
                .map_err(Error::from)?;
        }
        let sum = self.work_on(values, |devices, values| {
            devices.all_reduce(values, collectives::ReduceOp::Sum)
        });
        self.under_way.push((tensor, sum));
        Ok(())
    }

    /// Gives a buffer the values that it has on rank 0.
    fn of_rank_0(&self, values: BufferOf<L>) -> Result<BufferOf<L>, Error> {
        let given = self.work_on(values, |devices, values| {
            devices.broadcast(values, Rank::CHIEF)
        });
        Ok(given.wait()?)
    }

    /// Starts what is to be done with a buffer between workers, if there are several.
    fn work_on(
        &self,
        values: BufferOf<L>,
        work: impl FnOnce(
            &mut DeviceGroup<'_, L::Accelerator>,
            &mut BufferOf<L>,
        ) -> Result<(), OperationError>
        + Send
        + 'static,
    ) -> Pending<BufferOf<L>> {
        let (accelerator, way) = (self.library.accelerator().clone(), self.way.clone());
        self.operations.start(values, move |group, values| {
            let (device, is_alone) = (values.device(), group.world() == 1);
            let mut way = held(&way);
            let mut devices = group.with_route(&*accelerator, &mut way);
            if !is_alone {
                work(&mut devices, values)?;
            }
            // Its owner may have no way to wait for our work but that it is done.
            devices.synchronize(device)
        })
    }
}

/// The largest of the words that say which bits of two buffers differ, which `others` becomes.
fn differing_bits<A: Fold>(
    accelerator: &A,
    own: &A::Buffer,
    others: &mut A::Buffer,
) -> Result<u32, Error> {
    if own.is_empty() {
        return Ok(0);
    }
    accelerator.reduce(collectives::ReduceOp::Xor, others, own)?;
    let most = accelerator.fold(collectives::ReduceOp::Max, [1, own.len(), 1], others)?;
    let mut word = [0];
    accelerator.download(&most, 0, &mut word)?;
    Ok(word[0])
}

fn held<B: DeviceBuffer>(route: &Mutex<DeviceRoute<B>>) -> MutexGuard<'_, DeviceRoute<B>> {
    // An operation that panicked has ended the group, and so the route.
    route.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<L: DeviceTensors> Debug for DeviceGradients<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceGradients")
            .field("variables", &self.specs.len())
            .field("buckets", &self.buckets.len())
            .field("route", &self.route)
            .finish_non_exhaustive()
    }
}

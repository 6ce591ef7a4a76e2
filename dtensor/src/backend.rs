//! Accelerators on whose devices blocks lie, of whatever kind.

use std::borrow::Cow;
use std::fmt::{self, Debug};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use meshwork_accel::{
    Accelerator, Arrange, Arrangement, Device, DeviceId, ElementType, Elementwise,
    Error as Refusal, Fold, Matmul, NativeCollectives, Pairwise, Pointwise, ProductShape, ReduceOp,
    Region,
};
use ndarray::ArrayViewD;

use crate::{DeviceType, Error, Scalar};

mod choose;
mod graphs;
mod local_devices;
mod recorder;
mod search;
mod typed;

pub(crate) use graphs::CompiledGraph;
#[cfg(test)]
pub(crate) use graphs::testing::refusing;
pub(crate) use local_devices::{DeviceBlocks, LocalDevices};
pub(crate) use recorder::{Bound, Recorder, Unlike};
pub(crate) use typed::Whole;
use typed::{Arithmetic, Links, Memory, Raw, Shaping, Typed};

/// An accelerator with its capabilities for tensors, see
/// [`Context::compute_on`](crate::Context::compute_on).
///
/// Every accelerator holds blocks. What else one can do is said by a call for each capability; what
/// it cannot, or refuses for elements of a type, the processor does.
///
/// ```
/// use meshwork_accel::{Elementwise, Matmul};
/// use meshwork_dtensor::Backend;
/// # use std::sync::Arc;
///
/// fn backend<A: Elementwise + Matmul<Buffer: Sync> + 'static>(accelerator: &Arc<A>) -> Backend {
///     Backend::of(accelerator).arithmetic().into()
/// }
/// ```
#[derive(Clone)]
pub struct Backend(Arc<Parts>);

/// A builder of a [`Backend`] from an accelerator and its capabilities.
#[derive(Debug)]
#[must_use]
pub struct BackendBuilder<A> {
    accelerator: Arc<A>,
    backend: Parts,
}

struct Parts {
    devices: Vec<Device>,
    memory: Arc<dyn Memory>,
    arithmetic: Option<Arc<dyn Arithmetic>>,
    shaping: Option<Arc<dyn Shaping>>,
    links: Option<Arc<dyn Links>>,
    graphs: Option<Arc<dyn graphs::Together>>,
    /// Where it takes note of what it is asked, instead of doing it.
    recorder: Option<Arc<Recorder>>,
    /// Elements that it has refused to compute with.
    refused: AtomicU32,
    tally: TransferStats,
}

/// How many bytes of blocks there are on devices, and how many went there and back.
#[derive(Debug, Default)]
struct TransferStats {
    held: AtomicU64,
    uploaded: AtomicU64,
    downloaded: AtomicU64,
}

impl Backend {
    /// This accelerator, which holds blocks and does nothing else yet.
    pub fn of<A: Accelerator<Buffer: Sync> + 'static>(accelerator: &Arc<A>) -> BackendBuilder<A> {
        BackendBuilder {
            accelerator: Arc::clone(accelerator),
            backend: Parts {
                devices: accelerator.devices().to_vec(),
                memory: Arc::new(Typed(Arc::clone(accelerator))),
                arithmetic: None,
                shaping: None,
                links: None,
                graphs: None,
                recorder: None,
                refused: AtomicU32::new(0),
                tally: TransferStats::default(),
            },
        }
    }

    /// The accelerator of this machine for a type of device, with all that it can do: for TPUs a
    /// PJRT plugin, with the feature `tpu`; for GPUs CUDA, with the feature `cuda`.
    ///
    /// # Errors
    /// [`Error::NotCompiledIn`], and [`Error::Element`] with the library that is missing, why, and
    /// what to do about it.
    pub fn find(device_type: DeviceType) -> Result<Self, Error> {
        search::open(device_type)
    }

    /// The devices.
    #[must_use]
    pub fn devices(&self) -> &[Device] {
        &self.0.devices
    }

    /// Bytes of all blocks that are on its devices now.
    #[must_use]
    pub fn bytes_held(&self) -> u64 {
        self.0.tally.held.load(Ordering::Relaxed)
    }

    /// Bytes of blocks that have gone to its devices so far.
    #[must_use]
    pub fn bytes_uploaded(&self) -> u64 {
        self.0.tally.uploaded.load(Ordering::Relaxed)
    }

    /// Bytes of blocks that have come from its devices so far.
    #[must_use]
    pub fn bytes_downloaded(&self) -> u64 {
        self.0.tally.downloaded.load(Ordering::Relaxed)
    }
}

impl<A: Elementwise<Buffer: Sync> + Matmul + 'static> BackendBuilder<A> {
    /// It does the arithmetic and the products of floats.
    pub fn arithmetic(mut self) -> Self {
        self.backend.arithmetic = Some(Arc::new(Typed(Arc::clone(&self.accelerator))));
        self
    }
}

impl<A: Arrange<Buffer: Sync> + Fold + 'static> BackendBuilder<A> {
    /// It moves elements and axes, and reduces along axes: relayouts among its devices do not pass
    /// the host either.
    pub fn arrangement(mut self) -> Self {
        self.backend.shaping = Some(Arc::new(Typed(Arc::clone(&self.accelerator))));
        self
    }
}

impl<A: NativeCollectives<Buffer: Sync> + 'static> BackendBuilder<A> {
    /// Its devices reduce among themselves: all-reduces between devices of one process are theirs,
    /// in an order of their own.
    pub fn collectives(mut self) -> Self {
        self.backend.links = Some(Arc::new(Typed(Arc::clone(&self.accelerator))));
        self
    }
}

impl<A> From<BackendBuilder<A>> for Backend {
    fn from(builder: BackendBuilder<A>) -> Self {
        Self(Arc::new(builder.backend))
    }
}

/// A block on a device. It never changes, so that tensors can share it.
pub(crate) struct DeviceBlock {
    raw: Raw,
    device: DeviceId,
    bytes: u64,
    backend: Backend,
}

/// A type of elements among others.
const fn bit(element: ElementType) -> u32 {
    1 << element.code()
}

/// A block that a backend has made, or `None` where it does not support the operation.
pub(crate) type BackendResult = Result<Option<Arc<DeviceBlock>>, Error>;

impl Backend {
    /// The elements of a block, row after row, on a device.
    pub(crate) fn upload<T: Scalar>(
        &self,
        device: DeviceId,
        block: &ArrayViewD<'_, T>,
    ) -> Result<Arc<DeviceBlock>, Error> {
        let elements: Cow<'_, [T]> = match block.as_slice() {
            Some(elements) => Cow::Borrowed(elements),
            None => Cow::Owned(block.iter().copied().collect()),
        };
        let bytes: &[u8] = bytemuck::cast_slice(&elements);
        let raw = self.0.memory.upload(device, T::TYPE, bytes)?;
        let bytes = bytes.len() as u64;
        self.0.tally.uploaded.fetch_add(bytes, Ordering::Relaxed);
        Ok(self.keep(raw, bytes))
    }

    /// This many zeros on a device.
    pub(crate) fn zeros(
        &self,
        device: DeviceId,
        element: ElementType,
        len: usize,
    ) -> BackendResult {
        let bytes = (len * element.size()) as u64;
        self.by(Some(&*self.0.memory), bytes, |memory| {
            Some(memory.zeros(device, element, len))
        })
    }

    /// Whether it may have arithmetic of these elements: what it has refused once it is not given
    /// again.
    pub(crate) fn computes(&self, element: ElementType) -> bool {
        let arithmetic = self.0.arithmetic.as_deref();
        let was_refused = self.0.refused.load(Ordering::Relaxed) & bit(element) != 0;
        !was_refused && arithmetic.is_some_and(|arithmetic| arithmetic.computes(element))
    }

    /// Arithmetic on elements, which a backend may turn out not to have.
    fn compute(
        &self,
        bytes: u64,
        call: impl FnOnce(&dyn Arithmetic) -> Option<Result<Raw, Refusal>>,
    ) -> BackendResult {
        self.by(self.0.arithmetic.as_deref(), bytes, |arithmetic| {
            let made = call(arithmetic);
            if let Some(Err(Refusal::UnsupportedElement { element })) = &made {
                self.0.refused.fetch_or(bit(*element), Ordering::Relaxed);
            }
            made
        })
    }

    /// The op of each element.
    pub(crate) fn pointwise(&self, op: Pointwise, of: &DeviceBlock) -> BackendResult {
        self.compute(of.bytes, |arithmetic| {
            arithmetic.pointwise(op, self.own(of)?)
        })
    }

    /// The op of the elements at one place, of which both have as many.
    pub(crate) fn pairwise(
        &self,
        op: Pairwise,
        left: &DeviceBlock,
        right: &DeviceBlock,
    ) -> BackendResult {
        self.compute(left.bytes, |arithmetic| {
            arithmetic.pairwise(op, [self.own(left)?, self.own(right)?])
        })
    }

    /// The product of two matrices, whose elements take this many bytes each.
    pub(crate) fn product(
        &self,
        shape: ProductShape,
        size: usize,
        left: &DeviceBlock,
        right: &DeviceBlock,
    ) -> BackendResult {
        let bytes = (shape.product() * size) as u64;
        self.compute(bytes, |arithmetic| {
            arithmetic.product(shape, [self.own(left)?, self.own(right)?])
        })
    }

    /// Whether it moves elements, and reduces along axes.
    pub(crate) fn arranges(&self) -> bool {
        self.0.shaping.is_some()
    }

    /// The elements of a box.
    pub(crate) fn cut(&self, of: &DeviceBlock, part: &Region) -> BackendResult {
        let bytes = of.share(part.len(), part.whole_len());
        self.by(self.0.shaping.as_deref(), bytes, |shaping| {
            shaping.cut(self.own(of)?, part)
        })
    }

    /// The elements with the axes in other places.
    pub(crate) fn arrange(&self, of: &DeviceBlock, to: &Arrangement) -> BackendResult {
        let bytes = of.share(to.len(), to.from_len());
        self.by(self.0.shaping.as_deref(), bytes, |shaping| {
            shaping.arrange(self.own(of)?, to)
        })
    }

    /// The elements along the middle one of three axes made one.
    pub(crate) fn fold(&self, op: ReduceOp, sizes: [usize; 3], of: &DeviceBlock) -> BackendResult {
        let bytes = of.share(1, sizes[1]);
        self.by(self.0.shaping.as_deref(), bytes, |shaping| {
            shaping.fold(op, sizes, self.own(of)?)
        })
    }

    /// A whole of boxes, all on its device.
    pub(crate) fn assemble(
        &self,
        whole: Whole<'_>,
        parts: &[(Arc<DeviceBlock>, Region)],
    ) -> BackendResult {
        let bytes = (whole.len * whole.element.size()) as u64;
        self.by(self.0.shaping.as_deref(), bytes, |shaping| {
            let mut known = parts.iter().map(|(part, _)| self.own(part));
            known.all(|part| part.is_some()).then_some(())?;
            let mut parts = parts.iter().map(|(part, region)| (&part.raw, region));
            shaping.assemble(whole, &mut parts)
        })
    }

    /// The same elements on another device.
    pub(crate) fn on(&self, device: DeviceId, of: &DeviceBlock, len: usize) -> BackendResult {
        self.by(Some(&*self.0.memory), of.bytes, |memory| {
            memory.span(device, self.own(of)?, 0..len)
        })
    }

    /// The op of blocks on one device.
    pub(crate) fn reduced(&self, op: ReduceOp, terms: &[Arc<DeviceBlock>]) -> BackendResult {
        let bytes = terms.first().map_or(0, |first| first.bytes);
        self.by(Some(&*self.0.memory), bytes, |memory| {
            let terms = terms.iter().map(|term| self.own(term));
            memory.reduced(op, &terms.collect::<Option<Vec<_>>>()?)
        })
    }

    /// The op of blocks on devices of their own, on each of them; none where the devices cannot.
    pub(crate) fn all_reduced(
        &self,
        op: ReduceOp,
        terms: &[Arc<DeviceBlock>],
    ) -> Result<Option<Vec<Arc<DeviceBlock>>>, Error> {
        let raws = terms.iter().map(|term| self.own(term));
        let Some(links) = &self.0.links else {
            return Ok(None);
        };
        let Some(raws) = raws.collect::<Option<Vec<_>>>() else {
            return Ok(None);
        };
        match links.all_reduced(op, &raws) {
            None | Some(Err(Refusal::UnsupportedOp { .. })) => Ok(None),
            Some(made) => {
                let made = made?.into_iter().zip(terms);
                Ok(Some(
                    made.map(|(raw, term)| self.keep(raw, term.bytes)).collect(),
                ))
            }
        }
    }

    /// The result of a capability, if the backend has it, it knows the buffers, and it supports the
    /// elements.
    fn by<C: ?Sized>(
        &self,
        capability: Option<&C>,
        bytes: u64,
        call: impl FnOnce(&C) -> Option<Result<Raw, Refusal>>,
    ) -> BackendResult {
        match capability.and_then(call) {
            None
            | Some(Err(
                Refusal::Unsupported { .. }
                | Refusal::UnsupportedElement { .. }
                | Refusal::UnsupportedOp { .. }
                | Refusal::NoSources { .. }
                | Refusal::TooManyAxes { .. },
            )) => Ok(None),
            Some(made) => Ok(Some(self.keep(made?, bytes))),
        }
    }

    fn keep(&self, raw: Raw, bytes: u64) -> Arc<DeviceBlock> {
        self.0.tally.held.fetch_add(bytes, Ordering::Relaxed);
        Arc::new(DeviceBlock {
            device: self.0.memory.device(&raw),
            raw,
            bytes,
            backend: self.clone(),
        })
    }

    /// A block's buffer, if it is one of this backend.
    fn own<'a>(&self, stored: &'a DeviceBlock) -> Option<&'a Raw> {
        Arc::ptr_eq(&self.0, &stored.backend.0).then_some(&stored.raw)
    }
}

impl DeviceBlock {
    /// The elements, once all that was asked of the device before is done.
    pub(crate) fn download<T: Scalar>(&self) -> Result<Vec<T>, Error> {
        let Parts { memory, tally, .. } = &*self.backend.0;
        tally.downloaded.fetch_add(self.bytes, Ordering::Relaxed);
        let elements = memory.download(&self.raw)?.downcast::<Vec<T>>();
        let element = T::TYPE;
        Ok(*elements.map_err(|_| Refusal::UnsupportedElement { element })?)
    }

    pub(crate) fn device(&self) -> DeviceId {
        self.device
    }

    /// The bytes of so many of its elements of so many.
    fn share(&self, part: usize, whole: usize) -> u64 {
        let size = self.bytes / (whole as u64).max(1);
        size * part as u64
    }

    /// Whether it is a block of this backend.
    pub(crate) fn is_of(&self, backend: &Backend) -> bool {
        Arc::ptr_eq(&self.backend.0, &backend.0)
    }
}

impl Drop for DeviceBlock {
    fn drop(&mut self) {
        let held = &self.backend.0.tally.held;
        held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backend")
            .field("devices", &self.devices)
            .field("arithmetic", &self.arithmetic.is_some())
            .field("arrangement", &self.shaping.is_some())
            .field("collectives", &self.links.is_some())
            .field("graphs", &self.graphs.is_some())
            .field("tally", &self.tally)
            .finish_non_exhaustive()
    }
}

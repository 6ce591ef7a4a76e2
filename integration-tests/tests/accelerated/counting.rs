//! A backend that counts its calls, and what crosses between the host and its devices; it may break
//! down, or be watched.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use meshwork_accel::{
    Accelerator, Arrange, Arrangement, Device, DeviceId, Element, ElementType, Elementwise, Error,
    Fold, Matmul, NativeCollectives, Pairwise, Pointwise, ProductShape, ReduceOp, Region,
    StridedSlice,
};
use meshwork_accel_cpu::{CpuAccelerator, CpuBuffer};

/// The CPU as a backend, how often something crossed, and how often it was asked for anything else.
pub(crate) struct Counting {
    inner: CpuAccelerator,
    before: Box<dyn Fn(Crossing) -> Result<(), Error> + Send + Sync>,
    uploads: AtomicUsize,
    downloads: AtomicUsize,
    reductions: AtomicUsize,
    calls: AtomicUsize,
}

/// What is about to cross, and from which element on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Crossing {
    Upload,
    Download(usize),
}

#[allow(dead_code, reason = "each test file asks for some of the counts")]
impl Counting {
    pub(crate) fn new(inner: CpuAccelerator) -> Self {
        Self {
            inner,
            before: Box::new(|_| Ok(())),
            uploads: AtomicUsize::new(0),
            downloads: AtomicUsize::new(0),
            reductions: AtomicUsize::new(0),
            calls: AtomicUsize::new(0),
        }
    }

    /// Asks before anything crosses, which does not where that fails.
    pub(crate) fn asking(
        mut self,
        before: impl Fn(Crossing) -> Result<(), Error> + Send + Sync + 'static,
    ) -> Self {
        self.before = Box::new(before);
        self
    }

    /// How many uploads there were, and how many downloads.
    pub(crate) fn crossings(&self) -> (usize, usize) {
        let count = |of: &AtomicUsize| of.load(Ordering::Relaxed);
        (count(&self.uploads), count(&self.downloads))
    }

    /// How often elements were made of others on the devices: computed, moved, or reduced along an
    /// axis.
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    fn asked(&self) -> &CpuAccelerator {
        self.calls.fetch_add(1, Ordering::Relaxed);
        &self.inner
    }

    /// How often devices reduced among themselves.
    pub(crate) fn reductions(&self) -> usize {
        self.reductions.load(Ordering::Relaxed)
    }
}

impl Accelerator for Counting {
    type Buffer = CpuBuffer;

    fn devices(&self) -> &[Device] {
        self.inner.devices()
    }

    fn allocate(
        &self,
        device: DeviceId,
        element: ElementType,
        len: usize,
    ) -> Result<CpuBuffer, Error> {
        self.inner.allocate(device, element, len)
    }

    fn upload<T: Element>(&self, from: &[T], to: &mut CpuBuffer, at: usize) -> Result<(), Error> {
        (self.before)(Crossing::Upload)?;
        self.uploads.fetch_add(1, Ordering::Relaxed);
        self.inner.upload(from, to, at)
    }

    fn download<T: Element>(&self, from: &CpuBuffer, at: usize, to: &mut [T]) -> Result<(), Error> {
        (self.before)(Crossing::Download(at))?;
        self.downloads.fetch_add(1, Ordering::Relaxed);
        self.inner.download(from, at, to)
    }

    fn copy(
        &self,
        from: &CpuBuffer,
        range: Range<usize>,
        to: &mut CpuBuffer,
        at: usize,
    ) -> Result<(), Error> {
        self.inner.copy(from, range, to, at)
    }

    fn fill<T: Element>(
        &self,
        buffer: &mut CpuBuffer,
        range: Range<usize>,
        value: T,
    ) -> Result<(), Error> {
        self.asked().fill(buffer, range, value)
    }

    fn reduce(&self, op: ReduceOp, into: &mut CpuBuffer, from: &CpuBuffer) -> Result<(), Error> {
        self.asked().reduce(op, into, from)
    }

    fn synchronize(&self, device: DeviceId) -> Result<(), Error> {
        self.inner.synchronize(device)
    }
}

impl Elementwise for Counting {
    fn pointwise(&self, op: Pointwise, values: &mut CpuBuffer) -> Result<(), Error> {
        self.asked().pointwise(op, values)
    }

    fn pairwise(&self, op: Pairwise, into: &mut CpuBuffer, by: &CpuBuffer) -> Result<(), Error> {
        self.asked().pairwise(op, into, by)
    }

    fn convert(&self, from: &CpuBuffer, to: ElementType) -> Result<CpuBuffer, Error> {
        self.asked().convert(from, to)
    }

    fn select(
        &self,
        condition: &CpuBuffer,
        yes: &CpuBuffer,
        no: &CpuBuffer,
    ) -> Result<CpuBuffer, Error> {
        self.asked().select(condition, yes, no)
    }
}

impl Matmul for Counting {
    fn matmul(
        &self,
        shape: ProductShape,
        left: &CpuBuffer,
        right: &CpuBuffer,
        into: &mut CpuBuffer,
    ) -> Result<(), Error> {
        self.asked().matmul(shape, left, right, into)
    }
}

impl Arrange for Counting {
    fn cut(&self, from: &CpuBuffer, part: &Region) -> Result<CpuBuffer, Error> {
        self.asked().cut(from, part)
    }

    fn paste(&self, from: &CpuBuffer, into: &mut CpuBuffer, part: &Region) -> Result<(), Error> {
        self.asked().paste(from, into, part)
    }

    fn arrange(&self, from: &CpuBuffer, to: &Arrangement) -> Result<CpuBuffer, Error> {
        self.asked().arrange(from, to)
    }

    fn step(&self, from: &CpuBuffer, by: &StridedSlice) -> Result<CpuBuffer, Error> {
        self.asked().step(from, by)
    }

    fn take(
        &self,
        from: &CpuBuffer,
        sizes: [usize; 3],
        indices: &CpuBuffer,
    ) -> Result<CpuBuffer, Error> {
        self.asked().take(from, sizes, indices)
    }

    fn one_hot(
        &self,
        indices: &CpuBuffer,
        classes: Range<usize>,
        element: ElementType,
    ) -> Result<CpuBuffer, Error> {
        self.asked().one_hot(indices, classes, element)
    }
}

impl Fold for Counting {
    fn fold(&self, op: ReduceOp, sizes: [usize; 3], from: &CpuBuffer) -> Result<CpuBuffer, Error> {
        self.asked().fold(op, sizes, from)
    }

    fn scan(&self, op: ReduceOp, sizes: [usize; 3], from: &CpuBuffer) -> Result<CpuBuffer, Error> {
        self.asked().scan(op, sizes, from)
    }

    fn arg_reduce(
        &self,
        op: ReduceOp,
        sizes: [usize; 3],
        from: &CpuBuffer,
    ) -> Result<CpuBuffer, Error> {
        self.asked().arg_reduce(op, sizes, from)
    }
}

impl NativeCollectives for Counting {
    fn all_reduce(&self, op: ReduceOp, buffers: &mut [&mut CpuBuffer]) -> Result<(), Error> {
        self.reductions.fetch_add(1, Ordering::Relaxed);
        self.inner.all_reduce(op, buffers)
    }

    fn broadcast(&self, root: usize, buffers: &mut [&mut CpuBuffer]) -> Result<(), Error> {
        self.asked().broadcast(root, buffers)
    }

    fn all_gather(
        &self,
        inputs: &[&CpuBuffer],
        outputs: &mut [&mut CpuBuffer],
    ) -> Result<(), Error> {
        self.asked().all_gather(inputs, outputs)
    }

    fn reduce_scatter(
        &self,
        op: ReduceOp,
        inputs: &[&CpuBuffer],
        outputs: &mut [&mut CpuBuffer],
    ) -> Result<(), Error> {
        self.asked().reduce_scatter(op, inputs, outputs)
    }
}

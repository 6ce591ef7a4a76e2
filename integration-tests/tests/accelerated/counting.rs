//! A backend that counts what crosses between the host and its devices.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use meshwork_accel::{
    Accelerator, Device, DeviceId, Element, ElementType, Elementwise, Error, Matmul, Pairwise,
    Pointwise, ProductShape, ReduceOp,
};
use meshwork_accel_cpu::{CpuAccelerator, CpuBuffer};

/// The CPU as a backend, and how often something crossed.
#[derive(Debug)]
pub(crate) struct Counting {
    inner: CpuAccelerator,
    uploads: AtomicUsize,
    downloads: AtomicUsize,
}

impl Counting {
    pub(crate) fn new(inner: CpuAccelerator) -> Self {
        Self {
            inner,
            uploads: AtomicUsize::new(0),
            downloads: AtomicUsize::new(0),
        }
    }

    /// How many uploads there were, and how many downloads.
    pub(crate) fn crossings(&self) -> (usize, usize) {
        let count = |of: &AtomicUsize| of.load(Ordering::Relaxed);
        (count(&self.uploads), count(&self.downloads))
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
        self.uploads.fetch_add(1, Ordering::Relaxed);
        self.inner.upload(from, to, at)
    }

    fn download<T: Element>(&self, from: &CpuBuffer, at: usize, to: &mut [T]) -> Result<(), Error> {
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
        self.inner.fill(buffer, range, value)
    }

    fn reduce(&self, op: ReduceOp, into: &mut CpuBuffer, from: &CpuBuffer) -> Result<(), Error> {
        self.inner.reduce(op, into, from)
    }

    fn synchronize(&self, device: DeviceId) -> Result<(), Error> {
        self.inner.synchronize(device)
    }
}

impl Elementwise for Counting {
    fn pointwise(&self, op: Pointwise, values: &mut CpuBuffer) -> Result<(), Error> {
        self.inner.pointwise(op, values)
    }

    fn pairwise(&self, op: Pairwise, into: &mut CpuBuffer, by: &CpuBuffer) -> Result<(), Error> {
        self.inner.pairwise(op, into, by)
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
        self.inner.matmul(shape, left, right, into)
    }
}

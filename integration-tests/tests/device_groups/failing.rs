//! The CPU as a device that breaks down, or that somebody watches.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use meshwork_accel::{Accelerator, Device, DeviceId, Element, ElementType, Error, ReduceOp};
use meshwork_accel_cpu::{CpuAccelerator, CpuBuffer};

/// Works for some uploads and downloads, and for none after that.
pub(crate) struct Failing {
    cpu: CpuAccelerator,
    left: AtomicUsize,
    watch: Box<dyn Fn(usize) + Send + Sync>,
}

impl Failing {
    pub(crate) fn after(calls: usize) -> Self {
        Self {
            cpu: CpuAccelerator::new(),
            left: AtomicUsize::new(calls),
            watch: Box::new(|_| {}),
        }
    }

    /// Never breaks down, and says where each download begins before it does.
    pub(crate) fn watched(watch: impl Fn(usize) + Send + Sync + 'static) -> Self {
        Self {
            watch: Box::new(watch),
            ..Self::after(usize::MAX)
        }
    }

    fn works(&self, operation: &'static str) -> Result<(), Error> {
        let less = |left: usize| left.checked_sub(1);
        let left = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        left.map(drop).map_err(|_| Error::DeviceFailed {
            device: DeviceId::new(0),
            operation,
            code: 700,
            status: "broken".to_owned(),
        })
    }
}

impl Accelerator for Failing {
    type Buffer = CpuBuffer;

    fn devices(&self) -> &[Device] {
        self.cpu.devices()
    }

    fn allocate(
        &self,
        device: DeviceId,
        element: ElementType,
        len: usize,
    ) -> Result<CpuBuffer, Error> {
        self.cpu.allocate(device, element, len)
    }

    fn upload<T: Element>(&self, from: &[T], to: &mut CpuBuffer, at: usize) -> Result<(), Error> {
        self.works("upload")?;
        self.cpu.upload(from, to, at)
    }

    fn download<T: Element>(&self, from: &CpuBuffer, at: usize, to: &mut [T]) -> Result<(), Error> {
        (self.watch)(at);
        self.works("download")?;
        self.cpu.download(from, at, to)
    }

    fn copy(
        &self,
        from: &CpuBuffer,
        range: Range<usize>,
        to: &mut CpuBuffer,
        at: usize,
    ) -> Result<(), Error> {
        self.cpu.copy(from, range, to, at)
    }

    fn fill<T: Element>(
        &self,
        buffer: &mut CpuBuffer,
        range: Range<usize>,
        value: T,
    ) -> Result<(), Error> {
        self.cpu.fill(buffer, range, value)
    }

    fn reduce(&self, op: ReduceOp, into: &mut CpuBuffer, from: &CpuBuffer) -> Result<(), Error> {
        self.cpu.reduce(op, into, from)
    }

    fn synchronize(&self, device: DeviceId) -> Result<(), Error> {
        self.cpu.synchronize(device)
    }
}

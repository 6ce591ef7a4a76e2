//! A client as an accelerator: small programs of StableHLO move and reduce what its buffers hold.

mod arrange;
mod buffer;
mod collectives;
mod compute;
mod failure;
mod graphs;
mod kernels;
mod lru_cache;
mod pending;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use meshwork_accel::{
    Accelerator, Device, DeviceBuffer, DeviceId, Element, ElementType, Error, LiveBuffers, Memory,
    ReduceOp,
};

pub use buffer::PjrtBuffer;
pub use graphs::CompiledGraph;

use crate::stablehlo::{Kernel, Vector};
use crate::{Buffer, DeviceInfo, PjrtClient, Platform, Status};
use failure::{failed, uncompiled};
use kernels::Kernels;
use pending::Pending;

/// The devices of a PJRT client as a backend.
///
/// PJRT's buffers never change, so a change is a program whose result takes the buffer's memory;
/// where two buffers share memory, as after a copy of a whole one, the result gets memory of its
/// own.
///
/// Programs have fixed shapes. Each length is a class of its own: training uses few, and rounding
/// up would cost memory and bytes in every transfer. Where a range begins is an argument, how many
/// elements it has is not. A program is compiled when it is first needed, which takes tens of
/// milliseconds on a CPU, and the last 1024 that were used are kept.
///
/// It has all capabilities: [`NativeCollectives`](meshwork_accel::NativeCollectives),
/// [`Elementwise`](meshwork_accel::Elementwise), [`Matmul`](meshwork_accel::Matmul),
/// [`Arrange`](meshwork_accel::Arrange), [`Fold`](meshwork_accel::Fold) and
/// [`Graphs`](meshwork_accel::Graphs).
///
/// XLA computes with subnormal floats as zero on most devices. Every wait ends after the patience:
/// a minute, unless [`with_patience`](Self::with_patience) says otherwise.
#[derive(Debug)]
pub struct PjrtAccelerator {
    client: PjrtClient,
    devices: Vec<Device>,
    kernels: Kernels,
    pending: Vec<Pending>,
    live: Arc<AtomicUsize>,
    patience: Duration,
}

impl PjrtAccelerator {
    /// All devices of the client that belong to this process.
    #[must_use]
    pub fn new(client: PjrtClient) -> Self {
        let kind = kind_of(client.platform());
        let devices: Vec<Device> = client
            .devices()
            .iter()
            .enumerate()
            .map(|(index, info)| describe(kind, DeviceId::new(index), info))
            .collect();
        Self {
            kernels: Kernels::new(client.clone()),
            pending: devices.iter().map(|_| Pending::default()).collect(),
            client,
            devices,
            live: Arc::default(),
            patience: Duration::from_secs(60),
        }
    }

    /// With another limit to every wait for a device.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// With an option of XLA's compiler for all programs from now on, as
    /// [`CompileOptions::with_compiler_option`](crate::CompileOptions::with_compiler_option).
    ///
    /// # Errors
    /// None here: what needs a program fails where XLA refuses the option.
    #[must_use]
    #[doc(alias("compiler_options", "XLA_FLAGS"))]
    pub fn with_compiler_option(
        mut self,
        name: impl Into<String>,
        value: impl Into<String>,
    ) -> Self {
        self.kernels.add_compiler_option(name.into(), value.into());
        self
    }

    /// The client.
    #[must_use]
    pub const fn client(&self) -> &PjrtClient {
        &self.client
    }

    fn known(&self, device: DeviceId) -> Result<&Pending, Error> {
        let available = self.devices.len();
        let found = self.pending.get(device.index());
        found.ok_or(Error::UnknownDevice { device, available })
    }

    fn empty(&self, device: DeviceId, vector: Vector) -> PjrtBuffer {
        PjrtBuffer::new(device, vector, &self.live)
    }

    /// The error for an allocation that failed, though there may be enough memory.
    fn room(&self, device: DeviceId, vector: Vector) -> Result<Error, Error> {
        let free = self.memory(device)?.free();
        let Vector { element, len } = vector;
        let refused = Error::OutOfMemory {
            device,
            element,
            len,
            free,
        };
        let bytes = len.checked_mul(element.size()).map(|bytes| bytes as u64);
        match bytes {
            Some(bytes) if bytes <= free.unwrap_or(ADDRESSABLE) => Ok(refused),
            _ => Err(refused),
        }
    }

    /// Runs a kernel of one result on `device`, and notes that it is not done yet.
    fn run(
        &self,
        device: DeviceId,
        kernel: Kernel,
        arguments: &[&Buffer],
        kept: &[usize],
    ) -> Result<Arc<Buffer>, Error> {
        let failed = |error| failed(device, error);
        let pending = self.known(device)?;
        let program = self.kernels.of_one_device(&kernel);
        let program = program.map_err(|error| uncompiled(device, &kernel, error))?;
        let run = program
            .execute_on(device.index(), arguments, kept)
            .map_err(failed)?;
        let (outputs, done) = run.into_parts();
        for event in done {
            pending.add(event).map_err(failed)?;
        }
        let result = outputs.into_iter().flatten().next();
        let nothing = crate::Error::Nothing {
            function: "PJRT_LoadedExecutable_Execute",
            what: "result",
        };
        result.map(Arc::new).ok_or_else(|| failed(nothing))
    }

    fn scalar<T: Element>(&self, device: DeviceId, value: T) -> Result<Buffer, Error> {
        let scalar = self.client.upload(device.index(), &[], &[value]);
        scalar.map_err(|error| failed(device, error))
    }

    /// An index as programs take it.
    fn index(&self, device: DeviceId, index: usize) -> Result<Buffer, Error> {
        let index = i64::try_from(index).expect("the shape of the buffer was accepted");
        self.scalar(device, index)
    }

    /// Replaces the elements of `to` from `at` on.
    fn put(
        &self,
        to: &mut PjrtBuffer,
        at: usize,
        part: &Arc<Buffer>,
        len: usize,
    ) -> Result<(), Error> {
        let Some(memory) = to.memory().filter(|_| len < to.len()) else {
            to.set(Arc::clone(part));
            return Ok(());
        };
        let device = to.device();
        let at = self.index(device, at)?;
        let update = Kernel::Update(to.vector(), len);
        let updated = self.run(device, update, &[memory, part, &at], to.kept())?;
        to.set(updated);
        Ok(())
    }

    /// `len` elements of `from`, at least one, as a buffer of their own.
    fn take(
        &self,
        from: &PjrtBuffer,
        start: usize,
        len: usize,
    ) -> Result<Option<Arc<Buffer>>, Error> {
        let Some(memory) = from.memory() else {
            return Ok(None);
        };
        if len == from.len() {
            return Ok(Some(Arc::clone(memory)));
        }
        let device = from.device();
        let start = self.index(device, start)?;
        self.run(
            device,
            Kernel::Slice(from.vector(), len),
            &[memory, &start],
            &[],
        )
        .map(Some)
    }
}

impl Accelerator for PjrtAccelerator {
    type Buffer = PjrtBuffer;

    fn devices(&self) -> &[Device] {
        &self.devices
    }

    fn memory(&self, device: DeviceId) -> Result<Memory, Error> {
        self.known(device)?;
        let Ok(memory) = self.client.memory(device.index()) else {
            return Ok(Memory::UNKNOWN);
        };
        let total = memory.limit().and_then(|limit| u64::try_from(limit).ok());
        let used = u64::try_from(memory.in_use()).unwrap_or(0);
        Ok(total.map_or(Memory::UNKNOWN, |total| {
            Memory::of(total).with_free(total.saturating_sub(used))
        }))
    }

    fn allocate(
        &self,
        device: DeviceId,
        element: ElementType,
        len: usize,
    ) -> Result<PjrtBuffer, Error> {
        let vector = Vector { element, len };
        let refused = self.room(device, vector)?;
        let mut buffer = self.empty(device, vector);
        if len == 0 {
            return Ok(buffer);
        }
        let zero = zero(&self.client, device, element)?;
        // Whether there is memory is only known when it has been filled.
        let filled = self
            .run(device, Kernel::Fill(vector), &[&zero], &[])
            .and_then(|filled| {
                let ready = filled.ready().and_then(|ready| ready.wait(self.patience));
                ready.map_err(|error| failed(device, error))?;
                Ok(filled)
            });
        buffer.set(filled.map_err(|error| exhausted(error, refused))?);
        Ok(buffer)
    }

    /// Memory is not cleared, nor waited for: an upload that does not fit is refused by itself.
    fn allocate_from<T: Element>(
        &self,
        device: DeviceId,
        elements: &[T],
    ) -> Result<PjrtBuffer, Error> {
        let vector = Vector {
            element: T::TYPE,
            len: elements.len(),
        };
        let refused = self.room(device, vector)?;
        let mut buffer = self.empty(device, vector);
        if !elements.is_empty() {
            let made = self.client.upload(device.index(), &[vector.len], elements);
            let made = made.map_err(|error| exhausted(failed(device, error), refused))?;
            buffer.set(Arc::new(made));
        }
        Ok(buffer)
    }

    fn upload<T: Element>(&self, from: &[T], to: &mut PjrtBuffer, at: usize) -> Result<(), Error> {
        to.check_element(T::TYPE)?;
        to.check_part(at, from.len())?;
        if from.is_empty() {
            return Ok(());
        }
        let device = to.device();
        let part = self.client.upload(device.index(), &[from.len()], from);
        let part = Arc::new(part.map_err(|error| failed(device, error))?);
        self.put(to, at, &part, from.len())
    }

    fn download<T: Element>(
        &self,
        from: &PjrtBuffer,
        at: usize,
        to: &mut [T],
    ) -> Result<(), Error> {
        from.check_element(T::TYPE)?;
        from.check_part(at, to.len())?;
        if to.is_empty() {
            return Ok(());
        }
        match self.take(from, at, to.len())? {
            Some(part) => {
                let copied = part.download(to, self.patience);
                copied.map_err(|error| failed(from.device(), error))
            }
            None => Ok(()),
        }
    }

    fn copy(
        &self,
        from: &PjrtBuffer,
        range: Range<usize>,
        to: &mut PjrtBuffer,
        at: usize,
    ) -> Result<(), Error> {
        to.check_element(from.element_type())?;
        let len = from.check_range(&range)?;
        to.check_part(at, len)?;
        if len == 0 {
            return Ok(());
        }
        let Some(part) = self.take(from, range.start, len)? else {
            return Ok(());
        };
        if from.device() == to.device() {
            return self.put(to, at, &part, len);
        }
        let device = to.device();
        let moved = part
            .copy_to(device.index())
            .map_err(|error| failed(device, error))?;
        self.begun(device, &moved)?;
        self.put(to, at, &Arc::new(moved), len)
    }

    /// Takes no memory: both share it until one of them changes.
    fn duplicate(&self, from: &PjrtBuffer) -> Result<PjrtBuffer, Error> {
        self.known(from.device())?;
        let mut made = self.empty(from.device(), from.vector());
        if let Some(memory) = from.memory() {
            made.set(Arc::clone(memory));
        }
        Ok(made)
    }

    fn fill<T: Element>(
        &self,
        buffer: &mut PjrtBuffer,
        range: Range<usize>,
        value: T,
    ) -> Result<(), Error> {
        buffer.check_element(T::TYPE)?;
        let len = buffer.check_range(&range)?;
        if len == 0 {
            return Ok(());
        }
        let device = buffer.device();
        let value = self.scalar(device, value)?;
        let part = Kernel::Fill(Vector {
            len,
            ..buffer.vector()
        });
        let part = self.run(device, part, &[&value], &[])?;
        self.put(buffer, range.start, &part, len)
    }

    fn reduce(&self, op: ReduceOp, into: &mut PjrtBuffer, from: &PjrtBuffer) -> Result<(), Error> {
        into.check_device(from.device())?;
        into.check_element(from.element_type())?;
        let element = into.element_type();
        if !op.supports(element) {
            return Err(Error::UnsupportedOp { op, element });
        }
        into.check_len(from.len())?;
        let (Some(a), Some(b)) = (into.memory(), from.memory()) else {
            return Ok(());
        };
        let kernel = Kernel::Reduce(op, into.vector());
        let reduced = self.run(into.device(), kernel, &[a, b], into.kept())?;
        into.set(reduced);
        Ok(())
    }

    fn synchronize(&self, device: DeviceId) -> Result<(), Error> {
        let pending = self.known(device)?;
        pending
            .wait(self.patience)
            .map_err(|error| failed(device, error))
    }
}

impl LiveBuffers for PjrtAccelerator {
    fn live_buffers(&self) -> usize {
        self.live.load(Ordering::Relaxed)
    }
}

/// More bytes than any device has; plugins that are asked for nearly 2^63 do not all survive it.
const ADDRESSABLE: u64 = 1 << 52;

/// The out-of-memory error of a device, in the words that all backends share.
fn exhausted(error: Error, refused: Error) -> Error {
    match error {
        Error::DeviceFailed { code, .. }
            if code == i64::from(Status::RESOURCE_EXHAUSTED.code()) =>
        {
            refused
        }
        error => error,
    }
}

/// The type that appears in device names.
fn kind_of(platform: &str) -> &'static str {
    match platform {
        "cpu" | "Host" => Platform::Cpu.name(),
        "tpu" => Platform::Tpu.name(),
        "cuda" | "rocm" | "gpu" => Platform::Cuda.name(),
        _ => "PJRT",
    }
}

fn describe(kind: &'static str, id: DeviceId, info: &DeviceInfo) -> Device {
    let device = Device::new(id, kind)
        .with_name(info.kind())
        .with_address(info.text());
    match crate::tpu::core_of(info) {
        Ok(core) => device.with_coordinates(core.location()),
        Err(_) => device,
    }
}

/// A scalar of this type that is zero.
fn zero(client: &PjrtClient, device: DeviceId, element: ElementType) -> Result<Buffer, Error> {
    struct Zero<'a>(&'a PjrtClient, usize);
    impl meshwork_accel::ElementTask for Zero<'_> {
        type Output = Result<Buffer, crate::Error>;

        fn run<T: Element>(self) -> Self::Output {
            self.0.upload(self.1, &[], &[T::default()])
        }
    }
    element
        .run(Zero(client, device.index()))
        .map_err(|error| failed(device, error))
}

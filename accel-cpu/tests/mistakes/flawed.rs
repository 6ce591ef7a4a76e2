//! The CPU backend with a mistake of choice.

mod pinned;

use std::num::{NonZeroIsize, NonZeroU32, NonZeroUsize};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use meshwork_accel::{
    Accelerator, Arrange, Arrangement, Device, DeviceBuffer, DeviceId, Element, ElementType,
    Elementwise, Error, Fold, HostMemory, LiveBuffers, Matmul, Memory, NativeCollectives,
    NotPinned, Pairwise, PinnedBuffer, Pointwise, ProductShape, ReduceOp, Reduction, Region,
    StridedRange, StridedSlice, by_type,
};
use meshwork_accel_cpu::{CpuAccelerator, CpuBuffer};

/// What is wrong.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Flaw {
    None,
    NumberedFromOne,
    UnknownIsFirst,
    ForgetsWhatWasAsked,
    NewIsOne,
    LosesTypeU64,
    UploadsToStart,
    DownloadsFromStart,
    FillsOneMore,
    CopiesFromStart,
    CopiesToStart,
    CopiesNowhereElse,
    SkipsLastOfMany,
    MinIsMax,
    DividesMeans,
    MaxLosesNan,
    AcceptsAnyOp,
    LosesSecondReduction,
    WritesBeforeRefusing,
    AcceptsReversed,
    AcceptsOtherTypes,
    ReducesTheShorter,
    ReducesAcross,
    HidesWhatIsFree,
    CountsForEver,
    KeepsWhatIsCopied,
    LeavesOneOut,
    MeanIsSum,
    RoundsBeforeDividing,
    SwapsBlocks,
    SendsTheFirst,
    GathersBackwards,
    AcceptsTwins,
    ExpOfMinus,
    DividesBackwards,
    SwapsFactors,
    ComputesWithIntegers,
    /// Pins memory, and makes no mistake.
    PinsRight,
    PinsForNobody,
    LosesMemory,
    FetchesFromStart,
    FetchesOneMore,
    SendsToStart,
    GivesMemoryEarly,
    SendsLate,
    FetchesLate,
    AcceptsPastMemory,
    FetchesFromAnyDevice,
    DropsPartOfElement,
    StepsForwardsOnly,
    TakesTheNearest,
    CountsClassesFromZero,
    LeavesTheFirstOut,
    FindsTheLast,
    ConvertsByWrapping,
    SelectsBackwards,
    ForgetsWhatWasGiven,
}

/// The CPU with one flaw.
#[derive(Debug)]
pub(crate) struct Flawed {
    cpu: CpuAccelerator,
    devices: Vec<Device>,
    flaw: Flaw,
    most: AtomicUsize,
    /// Reductions since something was downloaded.
    reductions: AtomicUsize,
    kept: Mutex<Vec<CpuBuffer>>,
}

impl Flawed {
    pub(crate) fn new(count: NonZeroUsize, flaw: Flaw) -> Self {
        let shift = usize::from(flaw == Flaw::NumberedFromOne);
        let ids = (0..count.get()).map(|index| DeviceId::new(index + shift));
        Self {
            cpu: CpuAccelerator::with_logical_devices(count),
            devices: ids.map(|id| Device::new(id, "FLAWED")).collect(),
            flaw,
            most: AtomicUsize::new(0),
            reductions: AtomicUsize::new(0),
            kept: Mutex::new(Vec::new()),
        }
    }

    pub(crate) fn with_memory_limit(mut self, bytes: u64) -> Self {
        self.cpu = self.cpu.with_memory_limit(bytes);
        self
    }

    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == flaw
    }

    /// `max` as `f32::max` has it, which drops NaN.
    fn max_f32(&self, into: &mut CpuBuffer, from: &CpuBuffer) -> Result<(), Error> {
        let (mut left, mut right) = (vec![0.0_f32; into.len()], vec![0.0_f32; from.len()]);
        self.cpu.download(into, 0, &mut left)?;
        self.cpu.download(from, 0, &mut right)?;
        for (left, right) in left.iter_mut().zip(right) {
            *left = left.max(right);
        }
        self.cpu.upload(&left, into, 0)
    }

    fn halve(&self, into: &mut CpuBuffer) -> Result<(), Error> {
        let mut values = vec![0_i8; into.len()];
        self.cpu.download(into, 0, &mut values)?;
        for value in &mut values {
            *value /= 2;
        }
        self.cpu.upload(&values, into, 0)
    }

    /// Another mistake for each way to reduce.
    fn reduced(&self, op: ReduceOp, into: &mut CpuBuffer, from: &CpuBuffer) -> Option<()> {
        let element = into.element_type();
        let wrong = match self.flaw {
            Flaw::MinIsMax => op == ReduceOp::Min,
            Flaw::MaxLosesNan => op == ReduceOp::Max && element == ElementType::F32,
            Flaw::AcceptsAnyOp => !op.supports(element),
            Flaw::AcceptsOtherTypes => element != from.element_type(),
            Flaw::ReducesTheShorter => into.len() != from.len(),
            Flaw::ReducesAcross => into.device() != from.device(),
            Flaw::DividesMeans => op == ReduceOp::Mean && element == ElementType::I8,
            Flaw::LosesSecondReduction => self.reductions.fetch_add(1, Ordering::Relaxed) > 0,
            _ => false,
        };
        if wrong && self.has(Flaw::MinIsMax) {
            self.cpu.reduce(ReduceOp::Max, into, from).ok()?;
        }
        if wrong && self.has(Flaw::DividesMeans) {
            self.halve(into).ok()?;
        }
        if wrong && self.has(Flaw::MaxLosesNan) {
            self.max_f32(into, from).ok()?;
        }
        wrong.then_some(())
    }
}

impl Accelerator for Flawed {
    type Buffer = CpuBuffer;

    fn devices(&self) -> &[Device] {
        &self.devices
    }

    fn memory(&self, device: DeviceId) -> Result<Memory, Error> {
        self.cpu.memory(device)
    }

    fn allocate(
        &self,
        device: DeviceId,
        element: ElementType,
        len: usize,
    ) -> Result<CpuBuffer, Error> {
        let known = device.index() < self.devices.len();
        let device = match self.flaw {
            Flaw::UnknownIsFirst if !known => DeviceId::new(0),
            _ => device,
        };
        if self.has(Flaw::LosesTypeU64) && element == ElementType::U64 {
            return Err(Error::UnsupportedElement { element });
        }
        let mut given = self.cpu.allocate(device, element, len);
        if let Err(Error::OutOfMemory { len, free, .. }) = &mut given {
            match self.flaw {
                Flaw::ForgetsWhatWasAsked => *len = 0,
                Flaw::HidesWhatIsFree => *free = None,
                _ => {}
            }
        }
        let mut buffer = given?;
        if self.has(Flaw::NewIsOne) && element == ElementType::Bool {
            self.cpu.fill(&mut buffer, 0..len, true)?;
        }
        self.most
            .fetch_max(self.cpu.live_buffers(), Ordering::Relaxed);
        Ok(buffer)
    }

    fn allocate_from<T: Element>(
        &self,
        device: DeviceId,
        elements: &[T],
    ) -> Result<CpuBuffer, Error> {
        match self.flaw {
            Flaw::ForgetsWhatWasGiven => self.allocate(device, T::TYPE, elements.len()),
            _ => self.cpu.allocate_from(device, elements),
        }
    }

    fn upload<T: Element>(&self, from: &[T], to: &mut CpuBuffer, at: usize) -> Result<(), Error> {
        match self.flaw {
            Flaw::UploadsToStart if at + from.len() <= to.len() => self.cpu.upload(from, to, 0),
            Flaw::SkipsLastOfMany if from.len() > 1 << 16 => {
                self.cpu.upload(&from[..from.len() - 1], to, at)
            }
            Flaw::WritesBeforeRefusing if at < to.len() => {
                let fits = from.len().min(to.len() - at);
                self.cpu.upload(&from[..fits], to, at)?;
                self.cpu.upload(from, to, at)
            }
            _ => self.cpu.upload(from, to, at),
        }
    }

    fn download<T: Element>(&self, from: &CpuBuffer, at: usize, to: &mut [T]) -> Result<(), Error> {
        self.reductions.store(0, Ordering::Relaxed);
        match self.flaw {
            Flaw::DownloadsFromStart => self.cpu.download(from, 0, to),
            _ => self.cpu.download(from, at, to),
        }
    }

    fn copy(
        &self,
        from: &CpuBuffer,
        range: Range<usize>,
        to: &mut CpuBuffer,
        at: usize,
    ) -> Result<(), Error> {
        match self.flaw {
            Flaw::CopiesFromStart => self.cpu.copy(from, 0..range.len(), to, at),
            Flaw::CopiesToStart => self.cpu.copy(from, range, to, 0),
            Flaw::CopiesNowhereElse if from.device() != to.device() => Ok(()),
            Flaw::AcceptsReversed if range.end < range.start => Ok(()),
            Flaw::KeepsWhatIsCopied => {
                let device = to.device();
                let kept = self.cpu.allocate(device, from.element_type(), from.len())?;
                self.kept.lock().unwrap().push(kept);
                self.cpu.copy(from, range, to, at)
            }
            _ => self.cpu.copy(from, range, to, at),
        }
    }

    fn fill<T: Element>(
        &self,
        buffer: &mut CpuBuffer,
        range: Range<usize>,
        value: T,
    ) -> Result<(), Error> {
        match self.flaw {
            Flaw::FillsOneMore if range.end < buffer.len() && range.start < range.end => {
                self.cpu.fill(buffer, range.start..range.end + 1, value)
            }
            _ => self.cpu.fill(buffer, range, value),
        }
    }

    fn reduce(&self, op: ReduceOp, into: &mut CpuBuffer, from: &CpuBuffer) -> Result<(), Error> {
        if self.reduced(op, into, from).is_some() {
            return Ok(());
        }
        self.cpu.reduce(op, into, from)
    }

    fn pin(
        &self,
        device: DeviceId,
        memory: Box<dyn HostMemory>,
    ) -> Result<Box<dyn PinnedBuffer<Buffer = CpuBuffer>>, NotPinned> {
        pinned::pin(self.flaw, &self.cpu, device, memory)
    }

    fn synchronize(&self, device: DeviceId) -> Result<(), Error> {
        self.cpu.synchronize(device)
    }
}

impl LiveBuffers for Flawed {
    fn live_buffers(&self) -> usize {
        match self.flaw {
            Flaw::CountsForEver => self.most.load(Ordering::Relaxed),
            _ => self.cpu.live_buffers(),
        }
    }
}

fn supported(op: ReduceOp, buffers: &[&mut CpuBuffer]) -> bool {
    let first = buffers.first();
    first.is_some_and(|first| op.supports(first.element_type()))
}

/// Divides what was summed.
fn finish<T: Element>(
    cpu: &CpuAccelerator,
    buffers: &mut [&mut CpuBuffer],
    by: NonZeroU32,
) -> Result<(), Error> {
    let mean = Reduction::<T>::new(ReduceOp::Mean)?;
    for buffer in buffers {
        let mut sums = vec![T::default(); buffer.len()];
        cpu.download(buffer, 0, &mut sums)?;
        mean.finish(&mut sums, by);
        cpu.upload(&sums, buffer, 0)?;
    }
    Ok(())
}

impl NativeCollectives for Flawed {
    fn all_reduce(&self, op: ReduceOp, buffers: &mut [&mut CpuBuffer]) -> Result<(), Error> {
        let twins = buffers.len() > 1 && buffers[0].device() == buffers[1].device();
        match self.flaw {
            Flaw::AcceptsTwins if twins => Ok(()),
            Flaw::LeavesOneOut if buffers.len() > 1 => {
                let last = buffers.len() - 1;
                self.cpu.all_reduce(op, &mut buffers[..last])
            }
            Flaw::MeanIsSum if op == ReduceOp::Mean && supported(op, buffers) => {
                self.cpu.all_reduce(ReduceOp::Sum, buffers)
            }
            Flaw::RoundsBeforeDividing if op == ReduceOp::Mean && supported(op, buffers) => {
                self.cpu.all_reduce(ReduceOp::Sum, buffers)?;
                let Some(first) = buffers.first() else {
                    return Ok(());
                };
                let element = first.element_type();
                let by = u32::try_from(buffers.len()).ok().and_then(NonZeroU32::new);
                let (cpu, by) = (&self.cpu, by.expect("there are a few"));
                by_type!(element, T, finish::<T>(cpu, buffers, by))
            }
            _ => self.cpu.all_reduce(op, buffers),
        }
    }

    fn broadcast(&self, root: usize, buffers: &mut [&mut CpuBuffer]) -> Result<(), Error> {
        match self.flaw {
            Flaw::SendsTheFirst if root < buffers.len() => self.cpu.broadcast(0, buffers),
            _ => self.cpu.broadcast(root, buffers),
        }
    }

    fn all_gather(
        &self,
        inputs: &[&CpuBuffer],
        outputs: &mut [&mut CpuBuffer],
    ) -> Result<(), Error> {
        self.cpu.all_gather(inputs, outputs)?;
        if !self.has(Flaw::GathersBackwards) || inputs.len() < 2 {
            return Ok(());
        }
        let len = inputs[0].len();
        for output in outputs {
            self.cpu.copy(inputs[1], 0..len, output, 0)?;
        }
        Ok(())
    }

    fn reduce_scatter(
        &self,
        op: ReduceOp,
        inputs: &[&CpuBuffer],
        outputs: &mut [&mut CpuBuffer],
    ) -> Result<(), Error> {
        self.cpu.reduce_scatter(op, inputs, outputs)?;
        if !self.has(Flaw::SwapsBlocks) || outputs.len() < 2 {
            return Ok(());
        }
        let len = outputs[0].len();
        let (first, others) = outputs.split_at_mut(1);
        self.cpu.copy(others[0], 0..len, first[0], 0)
    }
}

impl Elementwise for Flawed {
    fn pointwise(&self, op: Pointwise, values: &mut CpuBuffer) -> Result<(), Error> {
        if self.has(Flaw::ComputesWithIntegers) && values.element_type() == ElementType::I32 {
            return Ok(());
        }
        if self.has(Flaw::ExpOfMinus) && op == Pointwise::Exp {
            self.cpu.pointwise(Pointwise::Negate, values)?;
        }
        self.cpu.pointwise(op, values)
    }

    fn pairwise(&self, op: Pairwise, into: &mut CpuBuffer, by: &CpuBuffer) -> Result<(), Error> {
        let backwards = self.has(Flaw::DividesBackwards) && op == Pairwise::Divide;
        if !backwards || into.len() != by.len() {
            return self.cpu.pairwise(op, into, by);
        }
        let mut dividend = self
            .cpu
            .allocate(by.device(), by.element_type(), by.len())?;
        self.cpu.copy(by, 0..by.len(), &mut dividend, 0)?;
        self.cpu.pairwise(op, &mut dividend, into)?;
        self.cpu.copy(&dividend, 0..by.len(), into, 0)
    }

    fn convert(&self, from: &CpuBuffer, to: ElementType) -> Result<CpuBuffer, Error> {
        let wraps = self.has(Flaw::ConvertsByWrapping) && to == ElementType::U8;
        if !wraps || from.element_type() != ElementType::I16 {
            return self.cpu.convert(from, to);
        }
        let mut wide = vec![0_i16; from.len()];
        self.cpu.download(from, 0, &mut wide)?;
        let low: Vec<u8> = wide.iter().map(|wide| wide.to_le_bytes()[0]).collect();
        let mut made = self.cpu.allocate(from.device(), to, low.len())?;
        self.cpu.upload(&low, &mut made, 0)?;
        Ok(made)
    }

    fn select(
        &self,
        condition: &CpuBuffer,
        yes: &CpuBuffer,
        no: &CpuBuffer,
    ) -> Result<CpuBuffer, Error> {
        match self.flaw {
            Flaw::SelectsBackwards => self.cpu.select(condition, no, yes),
            _ => self.cpu.select(condition, yes, no),
        }
    }
}

impl Arrange for Flawed {
    fn cut(&self, from: &CpuBuffer, part: &Region) -> Result<CpuBuffer, Error> {
        self.cpu.cut(from, part)
    }

    fn paste(&self, from: &CpuBuffer, into: &mut CpuBuffer, part: &Region) -> Result<(), Error> {
        self.cpu.paste(from, into, part)
    }

    fn arrange(&self, from: &CpuBuffer, to: &Arrangement) -> Result<CpuBuffer, Error> {
        self.cpu.arrange(from, to)
    }

    fn step(&self, from: &CpuBuffer, by: &StridedSlice) -> Result<CpuBuffer, Error> {
        let (true, Some(bounds)) = (self.has(Flaw::StepsForwardsOnly), by.bounds()) else {
            return self.cpu.step(from, by);
        };
        let strides = by.along().iter().zip(bounds);
        let forwards = strides.map(|(stride, (low, _))| StridedRange {
            first: low,
            step: stride.step.saturating_abs(),
            ..*stride
        });
        let forwards: Vec<StridedRange> = forwards.collect();
        self.cpu
            .step(from, &StridedSlice::new(by.whole(), &forwards)?)
    }

    fn take(
        &self,
        from: &CpuBuffer,
        sizes: [usize; 3],
        indices: &CpuBuffer,
    ) -> Result<CpuBuffer, Error> {
        let nearest = self.has(Flaw::TakesTheNearest) && sizes[1] > 0;
        if !nearest || indices.element_type() != ElementType::I64 {
            return self.cpu.take(from, sizes, indices);
        }
        let mut inside = vec![0_i64; indices.len()];
        self.cpu.download(indices, 0, &mut inside)?;
        let last = i64::try_from(sizes[1] - 1).unwrap();
        inside
            .iter_mut()
            .for_each(|index| *index = (*index).clamp(0, last));
        let mut clamped = self
            .cpu
            .allocate(indices.device(), ElementType::I64, inside.len())?;
        self.cpu.upload(&inside, &mut clamped, 0)?;
        self.cpu.take(from, sizes, &clamped)
    }

    fn one_hot(
        &self,
        indices: &CpuBuffer,
        classes: Range<usize>,
        element: ElementType,
    ) -> Result<CpuBuffer, Error> {
        match self.flaw {
            Flaw::CountsClassesFromZero if classes.start < classes.end => {
                self.cpu.one_hot(indices, 0..classes.len(), element)
            }
            _ => self.cpu.one_hot(indices, classes, element),
        }
    }
}

impl Fold for Flawed {
    fn fold(&self, op: ReduceOp, sizes: [usize; 3], from: &CpuBuffer) -> Result<CpuBuffer, Error> {
        self.cpu.fold(op, sizes, from)
    }

    /// Without the first where there are several, as some call a scan.
    fn scan(&self, op: ReduceOp, sizes: [usize; 3], from: &CpuBuffer) -> Result<CpuBuffer, Error> {
        let mut made = self.cpu.scan(op, sizes, from)?;
        if self.has(Flaw::LeavesTheFirstOut) && from.len() > 1 {
            let scanned = self.cpu.scan(op, sizes, from)?;
            self.cpu.copy(&scanned, 0..from.len() - 1, &mut made, 1)?;
        }
        Ok(made)
    }

    /// The last of several extremes, by counting from the end.
    fn arg_reduce(
        &self,
        op: ReduceOp,
        sizes: [usize; 3],
        from: &CpuBuffer,
    ) -> Result<CpuBuffer, Error> {
        let mut made = self.cpu.arg_reduce(op, sizes, from)?;
        if self.has(Flaw::FindsTheLast) {
            let mut along = sizes.map(StridedRange::all);
            along[1].first = sizes[1] - 1;
            along[1].step = NonZeroIsize::new(-1).unwrap();
            let turned = self.cpu.step(from, &StridedSlice::new(&sizes, &along)?)?;
            let turned = self.cpu.arg_reduce(op, sizes, &turned)?;
            let mut indices = vec![0_i64; turned.len()];
            self.cpu.download(&turned, 0, &mut indices)?;
            let last = i64::try_from(sizes[1] - 1).unwrap();
            indices.iter_mut().for_each(|index| *index = last - *index);
            self.cpu.upload(&indices, &mut made, 0)?;
        }
        Ok(made)
    }
}

impl Matmul for Flawed {
    fn matmul(
        &self,
        shape: ProductShape,
        left: &CpuBuffer,
        right: &CpuBuffer,
        into: &mut CpuBuffer,
    ) -> Result<(), Error> {
        let square = shape.left() == shape.right() && left.len() == right.len();
        match self.flaw {
            Flaw::SwapsFactors if square => self.cpu.matmul(shape, right, left, into),
            _ => self.cpu.matmul(shape, left, right, into),
        }
    }
}

//! Host memory that is pinned by name only, with a mistake of choice.

use std::num::NonZeroUsize;
use std::ops::Range;

use meshwork_accel::{
    Accelerator, DeviceBuffer, DeviceId, Element, Error, HostMemory, NotPinned, PinnedBuffer,
    by_type, extent,
};
use meshwork_accel_cpu::{CpuAccelerator, CpuBuffer};

use super::Flaw;

/// Memory of a pinned buffer, for flaws of pinned buffers; else it comes back.
pub(super) fn pin(
    flaw: Flaw,
    cpu: &CpuAccelerator,
    device: DeviceId,
    mut memory: Box<dyn HostMemory>,
) -> Result<Box<dyn PinnedBuffer<Buffer = CpuBuffer>>, NotPinned> {
    let available = cpu.devices().len();
    let is_known = device.index() < available;
    let unknown = Error::UnknownDevice { device, available };
    let reason = (!is_known).then_some(unknown);
    match flaw {
        Flaw::PinsForNobody => {}
        Flaw::LosesMemory => {
            memory.bytes().fill(0);
            return Err(NotPinned { memory, reason });
        }
        Flaw::PinsRight
        | Flaw::FetchesFromStart
        | Flaw::FetchesOneMore
        | Flaw::SendsToStart
        | Flaw::GivesMemoryEarly
        | Flaw::SendsLate
        | Flaw::FetchesLate
        | Flaw::AcceptsPastMemory
        | Flaw::FetchesFromAnyDevice
        | Flaw::DropsPartOfElement
            if is_known => {}
        _ => return Err(NotPinned { memory, reason }),
    }
    let all = NonZeroUsize::new(available).unwrap();
    Ok(Box::new(Pinned {
        flaw,
        cpu: CpuAccelerator::with_logical_devices(all),
        device,
        memory,
        late: None,
    }))
}

struct Pinned {
    flaw: Flaw,
    cpu: CpuAccelerator,
    device: DeviceId,
    memory: Box<dyn HostMemory>,
    /// What was begun and is not there yet.
    late: Option<(Range<usize>, Vec<u8>)>,
}

impl Pinned {
    fn check(&mut self, buffer: &CpuBuffer, at: usize, range: &Range<usize>) -> Result<(), Error> {
        let (left, right) = (self.device, buffer.device());
        if left != right && self.flaw != Flaw::FetchesFromAnyDevice {
            return Err(Error::DeviceMismatch { left, right });
        }
        let available = self.memory.bytes().len();
        let len = match self.flaw {
            Flaw::AcceptsPastMemory => range.len(),
            _ => extent(range, available)?,
        };
        let (bytes, element) = (len, buffer.element_type());
        if !bytes.is_multiple_of(element.size()) && self.flaw != Flaw::DropsPartOfElement {
            return Err(Error::PartOfElement { bytes, element });
        }
        buffer.check_part(at, bytes / element.size())
    }

    fn arrive(&mut self) {
        if let Some((range, bytes)) = self.late.take() {
            self.memory.bytes()[range].copy_from_slice(&bytes);
        }
    }
}

impl PinnedBuffer for Pinned {
    type Buffer = CpuBuffer;

    fn catch_up(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn download(&mut self, from: &CpuBuffer, at: usize, into: Range<usize>) -> Result<(), Error> {
        self.check(from, at, &into)?;
        self.arrive();
        let at = if self.flaw == Flaw::FetchesFromStart {
            0
        } else {
            at
        };
        let (cpu, len) = (&self.cpu, into.len());
        let bytes = by_type!(from.element_type(), T, fetch::<T>(cpu, from, at, len))?;
        let end = into.start + bytes.len();
        if self.flaw == Flaw::FetchesOneMore && end > into.start {
            self.memory.bytes()[end] = !self.memory.bytes()[end];
        }
        let available = self.memory.bytes().len();
        self.late = Some((into.start..end.min(available), bytes)).filter(|_| end <= available);
        if ![Flaw::GivesMemoryEarly, Flaw::FetchesLate].contains(&self.flaw) {
            self.arrive();
        }
        Ok(())
    }

    fn upload(&mut self, from: Range<usize>, to: &mut CpuBuffer, at: usize) -> Result<(), Error> {
        self.check(to, at, &from)?;
        // Too late, it sends what was there before.
        if self.flaw != Flaw::FetchesLate {
            self.arrive();
        }
        let at = if self.flaw == Flaw::SendsToStart {
            0
        } else {
            at
        };
        if self.flaw == Flaw::SendsLate {
            return Ok(());
        }
        let bytes = self.memory.bytes().get(from).unwrap_or_default().to_vec();
        by_type!(to.element_type(), T, send::<T>(&self.cpu, &bytes, to, at))
    }

    fn memory(&mut self) -> Result<&mut [u8], Error> {
        if self.flaw != Flaw::GivesMemoryEarly {
            self.arrive();
        }
        Ok(self.memory.bytes())
    }
}

fn fetch<T: Element>(
    cpu: &CpuAccelerator,
    from: &CpuBuffer,
    at: usize,
    len: usize,
) -> Result<Vec<u8>, Error> {
    let mut values = vec![T::default(); len / size_of::<T>()];
    cpu.download(from, at, &mut values)?;
    Ok(bytemuck::cast_slice(&values).to_vec())
}

fn send<T: Element>(
    cpu: &CpuAccelerator,
    bytes: &[u8],
    to: &mut CpuBuffer,
    at: usize,
) -> Result<(), Error> {
    let values = bytes.chunks_exact(size_of::<T>());
    let values: Vec<T> = values.map(bytemuck::checked::pod_read_unaligned).collect();
    cpu.upload(&values, to, at)
}

//! Host memory that chunks pass through.

use std::collections::BTreeMap;
use std::ops::Range;

use bytemuck::checked;
use meshwork_accel::{
    Accelerator, DeviceBuffer, DeviceId, Element, ElementType, Error as Refusal, HostMemory,
    NotPinned, PinnedBuffer,
};

use crate::{Group, OperationError};

/// Room for one chunk: what this rank gives, and behind it what it gets, where that is another
/// buffer.
pub(super) struct Slot<B> {
    memory: Memory<B>,
    /// Bytes of both parts, at most.
    room: usize,
    /// Bytes of the first.
    given: usize,
}

/// Registered with the group; pinned for a device, too, where its backend does that.
enum Memory<B> {
    Plain(Box<dyn HostMemory>),
    Pinned(Box<dyn PinnedBuffer<Buffer = B>>, DeviceId),
}

/// In which of a slot's parts elements are.
#[derive(Clone, Copy)]
pub(super) enum Side {
    Given,
    Got,
}

/// Elements of one of a slot's parts.
pub(super) struct SlotRange {
    side: Side,
    elements: Range<usize>,
}

impl SlotRange {
    pub(super) fn given(elements: Range<usize>) -> Self {
        let side = Side::Given;
        Self { side, elements }
    }

    pub(super) fn got(elements: Range<usize>) -> Self {
        let side = Side::Got;
        Self { side, elements }
    }
}

/// Bytes of a slot's parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) given: usize,
    pub(super) got: usize,
}

/// What a buffer holds, and where.
#[derive(Clone, Copy, Debug)]
pub(super) struct BufferKind {
    pub(super) element: ElementType,
    pub(super) device: DeviceId,
}

impl BufferKind {
    pub(super) fn of(buffer: &impl DeviceBuffer) -> Self {
        Self {
            element: buffer.element_type(),
            device: buffer.device(),
        }
    }
}

impl<B: DeviceBuffer> Slot<B> {
    /// The first so many elements of what is given, when they are there.
    pub(super) fn given<T: Element>(&mut self, len: usize) -> Result<&mut [T], Refusal> {
        let range = self.place::<T>(&SlotRange::given(0..len));
        elements(&mut self.memory()?[range])
    }

    /// The first so many elements of both parts.
    pub(super) fn both<T: Element>(
        &mut self,
        given: usize,
        got: usize,
    ) -> Result<(&mut [T], &mut [T]), Refusal> {
        let middle = self.given;
        let (front, back) = self.memory()?.split_at_mut(middle);
        let (front, back) = (
            &mut front[..given * size_of::<T>()],
            &mut back[..got * size_of::<T>()],
        );
        Ok((elements(front)?, elements(back)?))
    }

    /// Fetches elements of a part from a buffer, or begins to.
    pub(super) fn load<T: Element>(
        &mut self,
        accelerator: &impl Accelerator<Buffer = B>,
        from: &B,
        at: usize,
        into: &SlotRange,
    ) -> Result<(), Refusal> {
        let bytes = self.place::<T>(into);
        match &mut self.memory {
            Memory::Pinned(pinned_buffer, device) if *device == from.device() => {
                pinned_buffer.download(from, at, bytes)
            }
            Memory::Plain(_) | Memory::Pinned(..) => {
                accelerator.download(from, at, elements::<T>(&mut self.memory()?[bytes])?)
            }
        }
    }

    /// Puts elements of a part into a buffer, or begins to.
    pub(super) fn store<T: Element>(
        &mut self,
        accelerator: &impl Accelerator<Buffer = B>,
        from: &SlotRange,
        to: &mut B,
        at: usize,
    ) -> Result<(), Refusal> {
        let bytes = self.place::<T>(from);
        match &mut self.memory {
            Memory::Pinned(pinned_buffer, device) if *device == to.device() => {
                pinned_buffer.upload(bytes, to, at)
            }
            Memory::Plain(_) | Memory::Pinned(..) => {
                accelerator.upload(elements::<T>(&mut self.memory()?[bytes])?, to, at)
            }
        }
    }

    /// The bytes of some elements of a part.
    fn place<T: Element>(&self, range: &SlotRange) -> Range<usize> {
        let start = match range.side {
            Side::Given => 0,
            Side::Got => self.given,
        };
        let of = |element: usize| start + element * size_of::<T>();
        of(range.elements.start)..of(range.elements.end)
    }

    fn memory(&mut self) -> Result<&mut [u8], Refusal> {
        match &mut self.memory {
            Memory::Plain(memory) => Ok(memory.bytes()),
            Memory::Pinned(pinned_buffer, _) => pinned_buffer.memory(),
        }
    }
}

/// Bytes as elements, which they are but for truth values that a device has spoilt.
fn elements<T: Element>(bytes: &mut [u8]) -> Result<&mut [T], Refusal> {
    let refused = Refusal::SpoiltElement { element: T::TYPE };
    checked::try_cast_slice_mut(bytes).map_err(|_| refused)
}

/// Lets the device's transfers from and to these slots wait for all that was asked of it before:
/// those of others are copied by the processor.
fn catch_up<B: DeviceBuffer>(slots: &mut [Slot<B>], device: DeviceId) -> Result<(), Refusal> {
    let pinned = slots.iter_mut().find_map(|slot| match &mut slot.memory {
        Memory::Pinned(pinned_buffer, on) if *on == device => Some(pinned_buffer),
        Memory::Plain(_) | Memory::Pinned(..) => None,
    });
    pinned.map_or(Ok(()), |pinned_buffer| pinned_buffer.catch_up())
}

/// The slots of each element type that was used so far: so they only ever hold its values. They are
/// made once: registered, as other ranks map them when they first see them, and pinned for the
/// device of the buffer that was there first.
pub(super) struct Slots<B> {
    of_type: BTreeMap<ElementType, Vec<Slot<B>>>,
    pinning: Pinning,
}

/// Whether the host memory that buffers go through is pinned for their device.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum Pinning {
    /// Nothing has gone through it yet.
    #[default]
    Unused,
    /// It is: the device copies from and to it by itself, both ways at once.
    Pinned,
    /// The backend does not do that: buffers are copied by the processor, or through memory of the
    /// backend.
    Unneeded,
    /// It was refused, and the same is done as if it were not needed: see the limit of locked
    /// memory.
    Refused(Refusal),
}

impl<B> Default for Slots<B> {
    fn default() -> Self {
        Self {
            of_type: BTreeMap::new(),
            pinning: Pinning::default(),
        }
    }
}

impl<B: DeviceBuffer> Slots<B> {
    /// All slots of a type, with room for so many bytes that are given and so many that are gotten,
    /// of a buffer on `device`.
    pub(super) fn take(
        &mut self,
        group: &mut Group,
        accelerator: &impl Accelerator<Buffer = B>,
        kind: BufferKind,
        Room { given, got }: Room,
    ) -> Result<Vec<Slot<B>>, OperationError> {
        // Nothing cannot be pinned.
        let room = given.saturating_add(got).max(1);
        let mut slots = self.of_type.remove(&kind.element).unwrap_or_default();
        slots.retain(|slot| slot.room >= room);
        while slots.len() < COUNT {
            let memory = Box::new(group.alloc::<u8>(room)?);
            let memory = self.pinned(accelerator, kind.device, memory);
            slots.push(Slot {
                memory,
                room,
                given,
            });
        }
        for slot in &mut slots {
            slot.given = given;
        }
        catch_up(&mut slots, kind.device).map_err(|error| group.device_failed(error))?;
        Ok(slots)
    }

    /// Memory that is pinned, if that can be.
    fn pinned(
        &mut self,
        accelerator: &impl Accelerator<Buffer = B>,
        device: DeviceId,
        memory: Box<dyn HostMemory>,
    ) -> Memory<B> {
        match accelerator.pin(device, memory) {
            Ok(pinned_buffer) => {
                if !matches!(self.pinning, Pinning::Refused(_)) {
                    self.pinning = Pinning::Pinned;
                }
                Memory::Pinned(pinned_buffer, device)
            }
            Err(NotPinned { memory, reason }) => {
                tracing::debug!(?reason, "host memory of device buffers is not pinned");
                self.pinning = reason.map_or(Pinning::Unneeded, Pinning::Refused);
                Memory::Plain(memory)
            }
        }
    }

    /// Keeps them for the next operation.
    pub(super) fn put(&mut self, element: ElementType, slots: Vec<Slot<B>>) {
        self.of_type.insert(element, slots);
    }

    pub(super) fn pinning(&self) -> &Pinning {
        &self.pinning
    }
}

/// One that is filled, one between ranks, one that is emptied.
const COUNT: usize = 3;

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Memory of a device, which nothing goes from or to.
    struct Untouched;

    impl DeviceBuffer for Untouched {
        fn device(&self) -> DeviceId {
            DeviceId::new(0)
        }

        fn element_type(&self) -> ElementType {
            ElementType::U8
        }

        fn len(&self) -> usize {
            0
        }
    }

    /// Counts how often it catches up.
    struct Counted(Arc<AtomicUsize>);

    impl PinnedBuffer for Counted {
        type Buffer = Untouched;

        fn catch_up(&mut self) -> Result<(), Refusal> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }

        fn download(
            &mut self,
            _from: &Untouched,
            _at: usize,
            _into: Range<usize>,
        ) -> Result<(), Refusal> {
            Ok(())
        }

        fn upload(
            &mut self,
            _from: Range<usize>,
            _to: &mut Untouched,
            _at: usize,
        ) -> Result<(), Refusal> {
            Ok(())
        }

        fn memory(&mut self) -> Result<&mut [u8], Refusal> {
            Ok(&mut [])
        }
    }

    #[test]
    fn transfers_of_a_device_catch_up_with_that_device_alone() {
        let counts = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
        let mut slots = [0, 0, 1, 1].map(|device| Slot::<Untouched> {
            memory: Memory::Pinned(
                Box::new(Counted(counts[device].clone())),
                DeviceId::new(device),
            ),
            room: 1,
            given: 1,
        });
        // The third has no slots.
        for (device, expected) in [(1, [0, 1]), (0, [1, 1]), (2, [1, 1])] {
            catch_up(&mut slots, DeviceId::new(device)).unwrap();
            let counted = counts.each_ref().map(|count| count.load(Ordering::Relaxed));
            assert_eq!(counted, expected);
        }
    }
}

//! Registered memory: buffers that the other ranks of the host can reach where they are.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use super::control_block::{ControlBlock, SEGMENTS, SegmentEntry};
use super::descriptor::BufferLocation;
use super::mapping::{Mapping, Population, SegmentName};
use super::span::Span;
use crate::host;

/// Instead of a generation, where there is no segment.
const FREE: u32 = 0;

/// The registered memory of one rank.
#[derive(Debug)]
pub(crate) struct Registry {
    /// Shows the segments to the other processes of the host; none where there are no others.
    control_block: Option<ControlBlock>,
    entries: Mutex<Vec<Entry>>,
}

#[derive(Debug)]
struct Entry {
    generation: u32,
    /// A segment that is in use.
    used: Option<Arc<Mapping>>,
}

/// Memory that is in a registry until it is dropped.
#[derive(Debug)]
pub(crate) struct Registered {
    memory: Arc<Mapping>,
    registry: Arc<Registry>,
    shown: Option<Shown>,
}

/// Where a registry has a segment.
#[derive(Clone, Copy, Debug)]
struct Shown {
    index: usize,
    generation: u32,
}

impl Registry {
    /// For a rank whose peers reach all its memory, or none of it.
    pub(crate) fn private() -> Arc<Self> {
        Arc::new(Self {
            control_block: None,
            entries: Mutex::new(Vec::new()),
        })
    }

    /// For a rank that shows its segments on this control block of its own.
    pub(crate) fn shown_on(control_block: ControlBlock) -> Arc<Self> {
        Arc::new(Self {
            control_block: Some(control_block),
            entries: Mutex::new(Vec::new()),
        })
    }

    /// Zeroed memory; registered if others can make use of it and there is a free entry.
    pub(crate) fn allocate(self: &Arc<Self>, bytes: usize) -> io::Result<Registered> {
        let (memory, shown) = match &self.control_block {
            Some(control_block) => {
                let (memory, name) = Mapping::segment(bytes)?;
                memory.make_pages_huge();
                let memory = Arc::new(memory);
                let shown = self.enter(control_block, memory.clone(), name);
                (memory, shown)
            }
            None => (Arc::new(Mapping::heap(bytes)?), None),
        };
        Ok(Registered {
            memory,
            registry: self.clone(),
            shown,
        })
    }

    /// Takes the segment away from all other processes in which these bytes lie: what they write to
    /// it from now on does not reach this one. Whether that is done; it fails where memory has run
    /// out.
    pub(super) fn withdraw(&self, bytes: Span) -> bool {
        let mut entries = self.entries();
        let holds = |entry: &Entry| {
            entry
                .used
                .as_ref()
                .is_some_and(|used| offset(used, bytes).is_some())
        };
        let Some(index) = entries.iter().position(holds) else {
            // It has been done for another rank.
            return true;
        };
        let Some(segment) = entries[index].used.take() else {
            return true;
        };
        let withdrawn = segment.make_private(bytes).is_ok();
        if !withdrawn {
            entries[index].used = Some(segment);
        }
        withdrawn
    }

    /// Where others find these bytes, if they lie in one segment.
    pub(super) fn find(&self, bytes: Span) -> Option<BufferLocation> {
        let entries = self.entries();
        let (index, entry, offset) = entries.iter().enumerate().find_map(|(index, entry)| {
            let offset = offset(entry.used.as_ref()?, bytes)?;
            Some((index, entry, offset))
        })?;
        Some(BufferLocation::Segment {
            index: u32::try_from(index).ok()?,
            generation: entry.generation,
            offset: offset as u64,
        })
    }

    fn enter(
        &self,
        control_block: &ControlBlock,
        memory: Arc<Mapping>,
        name: SegmentName,
    ) -> Option<Shown> {
        let mut entries = self.entries();
        let free = entries.iter().position(|entry| entry.used.is_none());
        let index = free.unwrap_or(entries.len());
        if index == SEGMENTS {
            return None;
        }
        if index == entries.len() {
            entries.push(Entry {
                generation: FREE,
                used: None,
            });
        }
        let entry = &mut entries[index];
        entry.generation = entry.generation.checked_add(1).unwrap_or(FREE + 1);
        entry.used = Some(memory);
        let words = [entry.generation.into(), name.descriptor.into(), name.bytes];
        // Visible to the others before the post that first names the segment.
        for (place, word) in control_block.head().segments[index].iter().zip(words) {
            place.store(word, Ordering::Release);
        }
        Some(Shown {
            index,
            generation: entry.generation,
        })
    }

    fn entries(&self) -> std::sync::MutexGuard<'_, Vec<Entry>> {
        // Nothing that holds the lock can panic half-way through a change.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registered {
    pub(crate) fn bytes(&self) -> Span {
        Span::of_mapping(&self.memory)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let (Some(shown), Some(control_block)) = (self.shown, &self.registry.control_block) else {
            return;
        };
        let mut entries = self.registry.entries();
        let entry = &mut entries[shown.index];
        // One that was withdrawn may have given its place to another.
        if entry.generation == shown.generation {
            entry.used = None;
            control_block.head().segments[shown.index][0].store(FREE.into(), Ordering::Release);
        }
    }
}

/// Where these bytes begin in a segment, if they lie in it.
fn offset(segment: &Mapping, bytes: Span) -> Option<usize> {
    let offset = bytes
        .address()
        .checked_sub(Span::of_mapping(segment).address())?;
    let end = offset.checked_add(bytes.bytes())?;
    (end <= segment.bytes()).then_some(offset)
}

/// The segments of one other process, mapped when they are first named.
#[derive(Debug)]
pub(super) struct PeerProcess {
    process: u32,
    population: Population,
    mapped: Vec<Option<(u32, Mapping)>>,
}

impl PeerProcess {
    pub(super) fn new(process: u32, population: Population) -> Self {
        Self {
            process,
            population,
            mapped: Vec::new(),
        }
    }

    /// Whether the process is gone for certain, with all its threads.
    pub(super) fn has_ended(&self) -> bool {
        host::has_ended(self.process)
    }

    /// Lets the kernel copy bytes out of the neighbour's memory.
    ///
    /// # Errors
    /// When the kernel may not, the process is gone, or has nothing there.
    pub(super) fn copy(&self, address: usize, into: &mut [u8]) -> io::Result<()> {
        copy_from_process(self.process, address, into)
    }

    /// The segment that the neighbour's control block shows at this index.
    ///
    /// # Errors
    /// When it is not there in this generation, or cannot be mapped.
    pub(super) fn segment(
        &mut self,
        shown: &[SegmentEntry; SEGMENTS],
        index: u32,
        generation: u32,
    ) -> io::Result<Span> {
        let index = index as usize;
        if index >= SEGMENTS {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if self.mapped.len() <= index {
            self.mapped.resize_with(index + 1, || None);
        }
        self.forget_freed(shown);
        if let Some((known, mapping)) = &self.mapped[index]
            && *known == generation
        {
            return Ok(Span::of_mapping(mapping));
        }
        self.mapped[index] = None;
        let mapping = self.map(&shown[index], generation)?;
        let span = Span::of_mapping(&mapping);
        self.mapped[index] = Some((generation, mapping));
        Ok(span)
    }

    /// Unmaps what the neighbour has freed, so that the memory goes back to the system.
    fn forget_freed(&mut self, shown: &[SegmentEntry; SEGMENTS]) {
        for (mapped, words) in self.mapped.iter_mut().zip(shown) {
            let current = words[0].load(Ordering::Acquire);
            if mapped
                .as_ref()
                .is_some_and(|(known, _)| u64::from(*known) != current)
            {
                *mapped = None;
            }
        }
    }

    fn map(&self, words: &SegmentEntry, generation: u32) -> io::Result<Mapping> {
        let [shown, descriptor, bytes] = [0, 1, 2].map(|word| words[word].load(Ordering::Acquire));
        if generation == FREE || shown != u64::from(generation) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let name = SegmentName {
            process: self.process,
            descriptor: u32::try_from(descriptor).map_err(|_| io::ErrorKind::InvalidData)?,
            bytes,
        };
        name.map(self.population)
    }
}

#[cfg(all(target_os = "linux", not(meshwork_portable)))]
fn copy_from_process(process: u32, address: usize, mut into: &mut [u8]) -> io::Result<()> {
    use nix::sys::uio::{RemoteIoVec, process_vm_readv};
    use nix::unistd::Pid;

    let process = i32::try_from(process).map_err(|_| io::ErrorKind::InvalidData)?;
    let mut base = address;
    while !into.is_empty() {
        let len = into.len();
        let from = [RemoteIoVec { base, len }];
        let mut to = [io::IoSliceMut::new(into)];
        let copied = process_vm_readv(Pid::from_raw(process), &mut to, &from)?;
        if copied == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        base += copied;
        into = &mut into[copied..];
    }
    Ok(())
}

#[cfg(any(not(target_os = "linux"), meshwork_portable))]
fn copy_from_process(_: u32, _: usize, _: &mut [u8]) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(all(test, target_os = "linux", not(meshwork_portable)))]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_has_nowhere_is_an_error_and_what_it_has_is_copied() {
        let own = PeerProcess::new(std::process::id(), Population::Eager);
        let from = [1_u8, 2, 3];
        let mut into = [0; 3];
        own.copy(Span::of(&from).address(), &mut into).unwrap();
        assert_eq!(into, from);
        own.copy(8, &mut into).unwrap_err();
        own.copy(usize::MAX, &mut into).unwrap_err();
        let nobody = PeerProcess::new(u32::MAX, Population::Lazy);
        nobody
            .copy(Span::of(&from).address(), &mut into)
            .unwrap_err();
    }
}

//! A logical device: a share of a GPU with a stream, a memory budget and slots of its own.

mod transfer_streams;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use meshwork_accel::{self as accel, DeviceId, ElementType, MemoryBudget};

use crate::error::Failure;
use crate::gemm::Gemm;
use crate::staging::{Cut, Step, What};
use crate::sys::blas::{Blas, Multiplier};
use crate::sys::memory::{Memory, Operands, Part};
use crate::sys::module::Module;
use crate::sys::slot::Slot;
use crate::sys::stream::Stream;

pub(crate) use transfer_streams::TransferStreams;

/// One logical device.
#[derive(Debug)]
pub(crate) struct LogicalDevice {
    pub(crate) id: DeviceId,
    pub(crate) stream: Arc<Stream>,
    pub(crate) module: Arc<Module>,
    pub(crate) memory_budget: Arc<MemoryBudget>,
    /// How many buffers have been made.
    made: AtomicU64,
    /// Made when they are first needed.
    slots: Mutex<Vec<Slot>>,
    /// Made when memory is first pinned.
    transfer_streams: Mutex<Option<TransferStreams>>,
    /// Made when matrices are first multiplied.
    multiplier: Mutex<Option<Multiplier>>,
}

impl LogicalDevice {
    /// A device that is not in use yet.
    pub(crate) fn new(
        id: DeviceId,
        stream: Arc<Stream>,
        module: Arc<Module>,
        limit: u64,
    ) -> Arc<Self> {
        Arc::new(Self {
            id,
            stream,
            module,
            memory_budget: MemoryBudget::new(Some(limit)),
            made: AtomicU64::new(0),
            slots: Mutex::new(Vec::new()),
            transfer_streams: Mutex::new(None),
            multiplier: Mutex::new(None),
        })
    }

    /// Bytes that a buffer could take at this moment.
    pub(crate) fn free(&self) -> Result<u64, Failure> {
        let free = self.stream.gpu().free_memory()?;
        Ok(self
            .memory_budget
            .free()
            .map_or(free, |left| free.min(left)))
    }

    /// The number of a buffer of which everything so far has been put into the stream.
    pub(crate) fn next_buffer(&self) -> u64 {
        self.made.fetch_add(1, Ordering::Release) + 1
    }

    /// The number of the newest buffer.
    pub(crate) fn newest_buffer(&self) -> u64 {
        self.made.load(Ordering::Acquire)
    }

    /// Memory that belongs to no buffer and is not counted against the limit.
    pub(crate) fn scratch(
        &self,
        element: ElementType,
        bytes: usize,
    ) -> Result<Memory, accel::Error> {
        let memory = Memory::allocate(self.stream.clone(), bytes);
        let memory = memory.map_err(|failure| failure.on(self.id))?;
        memory.ok_or_else(|| self.out_of_memory(element, bytes / element.size()))
    }

    /// The error of a buffer that does not fit.
    pub(crate) fn out_of_memory(&self, element: ElementType, len: usize) -> accel::Error {
        accel::Error::OutOfMemory {
            device: self.id,
            element,
            len,
            free: self.free().ok(),
        }
    }

    /// Copies `bytes` to a part of the same length; they may be changed when this returns.
    pub(crate) fn upload(&self, bytes: &[u8], to: &Memory, at: usize) -> Result<(), Failure> {
        self.with_slots(|slots| {
            for Step {
                slot, bytes: piece, ..
            } in cut(bytes.len()).upload()
            {
                let start = at + piece.start;
                let to = part(to, start, piece.len())?;
                slot_of(slots, slot)?.send(&bytes[piece], to)?;
            }
            Ok(())
        })
    }

    /// Fills `bytes` from a part of the same length, and waits for it.
    pub(crate) fn download(
        &self,
        from: &Memory,
        at: usize,
        bytes: &mut [u8],
    ) -> Result<(), Failure> {
        self.with_slots(|slots| {
            for Step {
                what,
                slot,
                bytes: piece,
            } in cut(bytes.len()).download()
            {
                let slot = slot_of(slots, slot)?;
                match what {
                    What::Take => slot.take(&mut bytes[piece])?,
                    What::Send | What::Request => {
                        slot.request(part(from, at + piece.start, piece.len())?)?;
                    }
                }
            }
            Ok(())
        })
    }

    /// The streams of pinned memory.
    pub(crate) fn transfer_streams(&self) -> Result<TransferStreams, Failure> {
        let mut transfer_streams = self
            .transfer_streams
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match &*transfer_streams {
            Some(transfer_streams) => Ok(transfer_streams.clone()),
            None => Ok(transfer_streams
                .insert(TransferStreams::beside(&self.stream)?)
                .clone()),
        }
    }

    /// Products by cuBLAS, which is the same at every call; `false` if it does not have them on
    /// this GPU.
    pub(crate) fn multiply(
        &self,
        blas: &Arc<Blas>,
        gemm: Gemm,
        element: ElementType,
        operands: Operands<'_>,
    ) -> Result<bool, Failure> {
        let mut made = self
            .multiplier
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(multiplier) = &mut *made {
            return multiplier.product(gemm, element, operands);
        }
        let multiplier = Multiplier::new(blas.clone(), self.stream.clone())?;
        made.insert(multiplier).product(gemm, element, operands)
    }

    fn with_slots(
        &self,
        run: impl FnOnce(&mut [Slot]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        while slots.len() < SLOTS {
            slots.push(Slot::new(self.stream.gpu().clone(), SLOT_BYTES)?);
        }
        run(&mut slots)
    }
}

impl Drop for LogicalDevice {
    /// No kernel runs when the last device of a GPU unloads them; a failure could not be reported
    /// any more.
    fn drop(&mut self) {
        let _ = self.stream.synchronize();
    }
}

fn cut(bytes: usize) -> Cut {
    Cut::new(bytes, SLOT_BYTES, SLOTS)
}

/// A part whose place its caller has checked.
fn part(memory: &Memory, start: usize, bytes: usize) -> Result<Part<'_>, Failure> {
    memory.part(start, bytes).ok_or_else(|| Failure {
        function: "part of a buffer",
        code: 0,
        status: format!("{bytes} bytes from {start} are not inside"),
    })
}

fn slot_of(slots: &mut [Slot], index: usize) -> Result<&mut Slot, Failure> {
    slots.get_mut(index).ok_or_else(|| Failure {
        function: "slot of a transfer",
        code: 0,
        status: format!("there is no slot {index}"),
    })
}

/// Pinned memory is lost to all other processes, so little of it is taken; more chunks would not be
/// faster.
const SLOTS: usize = 4;
const SLOT_BYTES: usize = 2 << 20;

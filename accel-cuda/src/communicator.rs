//! A rank of an NCCL communicator: collectives on the device's stream, each with a deadline, by
//! NCCL's non-blocking mode and polling. After an error or a missed deadline the communicator is
//! broken; dropping it aborts what is pending.

mod capability;
mod queue;
mod wide;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use meshwork_accel::{
    self as accel, CancelCheck, DeviceBuffer, DeviceCollective, DeviceId, ReduceOp,
};

use crate::accelerator::CudaAccelerator;
use crate::buffer::CudaBuffer;
use crate::device::LogicalDevice;
use crate::error::{Error, Failure};
use crate::nccl::{Nccl, NcclRank};
use crate::sys::collectives::Comm;
use crate::sys::memory::Memory;

/// A rank of a communicator of NCCL, on one device.
///
/// Operations are put into the device's stream, in order with everything else that is asked of it,
/// and return when NCCL has taken them in, which its deadline bounds. [`wait`](Self::wait) bounds
/// the rest: call it before anything that waits for the device without a deadline, such as a
/// download. On a GPU without pools of memory dropping any of its buffers does, and so does giving
/// back what another library works on by `CU_STREAM_PER_THREAD`.
///
/// Memory stays while NCCL may still put work on it into the stream: until an operation was taken
/// in, and as long as the communicator where it was not. Without pools it stays until the operation
/// is done.
///
/// After a failure or a missed deadline all calls are [`Error::Broken`], and what was put into the
/// stream may still wait there for other ranks. Dropping the communicator aborts it and so frees
/// the device, whatever the others do.
///
/// All ranks make the same calls in the same order; NCCL does not check that. Of 16-bit floats,
/// sums are rounded as NCCL does it, and not once at the end; which NaN comes out is not defined
/// either.
#[derive(Debug)]
pub struct Communicator {
    comm: Comm,
    /// What operations under way work on besides; freed behind the communicator, if that is
    /// aborted.
    wide: Vec<Arc<CudaBuffer>>,
    /// The memory of operations that are not over, whoever else has dropped it.
    held: Vec<Arc<Memory>>,
    /// Whether an operation has failed.
    broken: bool,
    logical: Arc<LogicalDevice>,
    rank: usize,
    world: usize,
    timeout: Duration,
}

impl Communicator {
    /// Joins the other ranks. Each call of this communicator, this one included, may take as long
    /// as `timeout`. NCCL refuses two ranks on one GPU, so logical devices of one GPU cannot join
    /// the same communicator: they have [`NativeCollectives`](accel::NativeCollectives).
    ///
    /// # Errors
    /// [`accel::Error::UnknownDevice`] of the device; [`Error::Call`] where NCCL refuses, and
    /// [`Error::Deadline`] where not all ranks come in time.
    pub fn join(
        nccl: &Nccl,
        accelerator: &CudaAccelerator,
        device: DeviceId,
        nccl_rank: NcclRank,
        timeout: Duration,
    ) -> Result<Self, Error> {
        let logical = accelerator.logical(device)?;
        Self::enter(nccl, logical, nccl_rank, timeout, &mut within(timeout))
    }

    /// Joins the other ranks unless `cancel_check` breaks before.
    fn enter(
        nccl: &Nccl,
        logical: &Arc<LogicalDevice>,
        nccl_rank: NcclRank,
        timeout: Duration,
        cancel_check: &mut CancelCheck<'_>,
    ) -> Result<Self, Error> {
        let (table, stream) = (nccl.table.clone(), logical.stream.clone());
        let comm = Comm::join(
            table,
            stream,
            *nccl_rank.id.as_bytes(),
            nccl_rank.rank,
            nccl_rank.world,
        )?;
        until(cancel_check, "joining a communicator", || comm.is_ready())?;
        let (rank, world) = comm.place()?;
        Ok(Self {
            comm,
            wide: Vec::new(),
            held: Vec::new(),
            broken: false,
            logical: logical.clone(),
            rank,
            world,
            timeout,
        })
    }

    /// This rank's number, from 0.
    #[must_use]
    pub const fn rank(&self) -> usize {
        self.rank
    }

    /// How many ranks there are.
    #[must_use]
    pub const fn world(&self) -> usize {
        self.world
    }

    /// Replaces `values` on all ranks by `op` of all of them, divided by their number for a mean.
    ///
    /// # Shapes
    /// `values` has the same length and type on all ranks.
    ///
    /// # Errors
    /// [`accel::Error::UnsupportedElement`] for 16-bit integers and
    /// [`accel::Error::UnsupportedOp`] for ops of bits, which NCCL does not have;
    /// [`accel::Error::DeviceMismatch`]; [`Error::Call`], [`Error::Deadline`], [`Error::Broken`].
    pub fn all_reduce(&mut self, op: ReduceOp, values: &mut CudaBuffer) -> Result<(), Error> {
        self.collect(DeviceCollective::AllReduce { op, values })
    }

    /// The same on the rank `root` alone; the others keep what they have.
    ///
    /// # Shapes
    /// `values` has the same length and type on all ranks.
    ///
    /// # Errors
    /// Those of [`all_reduce`](Self::all_reduce), and [`Error::RankOutside`].
    pub fn reduce(
        &mut self,
        op: ReduceOp,
        root: usize,
        values: &mut CudaBuffer,
    ) -> Result<(), Error> {
        self.collect(DeviceCollective::Reduce { op, values, root })
    }

    /// Replaces `values` on all ranks by those of the rank `root`.
    ///
    /// # Shapes
    /// `values` has the same length and type on all ranks.
    ///
    /// # Errors
    /// [`Error::RankOutside`], [`accel::Error::DeviceMismatch`]; [`Error::Call`],
    /// [`Error::Deadline`], [`Error::Broken`].
    pub fn broadcast(&mut self, root: usize, values: &mut CudaBuffer) -> Result<(), Error> {
        self.collect(DeviceCollective::Broadcast { values, root })
    }

    /// Replaces `output` on all ranks by all inputs, in the order of the ranks.
    ///
    /// # Shapes
    /// `input` has the same length on all ranks, `output` that times their number.
    ///
    /// # Errors
    /// [`accel::Error::ElementMismatch`], [`accel::Error::LengthMismatch`],
    /// [`accel::Error::DeviceMismatch`]; [`Error::Call`], [`Error::Deadline`], [`Error::Broken`].
    pub fn all_gather(&mut self, input: &CudaBuffer, output: &mut CudaBuffer) -> Result<(), Error> {
        self.collect(DeviceCollective::AllGather { input, output })
    }

    /// Leaves in `output` this rank's block of `op` of all inputs, divided by their number for a
    /// mean.
    ///
    /// # Shapes
    /// `output` has the same length on all ranks, `input` that times their number.
    ///
    /// # Errors
    /// Those of [`all_reduce`](Self::all_reduce) and [`all_gather`](Self::all_gather).
    pub fn reduce_scatter(
        &mut self,
        op: ReduceOp,
        input: &CudaBuffer,
        output: &mut CudaBuffer,
    ) -> Result<(), Error> {
        self.collect(DeviceCollective::ReduceScatter { op, input, output })
    }

    /// Waits until all operations so far are done, on this device.
    ///
    /// # Errors
    /// [`Error::Deadline`] where other ranks do not take part, [`Error::Call`] where NCCL or the
    /// device has failed; [`Error::Broken`].
    pub fn wait(&mut self) -> Result<(), Error> {
        self.finish(&mut within(self.timeout))
    }

    /// The same unless `cancel_check` breaks before.
    fn finish(&mut self, cancel_check: &mut CancelCheck<'_>) -> Result<(), Error> {
        self.guarded(|comm| {
            until(cancel_check, "an operation of a communicator", || {
                // An operation that failed never ends, so both are looked at.
                Ok(comm.is_ready()? && comm.stream().is_done()?)
            })
        })?;
        self.wide.clear();
        self.held.clear();
        Ok(())
    }

    /// Ends in order, when all ranks have called it and all operations are done.
    ///
    /// # Errors
    /// [`Error::Call`], [`Error::Deadline`], [`Error::Broken`]; it is aborted then.
    pub fn leave(mut self) -> Result<(), Error> {
        self.wait()?;
        let cancel_check = &mut within(self.timeout);
        self.put("leaving a communicator", &[], cancel_check, Comm::finalize)?;
        Ok(self.comm.destroy()?)
    }

    /// Puts a collective into the stream.
    fn collect(&mut self, work: DeviceCollective<'_, CudaBuffer>) -> Result<(), Error> {
        self.queue(work, &mut within(self.timeout))
    }

    /// Puts an operation on these buffers into the stream, and waits until NCCL has taken it in,
    /// unless `cancel_check` breaks before. What NCCL has not taken in by then it may still put
    /// into the stream, behind what frees the memory: so that stays.
    fn put(
        &mut self,
        operation: &'static str,
        buffers: &[&CudaBuffer],
        cancel_check: &mut CancelCheck<'_>,
        begin: impl FnOnce(&Comm) -> Result<(), Failure>,
    ) -> Result<(), Error> {
        if self.broken {
            return Err(Error::Broken);
        }
        if !self.held.is_empty() && matches!(self.comm.stream().is_done(), Ok(true)) {
            self.held.clear();
        }
        if self.held.len() >= HELD {
            self.wait()?;
        }
        for memory in buffers.iter().filter_map(|buffer| buffer.shared_memory()) {
            if !self.held.iter().any(|held| Arc::ptr_eq(held, &memory)) {
                self.held.push(memory);
            }
        }
        self.guarded(|comm| {
            begin(comm)?;
            until(cancel_check, operation, || comm.is_ready())
        })?;
        // What is dropped from now on is behind the operation. Where the host would wait for that,
        // and for ever if another rank does not come, it stays until that is done.
        self.held.retain(|memory| memory.drops_by_waiting());
        Ok(())
    }

    /// Whether it has failed.
    fn is_broken(&self) -> bool {
        self.broken
    }

    /// Does nothing any more after the first error.
    fn guarded<T>(&mut self, run: impl FnOnce(&Comm) -> Result<T, Error>) -> Result<T, Error> {
        if self.broken {
            return Err(Error::Broken);
        }
        let done = run(&self.comm);
        self.broken = done.is_err();
        done
    }

    fn peer(&self, rank: usize) -> Result<i32, Error> {
        let world = self.world;
        let number = i32::try_from(rank).ok().filter(|_| rank < world);
        number.ok_or(Error::RankOutside { rank, world })
    }

    /// Refuses a buffer of another device.
    fn holds(&self, buffer: &CudaBuffer) -> Result<(), Error> {
        if Arc::ptr_eq(&self.logical, buffer.logical()) {
            return Ok(());
        }
        let (left, right) = (self.logical.id, buffer.device());
        Err(accel::Error::DeviceMismatch { left, right }.into())
    }
}

/// Breaks when so much time has passed.
fn within(timeout: Duration) -> impl FnMut() -> ControlFlow<()> {
    let begun = Instant::now();
    move || match begun.elapsed() < timeout {
        true => ControlFlow::Continue(()),
        false => ControlFlow::Break(()),
    }
}

/// Asks again and again, less and less often, until it is so or `cancel_check` breaks.
fn until(
    cancel_check: &mut CancelCheck<'_>,
    operation: &'static str,
    is_so: impl Fn() -> Result<bool, Failure>,
) -> Result<(), Error> {
    let begun = Instant::now();
    let mut pause = Duration::ZERO;
    while !is_so()? {
        if cancel_check().is_break() {
            let waited = begun.elapsed();
            return Err(Error::Deadline { operation, waited });
        }
        // Most waits are over within microseconds.
        thread::sleep(pause);
        pause = (pause + Duration::from_micros(5)).min(LONGEST_PAUSE);
    }
    Ok(())
}

/// Buffers of operations under way that are kept at the most: who drops more waits for them.
const HELD: usize = 64;
const LONGEST_PAUSE: Duration = Duration::from_millis(1);

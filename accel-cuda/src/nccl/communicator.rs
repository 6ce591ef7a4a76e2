use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use meshwork_accel::{self as accel, DeviceBuffer, DeviceId, ReduceOp};

use super::{Nccl, Seat, translate};
use crate::accelerator::CudaAccelerator;
use crate::buffer::CudaBuffer;
use crate::device::Logical;
use crate::error::{Error, Failure};
use crate::kernels::Kernel;
use crate::sys::collectives::Comm;

/// A rank of a communicator of NCCL, on one device.
///
/// Operations are put into the device's stream, in order with everything else that is asked of it, and
/// return when NCCL has taken them in, which its deadline bounds. [`wait`](Self::wait) bounds the rest:
/// call it before anything that waits for the device without a deadline, such as a download.
///
/// After a failure or a missed deadline all calls are [`Error::Broken`], and what was put into the
/// stream may still wait there for other ranks. Dropping the communicator aborts it and so sets the
/// device free, whatever the others do; [`shrink`](Self::shrink) does too, and goes on.
///
/// All ranks make the same calls in the same order; NCCL does not check that. Of 16-bit floats, sums are
/// rounded as NCCL does it, and not once at the end; which NaN comes out is not defined either.
#[derive(Debug)]
pub struct Communicator {
    comm: Comm,
    /// Whether an operation has failed.
    broken: bool,
    logical: Arc<Logical>,
    rank: usize,
    world: usize,
    patience: Duration,
}

impl Communicator {
    /// Joins the other ranks. Each call of this communicator, this one included, may take as long as
    /// `patience`. NCCL refuses two ranks on one GPU, so logical devices of one GPU cannot join the
    /// same communicator: they have [`NativeCollectives`](accel::NativeCollectives).
    ///
    /// # Errors
    /// [`accel::Error::UnknownDevice`] of the device; [`Error::Call`] where NCCL refuses, and
    /// [`Error::Deadline`] where not all ranks come in time.
    pub fn join(
        nccl: &Nccl,
        accelerator: &CudaAccelerator,
        device: DeviceId,
        seat: Seat,
        patience: Duration,
    ) -> Result<Self, Error> {
        let logical = accelerator.logical(device)?.clone();
        let (table, stream) = (nccl.table.clone(), logical.stream.clone());
        let comm = Comm::join(table, stream, *seat.id.as_bytes(), (seat.rank, seat.world))?;
        Self::settle(comm, logical, "joining a communicator", patience)
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
        let (kind, red_op) = translate(op, values.element_type())?;
        self.holds(values)?;
        let Some(part) = values.part(0, values.len()) else {
            return Ok(());
        };
        self.call("all-reduce", |comm| comm.all_reduce(part, kind, red_op))?;
        self.finish(op, values)
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
        let root = self.peer(root)?;
        self.holds(values)?;
        let Some(part) = values.part(0, values.len()) else {
            return Ok(());
        };
        self.call("broadcast", |comm| comm.broadcast(part, root))
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
        self.holds(input)?;
        self.holds(output)?;
        output.check_element(input.element_type())?;
        times(input.len(), self.world, output.len())?;
        let parts = (input.part(0, input.len()), output.part(0, output.len()));
        let (Some(from), Some(to)) = parts else {
            return Ok(());
        };
        self.call("all-gather", |comm| comm.all_gather(from, to))
    }

    /// Leaves in `output` this rank's block of `op` of all inputs, divided by their number for a mean.
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
        let (kind, red_op) = translate(op, output.element_type())?;
        self.holds(input)?;
        self.holds(output)?;
        output.check_element(input.element_type())?;
        times(output.len(), self.world, input.len())?;
        let parts = (input.part(0, input.len()), output.part(0, output.len()));
        let (Some(from), Some(to)) = parts else {
            return Ok(());
        };
        self.call("reduce-scatter", |comm| {
            comm.reduce_scatter(from, to, kind, red_op)
        })?;
        self.finish(op, output)
    }

    /// Sends `values` to the rank `to`, which receives as many bytes.
    ///
    /// # Errors
    /// [`Error::RankOutside`], [`accel::Error::DeviceMismatch`]; [`Error::Call`],
    /// [`Error::Deadline`], [`Error::Broken`].
    pub fn send(&mut self, values: &CudaBuffer, to: usize) -> Result<(), Error> {
        let to = self.peer(to)?;
        self.holds(values)?;
        let Some(part) = values.part(0, values.len()) else {
            return Ok(());
        };
        self.call("send", |comm| comm.exchange(Some((part, to)), None))
    }

    /// Replaces `values` by what the rank `from` sends.
    ///
    /// # Errors
    /// Those of [`send`](Self::send).
    pub fn receive(&mut self, values: &mut CudaBuffer, from: usize) -> Result<(), Error> {
        let from = self.peer(from)?;
        self.holds(values)?;
        let Some(part) = values.part(0, values.len()) else {
            return Ok(());
        };
        self.call("receive", |comm| comm.exchange(None, Some((part, from))))
    }

    /// Sends `sent` to the first rank and receives `received` from the second, at once: a ring of ranks
    /// that all send first would wait for ever.
    ///
    /// # Errors
    /// Those of [`send`](Self::send).
    pub fn exchange(
        &mut self,
        (sent, to): (&CudaBuffer, usize),
        (received, from): (&mut CudaBuffer, usize),
    ) -> Result<(), Error> {
        let (to, from) = (self.peer(to)?, self.peer(from)?);
        self.holds(sent)?;
        self.holds(received)?;
        let sent = sent.part(0, sent.len()).map(|part| (part, to));
        let received = received.part(0, received.len()).map(|part| (part, from));
        self.call("exchange", |comm| comm.exchange(sent, received))
    }

    /// Waits until all operations so far are done, on this device.
    ///
    /// # Errors
    /// [`Error::Deadline`] where other ranks do not take part, [`Error::Call`] where NCCL or the device
    /// has failed; [`Error::Broken`].
    pub fn wait(&mut self) -> Result<(), Error> {
        let patience = self.patience;
        self.guarded(|comm| {
            until(patience, "an operation of a communicator", || {
                // An operation that failed never ends, so both are looked at.
                Ok(comm.is_ready()? && comm.stream().is_done()?)
            })
        })
    }

    /// The part of this communicator whose ranks give the same `color`, in the order of `key`, then of
    /// rank; `None` for a rank without color. All ranks call it.
    ///
    /// # Errors
    /// [`Error::Call`], [`Error::Deadline`], [`Error::Broken`].
    pub fn split(&mut self, color: Option<u16>, key: u16) -> Result<Option<Self>, Error> {
        let operation = "splitting a communicator";
        self.call(operation, |comm| {
            comm.split(color.map(i32::from), key.into())
        })?;
        let (logical, patience) = (self.logical.clone(), self.patience);
        let settle = |comm| Self::settle(comm, logical, operation, patience);
        self.comm.born().map(settle).transpose()
    }

    /// What is left of this communicator without the ranks `lost`, whose place the others close up in
    /// order. The ranks that are left call it, and none of the lost; work that waits for them is ended.
    ///
    /// # Errors
    /// [`Error::RankOutside`] for a rank that is not there, or this one; [`Error::Call`],
    /// [`Error::Deadline`].
    pub fn shrink(self, lost: &[usize]) -> Result<Self, Error> {
        if lost.is_empty() {
            return Ok(self);
        }
        let ranks: Vec<_> = lost
            .iter()
            .map(|rank| self.peer(*rank))
            .collect::<Result<_, _>>()?;
        if lost.contains(&self.rank) {
            let (rank, world) = (self.rank, self.world - 1);
            return Err(Error::RankOutside { rank, world });
        }
        let (operation, patience) = ("shrinking a communicator", self.patience);
        self.comm.shrink(ranks)?;
        until(patience, operation, || self.comm.is_ready())?;
        let rest = self.comm.born().ok_or(Error::Broken)?;
        Self::settle(rest, self.logical.clone(), operation, patience)
    }

    /// Ends in order, when all ranks have called it and all operations are done.
    ///
    /// # Errors
    /// [`Error::Call`], [`Error::Deadline`], [`Error::Broken`]; it is aborted then.
    pub fn leave(mut self) -> Result<(), Error> {
        self.wait()?;
        self.call("leaving a communicator", Comm::finalize)?;
        Ok(self.comm.destroy()?)
    }

    /// Waits until a communicator that was begun is there.
    fn settle(
        comm: Comm,
        logical: Arc<Logical>,
        operation: &'static str,
        patience: Duration,
    ) -> Result<Self, Error> {
        until(patience, operation, || comm.is_ready())?;
        let (rank, world) = comm.place()?;
        Ok(Self {
            comm,
            broken: false,
            logical,
            rank,
            world,
            patience,
        })
    }

    /// Puts an operation into the stream, and waits until NCCL has taken it in.
    fn call(
        &mut self,
        operation: &'static str,
        begin: impl FnOnce(&Comm) -> Result<(), Failure>,
    ) -> Result<(), Error> {
        let patience = self.patience;
        self.guarded(|comm| {
            begin(comm)?;
            until(patience, operation, || comm.is_ready())
        })
    }

    /// Does nothing any more after the first error.
    fn guarded(&mut self, run: impl FnOnce(&Comm) -> Result<(), Error>) -> Result<(), Error> {
        if self.broken {
            return Err(Error::Broken);
        }
        let done = run(&self.comm);
        self.broken = done.is_err();
        done
    }

    /// Makes a mean of a sum.
    fn finish(&self, op: ReduceOp, values: &CudaBuffer) -> Result<(), Error> {
        let whole = values.part(0, values.len());
        let (ReduceOp::Mean, Some(part)) = (op, whole) else {
            return Ok(());
        };
        let by = u32::try_from(self.world).unwrap_or(u32::MAX);
        let kernel = Kernel::Divide(values.element_type());
        let Logical { module, stream, .. } = &*self.logical;
        Ok(module.divide(kernel, part, by, stream)?)
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

/// Refuses a whole that is not `each` element of every one of `world` ranks.
fn times(each: usize, world: usize, whole: usize) -> Result<(), Error> {
    let (left, right) = (whole, each.saturating_mul(world));
    if left == right {
        return Ok(());
    }
    Err(accel::Error::LengthMismatch { left, right }.into())
}

/// Asks again and again, less and less often, until it is so.
fn until(
    patience: Duration,
    operation: &'static str,
    is_so: impl Fn() -> Result<bool, Failure>,
) -> Result<(), Error> {
    let begun = Instant::now();
    let mut pause = Duration::ZERO;
    while !is_so()? {
        let waited = begun.elapsed();
        if waited >= patience {
            return Err(Error::Deadline { operation, waited });
        }
        // Most waits are over within microseconds.
        thread::sleep(pause.min(patience.saturating_sub(waited)));
        pause = (pause + Duration::from_micros(5)).min(LONGEST_PAUSE);
    }
    Ok(())
}

const LONGEST_PAUSE: Duration = Duration::from_millis(1);

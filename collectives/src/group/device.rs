//! Operations on buffers of an accelerator, by way of host memory.

mod ends;
mod native;
mod pipeline;
mod slot;
mod task;

use std::fmt::{self, Debug};
use std::num::NonZeroUsize;
use std::panic::Location;

use meshwork_accel::{Accelerator, DeviceBuffer, ElementTask, ElementType, ReduceOp};

use super::Group;
use super::collect::length;
use crate::{Error, Rank, config};
use slot::Slots;
use task::{AllGather, Broadcast, Plan, Reduce, ReduceScatter};

/// A group whose operations take buffers of an accelerator.
///
/// Bytes go through host memory that the other ranks of the host can reach, portion by portion: while
/// one portion is between ranks, the next comes from the device and the one before goes back to it.
/// Results are those of the same operation on host memory, portion by portion; so they have the same
/// bits where those do not depend on the length, as between the ranks of one host, under
/// [`Communication::Reproducible`](crate::Communication::Reproducible), and for all but sums and
/// products of floats.
///
/// A rank with several devices has all of them reduced by
/// [`all_reduce_each`](DeviceGroup::all_reduce_each). Ranks may have different accelerators. All make the same calls, with portions of the same size; a
/// rank without an accelerator takes part by the CPU's.
///
/// ```
/// # fn step<A: meshwork_accel::Accelerator>(
/// #     group: &mut meshwork_collectives::Group,
/// #     accelerator: &A,
/// #     gradients: &mut A::Buffer,
/// # ) -> Result<(), meshwork_collectives::Error> {
/// use meshwork_collectives::ReduceOp;
///
/// let mut devices = group.on(accelerator);
/// devices.all_reduce(gradients, ReduceOp::Mean)?;
/// # Ok(())
/// # }
/// ```
pub struct DeviceGroup<'a, A> {
    group: &'a mut Group,
    accelerator: &'a A,
    portion: NonZeroUsize,
    slots: Slots,
}

impl Group {
    /// This group for buffers of `accelerator`.
    ///
    /// Keep it for several operations: host memory is registered by the first one and used again.
    pub fn on<'a, A: Accelerator>(&'a mut self, accelerator: &'a A) -> DeviceGroup<'a, A> {
        DeviceGroup {
            group: self,
            accelerator,
            portion: PORTION,
            slots: Slots::default(),
        }
    }
}

impl<A: Accelerator> DeviceGroup<'_, A> {
    /// The group itself, for operations on host memory in between.
    pub fn group(&mut self) -> &mut Group {
        self.group
    }

    /// Moves so many bytes at a time, instead of 4 MiB; the same on every rank.
    pub fn set_portion(&mut self, bytes: NonZeroUsize) {
        self.portion = bytes;
        self.slots = Slots::default();
    }

    /// Replaces `buffer`, on every rank, by the reduction of all ranks' buffers.
    ///
    /// # Shapes
    /// `buffer` has the same length on every rank.
    ///
    /// # Errors
    /// Those of [`Group::all_reduce`], and [`Error::Device`] when this rank's device fails, which
    /// ends the group too. The buffer stays what it is, a buffer of its device; after an error other
    /// than [`Error::Unsupported`] it holds unspecified values.
    #[track_caller]
    pub fn all_reduce(&mut self, buffer: &mut A::Buffer, op: ReduceOp) -> Result<(), Error> {
        self.run(buffer.element_type(), Location::caller(), |plan| Reduce {
            plan,
            buffer,
            op,
            root: None,
        })
    }

    /// Replaces `root`'s buffer by the reduction of all ranks' buffers; the others keep theirs.
    ///
    /// # Shapes
    /// `buffer` has the same length on every rank.
    ///
    /// # Errors
    /// [`Error::RankOutside`], and those of [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn reduce(
        &mut self,
        buffer: &mut A::Buffer,
        op: ReduceOp,
        root: Rank,
    ) -> Result<(), Error> {
        config::inside(root, self.group.world())?;
        self.run(buffer.element_type(), Location::caller(), |plan| Reduce {
            plan,
            buffer,
            op,
            root: Some(root),
        })
    }

    /// Replaces `buffer`, on every rank, by the buffer of `root`.
    ///
    /// # Shapes
    /// `buffer` has the same length on every rank.
    ///
    /// # Errors
    /// [`Error::RankOutside`], and those of [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn broadcast(&mut self, buffer: &mut A::Buffer, root: Rank) -> Result<(), Error> {
        config::inside(root, self.group.world())?;
        self.run(buffer.element_type(), Location::caller(), |plan| {
            Broadcast { plan, buffer, root }
        })
    }

    /// Gives every rank the inputs of all, one after the other in the order of the ranks.
    ///
    /// # Shapes
    /// `input` has the same length on every rank, and `output` that length times the world. Both are
    /// of one element type, on any device of the accelerator.
    ///
    /// # Errors
    /// [`Error::Length`], [`Error::Unsupported`] for two element types, and those of
    /// [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn all_gather(&mut self, input: &A::Buffer, output: &mut A::Buffer) -> Result<(), Error> {
        output.check_element(input.element_type())?;
        let whole = input.len().saturating_mul(self.group.world() as usize);
        length("all_gather", "output", output.len(), whole)?;
        self.run(input.element_type(), Location::caller(), |plan| AllGather {
            plan,
            input,
            output,
        })
    }

    /// Reduces all ranks' inputs and leaves each rank with its block of the result.
    ///
    /// # Shapes
    /// `output` has the same length on every rank, and `input` that length times the world: block
    /// `r` of it is for rank `r`. Both are of one element type, on any device of the accelerator.
    ///
    /// # Errors
    /// Those of [`all_gather`](Self::all_gather).
    #[track_caller]
    pub fn reduce_scatter(
        &mut self,
        input: &A::Buffer,
        output: &mut A::Buffer,
        op: ReduceOp,
    ) -> Result<(), Error> {
        output.check_element(input.element_type())?;
        let whole = output.len().saturating_mul(self.group.world() as usize);
        length("reduce_scatter", "input", input.len(), whole)?;
        self.run(input.element_type(), Location::caller(), |plan| {
            ReduceScatter {
                plan,
                input,
                output,
                op,
            }
        })
    }

    fn run<'b, K>(
        &'b mut self,
        element: ElementType,
        caller: &'static Location<'static>,
        task: impl FnOnce(Plan<'b, A>) -> K,
    ) -> Result<(), Error>
    where
        K: ElementTask<Output = Result<(), Error>>,
    {
        element.run(task(Plan {
            group: &mut *self.group,
            accelerator: self.accelerator,
            portion: (self.portion.get() / element.size()).max(1),
            slots: &mut self.slots,
            caller,
        }))
    }
}

impl<A> Debug for DeviceGroup<'_, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceGroup")
            .field("group", &self.group)
            .field("portion", &self.portion)
            .finish_non_exhaustive()
    }
}

/// Long enough for a link to be busy most of the time, and short enough for three to stay in a cache
/// of the last level.
const PORTION: NonZeroUsize = NonZeroUsize::new(4 << 20).expect("more than nothing");

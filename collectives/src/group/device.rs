//! Operations on buffers of an accelerator: by way of host memory, or from device to device.

mod device_route;
mod direct;
mod ends;
mod native;
mod pipeline;
mod rounds;
mod route;
mod slot;
mod task;

use std::fmt::{self, Debug};
use std::num::NonZeroUsize;

use meshwork_accel::{
    Accelerator, DeviceBuffer, DeviceCollective, DeviceCommunicators, DeviceId, ReduceOp, by_type,
};

use super::Group;
use super::collect::length;
use crate::contract::Kind;
use crate::operation::OperationSpec;
use crate::{OperationError, Rank};
use device_route::Held;
use slot::{BufferKind, Slots};
use task::Plan;

pub use device_route::DeviceRoute;
#[cfg(any(test, feature = "testing"))]
pub(crate) use route::decide_any;
pub use route::{CommunicatorScope, FallbackReason, Route};
pub use slot::Pinning;

/// A group whose operations take buffers of an accelerator.
///
/// By [`Group::staged_on`], bytes go through host memory that the other ranks of the host can
/// reach, chunk by chunk: while one chunk is between ranks, the next comes from the device and the
/// one before goes back to it. Results are those of the same operation on host memory, chunk by
/// chunk; so they have the same bits where those do not depend on the length, as between the ranks
/// of one host, under [`Communication::Reproducible`](crate::Communication::Reproducible), and for
/// all but sums and products of floats.
///
/// By [`Group::direct_on`], they go from device to device where all ranks can, without host memory,
/// and [`route`](DeviceGroup::route) says which way was taken and why. Either way every operation
/// is announced by the group first: ranks that disagree are told apart, and one that dies ends it
/// by name.
///
/// A rank with several devices has all of them reduced by
/// [`all_reduce_each`](DeviceGroup::all_reduce_each). Ranks may have different accelerators. All
/// make the same calls, with chunks of the same size; a rank without an accelerator takes part by
/// the CPU's.
///
/// ```
/// # fn step<A: meshwork_accel::Accelerator>(
/// #     group: &mut meshwork_collectives::Group,
/// #     accelerator: &A,
/// #     gradients: &mut A::Buffer,
/// # ) -> Result<(), meshwork_collectives::Error> {
/// use meshwork_collectives::ReduceOp;
///
/// let mut devices = group.staged_on(accelerator);
/// devices.all_reduce(gradients, ReduceOp::Mean)?;
/// # Ok(())
/// # }
/// ```
pub struct DeviceGroup<'a, A: Accelerator> {
    group: &'a mut Group,
    accelerator: &'a A,
    kept: Held<'a, A::Buffer>,
}

impl Group {
    /// This group for buffers of `accelerator`, which go through host memory.
    ///
    /// Keep it for several operations: host memory is registered by the first one and used again.
    pub fn staged_on<'a, A: Accelerator>(&'a mut self, accelerator: &'a A) -> DeviceGroup<'a, A> {
        DeviceGroup {
            group: self,
            accelerator,
            kept: Held::Own(Box::default()),
        }
    }

    /// This group for buffers of `device`, which go from device to device, by NCCL and the like, if
    /// all ranks have the same library and a device of their own, and `reach` allows it; else
    /// through host memory, as by [`staged_on`](Self::staged_on). All ranks call it, like any
    /// operation.
    ///
    /// It makes a communicator, which takes up to seconds, so keep it for many operations, and
    /// [`close`](DeviceGroup::close) it; where the group is needed meanwhile, see
    /// [`device_route`](Self::device_route). Within a host nothing is encrypted, as nothing leaves
    /// it; for what leaves it see [`CommunicatorScope`]. After [`shrink`](Self::shrink) and
    /// [`grow`](Self::grow) it is to be made anew.
    ///
    /// ```
    /// # fn train<A: meshwork_accel::DeviceCommunicators>(
    /// #     group: &mut meshwork_collectives::Group,
    /// #     accelerator: &A,
    /// #     device: meshwork_accel::DeviceId,
    /// #     gradients: &mut A::Buffer,
    /// # ) -> Result<(), meshwork_collectives::Error> {
    /// use meshwork_collectives::{CommunicatorScope, ReduceOp};
    ///
    /// let mut devices = group.direct_on(accelerator, device, CommunicatorScope::OneHost)?;
    /// println!("gradients go {}", devices.route());
    /// for _ in 0..100 {
    ///     devices.all_reduce(gradients, ReduceOp::Mean)?;
    /// }
    /// devices.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`all_reduce`](Self::all_reduce); [`OperationError::Unsupported`] for a device that
    /// the accelerator does not have.
    #[track_caller]
    pub fn direct_on<'a, A: DeviceCommunicators>(
        &'a mut self,
        accelerator: &'a A,
        device: DeviceId,
        reach: CommunicatorScope,
    ) -> Result<DeviceGroup<'a, A>, OperationError> {
        let kept = Held::Own(Box::new(self.device_route(accelerator, device, reach)?));
        Ok(DeviceGroup {
            group: self,
            accelerator,
            kept,
        })
    }
}

impl<A: Accelerator> DeviceGroup<'_, A> {
    /// The group itself, for operations on host memory in between.
    pub fn group(&mut self) -> &mut Group {
        self.group
    }

    /// By which way buffers go between ranks, and why; the same on every rank.
    pub fn route(&self) -> &Route {
        self.kept.route()
    }

    /// Whether the host memory that buffers go through is pinned for this rank's device.
    pub fn pinning(&self) -> &Pinning {
        self.kept.pinning()
    }

    /// Ends the communicator, if there is one, when all ranks have called this. One that is dropped
    /// without it is aborted, under the hands of those that have not finished. A route that was
    /// lent stays.
    ///
    /// # Errors
    /// Those of [`Group::barrier`].
    #[track_caller]
    pub fn close(self) -> Result<(), OperationError> {
        match self.kept {
            Held::Own(kept) => kept.close(self.group),
            Held::Lent(_) => Ok(()),
        }
    }

    /// Waits until a device has done all that was asked of it: a buffer that goes through host
    /// memory may still be written to when its operation returns.
    ///
    /// # Errors
    /// [`OperationError::Device`], which ends the group too.
    pub fn synchronize(&mut self, device: DeviceId) -> Result<(), OperationError> {
        let done = self.accelerator.synchronize(device);
        done.map_err(|error| self.group.device_failed(error))
    }

    /// Moves so many bytes at a time through host memory, instead of 4 MiB; the same on every rank.
    pub fn set_chunk(&mut self, bytes: NonZeroUsize) {
        self.kept.chunk = bytes;
        self.kept.slots = Slots::default();
    }

    /// Replaces `buffer`, on every rank, by the reduction of all ranks' buffers.
    ///
    /// # Shapes
    /// `buffer` has the same length on every rank.
    ///
    /// # Errors
    /// Those of [`Group::all_reduce`], and [`OperationError::Device`] when this rank's device
    /// fails, which ends the group too. The buffer stays what it is, a buffer of its device; after
    /// an error other than [`OperationError::Unsupported`] it holds unspecified values.
    #[track_caller]
    pub fn all_reduce(
        &mut self,
        buffer: &mut A::Buffer,
        op: ReduceOp,
    ) -> Result<(), OperationError> {
        let values = buffer;
        self.carry_out(DeviceCollective::AllReduce { op, values })
    }

    /// Replaces `root`'s buffer by the reduction of all ranks' buffers; the others keep theirs.
    ///
    /// # Shapes
    /// `buffer` has the same length on every rank.
    ///
    /// # Errors
    /// [`OperationError::RankOutside`], and those of [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn reduce(
        &mut self,
        buffer: &mut A::Buffer,
        op: ReduceOp,
        root: Rank,
    ) -> Result<(), OperationError> {
        self.group.check_rank(root)?;
        let (values, root) = (buffer, root.index());
        self.carry_out(DeviceCollective::Reduce { op, values, root })
    }

    /// Replaces `buffer`, on every rank, by the buffer of `root`.
    ///
    /// # Shapes
    /// `buffer` has the same length on every rank.
    ///
    /// # Errors
    /// [`OperationError::RankOutside`], and those of [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn broadcast(&mut self, buffer: &mut A::Buffer, root: Rank) -> Result<(), OperationError> {
        self.group.check_rank(root)?;
        let (values, root) = (buffer, root.index());
        self.carry_out(DeviceCollective::Broadcast { values, root })
    }

    /// Gives every rank the inputs of all, one after the other in the order of the ranks.
    ///
    /// # Shapes
    /// `input` has the same length on every rank, and `output` that length times the world. Both
    /// are of one element type, on any device of the accelerator, or on that of the communicator.
    ///
    /// # Errors
    /// [`OperationError::Length`], [`OperationError::Unsupported`] for two element types, and those
    /// of [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn all_gather(
        &mut self,
        input: &A::Buffer,
        output: &mut A::Buffer,
    ) -> Result<(), OperationError> {
        output.check_element(input.element_type())?;
        let whole = input.len().saturating_mul(self.group.world() as usize);
        length("all_gather", "output", output.len(), whole)?;
        self.carry_out(DeviceCollective::AllGather { input, output })
    }

    /// Reduces all ranks' inputs and leaves each rank with its block of the result.
    ///
    /// # Shapes
    /// `output` has the same length on every rank, and `input` that length times the world: block
    /// `r` of it is for rank `r`. Both are of one element type, on any device of the accelerator,
    /// or on that of the communicator.
    ///
    /// # Errors
    /// Those of [`all_gather`](Self::all_gather).
    #[track_caller]
    pub fn reduce_scatter(
        &mut self,
        input: &A::Buffer,
        output: &mut A::Buffer,
        op: ReduceOp,
    ) -> Result<(), OperationError> {
        output.check_element(input.element_type())?;
        let whole = output.len().saturating_mul(self.group.world() as usize);
        length("reduce_scatter", "input", input.len(), whole)?;
        self.carry_out(DeviceCollective::ReduceScatter { op, input, output })
    }

    /// By a communicator, or chunk by chunk.
    #[track_caller]
    fn carry_out(&mut self, work: DeviceCollective<'_, A::Buffer>) -> Result<(), OperationError> {
        let spec = spec(&work, self.group.world());
        let direct = self.kept.direct.as_mut();
        if let Some(direct) = direct.filter(|direct| direct.takes(&work)) {
            return direct.carry_out(self.group, spec, work);
        }
        let kind = BufferKind::of(work.target());
        let (element, plan) = (kind.element, self.plan(kind, spec));
        match work {
            DeviceCollective::AllReduce { op, values }
            | DeviceCollective::Reduce { op, values, .. } => {
                by_type!(element, T, task::reduce::<T, A>(plan, values, op))
            }
            DeviceCollective::Broadcast { values, root } => {
                let root = rank(root);
                by_type!(element, T, task::broadcast::<T, A>(plan, values, root))
            }
            DeviceCollective::AllGather { input, output } => {
                by_type!(element, T, task::all_gather::<T, A>(plan, input, output))
            }
            DeviceCollective::ReduceScatter { input, output, .. } => {
                by_type!(
                    element,
                    T,
                    task::reduce_scatter::<T, A>(plan, input, output)
                )
            }
        }
    }

    fn plan(&mut self, kind: BufferKind, spec: OperationSpec) -> Plan<'_, A> {
        let kept = &mut *self.kept;
        Plan {
            group: &mut *self.group,
            accelerator: self.accelerator,
            chunk: (kept.chunk.get() / kind.element.size()).max(1),
            slots: &mut kept.slots,
            kind,
            spec,
        }
    }
}

/// What all ranks must agree on of a collective on whole buffers.
#[track_caller]
fn spec<B: DeviceBuffer>(work: &DeviceCollective<'_, B>, world: u32) -> OperationSpec {
    let len = work.target().len();
    let spec = match work {
        DeviceCollective::AllReduce { .. } => OperationSpec::new(Kind::AllReduce, len),
        DeviceCollective::Reduce { root, .. } => {
            OperationSpec::new(Kind::Reduce, len).with_root(rank(*root))
        }
        DeviceCollective::Broadcast { root, .. } => {
            OperationSpec::new(Kind::Broadcast, len).with_root(rank(*root))
        }
        DeviceCollective::AllGather { .. } => OperationSpec::new(Kind::AllGather, len),
        // Its blocks are as many as the ranks, and were checked to be.
        DeviceCollective::ReduceScatter { .. } => {
            OperationSpec::new(Kind::ReduceScatter, len.saturating_mul(world as usize))
        }
    };
    match work.op() {
        Some(op) => spec.with_op(op),
        None => spec,
    }
}

/// A place that was a rank of a group.
fn rank(place: usize) -> Rank {
    Rank::new(u32::try_from(place).expect("it was a rank, which is a u32"))
}

impl<A: Accelerator> Debug for DeviceGroup<'_, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceGroup")
            .field("group", &self.group)
            .field("kept", &*self.kept)
            .finish_non_exhaustive()
    }
}

/// Long enough for a link to be busy most of the time, and short enough for three to stay in a
/// cache of the last level.
const CHUNK: NonZeroUsize = NonZeroUsize::new(4 << 20).expect("more than nothing");

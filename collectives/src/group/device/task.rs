//! Each operation as chunks: between which ends they pass, and how between ranks.

use std::marker::PhantomData;
use std::ops::Range;

use meshwork_accel::{Accelerator, DeviceBuffer, Element, ReduceOp, Reduction};

use super::ends::{Blocks, Ends, Gathered, InPlace, Scattered};
use super::pipeline::{Stop, run};
use super::slot::{BufferKind, Room, Slot, Slots};
use crate::operation::{OperationSpec, Work};
use crate::{Group, OperationError, Rank};

/// What all operations need.
pub(super) struct Plan<'a, A: Accelerator> {
    pub(super) group: &'a mut Group,
    pub(super) accelerator: &'a A,
    /// Elements that pass at a time.
    pub(super) chunk: usize,
    pub(super) slots: &'a mut Slots<A::Buffer>,
    /// Of the buffers: what slots hold, and where they are pinned for.
    pub(super) kind: BufferKind,
    /// What all ranks must agree on; the count is that of each chunk.
    pub(super) spec: OperationSpec,
}

pub(super) fn reduce<T: Element, A: Accelerator>(
    plan: Plan<'_, A>,
    buffer: &mut A::Buffer,
    op: ReduceOp,
) -> Result<(), OperationError> {
    let root = plan.spec.root;
    let reduction = Reduction::<T>::new(op)?;
    let extent = Extent::whole(buffer.len());
    let gets = root.is_none_or(|root| root == plan.group.rank());
    let mut ends = InPlace {
        accelerator: plan.accelerator,
        buffer,
        gives: true,
        gets,
        elements: PhantomData::<T>,
    };
    plan.walk::<T>(
        extent,
        &mut ends,
        |group, spec, slot: &mut Slot<A::Buffer>| {
            let buffer = group.reached(slot.given::<T>(spec.count))?;
            let work = Work::Reduce {
                buffer,
                reduction,
                root,
            };
            group.perform(spec, work)
        },
    )
}

pub(super) fn broadcast<T: Element, A: Accelerator>(
    plan: Plan<'_, A>,
    buffer: &mut A::Buffer,
    root: Rank,
) -> Result<(), OperationError> {
    let extent = Extent::whole(buffer.len());
    let gives = root == plan.group.rank();
    let mut ends = InPlace {
        accelerator: plan.accelerator,
        buffer,
        gives,
        gets: !gives,
        elements: PhantomData::<T>,
    };
    plan.walk::<T>(
        extent,
        &mut ends,
        |group, spec, slot: &mut Slot<A::Buffer>| {
            let buffer = group.reached(slot.given::<T>(spec.count))?;
            group.perform(spec, Work::Broadcast { buffer, root })
        },
    )
}

pub(super) fn all_gather<T: Element, A: Accelerator>(
    plan: Plan<'_, A>,
    input: &A::Buffer,
    output: &mut A::Buffer,
) -> Result<(), OperationError> {
    let world = plan.group.world() as usize;
    let extent = Extent::blocks(input.len(), world, Side::Got);
    let mut ends = Gathered(Blocks {
        accelerator: plan.accelerator,
        len: input.len(),
        input,
        output,
        world,
        elements: PhantomData::<T>,
    });
    plan.walk::<T>(
        extent,
        &mut ends,
        |group, spec, slot: &mut Slot<A::Buffer>| {
            let len = spec.count / world;
            let (given, got) = group.reached(slot.both::<T>(len, spec.count))?;
            let blocks = group.even(len);
            group.gather_blocks(spec, given, Some(got), &blocks)
        },
    )
}

pub(super) fn reduce_scatter<T: Element, A: Accelerator>(
    plan: Plan<'_, A>,
    input: &A::Buffer,
    output: &mut A::Buffer,
) -> Result<(), OperationError> {
    let world = plan.group.world() as usize;
    let extent = Extent::blocks(output.len(), world, Side::Given);
    let mut ends = Scattered(Blocks {
        accelerator: plan.accelerator,
        len: output.len(),
        input,
        output,
        world,
        elements: PhantomData::<T>,
    });
    plan.walk::<T>(
        extent,
        &mut ends,
        |group, spec, slot: &mut Slot<A::Buffer>| {
            let len = spec.count / world;
            let (given, got) = group.reached(slot.both::<T>(spec.count, len))?;
            let blocks = group.even(len);
            group.fold_blocks(spec, given, got, &blocks)
        },
    )
}

/// How much an operation moves.
#[derive(Clone, Copy)]
struct Extent {
    /// Elements that are cut into chunks.
    len: usize,
    /// Elements that pass for each of them.
    times: usize,
    side: Side,
}

/// On which side of the ranks there are more elements.
#[derive(Clone, Copy)]
enum Side {
    /// Nothing but a buffer that is worked on in place.
    Neither,
    Given,
    Got,
}

impl Extent {
    fn whole(len: usize) -> Self {
        let (times, side) = (1, Side::Neither);
        Self { len, times, side }
    }

    fn blocks(len: usize, times: usize, side: Side) -> Self {
        Self { len, times, side }
    }

    /// Ranges of at most so many elements, of which at least one, so that all ranks meet.
    fn chunks(self, most: usize) -> Vec<Range<usize>> {
        let starts = (0..self.len.max(1)).step_by(most);
        let ranges = starts.map(|start| start..self.len.min(start.saturating_add(most)));
        ranges.collect()
    }

    /// Bytes of a slot on either side, for chunks of so many elements of a size.
    fn room(self, chunk: usize, size: usize) -> Room {
        let (one, all) = (chunk * size, chunk * size * self.times);
        let (given, got) = match self.side {
            Side::Neither => (one, 0),
            Side::Given => (all, one),
            Side::Got => (one, all),
        };
        Room { given, got }
    }
}

impl Group {
    /// What a device has given, or the end of the group.
    fn reached<R>(&mut self, given: Result<R, meshwork_accel::Error>) -> Result<R, OperationError> {
        given.map_err(|error| self.device_failed(error))
    }

    /// Ends the group after this rank's device has failed: the others wait for what never comes.
    pub(super) fn device_failed(&mut self, error: meshwork_accel::Error) -> OperationError {
        let rank = self.rank();
        self.abort(format!("its device failed: {error}"));
        let error = Box::new(error);
        OperationError::Device { rank, error }
    }
}

impl<A: Accelerator> Plan<'_, A> {
    /// Moves all chunks.
    fn walk<T: Element>(
        self,
        extent: Extent,
        ends: &mut impl Ends<Slot<A::Buffer>, meshwork_accel::Error>,
        mut pass: impl FnMut(
            &mut Group,
            OperationSpec,
            &mut Slot<A::Buffer>,
        ) -> Result<(), OperationError>
        + Send,
    ) -> Result<(), OperationError> {
        let Self {
            group,
            accelerator,
            chunk,
            slots,
            kind,
            spec,
        } = self;
        let most = (chunk / extent.times).max(1);
        let chunks = extent.chunks(most);
        let counted = |len: usize| OperationSpec {
            count: len * extent.times,
            ..spec
        };
        if chunks.len() > 1 {
            // Ranks that differ in length might else do so after most chunks have passed.
            let whole = counted(extent.len).with_lengths(&[most]);
            group.agree(T::TYPE, whole)?;
        }
        let room = extent.room(most.min(extent.len), size_of::<T>());
        let mut held = match slots.take(group, accelerator, kind, room) {
            Ok(held) => held,
            Err(error) => {
                // The others wait for the first chunk.
                group.abort(format!("there are no slots for chunks: {error}"));
                return Err(error);
            }
        };
        let passing = &mut *group;
        let done = run(&mut held, &chunks, ends, move |slot, chunk| {
            pass(passing, counted(chunk.len()), slot)
        });
        slots.put(T::TYPE, held);
        done.map_err(|stop| match stop {
            Stop::Between(error) => error,
            Stop::Here(error) => group.device_failed(error),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_tile_what_is_moved_and_are_never_none() {
        for len in 0..40 {
            for most in 1..10 {
                let chunks = Extent::whole(len).chunks(most);
                assert_eq!(chunks.len(), len.div_ceil(most).max(1));
                assert!(chunks.iter().all(|chunk| chunk.len() <= most));
                let all: Vec<usize> = chunks.into_iter().flatten().collect();
                assert!(all.into_iter().eq(0..len));
            }
        }
    }

    #[test]
    fn the_largest_chunk_of_all_does_not_overflow() {
        let only = Extent::whole(3).chunks(usize::MAX);
        assert_eq!(only.len(), 1);
        assert_eq!(only[0], 0..3);
    }
}

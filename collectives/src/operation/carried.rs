//! Work on elements of any type as work on numbers of their size.
//!
//! What moves bytes asks only for the size of elements, and reductions know whose bits they are
//! given. So whatever carries operations out is compiled here, once for each size, and not in every
//! crate for each of the types that it sums up.
//!
//! Work is inlined on its way: wherever it is moved it is read in wider pieces than it has just
//! been written in, and a processor waits for that.

use bytemuck::checked;
use meshwork_accel::{Element, Reduction};

use super::{OnArrival, SendBlocks, Transfer, Work, WorkKind};

/// Work on buffers of elements that only the contract tells the type of.
pub(crate) enum Carried<'a> {
    /// Of truth values, as not all bytes are some.
    Truth(Work<'a, bool>),
    /// Of elements of one byte.
    One(Work<'a, u8>),
    /// Of two.
    Two(Work<'a, u16>),
    /// Of four.
    Four(Work<'a, u32>),
    /// Of eight.
    Eight(Work<'a, u64>),
}

impl<'a> Carried<'a> {
    #[inline(always)]
    pub(crate) fn of<T: Element>(work: Work<'a, T>) -> Self {
        if T::truth_mut(&mut []).is_some() {
            return Self::Truth(work.cast(|values| {
                T::truth_mut(values).expect("a type that has them for none has them for all")
            }));
        }
        match size_of::<T>() {
            1 => Self::One(work.cast(bits_mut)),
            2 => Self::Two(work.cast(bits_mut)),
            4 => Self::Four(work.cast(bits_mut)),
            8 => Self::Eight(work.cast(bits_mut)),
            size => unreachable!("no element has {size} bytes"),
        }
    }

    pub(crate) fn kind(&self) -> WorkKind {
        match self {
            Self::Truth(work) => work.kind(),
            Self::One(work) => work.kind(),
            Self::Two(work) => work.kind(),
            Self::Four(work) => work.kind(),
            Self::Eight(work) => work.kind(),
        }
    }
}

/// The memory of elements as numbers of their size.
#[inline(always)]
fn bits_mut<T: Element, U: Element>(values: &mut [T]) -> &mut [U] {
    let bytes = T::bytes_mut(values).expect("all bytes are values but of truth values");
    checked::cast_slice_mut(bytes)
}

impl<'a, T: Element> Work<'a, T> {
    /// The same on numbers of the size of the elements.
    #[inline(always)]
    fn cast<U: Element>(self, memory: impl Fn(&'a mut [T]) -> &'a mut [U]) -> Work<'a, U> {
        match self {
            Self::Barrier => Work::Barrier,
            Self::Agree => Work::Agree,
            Self::Reduce {
                buffer,
                reduction,
                root,
            } => Work::Reduce {
                buffer: memory(buffer),
                reduction: carrying(&reduction),
                root,
            },
            Self::Exchange(transfer) => Work::Exchange(Transfer {
                outgoing_blocks: transfer.outgoing_blocks.cast(),
                receives: transfer.receives,
                output: memory(transfer.output),
                then: transfer.then.cast(),
            }),
            Self::Broadcast { buffer, root } => Work::Broadcast {
                buffer: memory(buffer),
                root,
            },
            Self::Send { input, to } => Work::Send {
                input: checked::cast_slice(input),
                to,
            },
            Self::Receive { output, from } => Work::Receive {
                output: memory(output),
                from,
            },
        }
    }
}

impl<'a, T: Element> SendBlocks<'a, T> {
    /// The same blocks of numbers of the size of the elements.
    pub(crate) fn cast<U: Element>(self) -> SendBlocks<'a, U> {
        SendBlocks {
            input: checked::cast_slice(self.input),
            blocks: self.blocks,
            parts: self.parts,
            taker: self.taker,
            counts: self.counts,
        }
    }
}

impl<T: Element> OnArrival<T> {
    /// The same with numbers of the size of the elements.
    pub(crate) fn cast<U: Element>(&self) -> OnArrival<U> {
        match self {
            Self::Copy => OnArrival::Copy,
            Self::Fold(reduction) => OnArrival::Fold(carrying(reduction)),
        }
    }
}

/// The reduction of the same elements, given as numbers of their size.
#[inline(always)]
pub(crate) fn carrying<T: Element, U: Element>(reduction: &Reduction<T>) -> Reduction<U> {
    Reduction::carrying(reduction.element(), reduction.op())
        .expect("numbers carry the elements of their size, with every op that these have")
}

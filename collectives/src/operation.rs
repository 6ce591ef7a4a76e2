//! What is asked of a session: which operation, with which buffers, and what becomes of them.
//!
//! How bytes travel is no part of it: shared memory and links carry out the same [`Work`].

mod carried;

use std::ops::Range;
use std::panic::Location;

use meshwork_accel::{Element, ElementType, ReduceOp, Reduction};

use crate::Rank;
use crate::contract::{Call, Contract, Kind, site};
use crate::flight_recorder::Serial;

pub(crate) use carried::{Carried, carrying};

/// What was asked for: the part of it that all ranks must agree on, and from which line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OperationSpec {
    /// The line of the program that made the call.
    pub(crate) caller: &'static Location<'static>,
    pub(crate) kind: Kind,
    pub(crate) op: Option<ReduceOp>,
    pub(crate) root: Option<Rank>,
    /// Elements, by a rule that gives the same number on every rank.
    pub(crate) count: usize,
    /// Stands for the lengths of uneven blocks.
    pub(crate) digest: u64,
}

impl OperationSpec {
    /// Called by whoever called the first function that is not marked with `track_caller`.
    #[track_caller]
    pub(crate) fn new(kind: Kind, count: usize) -> Self {
        Self {
            caller: Location::caller(),
            kind,
            op: None,
            root: None,
            count,
            digest: 0,
        }
    }

    /// Another call has asked for it, as where a thread carries out what was started before.
    pub(crate) fn called_from(self, caller: &'static Location<'static>) -> Self {
        Self { caller, ..self }
    }

    pub(crate) fn with_op(self, op: ReduceOp) -> Self {
        Self {
            op: Some(op),
            ..self
        }
    }

    pub(crate) fn with_root(self, root: Rank) -> Self {
        Self {
            root: Some(root),
            ..self
        }
    }

    /// The contract of the operation with this number in this group and epoch.
    pub(crate) fn contract(
        self,
        element: ElementType,
        epoch: u64,
        group: u64,
        sequence: u64,
    ) -> Contract {
        Contract {
            epoch,
            group,
            sequence,
            kind: self.kind,
            algorithm: None,
            element,
            count: self.count as u64,
            op: self.op,
            root: self.root,
        }
    }

    /// By FNV-1a, never 0, which stands for even blocks.
    pub(crate) fn with_lengths(self, lengths: &[usize]) -> Self {
        let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        let bytes = lengths.iter().flat_map(|len| (*len as u64).to_le_bytes());
        let digest = bytes.fold(0xcbf2_9ce4_8422_2325, step).max(1);
        Self { digest, ..self }
    }
}

/// An operation that has begun.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    pub(crate) contract: Contract,
    /// Stands for what the contract has no room for: the lengths of uneven blocks.
    pub(crate) digest: u64,
    /// The line of the program that made the call.
    pub(crate) caller: &'static Location<'static>,
    /// Its number in the flight recorder.
    pub(crate) serial: Serial,
}

impl Request {
    /// The call, as errors show it.
    pub(crate) fn call(&self) -> Call {
        Call::new(self.contract, site(self.caller))
    }
}

#[cfg(any(test, feature = "testing"))]
impl Request {
    /// That of a call which no session makes, and no recorder notes.
    #[track_caller]
    pub(crate) fn unrecorded(contract: Contract) -> Self {
        Self {
            contract,
            digest: 0,
            caller: Location::caller(),
            serial: Serial::default(),
        }
    }
}

/// The buffers of an operation, and what is to be done with them.
pub(crate) enum Work<'a, T: Element> {
    /// Nothing moves; nobody goes on before all have come.
    Barrier,
    /// Nothing moves; neighbours agree on the call.
    Agree,
    /// The root's buffer, or everybody's, becomes the reduction of all.
    Reduce {
        buffer: &'a mut [T],
        reduction: Reduction<T>,
        root: Option<Rank>,
    },
    /// Blocks go from whoever offers them to whoever takes them.
    Exchange(Transfer<'a, T>),
    /// The root's buffer becomes everybody's.
    Broadcast {
        buffer: &'a mut [T],
        root: Rank,
    },
    Send {
        input: &'a [T],
        to: Rank,
    },
    Receive {
        output: &'a mut [T],
        from: Rank,
    },
}

/// Which work it is, whatever the elements.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WorkKind {
    Barrier,
    Agree,
    Reduce { root: Option<Rank> },
    Exchange,
    Broadcast { root: Rank },
    Send,
    Receive,
}

impl<T: Element> Work<'_, T> {
    pub(crate) fn kind(&self) -> WorkKind {
        match *self {
            Self::Barrier => WorkKind::Barrier,
            Self::Agree => WorkKind::Agree,
            Self::Reduce { root, .. } => WorkKind::Reduce { root },
            Self::Exchange(_) => WorkKind::Exchange,
            Self::Broadcast { root, .. } => WorkKind::Broadcast { root },
            Self::Send { .. } => WorkKind::Send,
            Self::Receive { .. } => WorkKind::Receive,
        }
    }
}

/// What a rank hands over: its input, cut in blocks.
pub(crate) struct SendBlocks<'a, T> {
    pub(crate) input: &'a [T],
    /// The elements of each block; none where others take nothing from this rank.
    pub(crate) blocks: &'a [Range<usize>],
    /// How many blocks a rank that offers any has: one for all, or one for each rank.
    pub(crate) parts: usize,
    /// The only rank that takes any, where there is one.
    pub(crate) taker: Option<usize>,
    /// Elements for each rank, shown to all where they differ from pair to pair.
    pub(crate) counts: Option<&'a [usize]>,
}

impl<'a, T> SendBlocks<'a, T> {
    /// One block for whoever takes it.
    pub(crate) fn whole(input: &'a [T], block: &'a [Range<usize>]) -> Self {
        Self {
            input,
            blocks: block,
            parts: 1,
            taker: None,
            counts: None,
        }
    }

    /// A block for each rank.
    pub(crate) fn each(input: &'a [T], blocks: &'a [Range<usize>]) -> Self {
        Self {
            input,
            blocks,
            parts: blocks.len(),
            taker: None,
            counts: None,
        }
    }

    /// Only this rank takes any.
    pub(crate) fn only_for(mut self, taker: usize) -> Self {
        self.taker = Some(taker);
        self
    }

    /// Which part of the input the rank at this place takes, if any.
    pub(crate) fn range_for(&self, place: usize) -> Option<Range<usize>> {
        let index = if self.parts == 1 { 0 } else { place };
        let receives = self.taker.is_none_or(|taker| taker == place);
        self.blocks.get(index).filter(|_| receives).cloned()
    }

    /// No block, where others offer this many.
    pub(crate) fn nothing(parts: usize) -> Self {
        Self {
            input: &[],
            blocks: &[],
            parts,
            taker: None,
            counts: None,
        }
    }
}

/// One block of another rank's input, and where it goes.
#[derive(Clone, Debug)]
pub(crate) struct ReceiveBlock {
    /// Whose, by place.
    pub(crate) from: usize,
    /// Which of its blocks.
    pub(crate) block: usize,
    /// Where the block begins in its input, in elements; found out when the input has counts.
    pub(crate) start: usize,
    /// Where it goes in the output; as long as the block.
    pub(crate) into: Range<usize>,
}

impl ReceiveBlock {
    pub(crate) fn new(from: usize, block: usize, start: usize, into: Range<usize>) -> Self {
        Self {
            from,
            block,
            start,
            into,
        }
    }
}

/// What a rank gives and takes in one operation.
pub(crate) struct Transfer<'a, T: Element> {
    pub(crate) outgoing_blocks: SendBlocks<'a, T>,
    pub(crate) receives: &'a [ReceiveBlock],
    pub(crate) output: &'a mut [T],
    pub(crate) then: OnArrival<T>,
}

/// What becomes of the blocks that are taken.
#[derive(Debug)]
pub(crate) enum OnArrival<T: Element> {
    /// Each is copied to its place.
    Copy,
    /// All go to one place, which becomes their reduction; each rank takes one block of each.
    Fold(Reduction<T>),
}

//! What is asked of an engine.

use meshwork_accel::{Element, ReduceOp, Reduction};

use crate::Rank;
use crate::contract::{Contract, Kind};
use crate::shm::Transfer;

/// What a caller asked for: the part of it that all ranks must agree on.
#[derive(Clone, Copy, Debug)]
pub(in crate::group) struct OperationSpec {
    pub(in crate::group) kind: Kind,
    pub(in crate::group) op: Option<ReduceOp>,
    pub(in crate::group) root: Option<Rank>,
    /// Elements, by a rule that gives the same number on every rank.
    pub(in crate::group) count: usize,
    /// Stands for the lengths of uneven blocks.
    pub(in crate::group) digest: u64,
}

impl OperationSpec {
    pub(in crate::group) fn new(kind: Kind, count: usize) -> Self {
        Self {
            kind,
            op: None,
            root: None,
            count,
            digest: 0,
        }
    }

    pub(in crate::group) fn with_op(self, op: ReduceOp) -> Self {
        Self {
            op: Some(op),
            ..self
        }
    }

    pub(in crate::group) fn with_root(self, root: Rank) -> Self {
        Self {
            root: Some(root),
            ..self
        }
    }

    /// The contract of the operation with this number in this group and epoch.
    pub(super) fn contract<T: Element>(
        self,
        (epoch, group): (u64, u64),
        sequence: u64,
    ) -> Contract {
        Contract {
            epoch,
            group,
            sequence,
            kind: self.kind,
            algorithm: None,
            element: T::TYPE,
            count: self.count as u64,
            op: self.op,
            root: self.root,
        }
    }

    /// By FNV-1a, never 0, which stands for even blocks.
    pub(in crate::group) fn with_lengths(self, lengths: &[usize]) -> Self {
        let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        let bytes = lengths.iter().flat_map(|len| (*len as u64).to_le_bytes());
        let digest = bytes.fold(0xcbf2_9ce4_8422_2325, step).max(1);
        Self { digest, ..self }
    }
}

/// The buffers of an operation, and what is to be done with them.
pub(in crate::group) enum Work<'a, T> {
    /// Nothing moves; all meet.
    Meet,
    /// Nothing moves; neighbours agree on the call.
    Agree,
    /// The root's buffer, or everybody's, becomes the reduction of all.
    Reduce {
        buffer: &'a mut [T],
        reduction: Reduction<T>,
        root: Option<Rank>,
    },
    /// Blocks go from whoever offers them to whoever takes them.
    Pull(Transfer<'a, T>),
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

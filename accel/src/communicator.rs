//! Collectives between processes, by what lies between their devices.

use std::fmt::{self, Debug};
use std::ops::ControlFlow;

use crate::{Accelerator, DeviceBuffer, DeviceId, ElementType, Error, ReduceOp};

/// A backend whose devices reduce and share buffers with those of other processes, without host
/// memory.
///
/// It does not bring processes together: one of them makes a name, which travels to the others by a
/// way that they have already, and then all join. Nothing is encrypted that such a library sends.
pub trait DeviceCommunicators: Accelerator {
    /// The library that does it, with its version: all ranks need the same.
    ///
    /// # Errors
    /// [`Error::Unavailable`], which names the remedy.
    fn library(&self) -> Result<String, Error>;

    /// A name for a new communicator. This process must live until all ranks have joined.
    ///
    /// # Errors
    /// [`Error::Unavailable`], also where no network can be used.
    fn name(&self) -> Result<CommunicatorId, Error>;

    /// Joins the other ranks with `device`, which is no other rank's.
    ///
    /// # Errors
    /// [`Error::UnknownDevice`]; [`Error::GivenUp`] if `cancel_check` breaks before all have come;
    /// [`Error::Unavailable`], [`Error::DeviceFailed`], [`Error::PeerLost`].
    fn join(
        &self,
        device: DeviceId,
        name: &CommunicatorId,
        place: CommunicatorRank,
        cancel_check: &mut CancelCheck<'_>,
    ) -> Result<Box<dyn DeviceCommunicator<Buffer = Self::Buffer>>, Error>;
}

/// One rank's end of a communicator, on one device. Dropped, it is aborted: do so when all ranks
/// have finished.
pub trait DeviceCommunicator: Send {
    /// Memory on the device.
    type Buffer: DeviceBuffer;

    /// Whether it can move such elements, and reduce them by `op` if there is one: the same on all
    /// ranks.
    fn supports(&self, op: Option<ReduceOp>, element: ElementType) -> bool;

    /// Carries a collective out, which all ranks call with the same op, root, type and lengths;
    /// that is not checked here. Results are there when it returns, with the same bits on every
    /// rank.
    ///
    /// # Errors
    /// [`Error::GivenUp`] if `cancel_check` breaks before it is done, [`Error::PeerLost`] and
    /// [`Error::DeviceFailed`]: it is aborted then, buffers hold unspecified values, and every
    /// later call is [`Error::CommunicatorBroken`]. Errors of arguments, as those of
    /// [`NativeCollectives`](crate::NativeCollectives), break nothing.
    fn carry_out(
        &mut self,
        work: DeviceCollective<'_, Self::Buffer>,
        cancel_check: &mut CancelCheck<'_>,
    ) -> Result<(), Error>;
}

/// Called every few milliseconds by the waiting thread: a break ends the wait.
pub type CancelCheck<'a> = dyn FnMut() -> ControlFlow<()> + 'a;

/// A collective with this rank's buffers.
#[derive(Debug)]
pub enum DeviceCollective<'a, B> {
    /// Replaces `values` on every rank by `op` of all, divided by the number of ranks for a mean.
    AllReduce {
        /// How two elements become one.
        op: ReduceOp,
        /// As many on every rank.
        values: &'a mut B,
    },
    /// The same on `root` alone; the others keep what they have.
    Reduce {
        /// How two elements become one.
        op: ReduceOp,
        /// As many on every rank.
        values: &'a mut B,
        /// The rank that gets the result.
        root: usize,
    },
    /// Replaces `values` on every rank by those of `root`.
    Broadcast {
        /// As many on every rank.
        values: &'a mut B,
        /// The rank whose values they become.
        root: usize,
    },
    /// Replaces `output` by all inputs in the order of the ranks.
    AllGather {
        /// As many on every rank.
        input: &'a B,
        /// That times the ranks.
        output: &'a mut B,
    },
    /// Leaves each rank its block of `op` of all inputs, divided by the number of ranks for a mean.
    ReduceScatter {
        /// How two elements become one.
        op: ReduceOp,
        /// The length of `output` times the ranks.
        input: &'a B,
        /// As many on every rank.
        output: &'a mut B,
    },
}

impl<B: DeviceBuffer> DeviceCollective<'_, B> {
    /// Its op, if it reduces.
    #[must_use]
    pub fn op(&self) -> Option<ReduceOp> {
        match self {
            Self::AllReduce { op, .. }
            | Self::Reduce { op, .. }
            | Self::ReduceScatter { op, .. } => Some(*op),
            Self::Broadcast { .. } | Self::AllGather { .. } => None,
        }
    }

    /// The buffer that it writes to, on some ranks at least.
    #[must_use]
    pub fn target(&self) -> &B {
        match self {
            Self::AllReduce { values, .. }
            | Self::Reduce { values, .. }
            | Self::Broadcast { values, .. } => values,
            Self::AllGather { output, .. } | Self::ReduceScatter { output, .. } => output,
        }
    }

    /// The buffer that it only reads, if there is one.
    #[must_use]
    pub fn source(&self) -> Option<&B> {
        match self {
            Self::AllGather { input, .. } | Self::ReduceScatter { input, .. } => Some(input),
            _ => None,
        }
    }
}

/// The id that the ranks of a communicator share to find each other.
///
/// Whoever has it can join, so it travels encrypted, and `Debug` does not show it.
///
/// ```
/// use meshwork_accel::CommunicatorId;
///
/// let name = CommunicatorId::from_bytes([7; CommunicatorId::BYTES]);
/// assert_eq!(format!("{name:?}"), "CommunicatorId(..)");
/// ```
#[derive(Clone, Copy, Eq, PartialEq)]
#[doc(alias = "ncclUniqueId")]
pub struct CommunicatorId([u8; Self::BYTES]);

impl CommunicatorId {
    /// How many bytes it has; a backend that needs fewer leaves the others 0.
    pub const BYTES: usize = 128;

    /// The one with these bytes; inverse of [`as_bytes`](Self::as_bytes).
    #[must_use]
    pub const fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// The bytes to send to the other ranks; inverse of [`from_bytes`](Self::from_bytes).
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }
}

impl Debug for CommunicatorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CommunicatorId(..)")
    }
}

/// A rank of a communicator, with the number of ranks.
///
/// ```
/// use meshwork_accel::{CommunicatorRank, Error};
///
/// assert!(CommunicatorRank::new(1, 2).is_ok());
/// assert_eq!(CommunicatorRank::new(2, 2), Err(Error::RankOutside { rank: 2, world: 2 }));
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CommunicatorRank {
    rank: usize,
    world: usize,
}

impl CommunicatorRank {
    /// Rank `rank` of `world` ranks, counted from 0.
    ///
    /// # Errors
    /// [`Error::RankOutside`].
    pub const fn new(rank: usize, world: usize) -> Result<Self, Error> {
        if rank < world {
            Ok(Self { rank, world })
        } else {
            Err(Error::RankOutside { rank, world })
        }
    }

    /// The rank.
    #[must_use]
    pub const fn rank(self) -> usize {
        self.rank
    }

    /// How many there are.
    #[must_use]
    pub const fn world(self) -> usize {
        self.world
    }
}

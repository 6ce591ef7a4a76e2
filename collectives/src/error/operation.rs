//! Why an operation failed, and with it, in most cases, its group.

use std::io;
use std::time::Duration;

use super::loss::{Completed, Told};
use super::{FileLimit, JoinError, LossCause, Member, SystemError, WireError, show_the_sentence};
use crate::Rank;
use crate::contract::Call;

/// An operation of a group failed.
///
/// After an error that a peer or the network caused the group is over: every later call returns the
/// same error, and the buffer of the failed call holds unspecified values.
#[derive(Clone, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OperationError {
    /// A rank is gone. Everybody's operations end.
    #[error("{peer} was lost: {cause}{}{}", Told(cause, *heard, *reporter), Completed(*completed))]
    RankLost {
        /// The rank that is gone.
        peer: Member,
        /// How it was noticed.
        cause: LossCause,
        /// Who noticed it, if it was not this rank.
        reporter: Option<Rank>,
        /// How long before, whoever noticed it had last heard a sign of life; `None` where that
        /// rank expects none from it, or was not asked.
        heard: Option<Duration>,
        /// Operations of this epoch that this rank had completed in the group whose call returns
        /// the error. What all survivors have completed,
        /// [`Epoch::completed_before`](crate::Epoch::completed_before) says after
        /// [`shrink`](crate::Group::shrink).
        completed: u64,
    },
    /// What is left of an epoch is no majority of it, so it may not go on: the others may have.
    #[error(
        "{present} of the {members} ranks of epoch {epoch} can reach each other, which is no majority: they do not go on, as the others may"
    )]
    NoMajority {
        /// The epoch that is over.
        epoch: u64,
        /// Ranks that this one could reach, itself among them.
        present: usize,
        /// Ranks of that epoch.
        members: usize,
    },
    /// The others have gone on without this rank, which they could not reach or did not wait for.
    #[error(
        "the others went on without this rank after epoch {epoch}: start its process again to be let in anew"
    )]
    Excluded {
        /// The last epoch that this rank was in.
        epoch: u64,
    },
    /// A rank, possibly this one, ended the group with a reason.
    #[error("{peer} ended the group: {message}")]
    Aborted {
        /// The rank that ended it.
        peer: Member,
        /// Its reason.
        message: String,
    },
    /// The launcher that started this process is gone, so nobody looks after the job any more.
    #[error("the launcher (process {process}) ended, so this rank ends too")]
    LauncherLost {
        /// The launcher's process id.
        process: u32,
    },
    /// Two ranks called different operations, or wait for each other in operations of different
    /// groups. Every rank gets this error, whether or not it is one of the two.
    #[error(
        "{rank} called {mine}, but {peer} called {theirs}: all ranks must make the same calls in the same order"
    )]
    Disagreement {
        /// One rank: this one, if it is among those that disagree.
        rank: Rank,
        /// Its call.
        mine: Box<Call>,
        /// Another rank.
        peer: Rank,
        /// That rank's call.
        theirs: Box<Call>,
    },
    /// An operation was not finished in time, though nobody is known to be dead.
    #[error(
        "{call} has come no further for {waited:.1?}: {rank} waits for {peer}, which is alive but does not answer; is it in another call, or slower than the operation time-out?"
    )]
    TimedOut {
        /// The operation.
        call: Box<Call>,
        /// This rank.
        rank: Rank,
        /// Whom it waits for.
        peer: Rank,
        /// How long it waited.
        waited: Duration,
    },
    /// This rank's device failed in the midst of an operation, which ends the group; the others are
    /// told by [`Aborted`](Self::Aborted).
    #[error("the device of {rank} failed: {error}")]
    Device {
        /// This rank.
        rank: Rank,
        /// What it failed with.
        error: Box<meshwork_accel::Error>,
    },
    /// A peer sent bytes that are no frame of this protocol.
    #[error("{peer} sent something that is not understood: {error}")]
    Protocol {
        /// Who sent it.
        peer: Rank,
        /// What is wrong with it.
        error: WireError,
    },
    /// Two ranks have different numbers for what one sends the other.
    #[error(
        "{peer} has {offered} elements for {rank}, which expects {expected}: give both the same number"
    )]
    Uneven {
        /// This rank.
        rank: Rank,
        /// Who offers.
        peer: Rank,
        /// Elements that it offers.
        offered: u64,
        /// Elements that this rank expects.
        expected: u64,
    },
    /// The memory of a rank of the same host cannot be reached.
    #[error(
        "the registered memory of {peer} cannot be mapped: {kind}; is it limited for this process?"
    )]
    Memory {
        /// Whose.
        peer: Rank,
        /// What the system said.
        kind: io::ErrorKind,
    },
    /// This rank may not open a file that it needs, and has waited in vain for others to be closed.
    #[error("{rank} cannot open a file for {what}: {limit}")]
    OpenFiles {
        /// This rank.
        rank: Rank,
        /// What takes it.
        what: &'static str,
        /// What stands against it.
        limit: FileLimit,
    },
    /// Two ranks would use more groups at a time over the network than they can. The others are
    /// told by [`Aborted`](Self::Aborted).
    #[error(
        "{rank} uses {most} groups with {peer} that were split from the one that was joined, as many as two ranks can use at a time: drop those that are done with"
    )]
    TooManyGroups {
        /// This rank.
        rank: Rank,
        /// The rank that it would use one more with.
        peer: Rank,
        /// Groups that two ranks can use at a time, besides the one that was joined.
        most: u32,
    },
    /// The op of a reduction means nothing for its elements, or the buffers of a call hold elements
    /// of different types; nothing was sent.
    #[error(transparent)]
    Unsupported(#[from] meshwork_accel::Error),
    /// The caller gave a rank or root that its group does not have.
    #[error("{rank} is outside a group of {world} ranks, numbered from 0")]
    RankOutside {
        /// The rank that was given.
        rank: Rank,
        /// Ranks in the group.
        world: u32,
    },
    /// A rank would send to itself, or receive from itself.
    #[error("{rank} is this rank: a message goes to another one")]
    OwnRank {
        /// The rank, this process.
        rank: Rank,
    },
    /// A buffer has another length than the operation asks for.
    #[error("the {buffer} of {operation} has {found} elements, but this call takes {expected}")]
    Length {
        /// The operation.
        operation: &'static str,
        /// Which of its buffers or lists.
        buffer: &'static str,
        /// How many elements it has.
        found: usize,
        /// How many it should have.
        expected: usize,
    },
    /// A buffer of which each rank gets an equal part has no such parts.
    #[error(
        "the input of {operation} has {found} elements, which do not split evenly among {world} ranks: pad it to a multiple of {world}, or use {operation}_uneven"
    )]
    NotDivisible {
        /// The operation.
        operation: &'static str,
        /// How many elements the buffer has.
        found: usize,
        /// Ranks in the group.
        world: u32,
    },
    /// Two ranks would send to the same one.
    #[error(
        "the targets of a permutation name {target} twice: each rank receives from exactly one"
    )]
    TargetRepeated {
        /// The first target that is named again.
        target: Rank,
    },
    /// The links of a group were to be measured that has too many of them; nothing was sent.
    #[error(
        "the links among {world} ranks cannot be measured: it takes at most {most}, as each pair has a moment of its own"
    )]
    TooManyToMeasure {
        /// Ranks in the group.
        world: u32,
        /// Ranks whose links can be measured.
        most: u32,
    },
    /// A rank's buffer for a compressed all-reduce has a value that is not finite. All ranks get
    /// this error, and the group goes on.
    #[error(
        "{rank} gave a compressed all-reduce a value that is not finite: look for NaN and infinities in its buffer and residual"
    )]
    NotFinite {
        /// The lowest such rank.
        rank: Rank,
    },
    /// The sum of finite values is not finite. All ranks get this error, and the group goes on.
    #[error("a sum that {rank} made in a compressed all-reduce is too large for an f32")]
    SumNotFinite {
        /// The lowest rank that summed such values up.
        rank: Rank,
    },
    /// Ranks compress in different formats, which make as many bytes of this buffer, as of a single
    /// element. All ranks get this error, and the group goes on. Formats that make other numbers of
    /// bytes are [`Uneven`](Self::Uneven).
    #[error("{peer} compresses in another format than rank 0: give all ranks the same one")]
    CompressionDiffers {
        /// The lowest rank whose format is not that of rank 0.
        peer: Rank,
    },
    /// The caller asked a group to shrink or grow that cannot.
    #[error(
        "only a group that Group::connect has made of several processes, or of one with room for more by MESHWORK_WORKERS, can shrink and grow: keep it beside those that are split from it"
    )]
    NoEpochs,
    /// A blocking call was made on a thread of an asynchronous runtime, where it would stall tasks.
    /// tokio's threads for blocking work count too, as they cannot be told apart.
    #[error(
        "a blocking call was made in asynchronous code: start the operation and await it, as by start_all_reduce, or make the call on a thread of its own, by std::thread::spawn"
    )]
    InsideAsync,
    /// Operations that were started waited for others behind them in line, or made a call of the
    /// group that they are given by which others start, or its members change.
    #[error(
        "the call was made inside of operations that were started, which would wait for themselves: wait, shrink, grow and start others outside of them, on the group itself, or start others by Operations::start"
    )]
    InsideOperations,
    /// A communicator of devices was made for members that have changed since.
    #[error(
        "the communicator was made in epoch {made}, and the group is in epoch {now}: make another by Group::direct_on"
    )]
    CommunicatorOutdated {
        /// The epoch that it was made in.
        made: u64,
        /// The group's epoch.
        now: u64,
    },
    /// A route was lent to another group than the one that made its communicator.
    #[error(
        "the communicator of this route is of another group: make one of this group by Group::device_route"
    )]
    CommunicatorOfOtherGroup,
    /// The operating system refused memory, a thread, a timer or a socket option.
    #[error(transparent)]
    System(#[from] SystemError),
    /// The group, or one made from it, could not be formed anew.
    #[error(transparent)]
    Join(#[from] JoinError),
}

show_the_sentence!(OperationError);

impl OperationError {
    /// Whether a rank is gone, or did not come: the others can go on by
    /// [`shrink`](crate::Group::shrink).
    #[must_use]
    pub fn is_loss(&self) -> bool {
        matches!(self, Self::RankLost { .. })
            || matches!(self, Self::Join(error) if error.is_loss())
    }

    /// The one rank that something is wrong with, if there is one and it is known: who was lost,
    /// gave up, or is waited for.
    #[must_use]
    pub fn rank_at_fault(&self) -> Option<Rank> {
        match self {
            Self::RankLost { peer, .. } | Self::Aborted { peer, .. } => Some(peer.rank()),
            Self::OpenFiles { rank, .. } => Some(*rank),
            Self::TimedOut { peer, .. }
            | Self::Protocol { peer, .. }
            | Self::Memory { peer, .. }
            | Self::NotFinite { rank: peer }
            | Self::Device { rank: peer, .. } => Some(*peer),
            Self::Join(error) => error.rank_at_fault(),
            _ => None,
        }
    }

    /// Whether the same program may succeed if it is started again, with nothing else changed:
    /// what others, the network or a device did may pass; what this program called does not.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::RankLost { .. }
            | Self::NoMajority { .. }
            | Self::Excluded { .. }
            | Self::LauncherLost { .. }
            | Self::TimedOut { .. }
            | Self::Device { .. }
            | Self::Memory { .. }
            | Self::OpenFiles { .. }
            | Self::System(_) => true,
            Self::Join(error) => error.is_retryable(),
            Self::Aborted { .. }
            | Self::Disagreement { .. }
            | Self::Protocol { .. }
            | Self::Uneven { .. }
            | Self::Unsupported(_)
            | Self::RankOutside { .. }
            | Self::OwnRank { .. }
            | Self::Length { .. }
            | Self::NotDivisible { .. }
            | Self::TargetRepeated { .. }
            | Self::TooManyToMeasure { .. }
            | Self::TooManyGroups { .. }
            | Self::NotFinite { .. }
            | Self::SumNotFinite { .. }
            | Self::CompressionDiffers { .. }
            | Self::NoEpochs
            | Self::InsideAsync
            | Self::InsideOperations
            | Self::CommunicatorOutdated { .. }
            | Self::CommunicatorOfOtherGroup => false,
        }
    }
}

//! What a training whose rounds end with a quorum goes on from after a restart.
//!
//! Workers are at different steps, but all make the same exchanges in one order. So the states of
//! all behind one exchange belong together: what a worker gave before is in what all agree on, and
//! what it gives later is still its own. Its training may come by only later, as nothing that it
//! did meanwhile has gone to the others.

use std::collections::VecDeque;
use std::time::Instant;

use meshwork_collectives::Rank;

use super::super::codec::{Reader, Writer};
use super::super::rounds::{Contribution, Rounds};
use super::super::standing::Progress;
use super::super::{LowCommunication, fragments};
use super::follower::Follower;
use super::shared::Offer;
use super::{Late, Quorum, QuorumOptimizer};
use crate::{Error, LowCommunicationError, MultiWorkerMirroredStrategy, Snapshot};

/// The names of the state in a snapshot: what all have in common, and what one worker has.
const PACKAGE: &str = "outer.quorum";
const OWN: &str = "outer.quorum.own";

/// All that a worker of a training with a quorum has behind an exchange: what all agree on, outer
/// momentum, residuals, contributions that wait for later exchanges, its own parameters and the
/// inner steps that no exchange has. See [`QuorumOptimizer::checkpoint`].
#[derive(Clone, Debug, PartialEq)]
pub struct QuorumState {
    exchanges: u64,
    common: Vec<u8>,
    pub(super) own: Vec<u8>,
}

/// What is kept behind an exchange, until the training adds its part.
#[derive(Debug)]
pub(super) struct Cut {
    pub(super) exchanges: u64,
    pub(super) rank: Rank,
    pub(super) common: Vec<u8>,
    pub(super) residual: Vec<f32>,
    pub(super) offers: VecDeque<Offer>,
}

/// What a worker begins with.
#[derive(Debug)]
pub(super) enum Beginning {
    /// The program's parameters.
    Program,
    /// A snapshot of what all have in common.
    Common,
    /// A snapshot of its own.
    Own(Box<Own>),
}

/// What a worker alone has of a training.
#[derive(Debug)]
pub(super) struct Own {
    pub(super) rank: Rank,
    pub(super) residual: Vec<f32>,
    pub(super) offers: VecDeque<Offer>,
    pub(super) follower: Follower,
    pub(super) parameters: Vec<f32>,
}

impl QuorumState {
    /// Exchanges that were made before it, of all fragments together: the same states of all
    /// workers belong together that have the same number here.
    #[must_use]
    pub fn exchanges(&self) -> u64 {
        self.exchanges
    }

    /// Adds it to the snapshot of this worker.
    ///
    /// # Errors
    /// [`Error::DuplicateVariable`].
    pub fn add_to(&self, snapshot: Snapshot) -> Result<Snapshot, Error> {
        let snapshot = snapshot.with_bytes(PACKAGE, self.common.as_slice())?;
        snapshot.with_bytes(OWN, self.own.as_slice())
    }
}

impl QuorumOptimizer {
    /// What this worker's snapshot is to have, where the last step came by a checkpoint: behind
    /// every so many exchanges as [the quorum says](Quorum::with_checkpoints).
    ///
    /// Each worker saves its own state, with its inner optimizer and its place in the data as they
    /// are then, in a folder of its own; those of one number of
    /// [exchanges](QuorumState::exchanges) belong together. A worker that is late by several
    /// checkpoints has only the last of them: keep a few.
    ///
    /// Nothing of it is lost or counts twice after [`restore`](Self::restore). It goes on with the
    /// same bits where nobody is late; else it depends on the time who is, as ever.
    ///
    /// ```
    /// use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
    /// use std::time::Duration;
    /// use meshwork_strategy::low_communication::{LowCommunication, Quorum, QuorumOptimizer};
    /// use meshwork_strategy::{Cursor, MultiWorkerMirroredStrategy, Snapshot};
    ///
    /// let strategy = MultiWorkerMirroredStrategy::alone()?;
    /// let settings = LowCommunication::new(NonZeroU32::new(10).expect("10 is not 0"));
    /// let quorum = Quorum::new(NonZeroUsize::MIN, Duration::from_secs(30))
    ///     .with_checkpoints(NonZeroU64::new(2).expect("2 is not 0"));
    /// let mut own = vec![1.0_f32; 3];
    /// let mut outer = QuorumOptimizer::new(strategy, settings, quorum, &[3], &own)?;
    /// let mut saved = None;
    /// while outer.steps() < 25 {
    ///     own.iter_mut().for_each(|one| *one *= 0.9);
    ///     outer.step(&mut own)?;
    ///     if let Some(state) = outer.checkpoint() {
    ///         let snapshot = Snapshot::new(state.exchanges(), Cursor::start());
    ///         saved = Some(state.add_to(snapshot)?); // and the inner optimizer
    ///     }
    /// }
    /// outer.finish(&mut own)?;
    /// let strategy = outer.into_strategy();
    ///
    /// let snapshot = saved.expect("after 20 steps");
    /// let (again, own) =
    ///     QuorumOptimizer::restore(strategy, settings, quorum, &[3], &snapshot)?;
    /// assert_eq!((again.steps(), again.outer_steps()), (20, 2));
    /// assert_eq!(own, again.agreed());
    /// # Ok::<(), meshwork_strategy::Error>(())
    /// ```
    #[must_use]
    pub fn checkpoint(&self) -> Option<&QuorumState> {
        self.checkpoint.as_ref()
    }

    /// Adds what all workers have in common to a snapshot: parameters and outer momentum after the
    /// last exchange that was made. All can go on from that of one worker, in another number too,
    /// and lose what only a [`checkpoint`](Self::checkpoint) of each has: residuals, late
    /// contributions, and inner steps since.
    ///
    /// # Errors
    /// [`Error::DuplicateVariable`].
    pub fn save(&self, snapshot: Snapshot) -> Result<Snapshot, Error> {
        let package = self.shared.lock().common.rounds.package();
        snapshot.with_bytes(PACKAGE, package)
    }

    /// The outer optimizer that was saved, with the same settings and tensors, and the parameters
    /// from which this worker's inner steps go on: by its own snapshot of a
    /// [`checkpoint`](Self::checkpoint), those of all workers behind the same exchange; or by one
    /// snapshot of [what all have in common](Self::save), which all read.
    ///
    /// In a job that is elastic, those whose snapshot is of an earlier exchange than others' take
    /// over what is common from there, and what they had of their own is nothing: it may have its
    /// part in that. Ranks are not compared there: see that no two workers read one's own snapshot,
    /// whose steps would count twice.
    ///
    /// # Errors
    /// [`LowCommunicationError::Package`] where the snapshot has no such state;
    /// [`LowCommunicationError::SnapshotOfOther`] for another worker's;
    /// those of [`new`](Self::new), of which [`LowCommunicationError::Differs`] tells that the
    /// snapshots of workers are of different exchanges.
    #[track_caller]
    pub fn restore(
        strategy: MultiWorkerMirroredStrategy,
        settings: LowCommunication,
        quorum: Quorum,
        lengths: &[usize],
        snapshot: &Snapshot,
    ) -> Result<(Self, Vec<f32>), Error> {
        let elements = fragments::elements(lengths)?;
        let mut rounds = Rounds::new(settings, lengths, &vec![0.0; elements])?;
        let package = snapshot.bytes(PACKAGE);
        rounds.take_over(package.ok_or(LowCommunicationError::Package { bytes: 0 })?)?;
        let Some(bytes) = snapshot.bytes(OWN) else {
            let outer = Self::joined(strategy, rounds, quorum, lengths, Beginning::Common)?;
            let parameters = outer.agreed().to_vec();
            return Ok((outer, parameters));
        };
        let mut own = Own::read(bytes, &rounds, quorum.late)?;
        own.check(&strategy)?;
        for (residual, range) in rounds.residuals.iter_mut().zip(&rounds.ranges) {
            residual.copy_from_slice(&own.residual[range.clone()]);
        }
        let mut parameters = std::mem::take(&mut own.parameters);
        let own = Beginning::Own(Box::new(own));
        let mut outer = Self::joined(strategy, rounds, quorum, lengths, own)?;
        if outer.shared.lock().has_taken_over {
            parameters.copy_from_slice(outer.agreed());
        }
        // The step in which it was saved goes on.
        outer.give_and_take(&mut parameters)?;
        Ok((outer, parameters))
    }
}

impl Cut {
    pub(super) fn with_own(self, follower: &Follower, parameters: &[f32]) -> QuorumState {
        let mut own = Writer::default();
        own.words([self.rank.number().into(), self.offers.len() as u64]);
        own.numbers(&self.residual);
        for Offer {
            contribution,
            since,
        } in &self.offers
        {
            let flags = [contribution.is_finite, since.is_some()].map(u64::from);
            let weight = contribution.weight.to_bits();
            own.words([weight.into(), flags[0], flags[1]]);
            own.numbers(&contribution.values);
        }
        follower.write(&mut own);
        own.numbers(parameters);
        QuorumState {
            exchanges: self.exchanges,
            common: self.common,
            own: own.into_bytes(),
        }
    }
}

impl Own {
    pub(super) fn read(
        bytes: &[u8],
        rounds: &Rounds,
        late: Late,
    ) -> Result<Self, LowCommunicationError> {
        let refused = LowCommunicationError::Package { bytes: bytes.len() };
        Self::read_from(&mut Reader::new(bytes), rounds, late).ok_or(refused)
    }

    fn read_from(from: &mut Reader<'_>, rounds: &Rounds, late: Late) -> Option<Self> {
        let rank = Rank::new(u32::try_from(from.word()?).ok()?);
        let offers = from.index(rounds.ranges.len() + 1)?;
        let residual = from.numbers(rounds.agreed.len())?;
        let numbers = rounds.sealed..;
        let offers = numbers.take(offers).map(|number| {
            let fragment = rounds.settings.exchange(number).fragment;
            read_offer(from, rounds.ranges[fragment].len())
        });
        let own = Self {
            rank,
            residual,
            offers: offers.collect::<Option<_>>()?,
            follower: Follower::read(from, rounds, late)?,
            parameters: from.numbers(rounds.agreed.len())?,
        };
        from.is_empty().then_some(own)
    }

    /// That of one worker would count as often as it is read.
    fn check(&self, strategy: &MultiWorkerMirroredStrategy) -> Result<(), LowCommunicationError> {
        let (saved, rank) = (self.rank, strategy.rank());
        (strategy.is_elastic() || saved == rank)
            .then_some(())
            .ok_or(LowCommunicationError::SnapshotOfOther { saved, rank })
    }
}

impl Beginning {
    pub(super) fn parts(self) -> (Progress, Option<Follower>, VecDeque<Offer>) {
        match self {
            Self::Program => (Progress::Beginning, None, VecDeque::new()),
            Self::Common => (Progress::Restored, None, VecDeque::new()),
            Self::Own(own) => (Progress::Restored, Some(own.follower), own.offers),
        }
    }
}

fn read_offer(from: &mut Reader<'_>, length: usize) -> Option<Offer> {
    let weight = f32::from_bits(u32::try_from(from.word()?).ok()?);
    let (is_finite, waits) = (from.flag()?, from.flag()?);
    Some(Offer {
        contribution: Contribution {
            values: from.numbers(length)?,
            weight,
            is_finite,
        },
        // It waits anew.
        since: waits.then(Instant::now),
    })
}

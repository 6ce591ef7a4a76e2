//! Sharded training: every worker keeps a part of the state of a model, and the whole of it only
//! while it computes with it.
//!
//! ZeRO's three stages and FSDP, for models whose parameters are flat `f32` slices. Each worker has
//! a part of the rows of every parameter, whose names stay as they are; the parameters of a *unit*
//! travel together.
//!
//! ```text
//!   bytes a parameter          parameters  gradients  Adam's state   N = 4
//!   Shard::Nothing                  4          4           8         16
//!   Shard::Optimizer   ZeRO-1       4          4           8/N       10
//!   Shard::Gradients   ZeRO-2       4          4/N         8/N        7    + gradients of a unit
//!   Shard::Parameters  ZeRO-3       4/N        4/N         8/N        4    + a unit, whole
//! ```
//!
//! ```
//! use meshwork_strategy::sharded::{AdamW, Shard, ShardedModel, Sharding, UnitSpec};
//! use meshwork_strategy::{Error, MultiWorkerMirroredStrategy, VariableSpec};
//!
//! let mut strategy = MultiWorkerMirroredStrategy::alone()?;
//! let units = [UnitSpec::new("line", [VariableSpec::new("line.slope", &[1])?])];
//! // Each worker makes the rows that it keeps, here of zeros, and nothing else.
//! let sharding = Sharding::new(Shard::Parameters).with_max_norm(10.0);
//! let zeros = |_: &VariableSpec, _: std::ops::Range<usize>, rows: &mut [f32]| rows.fill(0.0);
//! let mut model = ShardedModel::new(&mut strategy, sharding, &units, AdamW::new(0.1), zeros)?;
//!
//! for step in 0..200 {
//!     strategy.run(|replica| {
//!         let x = (step % 5) as f32;
//!         // The unit's parameters are gathered for this call, and freed behind it …
//!         let y = model.forward(replica, 0, |line| line[0][0] * x)?;
//!         // … and its gradients, in the same order, become their mean over all workers.
//!         model.backward(replica, 0, |_, gradients| gradients[0][0] = 2.0 * (y - 3.0 * x) * x)?;
//!         model.step(replica)
//!     })?;
//! }
//! strategy.run(|replica| {
//!     let slope = model.forward(replica, 0, |line| line[0][0])?;
//!     assert!((slope - 3.0).abs() < 0.1, "{slope}");
//!     Ok::<_, Error>(())
//! })?;
//! strategy.leave()?;
//! # Ok::<(), Error>(())
//! ```
//!
//! Models that are a list of units are run by [`ShardedModel::run`]. Numbers are equal to the bit
//! whatever is sharded, where a step has one backward pass and the order of sums does not depend on
//! the operation: among the workers of one host, and with
//! [`Communication::Reproducible`](crate::Communication::Reproducible).

mod agreement;
mod checkpoint;
mod cut;
mod exchange;
mod held;
mod initial;
mod lent;
mod mesh;
mod model;
mod optimizer;
mod partition;
mod reducing;
mod regroup;
mod relayout;
mod stack;
mod survivors;
mod tensor_parallel;
mod tensors;
mod unit;
mod unit_spec;

pub use checkpoint::ShardedCheckpoints;
pub use lent::{Lent, ShardedVariables};
pub use mesh::ShardGroup;
pub use model::ShardedModel;
pub use optimizer::{AdamW, ElementWise, Momentum, Sgd};
pub use regroup::Regrouped;
pub use stack::{Recompute, Stack, Unit};
pub use tensors::{Gradients, Parameters};
pub use unit_spec::UnitSpec;

use std::num::NonZeroU32;

/// What each worker keeps a part of, instead of the whole; each has what those before it have.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[doc(alias("ShardingStrategy", "ZeRO"))]
pub enum Shard {
    /// Nothing: every worker has the whole model, its gradients and the state of its optimizer.
    #[doc(alias("NO_SHARD", "DistributedDataParallel"))]
    Nothing,
    /// The state of the optimizer.
    #[doc(alias("ZeRO-1", "ZeroRedundancyOptimizer"))]
    Optimizer,
    /// That and the gradients.
    #[doc(alias("ZeRO-2", "SHARD_GRAD_OP"))]
    Gradients,
    /// Everything: parameters are gathered unit by unit when they are used.
    #[doc(alias("ZeRO-3", "FULL_SHARD", "fully_shard"))]
    Parameters,
}

/// How a model is sharded and trained: the same on every worker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sharding {
    shard: Shard,
    /// Where none is said, units that are run have one, and of variables it is not known before.
    passes: Option<NonZeroU32>,
    max_norm: Option<f32>,
    prefetch: usize,
    among: ShardGroup,
    copies: Copies,
}

/// Who else has a worker's part.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Copies {
    None,
    /// The worker behind it.
    OfNeighbours,
}

/// As [`Sharding::new`].
impl From<Shard> for Sharding {
    fn from(shard: Shard) -> Self {
        Self::new(shard)
    }
}

impl Sharding {
    /// Shards this, with one backward pass in a step, gradients of any norm, and one unit that is
    /// gathered or reduced while another is computed.
    #[must_use]
    pub fn new(shard: Shard) -> Self {
        Self {
            shard,
            passes: None,
            max_norm: None,
            prefetch: 1,
            among: ShardGroup::All,
            copies: Copies::None,
        }
    }

    /// Adds the gradients of so many backward passes of each unit up in each step. They are added,
    /// not averaged.
    ///
    /// With [`Shard::Gradients`] and [`Shard::Parameters`] each pass is reduced on its own, so that
    /// nobody keeps whole gradients; with the others, all of them at once.
    #[must_use]
    #[doc(alias("gradient_accumulation_steps", "set_requires_gradient_sync", "no_sync"))]
    pub fn with_accumulation(mut self, passes: NonZeroU32) -> Self {
        self.passes = Some(passes);
        self
    }

    /// Scales gradients down where the norm of all of them together is larger than `norm`, which is
    /// above 0; models refuse others. With infinity, a step tells that norm and scales nothing.
    #[must_use]
    #[doc(alias = "clip_grad_norm_")]
    pub fn with_max_norm(mut self, norm: f32) -> Self {
        self.max_norm = Some(norm);
        self
    }

    /// Gathers so many units before they are used, and lets as many be reduced while others are
    /// computed: each takes the memory of a whole unit. With 0 it takes the least memory.
    #[must_use]
    #[doc(alias("forward_prefetch", "backward_prefetch"))]
    pub fn with_prefetch(mut self, units: usize) -> Self {
        self.prefetch = units;
        self
    }

    /// Keeps a whole model in each such group of workers instead of one in all: its parts go
    /// through the fast links inside of a group, and between groups go gradients, of which each
    /// worker has a part.
    ///
    /// Where the strategy is [elastic], all wait for each other at the end of a step, so that what
    /// one group loses the others have, as after the same step.
    ///
    /// [elastic]: crate::MultiWorkerMirroredStrategy::is_elastic
    ///
    /// ```
    /// use meshwork_strategy::sharded::{Shard, ShardGroup, Sharding};
    ///
    /// let sharding = Sharding::new(Shard::Parameters).with_group(ShardGroup::Host);
    /// assert_eq!(sharding.shard(), Shard::Parameters);
    /// ```
    #[must_use]
    #[doc(alias("HSDP", "HYBRID_SHARD", "replicate"))]
    pub fn with_group(mut self, group: ShardGroup) -> Self {
        self.among = group;
        self
    }

    /// Keeps each part in two workers, so that a training goes on when one of them is lost:
    /// [`ShardedModel::regroup`] divides the model anew among those who are left, without a
    /// checkpoint. If two workers are lost whose ranks follow one another, the last checkpoint is
    /// what remains.
    ///
    /// Copies take the bytes of a part again, and each worker sends 1/N of the gradients more in
    /// a step, at the end of which all wait for each other. What workers have whole is not copied,
    /// nor what several groups have that keep a model ([`with_group`](Self::with_group)); all then
    /// wait for each other whether or not the strategy is elastic.
    ///
    /// ```
    /// use meshwork_strategy::VariableSpec;
    /// use meshwork_strategy::sharded::{AdamW, Shard, Sharding, UnitSpec};
    ///
    /// let units = [UnitSpec::new("unit", [VariableSpec::new("weight", &[1000])?])];
    /// let sharding = Sharding::new(Shard::Optimizer);
    /// let bytes = |sharding: Sharding| sharding.bytes::<AdamW>(&units, 4);
    /// let more = bytes(sharding.with_neighbour_copies()) - bytes(sharding);
    /// assert_eq!(more, 8 * 1000 / 4);
    /// # Ok::<(), meshwork_strategy::Error>(())
    /// ```
    #[must_use]
    #[doc(alias("elastic", "in-memory checkpoint", "redundancy"))]
    pub fn with_neighbour_copies(mut self) -> Self {
        self.copies = Copies::OfNeighbours;
        self
    }

    /// What is sharded.
    #[must_use]
    pub fn shard(&self) -> Shard {
        self.shard
    }

    /// Bytes for parameters, gradients and state in the worker that keeps most, among so many that
    /// keep the parts of one model, with what is gathered of units while they are computed, and
    /// without activations.
    ///
    /// ```
    /// use meshwork_strategy::sharded::{AdamW, Shard, Sharding, UnitSpec};
    /// use meshwork_strategy::VariableSpec;
    ///
    /// let unit = |name: &str| VariableSpec::new(name, &[1000]).map(|one| UnitSpec::new(name, [one]));
    /// let units = [unit("a")?, unit("b")?, unit("c")?, unit("d")?];
    /// let bytes = |shard| Sharding::new(shard).with_prefetch(0).bytes::<AdamW>(&units, 4);
    /// assert_eq!(bytes(Shard::Nothing), 16 * 4000);
    /// assert_eq!(bytes(Shard::Optimizer), 10 * 4000);
    /// assert_eq!(bytes(Shard::Gradients), 7 * 4000 + 4 * 1000);
    /// assert_eq!(bytes(Shard::Parameters), 4 * 4000 + 8 * 1000);
    /// # Ok::<(), meshwork_strategy::Error>(())
    /// ```
    ///
    /// # Panics
    /// When there are no workers.
    #[must_use]
    pub fn bytes<O: ElementWise>(&self, units: &[UnitSpec], workers: usize) -> u64 {
        use partition::{Partition, Which};
        assert!(workers > 0, "a model is kept by one worker at least");
        let whole = |which| -> u64 { units.iter().map(|unit| elements(unit, which, 1)).sum() };
        let own = |which| -> u64 {
            units
                .iter()
                .map(|unit| elements(unit, which, workers))
                .sum()
        };
        let largest = |which| units.iter().map(|unit| elements(unit, which, 1)).max();
        // The first worker has as many rows as any.
        fn elements(unit: &UnitSpec, which: Which, workers: usize) -> u64 {
            let partition = Partition::new(unit.parameters(), unit.trainable().len(), workers);
            partition.shard_len(which, 0) as u64
        }
        let state = O::STATE.len() as u64;
        let (trained, all) = (Which::Trainable, Which::All);
        let in_flight = self.prefetch.min(units.len().saturating_sub(1)) as u64 + 1;
        let unit = |which| in_flight * largest(which).unwrap_or(0);
        let shard = if workers == 1 {
            Shard::Nothing
        } else {
            self.shard
        };
        let elements = match shard {
            Shard::Nothing => whole(all) + (1 + state) * whole(trained),
            Shard::Optimizer => whole(all) + whole(trained) + state * own(trained),
            Shard::Gradients => whole(all) + (1 + state) * own(trained) + unit(trained),
            Shard::Parameters => own(all) + (1 + state) * own(trained) + 2 * unit(all),
        };
        let copied = match (self.copies, shard) {
            (Copies::None, _) | (_, Shard::Nothing) => 0,
            (Copies::OfNeighbours, Shard::Optimizer) => state * own(trained),
            (Copies::OfNeighbours, Shard::Gradients) => (1 + state) * own(trained),
            (Copies::OfNeighbours, Shard::Parameters) => own(all) + (1 + state) * own(trained),
        };
        (elements + copied) * size_of::<f32>() as u64
    }
}

#[cfg(test)]
mod tests;

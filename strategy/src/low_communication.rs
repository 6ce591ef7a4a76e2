//! Training over slow links: workers make many steps on their own, and exchange how far they came.
//!
//! Local SGD with an outer optimizer, known as DiLoCo. In a round each worker makes `H` inner steps
//! with an optimizer of its own; the mean of all workers' differences then is the gradient of an
//! outer step by Nesterov momentum. In fragments that are exchanged one after the other while inner
//! steps go on, it is Streaming DiLoCo.
//!
//! ```
//! use std::num::NonZeroU32;
//! use meshwork_strategy::low_communication::{LowCommunication, OuterOptimizer};
//! use meshwork_strategy::MultiWorkerMirroredStrategy;
//!
//! let mut strategy = MultiWorkerMirroredStrategy::alone()?;
//! let mut parameters = vec![0.0_f32; 3]; // of two tensors
//! let settings = LowCommunication::new(NonZeroU32::new(10).expect("10 is not 0"));
//! let mut outer = OuterOptimizer::new(&mut strategy, settings, &[2, 1], &parameters)?;
//! for _ in 0..500 {
//!     for one in &mut parameters {
//!         *one -= 0.05 * 2.0 * (*one - 3.0); // any optimizer, on this worker's own samples
//!     }
//!     outer.step(&mut strategy, &mut parameters)?; // which communicates in one call of 10
//! }
//! assert!((parameters[0] - 3.0).abs() < 1e-2, "{}", parameters[0]);
//! # Ok::<(), meshwork_strategy::Error>(())
//! ```
//!
//! After each outer step [`OuterOptimizer::agreed`] has the same bits on all workers. A run that is
//! repeated has them too, where the order of sums does not depend on the network: among the workers
//! of one host, with [`Communication::Reproducible`](crate::Communication::Reproducible), and with
//! any compression.

mod clock;
mod codec;
mod exchange;
mod fragments;
mod links;
mod members;
mod outer;
mod package;
mod quorum;
mod rounds;
mod standing;
mod state;

pub use outer::OuterOptimizer;
pub use quorum::{Late, Quorum, QuorumOptimizer, QuorumState};

use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use meshwork_collectives::Compression;

use crate::LowCommunicationError;

/// How a model is trained with little communication: the same on every worker.
#[derive(Clone, Copy, Debug, PartialEq)]
#[doc(alias("DiLoCo", "local SGD", "Streaming DiLoCo", "FedOpt"))]
pub struct LowCommunication {
    inner_steps: NonZeroU32,
    round_time: Option<Duration>,
    fragments: NonZeroUsize,
    delay: u32,
    local_share: f32,
    rate: f32,
    momentum: f32,
    compression: Option<Compression>,
    not_finite: NotFinite,
    measures_links: bool,
}

/// What happens where a worker's difference has a NaN or an infinity.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum NotFinite {
    /// The training ends on all workers, with an error that names the worker.
    #[default]
    Stop,
    /// The outer step is made with the others; all parameters of the worker become those that it
    /// agrees with them on, and it goes on from there.
    ///
    /// The optimizer of its inner steps is the program's: its moments may be no numbers either, and
    /// are to be set to zero whenever [`OuterOptimizer::resets`] has grown. Otherwise the worker's
    /// next difference is not finite again, and it learns nothing for as long as it takes part.
    ///
    /// ```
    /// # use std::num::NonZeroU32;
    /// # use meshwork_strategy::MultiWorkerMirroredStrategy;
    /// # use meshwork_strategy::low_communication::{LowCommunication, NotFinite, OuterOptimizer};
    /// # let mut strategy = MultiWorkerMirroredStrategy::alone()?;
    /// # let mut parameters = [5.0_f32; 2];
    /// let settings = LowCommunication::new(NonZeroU32::new(10).expect("10 is not 0"))
    ///     .with_not_finite(NotFinite::Exclude);
    /// let mut outer = OuterOptimizer::new(&mut strategy, settings, &[2], &parameters)?;
    /// let mut velocity = [0.0_f32; 2];
    /// for _ in 0..100 {
    ///     for (own, velocity) in parameters.iter_mut().zip(&mut velocity) {
    ///         *velocity = 0.9 * *velocity + 2.0 * *own;
    ///         *own -= 0.01 * *velocity;
    ///     }
    ///     let resets = outer.resets();
    ///     outer.step(&mut strategy, &mut parameters)?;
    ///     if outer.resets() > resets {
    ///         velocity.fill(0.0);
    ///     }
    /// }
    /// # Ok::<(), meshwork_strategy::Error>(())
    /// ```
    Exclude,
}

impl LowCommunication {
    /// Exchanges the whole model after so many steps, uncompressed, and waits for it; outer rate
    /// 0.7, outer momentum 0.9.
    #[must_use]
    pub fn new(inner_steps: NonZeroU32) -> Self {
        Self {
            inner_steps,
            round_time: None,
            fragments: NonZeroUsize::MIN,
            delay: 0,
            local_share: 0.0,
            rate: 0.7,
            momentum: 0.9,
            compression: None,
            not_finite: NotFinite::Stop,
            measures_links: false,
        }
    }

    /// Ends rounds by time rather than by inner steps, for workers that are not equally fast: each
    /// makes as many inner steps as it can, and its difference counts by how many those were. The
    /// steps of a round and of a delay then are parts of its time.
    ///
    /// A training that ends after a whole number of rounds ends on all workers together.
    ///
    /// ```
    /// use std::num::NonZeroU32;
    /// use std::time::Duration;
    /// use meshwork_strategy::MultiWorkerMirroredStrategy;
    /// use meshwork_strategy::low_communication::{LowCommunication, OuterOptimizer};
    ///
    /// let mut strategy = MultiWorkerMirroredStrategy::alone()?;
    /// let mut parameters = [0.0];
    /// let hundred = NonZeroU32::new(100).expect("100 is not 0");
    /// let settings = LowCommunication::new(hundred).with_round_time(Duration::from_millis(5));
    /// let mut outer = OuterOptimizer::new(&mut strategy, settings, &[1], &parameters)?;
    /// while outer.steps() < 3 * 100 {
    ///     parameters[0] += 1.0; // however long that takes
    ///     outer.step(&mut strategy, &mut parameters)?;
    /// }
    /// assert_eq!(outer.outer_steps(), 3);
    /// # Ok::<(), meshwork_strategy::Error>(())
    /// ```
    #[must_use]
    pub fn with_round_time(mut self, time: Duration) -> Self {
        self.round_time = Some(time);
        self
    }

    /// Exchanges the model in so many parts of one size, each once in a round: no more than it has
    /// tensors, which the parts may cut.
    #[must_use]
    pub fn with_fragments(mut self, fragments: NonZeroUsize) -> Self {
        self.fragments = fragments;
        self
    }

    /// Applies an exchange only so many steps after it began, which go on meanwhile: fewer than
    /// those of a round.
    ///
    /// Nobody waits where an exchange takes no longer than these steps. The steps of a round over
    /// the number of fragments are enough where links carry all that is exchanged: the next
    /// fragment begins then. [`OuterOptimizer::waited`] tells whether they are.
    #[must_use]
    pub fn with_delay(mut self, steps: u32) -> Self {
        self.delay = steps;
        self
    }

    /// Keeps this share, from 0 to 1, of a worker's own values where an exchange is applied, and
    /// takes the rest from the outer step.
    ///
    /// With 0 the values are replaced, and with them the steps made during the delay.
    #[must_use]
    #[doc(alias = "mixing factor")]
    pub fn with_local_share(mut self, share: f32) -> Self {
        self.local_share = share;
        self
    }

    /// The rate and the Nesterov momentum of the outer optimizer.
    #[must_use]
    pub fn with_outer(mut self, rate: f32, momentum: f32) -> Self {
        (self.rate, self.momentum) = (rate, momentum);
        self
    }

    /// Exchanges the differences in fewer bytes; what that leaves out is added to the next ones.
    #[must_use]
    pub fn with_compression(mut self, compression: Compression) -> Self {
        self.compression = Some(compression);
        self
    }

    /// What happens where a worker's difference has a NaN or an infinity.
    #[must_use]
    pub fn with_not_finite(mut self, not_finite: NotFinite) -> Self {
        self.not_finite = not_finite;
        self
    }

    /// Measures the links between workers when the training begins, when workers have come or gone,
    /// and when an exchange has taken three times as long on all of them as one did before.
    /// Exchanges without compression go by what was found: by the algorithm that these links make
    /// the fastest, and around a ring in the order whose slowest link is fastest. See
    /// [`Group::measure_links`](meshwork_collectives::Group::measure_links). While there are more
    /// workers than that measures, exchanges go as without it.
    ///
    /// [Compressed](Self::with_compression) exchanges go from each worker to each, in no order.
    #[must_use]
    #[doc(alias("topology", "bandwidth"))]
    pub fn with_measured_links(mut self) -> Self {
        self.measures_links = true;
        self
    }

    fn check(&self) -> Result<(), LowCommunicationError> {
        if self.delay >= self.inner_steps.get() {
            return Err(LowCommunicationError::Delay {
                delay: self.delay,
                inner_steps: self.inner_steps.get(),
            });
        }
        if self.round_time.is_some_and(|time| time.is_zero()) {
            return Err(LowCommunicationError::NoRoundTime);
        }
        let settings = [
            ("outer rate", self.rate, f32::MAX),
            ("outer momentum", self.momentum, 1.0),
            ("local share", self.local_share, 1.0),
        ];
        for (name, value, largest) in settings {
            if !(0.0..=largest).contains(&value) {
                return Err(LowCommunicationError::Setting {
                    name,
                    value,
                    largest,
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

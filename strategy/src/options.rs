//! `CommunicationOptions`: algorithm, time-outs, bucket size, order of summation, and which of two
//! workers survives. Algorithms are those of the collectives crate.

use std::time::Duration;

use meshwork_collectives::{Communication, Timeouts, TwoMemberPolicy};

use crate::Error;
use crate::sum::SumOrder;

/// How the workers of a strategy communicate.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CommunicationOptions {
    implementation: Communication,
    timeouts: Timeouts,
    operation: Option<Duration>,
    bytes_per_bucket: usize,
    order: SumOrder,
    pair: TwoMemberPolicy,
}

impl CommunicationOptions {
    /// The defaults: the algorithm is chosen by size, [`Timeouts::default`], and all gradients in
    /// one bucket.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Chooses the algorithm of all operations.
    #[must_use]
    pub fn with_implementation(mut self, implementation: Communication) -> Self {
        self.implementation = implementation;
        self
    }

    /// As [`with_implementation`](Self::with_implementation), by the names that TensorFlow has for
    /// it, in upper or lower case: `AUTO` and `RING`.
    ///
    /// Its third name is refused. NCCL reduces the memory of GPUs, which
    /// [`direct_on`](crate::MultiWorkerMirroredStrategy::direct_on) is for; in host memory
    /// TensorFlow falls back to a ring without a word:
    ///
    /// ```
    /// use meshwork_strategy::{Communication, CommunicationOptions, Error};
    ///
    /// let options = CommunicationOptions::new();
    /// let ring = options.with_implementation_named("ring")?;
    /// assert_eq!(ring.implementation(), Communication::Ring);
    /// assert_eq!(options.with_implementation_named("NCCL"), Err(Error::HostMemoryOverNccl));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::HostMemoryOverNccl`], [`Error::NoSuchImplementation`].
    #[doc(alias = "CommunicationImplementation")]
    pub fn with_implementation_named(self, name: &str) -> Result<Self, Error> {
        match name.to_ascii_uppercase().as_str() {
            "AUTO" => Ok(self.with_implementation(Communication::Auto)),
            "RING" => Ok(self.with_implementation(Communication::Ring)),
            "NCCL" => Err(Error::HostMemoryOverNccl),
            _ => Err(Error::NoSuchImplementation {
                name: name.to_owned(),
            }),
        }
    }

    /// Changes the time-outs.
    #[must_use]
    pub fn with_timeouts(mut self, timeouts: Timeouts) -> Self {
        self.timeouts = timeouts;
        self
    }

    /// Changes how long an operation waits while not a byte of it comes or goes, and leaves the
    /// other times as they are.
    #[must_use]
    #[doc(alias = "timeout_seconds")]
    pub fn with_operation_timeout(mut self, operation: Duration) -> Self {
        self.operation = Some(operation);
        self
    }

    /// Reduces gradients in buckets of about this many bytes, see
    /// [`bucket_ranges`](crate::bucket_ranges); 0 makes one bucket of all.
    #[must_use]
    #[doc(alias("bytes_per_pack", "bucket_cap_mb"))]
    pub fn with_bytes_per_bucket(mut self, bytes: usize) -> Self {
        self.bytes_per_bucket = bytes;
        self
    }

    /// Chooses the order in which the contributions of replicas are added.
    #[must_use]
    pub fn with_sum_order(mut self, order: SumOrder) -> Self {
        self.order = order;
        self
    }

    /// Chooses which of two workers may continue without the other, where workers may be lost.
    #[must_use]
    pub fn with_pair(mut self, pair: TwoMemberPolicy) -> Self {
        self.pair = pair;
        self
    }

    /// These options, with those of `other` in place of them where `other` has no default: its own
    /// algorithm, times, or size of buckets.
    ///
    /// ```
    /// use meshwork_strategy::CommunicationOptions;
    ///
    /// let job = CommunicationOptions::new().with_bytes_per_bucket(1 << 20);
    /// let call = CommunicationOptions::new().with_bytes_per_bucket(0);
    /// assert_eq!(job.merge(call).bytes_per_bucket(), 1 << 20);
    /// ```
    #[must_use]
    pub fn merge(mut self, other: Self) -> Self {
        let default = Self::default();
        if other.implementation != default.implementation {
            self.implementation = other.implementation;
        }
        if other.timeouts != default.timeouts {
            self.timeouts = other.timeouts;
            self.operation = None;
        }
        if other.bytes_per_bucket != default.bytes_per_bucket {
            self.bytes_per_bucket = other.bytes_per_bucket;
        }
        if other.order != default.order {
            self.order = other.order;
        }
        if other.pair != default.pair {
            self.pair = other.pair;
        }
        self.operation = other.operation.or(self.operation);
        self
    }

    /// The algorithm of all operations.
    #[must_use]
    pub fn implementation(&self) -> Communication {
        self.implementation
    }

    /// The time-outs.
    #[must_use]
    pub fn timeouts(&self) -> Timeouts {
        match self.operation {
            Some(operation) => self.timeouts.with_operation(operation),
            None => self.timeouts,
        }
    }

    /// How long an operation waits while not a byte of it comes or goes, where that was given by
    /// itself.
    #[must_use]
    pub fn operation_timeout(&self) -> Option<Duration> {
        self.operation
    }

    /// Bytes from which on a bucket of gradients takes no more; 0 for no limit.
    #[must_use]
    #[doc(alias("bytes_per_pack", "bucket_cap_mb"))]
    pub fn bytes_per_bucket(&self) -> usize {
        self.bytes_per_bucket
    }

    /// The order in which the contributions of replicas are added.
    #[must_use]
    pub fn sum_order(&self) -> SumOrder {
        self.order
    }

    /// Which of two workers may continue without the other.
    #[must_use]
    pub fn pair(&self) -> TwoMemberPolicy {
        self.pair
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_are_merged_in_replace_an_operation_timeout_that_was_given_by_itself() {
        let five = Duration::from_secs(5);
        let job = CommunicationOptions::new().with_operation_timeout(five);
        let timeouts = Timeouts::default().with_operation(Duration::from_secs(60));
        let call = CommunicationOptions::new().with_timeouts(timeouts);
        assert_eq!(job.merge(call).timeouts(), timeouts);
        assert_eq!(call.merge(job).timeouts(), timeouts.with_operation(five));
        let both = call.with_operation_timeout(five);
        assert_eq!(job.merge(both).timeouts(), both.timeouts());
    }

    #[test]
    fn implementations_have_tensorflows_names_in_any_case_and_others_are_refused() {
        let options = CommunicationOptions::new().with_bytes_per_bucket(7);
        for (name, implementation) in [
            ("AUTO", Communication::Auto),
            ("auto", Communication::Auto),
            ("Ring", Communication::Ring),
        ] {
            let named = options.with_implementation_named(name);
            assert_eq!(named, Ok(options.with_implementation(implementation)));
        }
        for name in ["NCCL", "nccl"] {
            let refused = options.with_implementation_named(name).unwrap_err();
            assert_eq!(refused, Error::HostMemoryOverNccl);
            assert!(refused.to_string().contains("AUTO or RING"), "{refused}");
        }
        for name in ["", "rings", " AUTO"] {
            let expected = Error::NoSuchImplementation {
                name: name.to_owned(),
            };
            assert_eq!(options.with_implementation_named(name), Err(expected));
        }
    }
}

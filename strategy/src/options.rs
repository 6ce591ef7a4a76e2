use std::time::Duration;

use meshwork_collectives::{Communication, Timeouts};

use crate::sum::SumOrder;

/// How the workers of a strategy communicate.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CommunicationOptions {
    implementation: Communication,
    timeouts: Timeouts,
    operation: Option<Duration>,
    bytes_per_pack: usize,
    order: SumOrder,
}

impl CommunicationOptions {
    /// The defaults: the algorithm is chosen by size, [`Timeouts::default`], and all gradients in
    /// one pack.
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

    /// Changes how long to wait for what.
    #[must_use]
    pub fn with_timeouts(mut self, timeouts: Timeouts) -> Self {
        self.timeouts = timeouts;
        self
    }

    /// Changes how long one operation may take, and leaves the other times as they are.
    #[must_use]
    #[doc(alias = "timeout_seconds")]
    pub fn with_operation_timeout(mut self, operation: Duration) -> Self {
        self.operation = Some(operation);
        self
    }

    /// Reduces gradients in packs of about so many bytes, see [`packs`](crate::packs); 0 makes one
    /// pack of all.
    #[must_use]
    pub fn with_bytes_per_pack(mut self, bytes: usize) -> Self {
        self.bytes_per_pack = bytes;
        self
    }

    /// Chooses the order in which the contributions of replicas are added.
    #[must_use]
    pub fn with_sum_order(mut self, order: SumOrder) -> Self {
        self.order = order;
        self
    }

    /// These options, with those of `other` in place of them where `other` has no default: its own
    /// algorithm, times, or size of packs.
    ///
    /// ```
    /// use meshwork_strategy::CommunicationOptions;
    ///
    /// let job = CommunicationOptions::new().with_bytes_per_pack(1 << 20);
    /// let call = CommunicationOptions::new().with_bytes_per_pack(0);
    /// assert_eq!(job.merge(call).bytes_per_pack(), 1 << 20);
    /// ```
    #[must_use]
    pub fn merge(mut self, other: Self) -> Self {
        let default = Self::default();
        if other.implementation != default.implementation {
            self.implementation = other.implementation;
        }
        if other.timeouts != default.timeouts {
            self.timeouts = other.timeouts;
        }
        if other.bytes_per_pack != default.bytes_per_pack {
            self.bytes_per_pack = other.bytes_per_pack;
        }
        if other.order != default.order {
            self.order = other.order;
        }
        self.operation = other.operation.or(self.operation);
        self
    }

    /// The algorithm of all operations.
    #[must_use]
    pub fn implementation(&self) -> Communication {
        self.implementation
    }

    /// How long to wait for what.
    #[must_use]
    pub fn timeouts(&self) -> Timeouts {
        match self.operation {
            Some(operation) => self.timeouts.with_operation(operation),
            None => self.timeouts,
        }
    }

    /// How long one operation may take, where it was given by itself.
    #[must_use]
    pub fn operation_timeout(&self) -> Option<Duration> {
        self.operation
    }

    /// Bytes from which on a pack of gradients takes no more; 0 for no limit.
    #[must_use]
    pub fn bytes_per_pack(&self) -> usize {
        self.bytes_per_pack
    }

    /// The order in which the contributions of replicas are added.
    #[must_use]
    pub fn sum_order(&self) -> SumOrder {
        self.order
    }
}

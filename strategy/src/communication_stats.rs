use std::time::Duration;

/// Bytes and time of a replica's all-reduces. A worker that is alone moves nothing.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CommunicationStats {
    operations: u64,
    bytes: u64,
    busy: Duration,
}

impl CommunicationStats {
    pub(crate) fn count(&mut self, bytes: usize, busy: Duration) {
        self.operations += 1;
        self.bytes += bytes as u64;
        self.busy += busy;
    }

    /// How many all-reduces there were.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// Bytes of all reduced buffers together.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Time in which this replica waited for all-reduces.
    #[must_use]
    pub fn busy(&self) -> Duration {
        self.busy
    }

    /// The difference to `earlier`.
    #[must_use]
    pub fn since(&self, earlier: Self) -> Self {
        Self {
            operations: self.operations.saturating_sub(earlier.operations),
            bytes: self.bytes.saturating_sub(earlier.bytes),
            busy: self.busy.saturating_sub(earlier.busy),
        }
    }

    /// Algorithm bandwidth in GB/s: bytes of the buffers by the time, 0 when nothing was moved.
    #[must_use]
    pub fn gigabytes_per_second(&self) -> f64 {
        if self.busy.is_zero() {
            0.0
        } else {
            self.bytes as f64 / self.busy.as_secs_f64() / 1e9
        }
    }
}

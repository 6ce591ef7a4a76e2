use meshwork_collectives::{Communication, Timeouts};

/// How the workers of a strategy communicate.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CommunicationOptions {
    implementation: Communication,
    timeouts: Timeouts,
}

impl CommunicationOptions {
    /// The defaults: the algorithm is chosen by size, and [`Timeouts::default`].
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

    /// The algorithm of all operations.
    #[must_use]
    pub fn implementation(&self) -> Communication {
        self.implementation
    }

    /// How long to wait for what.
    #[must_use]
    pub fn timeouts(&self) -> Timeouts {
        self.timeouts
    }
}

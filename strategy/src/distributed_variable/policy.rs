/// When the copies of a variable are aggregated.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[doc(alias = "VariableSynchronization")]
pub enum Synchronization {
    /// Whenever it is written, so that copies stay equal. What `AUTO` means in TensorFlow.
    #[default]
    OnWrite,
    /// When it is read outside of a step: each replica counts on its own in between.
    OnRead,
}

/// How the values of several replicas are aggregated.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[doc(alias = "VariableAggregation")]
pub enum Aggregation {
    /// Nothing: they stay apart. A variable that is synchronised on read can then not be read
    /// outside of a step.
    #[default]
    None,
    /// Their sum.
    Sum,
    /// Their mean; only of floats.
    Mean,
    /// The value of replica 0.
    OnlyFirstReplica,
}

/// How a variable of many copies behaves.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct VariablePolicy {
    synchronization: Synchronization,
    aggregation: Aggregation,
}

impl VariablePolicy {
    /// Brought together when written, or when read, by `aggregation`.
    #[must_use]
    pub fn new(synchronization: Synchronization, aggregation: Aggregation) -> Self {
        Self {
            synchronization,
            aggregation,
        }
    }

    /// When copies are aggregated.
    #[must_use]
    pub fn synchronization(self) -> Synchronization {
        self.synchronization
    }

    /// How they are aggregated.
    #[must_use]
    pub fn aggregation(self) -> Aggregation {
        self.aggregation
    }

    /// How values that all replicas assign in a step are aggregated.
    pub(super) fn on_write(self) -> Aggregation {
        match self.synchronization {
            Synchronization::OnWrite => self.aggregation,
            Synchronization::OnRead => Aggregation::None,
        }
    }
}

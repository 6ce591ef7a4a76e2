/// When the copies of a variable are brought together.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[doc(alias = "VariableSynchronization")]
pub enum Synchronization {
    /// Whenever it is written, so that copies stay equal. What `AUTO` means in TensorFlow.
    #[default]
    OnWrite,
    /// When it is read outside of a step: each replica counts on its own in between.
    OnRead,
}

/// What the values of several replicas become when they are brought together.
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

    /// When copies are brought together.
    #[must_use]
    pub fn synchronization(self) -> Synchronization {
        self.synchronization
    }

    /// What they then become.
    #[must_use]
    pub fn aggregation(self) -> Aggregation {
        self.aggregation
    }

    /// What values that all replicas assign in a step become.
    pub(super) fn on_write(self) -> Aggregation {
        match self.synchronization {
            Synchronization::OnWrite => self.aggregation,
            Synchronization::OnRead => Aggregation::None,
        }
    }
}

use meshwork_collectives::Group;

use crate::Error;
use crate::replica::{ReduceOp, reduce_values};

/// One value for each replica of this worker.
#[derive(Clone, Debug, Eq, PartialEq)]
#[doc(alias = "DistributedValues")]
pub struct PerReplica<T>(Vec<T>);

impl<T> PerReplica<T> {
    /// At least one value, in the order of the replicas.
    pub(crate) fn new(values: Vec<T>) -> Self {
        Self(values)
    }

    /// The values of this worker's replicas, in order.
    #[doc(alias = "experimental_local_results")]
    pub fn local_results(&self) -> std::slice::Iter<'_, T> {
        self.0.iter()
    }

    /// The values of this worker's replicas, in order, to be changed.
    pub fn local_results_mut(&mut self) -> std::slice::IterMut<'_, T> {
        self.0.iter_mut()
    }

    /// The values of this worker's replicas, in order.
    #[must_use]
    pub fn into_vec(self) -> Vec<T> {
        self.0
    }

    /// The value of this worker's first replica, which often is its only one.
    #[must_use]
    pub fn into_first(mut self) -> T {
        self.0.swap_remove(0)
    }

    /// What `change` makes of each value.
    #[must_use]
    pub fn map<R>(&self, change: impl FnMut(&T) -> R) -> PerReplica<R> {
        PerReplica(self.0.iter().map(change).collect())
    }
}

/// A value that can be reduced over all replicas.
pub trait Reduce: Sized + sealed::Sealed {
    #[doc(hidden)]
    fn reduce(self, group: &mut Group, op: ReduceOp) -> Result<Self, Error>;
}

macro_rules! reduce {
    ($($number:ty),+) => {$(
        impl sealed::Sealed for $number {}
        impl Reduce for $number {
            #[track_caller]
            fn reduce(self, group: &mut Group, op: ReduceOp) -> Result<Self, Error> {
                let mut values = [self];
                reduce_values(group, op, &mut values)?;
                Ok(values[0])
            }
        }

        impl sealed::Sealed for Vec<$number> {}
        impl Reduce for Vec<$number> {
            #[track_caller]
            fn reduce(mut self, group: &mut Group, op: ReduceOp) -> Result<Self, Error> {
                reduce_values(group, op, &mut self)?;
                Ok(self)
            }
        }
    )+};
}

reduce!(f32, f64);

mod sealed {
    #[expect(
        unnameable_types,
        reason = "a sealed trait is sealed by having no path"
    )]
    pub trait Sealed {}
}

use meshwork_collectives::Group;

use crate::Error;
use crate::replica::{ReduceOp, reduce_values};

/// What a step returned: one value for each replica of this worker.
///
/// A worker has one replica for now, its CPU.
#[derive(Clone, Debug, PartialEq)]
pub struct PerReplica<T>(T);

impl<T> PerReplica<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(value)
    }

    /// The values of this worker's replicas, in order.
    #[doc(alias = "experimental_local_results")]
    pub fn local_results(&self) -> std::slice::Iter<'_, T> {
        std::slice::from_ref(&self.0).iter()
    }

    /// The value of this worker's only replica.
    #[must_use]
    pub fn into_local(self) -> T {
        self.0
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

//! The same of arrays, and of variables with a copy on every replica.

use ndarray::ArrayD;

use crate::distributed::PerReplica;
use crate::{DistributedVariable, Error, MultiWorkerMirroredStrategy, ReplicaReduceOp, Value};

impl MultiWorkerMirroredStrategy {
    /// As [`reduce`](Self::reduce), along `axes` too: see
    /// [`CrossReplica::reduce_axes`](crate::CrossReplica::reduce_axes).
    ///
    /// ```
    /// use meshwork_strategy::{MultiWorkerMirroredStrategy, ReplicaReduceOp};
    /// use ndarray::{Array1, arr0};
    ///
    /// let mut strategy = MultiWorkerMirroredStrategy::mirrored(2)?;
    /// // One loss on the first replica, three on the second.
    /// let losses = strategy.per_replica(|id| Array1::from_elem(1 + 2 * id, id as f32).into_dyn());
    /// let mean = strategy.reduce_axes(ReplicaReduceOp::Mean, &losses, &[0])?;
    /// assert_eq!(mean, arr0(3.0 / 4.0).into_dyn());
    /// # Ok::<(), meshwork_strategy::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSuchAxis`], and those of [`reduce`](Self::reduce).
    #[track_caller]
    pub fn reduce_axes<T: Value>(
        &mut self,
        op: ReplicaReduceOp,
        values: &PerReplica<ArrayD<T>>,
        axes: &[usize],
    ) -> Result<ArrayD<T>, Error> {
        let reduced = self.cross().reduce_axes(op, values, axes);
        self.abort_on_error(reduced)
    }

    /// The arrays of the replicas of all workers, concatenated along `axis`; every worker gets
    /// them.
    ///
    /// # Shapes
    /// All replicas have arrays of one shape but for the length of `axis`.
    ///
    /// # Errors
    /// [`Error::NoSuchAxis`], [`Error::ShapesDiffer`], [`Error::Group`].
    #[track_caller]
    pub fn gather<T: Value>(
        &mut self,
        values: &PerReplica<ArrayD<T>>,
        axis: usize,
    ) -> Result<ArrayD<T>, Error> {
        let gathered = self.cross().gather(values, axis);
        self.abort_on_error(gathered)
    }

    /// The value of a variable, its copies aggregated by its policy; what to save of it.
    ///
    /// # Errors
    /// Those of [`CrossReplica::read`](crate::CrossReplica::read).
    #[track_caller]
    pub fn read<T: Value>(
        &mut self,
        variable: &DistributedVariable<T>,
    ) -> Result<ArrayD<T>, Error> {
        let value = self.cross().read(variable);
        self.abort_on_error(value)
    }

    /// Makes a variable read as `value`, which is the same on every worker; how it is restored.
    ///
    /// # Errors
    /// Those of [`CrossReplica::assign`](crate::CrossReplica::assign).
    pub fn assign<T: Value>(
        &mut self,
        variable: &DistributedVariable<T>,
        value: &ArrayD<T>,
    ) -> Result<(), Error> {
        let assigned = self.cross().assign(variable, value);
        self.abort_on_error(assigned)
    }

    /// Adds to the aggregated value of a variable.
    ///
    /// # Errors
    /// Those of [`CrossReplica::assign_add`](crate::CrossReplica::assign_add).
    #[track_caller]
    pub fn assign_add<T: Value>(
        &mut self,
        variable: &DistributedVariable<T>,
        delta: &ArrayD<T>,
    ) -> Result<(), Error> {
        let assigned = self.cross().assign_add(variable, delta);
        self.abort_on_error(assigned)
    }

    /// Subtracts from the aggregated value of a variable.
    ///
    /// # Errors
    /// Those of [`CrossReplica::assign_sub`](crate::CrossReplica::assign_sub).
    #[track_caller]
    pub fn assign_sub<T: Value>(
        &mut self,
        variable: &DistributedVariable<T>,
        delta: &ArrayD<T>,
    ) -> Result<(), Error> {
        let assigned = self.cross().assign_sub(variable, delta);
        self.abort_on_error(assigned)
    }

    /// Changes each copy of a variable by its replica's argument.
    ///
    /// # Errors
    /// Those of [`CrossReplica::update`](crate::CrossReplica::update).
    pub fn update<T: Value, A>(
        &mut self,
        variable: &DistributedVariable<T>,
        arguments: &PerReplica<A>,
        change: impl FnMut(&mut ArrayD<T>, &A),
    ) -> Result<(), Error> {
        let updated = self.cross().update(variable, arguments, change);
        self.abort_on_error(updated)
    }
}

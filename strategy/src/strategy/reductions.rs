//! What is done with the values of all replicas outside of steps.

#[cfg(feature = "ndarray")]
mod arrays;

use super::MultiWorkerMirroredStrategy;
use crate::distributed::{PerReplica, Reduce};
use crate::{Error, ReplicaReduceOp};

impl MultiWorkerMirroredStrategy {
    /// Reduces the values of the replicas of all workers; every worker gets the result.
    ///
    /// What is not one value for each replica is not reduced, as it would count once or many times:
    ///
    /// ```compile_fail
    /// # use meshwork_strategy::{MultiWorkerMirroredStrategy, ReplicaReduceOp};
    /// MultiWorkerMirroredStrategy::alone()?.reduce(ReplicaReduceOp::Sum, 3.0)?;
    /// # Ok::<(), meshwork_strategy::Error>(())
    /// ```
    ///
    /// # Shapes
    /// All replicas have values of one shape.
    ///
    /// # Errors
    /// [`Error::ShapesDiffer`], [`Error::IntegerMean`], [`Error::Group`].
    #[track_caller]
    pub fn reduce<V: Reduce>(
        &mut self,
        op: ReplicaReduceOp,
        values: PerReplica<V>,
    ) -> Result<V, Error> {
        let reduced = self.cross().reduce(op, values);
        self.abort_on_error(reduced)
    }

    /// As [`reduce`](Self::reduce), with the result for each replica of this worker.
    ///
    /// # Errors
    /// Those of [`reduce`](Self::reduce).
    #[track_caller]
    pub fn reduce_to<V: Reduce + Clone>(
        &mut self,
        op: ReplicaReduceOp,
        values: PerReplica<V>,
    ) -> Result<PerReplica<V>, Error> {
        let reduced = self.reduce(op, values)?;
        Ok(self.replicate_to_logical_devices(&reduced))
    }

    /// As [`reduce_to`](Self::reduce_to), for several values, in order.
    ///
    /// # Errors
    /// Those of [`reduce`](Self::reduce).
    #[track_caller]
    pub fn batch_reduce_to<V: Reduce + Clone>(
        &mut self,
        op: ReplicaReduceOp,
        values: Vec<PerReplica<V>>,
    ) -> Result<Vec<PerReplica<V>>, Error> {
        let mut reduced = Vec::with_capacity(values.len());
        for value in values {
            reduced.push(self.reduce_to(op, value)?);
        }
        Ok(reduced)
    }
}

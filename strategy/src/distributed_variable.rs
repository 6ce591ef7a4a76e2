//! `DistributedVariable`: a variable with a copy on every replica, and reads and assignments that
//! aggregate the copies by its policy, inside steps and outside. Variables with one copy a worker
//! are in `variable`.

mod policy;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ndarray::ArrayD;

use crate::distributed::PerReplica;
use crate::replica::cross::CrossReplica;
use crate::replica::rendezvous::Detail;
use crate::replica::{ReplicaContext, ReplicaReduceOp};
use crate::variable::Scope;
use crate::{Error, Value, VariableSpec};

pub use policy::{Aggregation, Synchronization, VariablePolicy};

/// A variable of which every replica has a copy.
///
/// Cloning it gives another handle to the same copies. In a step a replica works with its own copy
/// by way of its [`ReplicaContext`]; outside of steps the strategy works with all of them.
///
/// ```
/// use meshwork_strategy::{
///     Aggregation, Error, MultiWorkerMirroredStrategy, Synchronization, VariablePolicy,
/// };
/// use ndarray::arr0;
///
/// let mut strategy = MultiWorkerMirroredStrategy::mirrored(2)?;
/// let policy = VariablePolicy::new(Synchronization::OnRead, Aggregation::Sum);
/// let seen = strategy.scope(|scope| scope.distributed("seen", arr0(0.0).into_dyn(), policy))?;
/// strategy.run_each(|replica| replica.assign_add(&seen, arr0(10.0).into_dyn()))?;
/// assert_eq!(strategy.read(&seen)?, arr0(20.0).into_dyn());
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug)]
#[doc(alias("MirroredVariable", "SyncOnReadVariable"))]
pub struct DistributedVariable<T> {
    spec: VariableSpec,
    policy: VariablePolicy,
    copies: Arc<[Mutex<ArrayD<T>>]>,
}

impl<T: Value> DistributedVariable<T> {
    /// Its name and shape.
    #[must_use]
    pub fn spec(&self) -> &VariableSpec {
        &self.spec
    }

    /// How it behaves.
    #[must_use]
    pub fn policy(&self) -> VariablePolicy {
        self.policy
    }

    /// The copies of this worker's replicas as they are, without aggregation.
    #[must_use]
    #[doc(alias = "experimental_local_results")]
    pub fn local_results(&self) -> PerReplica<ArrayD<T>> {
        let copies = self.copies.iter();
        PerReplica::new(copies.map(|copy| locked(copy).clone()).collect())
    }

    fn copy(&self, replica: usize) -> MutexGuard<'_, ArrayD<T>> {
        locked(&self.copies[replica])
    }

    fn check_shape(&self, value: &ArrayD<T>) -> Result<(), Error> {
        if value.shape() == self.spec.shape() {
            return Ok(());
        }
        Err(Error::ValueShape {
            spec: self.spec.clone(),
            found: value.shape().to_vec(),
        })
    }

    fn not_aggregated(&self) -> Error {
        Error::NotAggregated {
            name: self.spec.name().to_owned(),
        }
    }
}

impl Scope<'_> {
    /// Creates a variable with a copy for every replica. The chief's `initial` values replace those
    /// of all others.
    ///
    /// # Errors
    /// [`Error::IntegerMean`] for a mean of integers; those of [`mirror`](Scope::mirror).
    #[track_caller]
    pub fn distributed<T: Value>(
        &mut self,
        name: impl Into<String>,
        initial: ArrayD<T>,
        policy: VariablePolicy,
    ) -> Result<DistributedVariable<T>, Error> {
        if policy.aggregation() == Aggregation::Mean && !T::IS_FLOAT {
            return Err(Error::IntegerMean { found: T::TYPE });
        }
        let spec = VariableSpec::new(name, initial.shape())?;
        let mut values: Vec<T> = initial.iter().copied().collect();
        self.mirror(std::slice::from_ref(&spec), &mut values)?;
        let mut value = initial;
        value
            .iter_mut()
            .zip(values)
            .for_each(|(own, chiefs)| *own = chiefs);
        let copies = (0..self.local_replicas()).map(|_| Mutex::new(value.clone()));
        Ok(DistributedVariable {
            spec,
            policy,
            copies: copies.collect(),
        })
    }
}

impl ReplicaContext<'_> {
    /// This replica's copy.
    #[must_use]
    pub fn read<T: Value>(&self, variable: &DistributedVariable<T>) -> ArrayD<T> {
        variable.copy(self.local_id()).clone()
    }

    /// Changes this replica's copy where it is, such as by a gradient that was reduced. Nothing is
    /// aggregated: copies stay equal if every replica makes the same change.
    pub fn update<T: Value, R>(
        &mut self,
        variable: &DistributedVariable<T>,
        change: impl FnOnce(&mut ArrayD<T>) -> R,
    ) -> R {
        change(&mut variable.copy(self.local_id()))
    }

    /// Replaces the variable by the values that all replicas assign, aggregated by its policy.
    ///
    /// # Errors
    /// [`Error::ValueShape`], and those of [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn assign<T: Value>(
        &mut self,
        variable: &DistributedVariable<T>,
        value: ArrayD<T>,
    ) -> Result<(), Error> {
        let value = self.brought_together(variable, value)?;
        *variable.copy(self.local_id()) = value;
        Ok(())
    }

    /// Adds to the variable the values of all replicas, aggregated by its policy.
    ///
    /// # Errors
    /// Those of [`assign`](Self::assign).
    #[track_caller]
    pub fn assign_add<T: Value>(
        &mut self,
        variable: &DistributedVariable<T>,
        delta: ArrayD<T>,
    ) -> Result<(), Error> {
        let delta = self.brought_together(variable, delta)?;
        combine(&mut variable.copy(self.local_id()), &delta, T::plus);
        Ok(())
    }

    /// Subtracts from the variable the values of all replicas, aggregated by its policy.
    ///
    /// # Errors
    /// Those of [`assign`](Self::assign).
    #[track_caller]
    pub fn assign_sub<T: Value>(
        &mut self,
        variable: &DistributedVariable<T>,
        delta: ArrayD<T>,
    ) -> Result<(), Error> {
        let delta = self.brought_together(variable, delta)?;
        combine(&mut variable.copy(self.local_id()), &delta, T::minus);
        Ok(())
    }

    #[track_caller]
    fn brought_together<T: Value>(
        &mut self,
        variable: &DistributedVariable<T>,
        value: ArrayD<T>,
    ) -> Result<ArrayD<T>, Error> {
        variable.check_shape(&value)?;
        let op = match variable.policy.on_write() {
            Aggregation::None => return Ok(value),
            Aggregation::Sum => Some(ReplicaReduceOp::Sum),
            Aggregation::Mean => Some(ReplicaReduceOp::Mean),
            Aggregation::OnlyFirstReplica => None,
        };
        self.together_as("assign", op.map(Detail::Op), value, |cross, values| {
            let locals = values.len();
            let values = PerReplica::new(values);
            let value = match op {
                Some(op) => cross.reduce(op, values)?,
                None => cross.first_of_all(values)?,
            };
            Ok(vec![value; locals])
        })
    }
}

impl CrossReplica<'_> {
    /// The value of the variable, its copies aggregated by its policy.
    ///
    /// # Errors
    /// [`Error::NotAggregated`] for copies that are not; those of [`reduce`](Self::reduce).
    #[track_caller]
    pub fn read<T: Value>(
        &mut self,
        variable: &DistributedVariable<T>,
    ) -> Result<ArrayD<T>, Error> {
        let policy = variable.policy;
        let (synchronization, aggregation) = (policy.synchronization(), policy.aggregation());
        let copies = variable.local_results();
        match (synchronization, aggregation) {
            (Synchronization::OnWrite, _) => Ok(copies.into_first()),
            (_, Aggregation::None) => Err(variable.not_aggregated()),
            (_, Aggregation::Sum) => self.reduce(ReplicaReduceOp::Sum, copies),
            (_, Aggregation::Mean) => self.reduce(ReplicaReduceOp::Mean, copies),
            (_, Aggregation::OnlyFirstReplica) => self.first_of_all(copies),
        }
    }

    /// Makes every copy such that the variable then reads as `value`, which is the same on every
    /// worker.
    ///
    /// A sum of copies that is brought together on read has the quotient by the number of replicas
    /// in each. Of integers it is truncated, as in TensorFlow: 10 on 4 replicas then reads as 8, so
    /// assign multiples of their number.
    ///
    /// # Errors
    /// [`Error::ValueShape`], [`Error::NotAggregated`].
    pub fn assign<T: Value>(
        &mut self,
        variable: &DistributedVariable<T>,
        value: &ArrayD<T>,
    ) -> Result<(), Error> {
        variable.check_shape(value)?;
        let replicas = self.num_replicas_in_sync();
        let own = match (
            variable.policy.synchronization(),
            variable.policy.aggregation(),
        ) {
            (Synchronization::OnRead, Aggregation::None) => return Err(variable.not_aggregated()),
            (Synchronization::OnRead, Aggregation::Sum) => {
                value.mapv(|value| value.divided(replicas))
            }
            _ => value.clone(),
        };
        for copy in variable.copies.iter() {
            locked(copy).assign(&own);
        }
        Ok(())
    }

    /// Adds to the aggregated value of the variable.
    ///
    /// # Errors
    /// [`Error::SumChanged`] for a sum of copies, which has no place of its own to add to; those of
    /// [`read`](Self::read) and [`assign`](Self::assign).
    #[track_caller]
    pub fn assign_add<T: Value>(
        &mut self,
        variable: &DistributedVariable<T>,
        delta: &ArrayD<T>,
    ) -> Result<(), Error> {
        self.change(variable, delta, T::plus)
    }

    /// Subtracts from the aggregated value of the variable.
    ///
    /// # Errors
    /// Those of [`assign_add`](Self::assign_add).
    #[track_caller]
    pub fn assign_sub<T: Value>(
        &mut self,
        variable: &DistributedVariable<T>,
        delta: &ArrayD<T>,
    ) -> Result<(), Error> {
        self.change(variable, delta, T::minus)
    }

    /// Changes each copy by its replica's argument; nothing is aggregated.
    ///
    /// # Errors
    /// [`Error::ReplicaCount`] when there is not one argument for each replica of this worker.
    pub fn update<T: Value, A>(
        &mut self,
        variable: &DistributedVariable<T>,
        arguments: &PerReplica<A>,
        mut change: impl FnMut(&mut ArrayD<T>, &A),
    ) -> Result<(), Error> {
        let (found, needed) = (arguments.len(), variable.copies.len());
        if found != needed {
            return Err(Error::ReplicaCount { found, needed });
        }
        for (copy, argument) in variable.copies.iter().zip(arguments.local_results()) {
            change(&mut locked(copy), argument);
        }
        Ok(())
    }

    #[track_caller]
    fn change<T: Value>(
        &mut self,
        variable: &DistributedVariable<T>,
        delta: &ArrayD<T>,
        change: fn(T, T) -> T,
    ) -> Result<(), Error> {
        variable.check_shape(delta)?;
        if variable.policy.synchronization() == Synchronization::OnWrite {
            for copy in variable.copies.iter() {
                combine(&mut locked(copy), delta, change);
            }
            return Ok(());
        }
        if variable.policy.aggregation() == Aggregation::Sum {
            let name = variable.spec.name().to_owned();
            return Err(Error::SumChanged { name });
        }
        let mut value = self.read(variable)?;
        combine(&mut value, delta, change);
        self.assign(variable, &value)
    }

    #[track_caller]
    fn first_of_all<T: Value>(
        &mut self,
        values: PerReplica<ArrayD<T>>,
    ) -> Result<ArrayD<T>, Error> {
        let mut first = values.into_first();
        let mut elements: Vec<T> = first.iter().copied().collect();
        self.broadcast(&mut elements)?;
        first
            .iter_mut()
            .zip(elements)
            .for_each(|(own, element)| *own = element);
        Ok(first)
    }
}

fn locked<T>(copy: &Mutex<ArrayD<T>>) -> MutexGuard<'_, ArrayD<T>> {
    // A panic in a change leaves the copy as it was then, which its step reports.
    copy.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Both of one shape.
fn combine<T: Value>(own: &mut ArrayD<T>, delta: &ArrayD<T>, change: fn(T, T) -> T) {
    own.zip_mut_with(delta, |own, delta| *own = change(*own, *delta));
}

#[cfg(test)]
mod tests {
    use ndarray::arr0;

    use super::*;
    use crate::MultiWorkerMirroredStrategy;

    #[test]
    fn another_aggregation_is_another_call() {
        use Aggregation::{Mean, OnlyFirstReplica, Sum};
        for aggregations in [[Sum, Mean], [Mean, OnlyFirstReplica]] {
            let mut strategy = MultiWorkerMirroredStrategy::mirrored(2).unwrap();
            let variables = aggregations.map(|aggregation| {
                let policy = VariablePolicy::new(Synchronization::OnWrite, aggregation);
                let zero = arr0(0.0_f32).into_dyn();
                let built = strategy.scope(|scope| scope.distributed("count", zero, policy));
                built.unwrap()
            });
            let assigned = strategy.run_each(|replica| {
                let own = &variables[replica.local_id()];
                replica.assign(own, arr0(1.0).into_dyn())
            });
            assert!(
                matches!(assigned, Err(Error::ReplicasDisagree { replica: 1, .. })),
                "{assigned:?}"
            );
        }
    }
}

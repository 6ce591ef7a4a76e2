//! Variables under every policy.

use meshwork_strategy::{
    Aggregation, DistributedVariable, Error, MultiWorkerMirroredStrategy, PerReplica,
    Synchronization, VariablePolicy,
};
use ndarray::{ArrayD, arr0};
use serde_json::{Value, json};

use super::numbers::{Named, nested};

type Strategy = MultiWorkerMirroredStrategy;

/// What a variable holds after an action; `None` for a policy that there is no word for.
pub(super) fn answer<T: Named>(
    strategy: &mut Strategy,
    input: &Value,
) -> Option<Result<Value, Error>> {
    let policy = policy(input)?;
    Some(after::<T>(strategy, input, policy))
}

fn policy(input: &Value) -> Option<VariablePolicy> {
    let synchronization = match input["synchronization"].as_str()? {
        "AUTO" | "ON_WRITE" => Synchronization::OnWrite,
        "ON_READ" => Synchronization::OnRead,
        _ => return None,
    };
    let aggregation = match input["aggregation"].as_str()? {
        "NONE" => Aggregation::None,
        "SUM" => Aggregation::Sum,
        "MEAN" => Aggregation::Mean,
        "ONLY_FIRST_REPLICA" => Aggregation::OnlyFirstReplica,
        _ => return None,
    };
    Some(VariablePolicy::new(synchronization, aggregation))
}

fn after<T: Named>(
    strategy: &mut Strategy,
    input: &Value,
    policy: VariablePolicy,
) -> Result<Value, Error> {
    let number = |value: f64| arr0(T::from_f64(value)).into_dyn();
    let initial = number(input["initial"].as_f64().unwrap_or(0.0));
    let variable = strategy.scope(|scope| scope.distributed("v", initial, policy))?;
    let of_replica = |id: u32, first: f64| number(f64::from(id) + first);
    match input["action"].as_str().unwrap_or_default() {
        "cross_assign" => strategy.assign(&variable, &number(7.0))?,
        "cross_assign_add" => strategy.assign_add(&variable, &number(6.0))?,
        "cross_assign_sub" => strategy.assign_sub(&variable, &number(6.0))?,
        "replica_assign" => drop(strategy.run_each(|replica| {
            replica.assign(&variable, of_replica(replica.replica_id().number(), 1.0))
        })?),
        "replica_assign_add" => drop(strategy.run_each(|replica| {
            replica.assign_add(&variable, of_replica(replica.replica_id().number(), 1.0))
        })?),
        "replica_assign_const" => {
            strategy.run_each(|replica| replica.assign(&variable, number(5.0)))?;
        }
        "replica_read" => return views(strategy, &variable),
        _ => {}
    }
    let copies: Value = variable
        .local_results()
        .local_results()
        .map(nested)
        .collect();
    let read = match strategy.read(&variable) {
        Ok(value) => json!({"ok": nested(&value)}),
        Err(_) => json!({"error": "ValueError"}),
    };
    Ok(json!({"per_replica": copies, "cross_replica_read": read}))
}

/// What each replica sees; where replicas count on their own, after each has added its number.
fn views<T: Named>(
    strategy: &mut Strategy,
    variable: &DistributedVariable<T>,
) -> Result<Value, Error> {
    let views = strategy.run_each(|replica| {
        if variable.policy().synchronization() == Synchronization::OnRead {
            let own = T::from_f64(replica.replica_id().number().into());
            replica.assign_add(variable, arr0(own).into_dyn())?;
        }
        Ok::<_, Error>(replica.read(variable))
    })?;
    Ok(json!({"per_replica_view": views.local_results().map(nested).collect::<Value>()}))
}

pub(super) fn update(
    strategy: &mut Strategy,
    initial: f64,
    arguments: &PerReplica<f64>,
) -> Result<Value, Error> {
    let initial: ArrayD<f64> = arr0(initial).into_dyn();
    let policy = VariablePolicy::default();
    let variable = strategy.scope(|scope| scope.distributed("v", initial, policy))?;
    strategy.update(&variable, arguments, |copy, argument| *copy += *argument)?;
    let copies = variable.local_results();
    Ok(copies.local_results().map(nested).collect())
}

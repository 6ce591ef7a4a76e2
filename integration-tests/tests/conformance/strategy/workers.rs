//! Several workers, each with one or two replicas: threads that meet as processes do.

use meshwork_collectives::Group;
use meshwork_strategy::{
    Aggregation, Error, MultiWorkerMirroredStrategy, PerReplica, ReplicaReduceOp, SumOrder,
    Synchronization, VariablePolicy,
};
use meshwork_testing::in_threads;
use ndarray::{ArrayD, arr0};
use serde_json::{Value, json};

use super::input;
use super::judge::compare;
use super::mirrored::{float_bits, op};
use super::numbers::{Named, nested};
use crate::harness::Verdict;
use crate::not_askable::PLAIN_VALUE;

type Strategy = MultiWorkerMirroredStrategy;

pub(super) fn judge(case: &Value) -> Verdict {
    let name = case["case"].as_str().unwrap_or_default();
    let input = &case["input"];
    let Some(question) = name.splitn(3, '/').nth(2) else {
        return Verdict::Failed("no such case".to_owned());
    };
    if input.get("plain_value").is_some() {
        return Verdict::NotAskable(PLAIN_VALUE);
    }
    let jobs: Vec<(String, u64)> =
        serde_json::from_value(input["cluster_layout"].clone()).unwrap_or_default();
    let replicas = input["replicas_per_worker"].as_u64().unwrap_or(1);
    let answers = each(&jobs, usize::try_from(replicas).unwrap_or(1), |strategy| {
        answer(strategy, question, input)
    });
    // Every worker has the answer, or none has.
    let ours = answers
        .into_iter()
        .collect::<Option<Result<Vec<Value>, Error>>>();
    let ours = ours.map(|all| all.map(|all| json!({ "per_worker": all })));
    if question == "properties" {
        return properties(case, &jobs, usize::try_from(replicas).unwrap_or(1));
    }
    compare(case, ours, |_| None)
}

fn each<R: Send>(
    jobs: &[(String, u64)],
    replicas: usize,
    program: impl Fn(&mut Strategy) -> R + Sync,
) -> Vec<R> {
    let workers: u64 = jobs.iter().map(|(_, count)| count).sum();
    let groups = Group::local(u32::try_from(workers).expect("a few")).expect("threads");
    in_threads(groups, |group| {
        let mut strategy = MultiWorkerMirroredStrategy::from_group(group)
            .and_then(|strategy| strategy.with_local_replicas(replicas))
            .expect("a few replicas")
            .with_sum_order(SumOrder::TensorFlowRing);
        program(&mut strategy)
    })
}

fn answer(strategy: &mut Strategy, question: &str, input: &Value) -> Option<Result<Value, Error>> {
    let parts: Vec<&str> = question.split('/').collect();
    match parts[..] {
        ["properties"] => Some(Ok(Value::Null)),
        ["replica_ids"] => {
            let ids = strategy.run_each(|replica| Ok::<_, Error>(replica.replica_id().number()));
            Some(ids.map(|ids| json!(ids.into_vec())))
        }
        ["value_contexts"] => {
            let replicas = strategy.num_replicas_in_sync();
            Some(Ok(json!(
                strategy.per_replica(|id| [id, replicas]).into_vec()
            )))
        }
        ["reduce", _, "int32"] => {
            let values = made::<i32>(strategy, input)?;
            let reduced = strategy.reduce(op(input)?, values);
            Some(reduced.map(|array| json!([i32::NAME, nested(&array)])))
        }
        ["reduce", ..] => {
            let values = made::<f32>(strategy, input)?;
            let reduced = match input["axis"].as_u64() {
                None => strategy.reduce(op(input)?, values),
                Some(axis) => {
                    strategy.reduce_axes(op(input)?, &values, &[usize::try_from(axis).ok()?])
                }
            };
            Some(reduced.map(|array| nested(&array)))
        }
        ["gather", _] => {
            let values = made::<f32>(strategy, input)?;
            let axis = usize::try_from(input["axis"].as_u64()?).ok()?;
            Some(strategy.gather(&values, axis).map(|array| nested(&array)))
        }
        ["all_reduce", _] | ["all_gather", _] => in_step(strategy, parts[0], input),
        ["variable", action] => variable(strategy, action, input),
        ["float_bits", ..] => Some(float_bits(strategy, input)),
        _ => input::of_worker(strategy, question, input),
    }
}

/// What each replica has, by the recorded formula of its number.
fn made<T: Named>(strategy: &Strategy, input: &Value) -> Option<PerReplica<ArrayD<T>>> {
    let formula = input["value_of_replica"].as_str()?;
    let number = |value: usize| T::from_f64(f64::from(u32::try_from(value).expect("a few")));
    let list =
        |values: Vec<usize>| ndarray::Array1::from_iter(values.into_iter().map(number)).into_dyn();
    let row = |values: Vec<usize>| list(values).insert_axis(ndarray::Axis(0));
    let make: &dyn Fn(usize) -> ArrayD<T> = match formula {
        "id+1" | "int32 id+1" => &|id| arr0(number(id + 1)).into_dyn(),
        "[id,1]" => &|id| list(vec![id, 1]),
        "[id, 2*id, 1]" => &|id| list(vec![id, 2 * id, 1]),
        "[id]*(id+1)" => &|id| list(vec![id; id + 1]),
        "[[id]*(id+1)]" => &|id| row(vec![id; id + 1]),
        "[[id,id+1]]" => &|id| row(vec![id, id + 1]),
        _ => return None,
    };
    Some(strategy.per_replica(make))
}

fn in_step(strategy: &mut Strategy, call: &str, input: &Value) -> Option<Result<Value, Error>> {
    let mut values = made::<f32>(strategy, input)?;
    let (op, axis) = (op(input), input["axis"].as_u64());
    let result = strategy.run_with(&mut values, |replica, own| match (call, op) {
        ("all_gather", _) => {
            let axis = usize::try_from(axis.unwrap_or(0)).unwrap_or(usize::MAX);
            replica.all_gather(own.clone(), axis)
        }
        (_, op) => {
            let own = own.as_slice_mut().expect("a new array is in order");
            replica.all_reduce(op.unwrap_or(ReplicaReduceOp::Sum), own)?;
            Ok(ndarray::Array1::from(own.to_vec()).into_dyn())
        }
    });
    Some(result.map(|results| results.local_results().map(nested).collect()))
}

fn variable(strategy: &mut Strategy, action: &str, input: &Value) -> Option<Result<Value, Error>> {
    let run = |strategy: &mut Strategy| {
        let start = match action {
            "initial_value_from_chief" => 100.0 + f64::from(strategy.rank().number()),
            _ => 0.0,
        };
        let policy = match action {
            "initial_value_from_chief" => VariablePolicy::default(),
            _ => VariablePolicy::new(Synchronization::OnRead, Aggregation::Sum),
        };
        let initial = arr0(start).into_dyn();
        let variable = strategy.scope(|scope| scope.distributed("v", initial, policy))?;
        match action {
            "on_read_sum" => drop(strategy.run_each(|replica| {
                let own = f64::from(replica.replica_id().number()) + 1.0;
                replica.assign_add(&variable, arr0(own).into_dyn())
            })?),
            "on_read_sum_cross_assign" => {
                let value = input["assign"].as_f64().unwrap_or(f64::NAN);
                strategy.assign(&variable, &arr0(value).into_dyn())?;
            }
            _ => {}
        }
        let local: Value = variable
            .local_results()
            .local_results()
            .map(nested)
            .collect();
        if action == "initial_value_from_chief" {
            return Ok(local);
        }
        Ok(json!({"local": local, "read": nested(&strategy.read(&variable)?)}))
    };
    let known = [
        "initial_value_from_chief",
        "on_read_sum",
        "on_read_sum_cross_assign",
    ];
    known.contains(&action).then(|| run(strategy))
}

/// What a worker says of itself, which takes a cluster with names.
fn properties(case: &Value, jobs: &[(String, u64)], replicas: usize) -> Verdict {
    let met = super::processes::properties(jobs, replicas);
    compare(
        case,
        Some(met.map(|all| json!({ "per_worker": all }))),
        |_| None,
    )
}
